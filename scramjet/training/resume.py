"""Resume a run: go on from its newest whole checkpoint, exactly as if it had never stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from scramjet.errors import CheckpointError, ConfigError, RunError, shortened
from scramjet.runtime.checkpoints import Checkpoint, CheckpointStore
from scramjet.runtime.files import explain_disk_errors, write_atomic
from scramjet.runtime.ranks.interface import ALONE, Ranks
from scramjet.runtime.runs import Run, find_run
from scramjet.training.asynchronous.schedule import cut_schedule
from scramjet.training.config import files as config_files
from scramjet.training.config.changes import changes
from scramjet.training.config.keywords import CHANGEABLE
from scramjet.training.config.resolution import env_device_beside
from scramjet.training.config.run_config import RunConfig
from scramjet.training.persistence.checkpoint_facts import check_fits, checkpoint_settings
from scramjet.training.persistence.metadata import best_of
from scramjet.training.persistence.state import restore_everything
from scramjet.training.session import SCHEDULE, Session, build_session
from scramjet.training.telemetry.tracking.registry import require_installed
from scramjet.training.worlds import world_files
from scramjet.training.worlds.trust import NOBODY, Caller, approve_players


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
    run = Run.open(find_run(text, runs_dir)).lock()
    try:
        frozen = config_files.load_frozen(run.config_path, caller)
        approve_players(frozen.self_play.opponents, str(run.config_path), trust=caller.trust)
        config = _config_to_resume(run, frozen, changed)
        require_installed(config.track)
        session = _session_at_latest(run, config, network, ranks, trust=caller.trust)
        world_files.refresh_copy(config.env, config.env_parameters, run.path)
        now = replace(config, time_limit=frozen.time_limit)
        if any(getattr(now, key) != getattr(frozen, key) for key in changed) or caller.env is not None:
            toml = config_files.to_toml(now, run.path)  # the next resume must know
            write_atomic(run.config_path, toml.encode())
        return session
    except BaseException:
        run.release()
        raise


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


def _session_at_latest(run: Run, config: RunConfig, network: nn.Module | None, ranks: Ranks, *, trust: bool) -> Session:
    """A session at the run's newest whole checkpoint, or at the beginning where there is no checkpoint yet."""
    if not CheckpointStore(run.checkpoints_path, None).steps():
        with explain_disk_errors(run.path / SCHEDULE):
            (run.path / SCHEDULE).unlink(missing_ok=True)  # recorded anew from the beginning
    session = build_session(config, run, network, ranks=ranks)
    checkpoint, damaged = session.store.load_latest_whole()
    session.note = "; ".join(damaged)
    if checkpoint is not None:
        _go_back_to(session, checkpoint, network, is_own=_has_own_records(checkpoint, session) or trust)
        return session
    if session.store.steps():
        raise CheckpointError(
            f"run '{run.name}' has no whole checkpoint, and nothing was changed: {'; '.join(damaged)}"
        )
    if run.lineage_path.exists():
        raise RunError(f"run '{run.name}' is a fork that never began; delete {run.path} and fork again")
    session.metrics_log.truncate_after(-1)
    if session.league is not None:
        session.league.begin(0)
    note = world_files.note_on_world(config.env, session.pool.env, None)
    session.note = joined_notes(session.note, note, "no checkpoint yet: starting from the beginning")
    return session


def _has_own_records(checkpoint: Checkpoint, session: Session) -> bool:
    """Whether the env states in a checkpoint were written by this user alone and belong to the session's world.

    A world whose file was renamed counts as the same if its rules are.
    """
    metadata = checkpoint.metadata
    if not checkpoint.is_own or metadata.get("has_records_of_others", False):
        return False
    here, there = config_files.to_dict(session.config, session.run.path)["env"], metadata["config"]["env"]
    if json.dumps(here) == json.dumps(there):
        return True
    is_renamed = isinstance(there, dict) and json.dumps({**there, "name": here["name"]}) == json.dumps(here)
    return is_renamed and world_files.has_rules(session.pool.env, metadata["rules"])


def _go_back_to(session: Session, checkpoint: Checkpoint, network: nn.Module | None, *, is_own: bool) -> None:
    """Put a fresh session exactly where a checkpoint of its own run was."""
    config, run = session.config, session.run
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
