"""A launcher that starts all ranks again gives them the same command: the run that they began then goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.runtime.runs import Run
from scramjet.training.config.run_config import RunConfig
from scramjet.training.start import StartRequest


def after_restart(request: StartRequest) -> StartRequest:
    """The request, or one to go on with the run that it began before the launcher started all ranks again."""
    ranks = request.ranks
    if ranks.earlier_run is None or request.resume is not None:
        return request
    if not ranks.from_first(b"goes on" if ranks.is_first and _can_go_on(ranks.earlier_run) else b""):
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


def _can_go_on(path: Path) -> bool:
    """Whether a run that was begun can be resumed; a fork without a checkpoint is removed, to be begun anew."""
    if not path.is_dir():  # it could not begin, and its folder was removed
        return False
    run = Run.open(path)
    if not run.lineage_path.exists() or CheckpointStore(run.checkpoints_path, None).steps():
        return True
    run.lock().discard()
    return False
