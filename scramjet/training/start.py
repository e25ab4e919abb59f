"""Three ways to begin: a new run, an old one resumed, a checkpoint forked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from scramjet.adapters.gymnasium.files import spelled
from scramjet.errors import CheckpointError, ConfigError, RunError, shortened
from scramjet.runtime.checkpoints import Checkpoint, CheckpointStore
from scramjet.runtime.files import explain_disk_errors, write_atomic
from scramjet.runtime.runs import Run, find_run
from scramjet.settings import coerce
from scramjet.training.asynchronous.schedule import cut_schedule
from scramjet.training.config import files as config_files
from scramjet.training.config.keywords import refuse_when_resumed, with_keywords
from scramjet.training.config.run_config import Count, RunConfig, changes
from scramjet.training.persistence.lineage import lineage_of
from scramjet.training.persistence.recorded import check_fits, checkpoint_config, checkpoint_settings, find_checkpoint
from scramjet.training.persistence.state import best_of, checkpoint_of, restore_everything, restore_learning
from scramjet.training.session import SCHEDULE, Session, build_session
from scramjet.training.threads import with_threads_to_spare
from scramjet.training.worlds import places as world_places
from scramjet.training.worlds.named import name_of


def begin(
    config: RunConfig | str | Path | None,
    *,
    env: str | Callable[..., Any] | None = None,
    resume: str | Path | None,
    fork: str | Path | None,
    runs_dir: Path,
    run_name: str | None,
    network: nn.Module | None,
    total_timesteps: int | str | None,
    time_limit: str | None,
    trust: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Session:
    """The session that `scramjet.train` asks for; its run is locked."""
    config = config if isinstance(config, Path) else coerce("config", config, RunConfig | str | None)
    resume, fork = coerce("resume", resume, Path | None), coerce("fork", fork, Path | None)
    run_name, trust = coerce("run_name", run_name, str | None), coerce("trust", trust, bool)
    network = coerce("network", network, nn.Module | None)
    name = None if env is None else name_of(env)
    if resume is not None:
        if config is not None or fork is not None:
            raise ConfigError("a resumed run keeps its own config: give resume alone, or fork to change it")
        refuse_when_resumed(settings or {}, str(resume))
        caller = config_files.Caller(trust, name, keeps_parameters=True)
        total = coerce("total_timesteps", total_timesteps, Count | None)
        return resume_run(str(resume), runs_dir, network, total, time_limit, caller)
    parent = None if fork is None else find_checkpoint(fork, runs_dir)
    config = _chosen_config(config, name, parent, trust=trust)
    config = with_keywords(config, {**(settings or {}), "total_timesteps": total_timesteps, "time_limit": time_limit})
    if parent is not None:
        return fork_run(parent, config, runs_dir, run_name, network)
    return new_run(config, runs_dir, run_name, network)


def _chosen_config(
    config: RunConfig | str | Path | None, env: str | None, parent: Checkpoint | None, *, trust: bool
) -> RunConfig:
    """A config as it was given, that of a file, of a world's preset, or of the checkpoint that is forked.

    `env` is a world in place of the one that it names.
    """
    if isinstance(config, RunConfig):
        return replace(config, env=spelled(config.env)) if env is None else replace(config, env=env, env_parameters={})
    if config is not None and env is not None:
        raise ConfigError(f"give config={str(config)!r} or env={env!r}, not both")
    if config is not None:
        is_file = str(config).endswith((".toml", ".yaml", ".yml"))
        if is_file:
            return config_files.load_config(config, trust=trust)
        return config_files.starting_config(name_of(str(config)))
    if parent is None:
        return config_files.starting_config(RunConfig.env if env is None else env)
    return checkpoint_config(parent, config_files.Caller(trust, env, keeps_parameters=True)).with_open_choices()


def new_run(config: RunConfig, runs_dir: Path, run_name: str | None, network: nn.Module | None) -> Session:
    """Begin at step 0."""
    config, about_threads = _resolved(config, network)
    run = _create_run(config, runs_dir, run_name)
    with _discarded_on_error(run):
        session = build_session(config, run, network)
    session.note = _join(about_threads, _advice(config), world_places.note_without_copy(config.env, run.path))
    return session


def _resolved(config: RunConfig, network: nn.Module | None) -> tuple[RunConfig, str]:
    """The config with every choice made for the user's own network or the default one; a note on the threads."""
    resolved = config.resolved()
    return (resolved, "") if config.num_threads != "auto" else with_threads_to_spare(resolved, network)


def _create_run(config: RunConfig, runs_dir: Path, run_name: str | None, lineage: dict[str, Any] | None = None) -> Run:
    """A run's folder with its frozen config and a copy of its world's source; both are remembered as the user's."""
    sources = world_places.copied_sources(config.env)
    run = Run.create(
        runs_dir,
        run_name,
        config_files.to_toml(config, _any_run_in(runs_dir)),
        lineage=lineage,
        default_name=world_places.default_run_name(config.env),
        folders={} if sources is None else {world_places.COPY: sources},
    )
    world_places.remember_trained(config.env, config.env_parameters, sources)
    return run


def _any_run_in(runs_dir: Path) -> Path:
    """A run's folder before it has a name: whatever that will be, paths as seen from there are the same."""
    return Path(os.path.realpath(runs_dir)) / "run"


def _advice(config: RunConfig) -> str:
    """What a user should know of these settings before they train for hours."""
    if config.ppo.loss == "impala" and config.ppo.epochs > 1:
        return (
            f"impala with num_epochs={config.ppo.epochs}: its gradient has no clip, and more than one pass over a "
            f"rollout may lead far astray; --num-epochs 1 is usual"
        )
    return ""


def resume_run(
    text: str,
    runs_dir: Path,
    network: nn.Module | None,
    total_timesteps: int | None,
    time_limit: str | None,
    caller: config_files.Caller = config_files.NOBODY,
) -> Session:
    """Go on with a run from its newest whole checkpoint, exactly as if it had never stopped."""
    run = Run.open(find_run(text, runs_dir)).lock()
    try:
        frozen = config_files.load_frozen(run.config_path, caller)
        return _go_on(run, frozen, network, total_timesteps, time_limit, caller)
    except BaseException:
        run.release()
        raise


def _go_on(
    run: Run, frozen: RunConfig, network: nn.Module | None, total_timesteps: int | None, time_limit: str | None,
    caller: config_files.Caller,
) -> Session:  # fmt: skip
    if "auto" in (frozen.num_envs, frozen.num_threads):
        raise RunError(
            f"'{run.config_path}' is no frozen config: num_envs and num_threads must be numbers; put it back"
        )
    total = frozen.total_timesteps if total_timesteps is None else total_timesteps
    device = "cpu" if frozen.device == "auto" else frozen.device  # runs from before there was a choice
    if frozen.replay_schedule is not None:
        raise ConfigError(
            f"run '{run.name}' replays {frozen.replay_schedule}, which has no middle to go on from; replay it anew, or "
            f"go on without it: scramjet train --fork {run.path}"
        )
    env_device = frozen.env_device_beside(device)
    config = replace(frozen, total_timesteps=total, time_limit=time_limit, device=device, env_device=env_device)
    if not CheckpointStore(run.checkpoints_path, None).steps():
        with explain_disk_errors(run.path / SCHEDULE):
            (run.path / SCHEDULE).unlink(missing_ok=True)  # it begins again
    session = build_session(config, run, network)
    checkpoint, damaged = session.store.load_latest_whole()
    session.note = "; ".join(damaged)
    if checkpoint is None and session.store.steps():
        raise CheckpointError(
            f"run '{run.name}' has no whole checkpoint, and nothing was changed: {'; '.join(damaged)}"
        )
    if checkpoint is None and run.lineage_path.exists():
        raise RunError(f"run '{run.name}' is a fork that never began; delete {run.path} and fork again")
    if checkpoint is None:
        session.metrics_log.truncate_after(-1)
        note = world_places.note_on_world(config.env, session.pool.env, None)
        session.note = _join(session.note, note, "no checkpoint yet: starting from the beginning")
    else:
        _go_back_to(session, checkpoint, network, is_own=_has_own_records(checkpoint, session) or caller.trust)
    world_places.refresh_copy(config.env, config.env_parameters, run.path)
    if config.total_timesteps != frozen.total_timesteps or caller.env is not None:  # the next resume must know
        text = config_files.to_toml(replace(config, time_limit=frozen.time_limit), run.path)
        write_atomic(run.config_path, text.encode())
    return session


def _has_own_records(checkpoint: Checkpoint, session: Session) -> bool:
    """Whether the states of envs in it can be nobody else's, and are of this world, whatever its file is called now."""
    metadata = checkpoint.metadata
    if not checkpoint.is_own or metadata.get("has_records_of_others", False):
        return False
    here, there = config_files.to_dict(session.config, session.run.path)["env"], metadata["config"]["env"]
    if json.dumps(here) == json.dumps(there):
        return True
    is_renamed = isinstance(there, dict) and json.dumps({**there, "name": here["name"]}) == json.dumps(here)
    return is_renamed and world_places.has_rules(session.pool.env, metadata["rules"])


def _go_back_to(session: Session, checkpoint: Checkpoint, network: nn.Module | None, *, is_own: bool) -> None:
    """Put a fresh session exactly where a checkpoint of its own run was."""
    config, run = session.config, session.run
    _check_config_unchanged(checkpoint, config)
    check_fits(checkpoint, config, network)
    restore_everything(session, checkpoint, is_own=is_own)
    note = world_places.note_on_world(config.env, session.pool.env, checkpoint.metadata["rules"])
    session.note = _join(session.note, note, session.pool.resume_note or "")
    session.first_update = int(checkpoint.metadata["update"])
    session.note = _join(session.note, _cut_logs(session, checkpoint.step))
    session.first_step = checkpoint.step - session.first_update * config.batch_size
    if session.first_step < 0:
        raise CheckpointError(
            f"'{checkpoint.path}' is no checkpoint of this run: its {session.first_update:,} updates of "
            f"{config.batch_size:,} steps are more than its {checkpoint.step:,} steps"
        )
    session.elapsed_seconds = float(checkpoint.metadata["elapsed_seconds"])
    session.best = best_of(checkpoint)
    session.lineage = checkpoint.metadata["lineage"]
    session.note = _join(session.note, f"resumed at step {checkpoint.step:,}")
    if session.first_update >= num_updates(session):
        raise ConfigError(
            f"run '{run.name}' is at step {checkpoint.step:,} and has finished its {config.total_timesteps:,} steps; "
            f"to go on, add --total-timesteps {2 * max(config.total_timesteps, checkpoint.step)}"
        )


def _cut_logs(session: Session, step: int) -> str:
    """Take what came after the checkpoint out of the run's files; says what they miss before it."""
    log, schedule = session.metrics_log, session.run.path / SCHEDULE
    log.truncate_after(step)
    if schedule.is_file() and not schedule.is_symlink():  # anything else is left alone: nothing is recorded any more
        cut_schedule(schedule, session.first_update)
    if session.first_update == 0 or log.last_step == step:
        return ""
    ends = "has no whole line" if log.last_step is None else f"ends at step {log.last_step:,}"
    return f"{log.path.name} {ends}: it was damaged, and its curves have a gap"


def _check_config_unchanged(checkpoint: Checkpoint, config: RunConfig) -> None:
    """A resumed run is the same run: its frozen config must be the one its checkpoint was made with."""
    may_change = ("total_timesteps", "time_limit", "env.name")
    trained_with = config_files.to_dict(checkpoint_settings(checkpoint))
    env = checkpoint.metadata["config"].get("env")  # compared as it stands: it may be another's name, or gone
    found = changes({**trained_with, "env": env}, config_files.to_dict(config))
    for key, (before, now) in found.items():
        is_from_before = key in ("device", "env_device") and before == "auto"  # there was no choice then
        if key not in may_change and not is_from_before:
            raise ConfigError(
                f"config.toml was changed since the checkpoint: {key} is {shortened(now)} and was {shortened(before)}; "
                f"put it back, or begin a new run with --fork {checkpoint.path}"
            )


def fork_run(
    checkpoint: Checkpoint, config: RunConfig, runs_dir: Path, run_name: str | None, network: nn.Module | None
) -> Session:
    """Begin a new run from a checkpoint: its weights, optimizer, normalizers and step count; fresh episodes."""
    config, about_threads = _resolved(config, network)
    check_fits(checkpoint, config, network)
    if config.total_timesteps <= checkpoint.step:
        raise ConfigError(
            f"total_timesteps={config.total_timesteps:,} is reached already: the checkpoint is at step "
            f"{checkpoint.step:,}, and a fork counts on from there; add --total-timesteps {2 * checkpoint.step}"
        )
    lineage = lineage_of(checkpoint, config, _any_run_in(runs_dir))
    run = _create_run(config, runs_dir, run_name, lineage)
    with _discarded_on_error(run):
        session = build_session(config, run, network, checkpoint.digest)
        restore_learning(session.policy, session.learner, checkpoint)
        session.first_step = checkpoint.step
        session.lineage = lineage
        checkpoint_of(session, update=0, step=checkpoint.step, elapsed_seconds=0.0)()  # so that a resume starts from it
    forked = f"forked from {checkpoint.path} at step {checkpoint.step:,}"
    note = world_places.note_on_copy(config.env, session.pool.env, checkpoint.metadata["rules"])
    session.note = _join(forked, about_threads, note, _advice(config))
    return session


def num_updates(session: Session) -> int:
    """The update after which the run is done, counted from the run's own beginning."""
    remaining = session.config.total_timesteps - session.first_step
    wanted = -(-remaining // session.config.batch_size)
    given = session.collector.num_rollouts
    return wanted if given is None else min(wanted, session.first_update + given)


@contextmanager
def _discarded_on_error(run: Run) -> Iterator[None]:
    """A run that cannot even begin leaves no folder behind."""
    try:
        yield
    except BaseException:
        run.discard()
        raise


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
