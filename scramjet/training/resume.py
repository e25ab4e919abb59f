"""Resume a run: go on from its newest whole checkpoint, exactly as if it had never stopped."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from scramjet.distributed.exchange import checkpoint_from_bytes, checkpoint_to_bytes, packed, unpacked
from scramjet.distributed.ranks import PrivateRun, failing_together, shared
from scramjet.errors import CheckpointError, ConfigError, RunError, shortened
from scramjet.runs import world_files
from scramjet.runs.metadata import best_of
from scramjet.runs.world_trust import NOBODY, Caller
from scramjet.runtime.checkpoints import Checkpoint, CheckpointStore
from scramjet.runtime.files import explain_disk_errors, write_atomic
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.runs import Run, find_run
from scramjet.runtime.trust import digest_of, handed_over
from scramjet.settings import coerce
from scramjet.telemetry.tracking.tracker import require_installed
from scramjet.training.agreement import agree, for_ranks
from scramjet.training.asynchronous.collector import cut_schedule
from scramjet.training.checkpoint_config import check_fits, checkpoint_settings
from scramjet.training.config import files as config_files
from scramjet.training.config.changes import changes
from scramjet.training.config.keywords import CHANGEABLE
from scramjet.training.config.resolution import env_device_beside
from scramjet.training.config.run_config import RunConfig
from scramjet.training.session import SCHEDULE, Session, build_session
from scramjet.training.state import restore_everything


def resume_run(
    text: str,
    runs_dir: Path,
    network: nn.Module | None,
    changed: Mapping[str, Any],
    caller: Caller = NOBODY,
    *,
    ranks: Ranks = ALONE,
) -> Session:
    """The session of a run at its newest whole checkpoint, from which it goes on as if it had never stopped.

    `text` is the run's folder, or its name in `runs_dir`. `changed` are settings that may differ from the frozen
    config's: total_timesteps, time_limit, and those of trackers. `caller` is the user, who may name the world and trust
    the run's files.
    """
    with contextlib.ExitStack() as unless_resumed:

        def find() -> _Found:
            run = Run.open(find_run(text, runs_dir)).lock()
            unless_resumed.callback(run.release)
            return _find(run, changed, caller, ranks)

        found = shared(ranks, find, _Found.to_bytes, lambda data: _Found.from_bytes(data, caller, ranks))
        unless_resumed.callback(found.run.release)
        with failing_together(ranks):
            session = build_session(found.config, found.run, network, ranks=ranks)
            unless_resumed.callback(session.close)
        is_own = shared(
            ranks, lambda: caller.approval is not None or _has_own_records(found.checkpoint, session), _flag, bool
        )
        with failing_together(ranks):
            _go_back_to(session, found, network, is_own=is_own)
            if ranks.is_first:
                _keep_changes(session, found.frozen, changed, caller)
        agree(session)
        unless_resumed.pop_all()
    return session


def _flag(value: bool) -> bytes:
    """A truth value as data of which `bool` is that value."""
    return b"+" if value else b""


def _keep_changes(session: Session, frozen: RunConfig, changed: Mapping[str, Any], caller: Caller) -> None:
    """Keep the world's source and what was changed in the run's folder, for the next resume."""
    config, run = session.config, session.run
    world_files.refresh_copy(config.env, config.env_parameters, run.path)
    now = replace(config, time_limit=frozen.time_limit)
    if any(getattr(now, key) != getattr(frozen, key) for key in changed) or caller.env is not None:
        write_atomic(run.config_path, config_files.to_toml(now, run.path).encode())


@dataclass(frozen=True)
class _Found:
    """A run to go on with, as rank 0 found it on the disk and tells it to others."""

    run: Run
    frozen: RunConfig
    """The config as it was."""
    config: RunConfig
    """The config with what may change."""
    checkpoint: Checkpoint | None
    """The newest whole checkpoint; None where there is none yet."""
    damaged: list[str]
    """What is wrong with each newer one."""

    def to_bytes(self) -> bytes:
        """What other ranks need to know of it."""
        config = json.dumps(config_files.to_dict(self.config)).encode()
        facts = {"approved": digest_of(config), "name": self.run.name, "damaged": self.damaged}
        checkpoint = b"" if self.checkpoint is None else checkpoint_to_bytes(self.checkpoint)
        return packed({"facts": json.dumps(facts).encode(), "config": config, "checkpoint": checkpoint})

    @classmethod
    def from_bytes(cls, data: bytes, caller: Caller, ranks: Ranks) -> _Found:
        """What rank 0 told, on another rank, where a private folder stands in for the run's."""
        parts = unpacked(data)
        facts = json.loads(parts["facts"])
        rank_0 = replace(caller, approval=handed_over(parts["config"], facts["approved"]))
        config = config_files.apply(RunConfig(), json.loads(parts["config"]), f"run '{facts['name']}'", rank_0)
        checkpoint = checkpoint_from_bytes(parts["checkpoint"]) if parts["checkpoint"] else None
        return cls(PrivateRun(), config, for_ranks(config, ranks), checkpoint, facts["damaged"])


def _find(run: Run, changed: Mapping[str, Any], caller: Caller, ranks: Ranks) -> _Found:
    """The config and the newest whole checkpoint of a run; raises where it cannot go on."""
    frozen = config_files.load_frozen(run.config_path, caller)
    _check_processes(run, frozen.num_processes, ranks.size)
    config = _config_to_resume(run, frozen, changed)
    require_installed(config.track)
    store = CheckpointStore(run.checkpoints_path, None, run.check_lock)
    if not store.steps():
        with explain_disk_errors(run.path / SCHEDULE):
            (run.path / SCHEDULE).unlink(missing_ok=True)  # recorded anew from the beginning
    checkpoint, damaged = store.load_latest_whole()
    if checkpoint is None and store.steps():
        raise CheckpointError(
            f"run '{run.name}' has no whole checkpoint, and nothing was changed: {'; '.join(damaged)}"
        )
    if checkpoint is None and run.lineage_path.exists():
        raise RunError(f"run '{run.name}' is a fork that never began; delete {run.path} and fork again")
    return _Found(run, frozen, config, checkpoint, damaged)


def _check_processes(run: Run, before: int, now: int) -> None:
    """Refuse to go on with another number of processes: each env's state belongs to the one that stepped it."""
    if before == now:
        return
    were = "1 process" if before == 1 else f"{before} processes"
    raise ConfigError(
        f"run '{run.name}' was trained by {were}, and here {'is' if now == 1 else 'are'} {now}; resume it with "
        f"`scramjet train --resume {run.path}`, which starts as many (or torchrun --nproc-per-node {before}), or go on "
        f"with {now} as a new run: --fork {run.path}"
    )


def _config_to_resume(run: Run, frozen: RunConfig, changed: Mapping[str, Any]) -> RunConfig:
    """The frozen config of a run with what may change; refuses a run that cannot go on."""
    if "auto" in (frozen.num_envs, frozen.num_threads):
        raise RunError(
            f"'{run.config_path}' is no frozen config: num_envs and num_threads must be numbers; put it back"
        )
    if frozen.replay_schedule is not None:
        raise ConfigError(
            f"run '{run.name}' replays {frozen.replay_schedule}, which has no middle to go on from; replay it anew, or "
            f"go on without it: scramjet train --fork {run.path}"
        )
    device = "cpu" if frozen.device == "auto" else frozen.device  # runs from before there was a choice
    env_device = env_device_beside(frozen, device)
    return replace(frozen, **{"time_limit": None, **changed}, device=device, env_device=env_device)


def _has_own_records(checkpoint: Checkpoint | None, session: Session) -> bool:
    """Whether the env states in a checkpoint were written by this user alone and belong to the session's world.

    A world whose file was renamed counts as the same if its rules are.
    """
    if checkpoint is None:
        return True
    metadata = checkpoint.metadata
    if not checkpoint.is_own or metadata.get("has_records_of_others", False):
        return False
    here, there = config_files.to_dict(session.config, session.run.path)["env"], metadata["config"]["env"]
    if json.dumps(here) == json.dumps(there):
        return True
    is_renamed = isinstance(there, dict) and json.dumps({**there, "name": here["name"]}) == json.dumps(here)
    return is_renamed and world_files.has_rules(session.pool.env, metadata["rules"])


def _go_back_to(session: Session, found: _Found, network: nn.Module | None, *, is_own: bool) -> None:
    """Put a fresh session exactly where the newest checkpoint was, or at the beginning where there is none yet."""
    config, run, checkpoint = session.config, session.run, found.checkpoint
    session.note = "; ".join(found.damaged)
    if checkpoint is None:
        _begin_again(session)
        return
    _check_config_unchanged(checkpoint, config)
    check_fits(checkpoint, config, network)
    restore_everything(session, checkpoint, is_own=is_own)
    note = world_files.note_on_world(config.env, session.pool.env, checkpoint.metadata["rules"])
    session.note = joined_notes(session.note, note, session.pool.resume_note or "")
    session.first_update = int(checkpoint.metadata["update"])
    session.note = joined_notes(session.note, _cut_logs(session, checkpoint.step))
    session.first_step = checkpoint.step - session.first_update * config.batch_size
    if session.first_step < 0:
        raise CheckpointError(
            f"'{checkpoint.path}' is no checkpoint of this run: its {session.first_update:,} updates of "
            f"{config.batch_size:,} steps are more than its {checkpoint.step:,} steps"
        )
    session.elapsed_seconds = float(checkpoint.metadata["elapsed_seconds"])
    session.best = best_of(checkpoint)
    session.lineage = checkpoint.metadata["lineage"]
    session.note = joined_notes(session.note, f"resumed at step {checkpoint.step:,}")
    if session.first_update >= session.num_updates:
        raise ConfigError(
            f"run '{run.name}' is at step {checkpoint.step:,} and has finished its {config.total_timesteps:,} steps; "
            f"to go on, add --total-timesteps {2 * max(config.total_timesteps, checkpoint.step)}"
        )


def _begin_again(session: Session) -> None:
    """Train from the beginning: there is no checkpoint yet."""
    session.metrics_log.truncate_after(-1)
    if session.league is not None:
        session.league.begin(0)
    note = world_files.note_on_world(session.config.env, session.pool.env, None)
    session.note = joined_notes(session.note, note, "no checkpoint yet: starting from the beginning")


def _cut_logs(session: Session, step: int) -> str:
    """Cut metrics.jsonl and the schedule after the checkpoint; returns a note if lines before it are missing."""
    log, schedule = session.metrics_log, session.run.path / SCHEDULE
    log.truncate_after(step)
    if schedule.is_file() and not schedule.is_symlink():  # nothing is recorded into anything else
        cut_schedule(schedule, session.first_update)
    if session.first_update == 0 or log.last_step == step:
        return ""
    ends = "has no whole line" if log.last_step is None else f"ends at step {log.last_step:,}"
    return f"{log.path.name} {ends}: it was damaged, and its curves have a gap"


def _check_config_unchanged(checkpoint: Checkpoint, config: RunConfig) -> None:
    """Refuse to resume if config.toml differs from the config in the checkpoint: a resumed run is the same run."""
    may_change = (*CHANGEABLE, "env.name")
    trained_with = config_files.to_dict(checkpoint_settings(checkpoint))
    env = checkpoint.metadata["config"].get("env")  # compared as text: the world may not exist any more
    named = checkpoint.metadata["config"].get("log_info", [])  # belongs to the world, so the settings are without it
    log_info = tuple(named) if isinstance(named, list) else named
    if players := checkpoint.metadata["config"].get("self_play", {}).get("opponents"):  # those not to be run too
        trained_with["self_play"]["opponents"] = coerce("self_play.opponents", players, tuple[str, ...])
    found = changes({**trained_with, "env": env, "log_info": log_info}, config_files.to_dict(config))
    for key, (before, now) in found.items():
        is_from_before = key in ("device", "env_device") and before == "auto"  # there was no choice then
        if key not in may_change and not is_from_before:
            raise ConfigError(
                f"config.toml was changed since the checkpoint: {key} is {shortened(now)} and was {shortened(before)}; "
                f"put it back, or begin a new run with --fork {checkpoint.path}"
            )


def joined_notes(*parts: str) -> str:
    """Remarks of a run in one line; empty ones are left out."""
    return "; ".join(part for part in parts if part)
