"""Three ways to begin: a new run, an old one resumed, a checkpoint forked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from torch import nn

from scramjet.engine.foreign_worlds import canonical_name, is_foreign, register_factory
from scramjet.errors import CheckpointError, ConfigError, RunError, shortened
from scramjet.runtime.checkpoints import Checkpoint, CheckpointStore, load_checkpoint
from scramjet.runtime.files import explain_disk_errors, write_atomic
from scramjet.runtime.runs import Run, find_run
from scramjet.runtime.strict_json import MAX_DEPTH
from scramjet.settings import coerce
from scramjet.training import config_files
from scramjet.training.collecting import cut_schedule
from scramjet.training.config import Count, RunConfig, changes
from scramjet.training.keywords import refuse_when_resumed, with_keywords
from scramjet.training.session import SCHEDULE, Session, build_session
from scramjet.training.state import (
    DEFAULT_NETWORK,
    best_of,
    check_metadata,
    checkpoint_of,
    restore_everything,
    restore_learning,
)
from scramjet.training.threads import with_threads_to_spare
from scramjet.training.trust import check_name, remember


def name_of(env: str | Callable[..., Any]) -> str:
    """The name of a world that the caller gives: a name or file, or a function that makes Gymnasium envs.

    It is remembered, so that his runs may name it from now on.
    """
    name: str = coerce("env", env, str) if isinstance(env, str | PurePath) else register_factory(env)
    check_name(name)
    remember(name, is_named=True)
    return name


def with_env(config: RunConfig | str | Path | None, name: str | None) -> RunConfig | str | Path | None:
    """`config` for another world."""
    if name is None:
        return config
    if config is None:
        return name
    if not isinstance(config, RunConfig):
        raise ConfigError(f"give config={str(config)!r} or env={name!r}, not both")
    return replace(config, env=name, env_parameters={})


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
    config = _chosen_config(with_env(config, name), parent, trust=trust)
    config = with_keywords(config, {**(settings or {}), "total_timesteps": total_timesteps, "time_limit": time_limit})
    if parent is not None:
        return fork_run(parent, config, runs_dir, run_name, network)
    return new_run(config, runs_dir, run_name, network)


def _chosen_config(config: RunConfig | str | Path | None, parent: Checkpoint | None, *, trust: bool) -> RunConfig:
    """A config as it was given, that of a file, of a world's preset, or of the checkpoint that is forked."""
    if isinstance(config, RunConfig):
        return config
    if config is not None:
        is_file = str(config).endswith((".toml", ".yaml", ".yml"))
        if is_file:
            return config_files.load_config(config, trust=trust)
        return config_files.starting_config(name_of(str(config)))
    if parent is None:
        return config_files.starting_config(RunConfig.env)
    return checkpoint_config(parent, config_files.Caller(trust)).with_open_choices()


def new_run(config: RunConfig, runs_dir: Path, run_name: str | None, network: nn.Module | None) -> Session:
    """Begin at step 0."""
    config, about_threads = _resolved(config, network)
    run = Run.create(runs_dir, run_name, config_files.to_toml(config), default_name=_default_name(config))
    remember(config.env, config.env_parameters)
    with _discarded_on_error(run):
        session = build_session(config, run, network)
    session.note = _join(about_threads, _advice(config))
    return session


def _resolved(config: RunConfig, network: nn.Module | None) -> tuple[RunConfig, str]:
    """The config with every choice made for the user's own network or the default one; a note on the threads."""
    resolved = config.resolved()
    return (resolved, "") if config.num_threads != "auto" else with_threads_to_spare(resolved, network)


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
        return _go_on(run, frozen, network, total_timesteps, time_limit, trust=caller.trust)
    except BaseException:
        run.release()
        raise


def _go_on(
    run: Run, frozen: RunConfig, network: nn.Module | None, total_timesteps: int | None, time_limit: str | None,
    *, trust: bool,
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
        session.note = _join(session.note, "no checkpoint yet: starting from the beginning")
    else:
        _go_back_to(session, checkpoint, network, is_own=_has_own_records(checkpoint, config) or trust)
    if config.total_timesteps != frozen.total_timesteps:  # the next resume must know
        write_atomic(run.config_path, config_files.to_toml(replace(config, time_limit=frozen.time_limit)).encode())
    return session


def _has_own_records(checkpoint: Checkpoint, config: RunConfig) -> bool:
    """Whether the states of envs in it can be nobody else's, and are of this world."""
    metadata = checkpoint.metadata
    if not checkpoint.is_own or metadata.get("has_records_of_others", False):
        return False
    here, there = (json.dumps(each["env"]) for each in (config_files.to_dict(config), metadata["config"]))
    return here == there


def _go_back_to(session: Session, checkpoint: Checkpoint, network: nn.Module | None, *, is_own: bool) -> None:
    """Put a fresh session exactly where a checkpoint of its own run was."""
    config, run = session.config, session.run
    _check_config_unchanged(checkpoint, config)
    check_fits(checkpoint, config, network)
    restore_everything(session, checkpoint, is_own=is_own)
    if checkpoint.metadata["rules"] != session.rules:
        session.note = _join(session.note, "the world's rules have changed since the checkpoint")
    session.note = _join(session.note, session.pool.resume_note or "")
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
    lineage = {
        "parent_checkpoint": str(checkpoint.path),
        "parent_digest": checkpoint.digest,
        "parent_step": checkpoint.step,
        "changed": changes(checkpoint.metadata["config"], config_files.to_dict(config)),
        "parent_lineage": _youngest(checkpoint.metadata["lineage"]),
    }
    text = config_files.to_toml(config)
    run = Run.create(runs_dir, run_name, text, lineage=lineage, default_name=_default_name(config))
    remember(config.env, config.env_parameters)
    with _discarded_on_error(run):
        session = build_session(config, run, network, checkpoint.digest)
        restore_learning(session.policy, session.learner, checkpoint)
        session.first_step = checkpoint.step
        session.lineage = lineage
        checkpoint_of(session, update=0, step=checkpoint.step, elapsed_seconds=0.0)()  # so that a resume starts from it
    forked = f"forked from {checkpoint.path} at step {checkpoint.step:,}"
    session.note = _join(forked, about_threads, _advice(config))
    return session


def _youngest(lineage: dict[str, Any] | None, generations: int = MAX_DEPTH // 2) -> dict[str, Any] | None:
    """A lineage without its oldest generations: one nests in the other, and a file nests only so deep."""
    if lineage is None or generations == 0:
        return None
    older = lineage.get("parent_lineage")
    return {**lineage, "parent_lineage": _youngest(older if isinstance(older, dict) else None, generations - 1)}


def find_checkpoint(text: str | Path, runs_dir: Path) -> Checkpoint:
    """The checkpoint a user named: its folder, a run's folder, or a run's name in `runs_dir`."""
    if not os.path.exists(text) and os.path.basename(text) == str(text):  # os.path: a name may be too long for a file
        return load_checkpoint(find_run(str(text), runs_dir))
    return load_checkpoint(Path(text))


def checkpoint_config(checkpoint: Checkpoint, caller: config_files.Caller = config_files.NOBODY) -> RunConfig:
    """The config recorded in a checkpoint."""
    check_metadata(checkpoint)
    is_in_run = checkpoint.path.parent.name == "checkpoints"
    caller = replace(caller, run=checkpoint.path.parents[1] if is_in_run else checkpoint.path)
    return config_files.apply(RunConfig(), checkpoint.metadata["config"], f"checkpoint {checkpoint.path}", caller)


def checkpoint_settings(checkpoint: Checkpoint) -> RunConfig:
    """The config recorded in a checkpoint but for its world, which is neither named nor loaded."""
    check_metadata(checkpoint)
    data = config_files.without_world(checkpoint.metadata["config"])
    return config_files.apply(RunConfig(), data, f"checkpoint {checkpoint.path}")


def num_updates(session: Session) -> int:
    """The update after which the run is done, counted from the run's own beginning."""
    remaining = session.config.total_timesteps - session.first_step
    wanted = -(-remaining // session.config.batch_size)
    given = session.collector.num_rollouts
    return wanted if given is None else min(wanted, session.first_update + given)


def check_fits(checkpoint: Checkpoint, config: RunConfig, network: nn.Module | None) -> None:
    """Refuse a checkpoint of another world, or of a network we do not have."""
    check_metadata(checkpoint)
    env = config.make_env()
    for name, here in (("observation_space", env.observation_space), ("action_space", env.action_space)):
        there = checkpoint.metadata[name]
        if repr(here) != there:
            raise CheckpointError(
                f"'{checkpoint.path}' was trained on another world: its {name.replace('_', ' ')} is {there}, "
                f"that of {config.env} is {here!r}"
            )
    check_network_is_given(checkpoint, network)
    trained_with, here = checkpoint_settings(checkpoint).policy, config.policy
    for name in ("memory", "memory_size", "memory_layers") if network is None else ():
        then, now = getattr(trained_with, name), getattr(here, name)
        if then != now and (name == "memory" or here.memory is not None):
            raise CheckpointError(
                f"'{checkpoint.path}' was trained with policy.{name}={then or 'none'}, and this config has "
                f"{now or 'none'}; add --policy.{name.replace('_', '-')} {then or 'none'}"
            )


def check_network_is_given(checkpoint: Checkpoint, network: nn.Module | None) -> None:
    """Refuse a checkpoint of a user's own network where that is not given."""
    needed = checkpoint.metadata["network"]
    if needed != DEFAULT_NETWORK and network is None:
        raise CheckpointError(
            f"'{checkpoint.path}' was trained with a network of its own, {needed}; load it from Python: "
            f"scramjet.train(..., network={needed.rpartition('.')[2]}(...))"
        )


@contextmanager
def _discarded_on_error(run: Run) -> Iterator[None]:
    """A run that cannot even begin leaves no folder behind."""
    try:
        yield
    except BaseException:
        run.discard()
        raise


def _default_name(config: RunConfig) -> str:
    name = canonical_name(config.env)
    if is_foreign(name):
        name = name.partition(":")[2]
        name = name.rpartition(":")[2] if ".py" in name else name
    return Path(name.partition(":")[0]).stem if ".py" in name else name.replace(":", "-").replace("/", "-")


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
