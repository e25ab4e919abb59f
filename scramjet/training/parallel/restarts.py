"""A launcher that starts all ranks again gives them the same command: the run that they began then goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scramjet.errors import RankError
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.runtime.runs import Run
from scramjet.training.config.reading import read_file
from scramjet.training.config.run_config import RunConfig
from scramjet.training.start import StartRequest


class FinishedBeforeError(RankError):
    """The run was done and saved when a rank was lost: nothing is left to do, and that is no failure."""

    exit_code = 0


def after_restart(request: StartRequest) -> StartRequest:
    """The request, or one to go on with the run that it began before the launcher started all ranks again."""
    ranks = request.ranks
    if ranks.earlier_run is None or request.resume is not None:
        return request
    state = ranks.from_first(_state(ranks.earlier_run) if ranks.is_first else b"")
    if state == b"finished":
        raise FinishedBeforeError(f"run '{ranks.earlier_run.name}' had finished when its ranks were started again")
    if state == b"none":
        return request
    in_config = request.config.time_limit if isinstance(request.config, RunConfig) else None
    return replace(
        request,
        config=None,
        env=None if isinstance(request.env, str) else request.env,
        fork=None,
        resume=ranks.earlier_run,
        run_name=None,
        total_timesteps=None,
        time_limit=request.time_limit or in_config,
        settings={},
    )


def _state(path: Path) -> bytes:
    """Whether a run that was begun is finished, goes on, or is none; a fork without a checkpoint is removed."""
    if not path.is_dir():  # it could not begin, and its folder was removed
        return b"none"
    run = Run.open(path)
    steps = CheckpointStore(run.checkpoints_path, None).steps()
    if not steps and run.lineage_path.exists():
        run.lock().discard()
        return b"none"
    total = read_file(run.config_path, follow_links=False).get("total_timesteps")
    return b"finished" if steps and isinstance(total, int) and max(steps) >= total else b"goes on"
