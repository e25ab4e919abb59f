"""Three ways to begin: a new run, an old one resumed (see resume.py), a checkpoint forked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from torch import nn

from scramjet.adapters.objects import spelled
from scramjet.adapters.registry import note_on_id
from scramjet.algorithms.algorithm import algorithm_named
from scramjet.distributed.exchange import checkpoint_from_bytes, checkpoint_to_bytes
from scramjet.distributed.ranks import PrivateRun, failing_together, shared
from scramjet.distributed.ray_cluster import require_ray
from scramjet.envs.api import Env
from scramjet.errors import ConfigError, RankError, shortened
from scramjet.runs import world_files
from scramjet.runs.metadata import find_checkpoint
from scramjet.runs.world_trust import Caller, name_of, remember_players, world_of
from scramjet.runtime.checkpoints import Checkpoint, CheckpointStore
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.runs import Run
from scramjet.runtime.trust import said
from scramjet.runtime.video.video_file import require_packages
from scramjet.search.requirements import SearchKind, check_searchable, note_on_chance
from scramjet.settings import coerce
from scramjet.telemetry.tracking.tracker import require_installed
from scramjet.training.agreement import agree, for_ranks
from scramjet.training.checkpoint_config import check_fits, checkpoint_config, checkpoint_settings, lineage_of
from scramjet.training.components import limit_threads
from scramjet.training.config import files as config_files
from scramjet.training.config.changes import changes
from scramjet.training.config.keywords import SERVICES, refuse_when_resumed, with_keywords
from scramjet.training.config.reading import read_file
from scramjet.training.config.resolution import resolve, with_open_choices
from scramjet.training.config.run_config import RunConfig
from scramjet.training.config.values import Count
from scramjet.training.resume import joined_notes, resume_run
from scramjet.training.session import Session, build_session
from scramjet.training.state import begin_as_fork, checkpoint_of, inherited, restore_learning, take_over_values

if TYPE_CHECKING:
    from scramjet.adapters.objects import NamedWorld, World


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """Which run to begin: what `scramjet.train` was given, beside the display and the callbacks."""

    config: RunConfig | World | None = None
    """A config, a world (its name, its file or an object), or a config file."""
    env: World | None = None
    """A world in place of the config's or the run's."""
    resume: Path | None = None
    """The run to go on with: its folder, or its name in `runs_dir`."""
    fork: Path | None = None
    """The checkpoint or run to begin a new run from."""
    runs_dir: Path = Path("runs")
    """The folder that holds the runs."""
    run_name: str | None = None
    """Name of a new run's folder; None: the world's name and a number."""
    network: nn.Module | None = None
    """The user's own network; None: the default one."""
    total_timesteps: int | float | str | None = None
    """Env steps to train for, where they differ from the config's."""
    time_limit: str | None = None
    """The time limit, where it differs from the config's."""
    trust: bool = False
    """Let a file or checkpoint of somebody else name a world in a file or module, which runs it."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword settings to lay over the config."""
    ranks: Ranks = ALONE
    """The processes that train it together."""


def begin(request: StartRequest) -> Session:
    """The session of a new, resumed or forked run, where its training begins or goes on; its run is locked."""
    config, given = request.config, request.env
    if config is not None and not isinstance(config, RunConfig | str | PurePath):
        if given is not None:
            raise ConfigError(f"two worlds are given, {shortened(config)} and env={shortened(given)}; give one of them")
        config, given = None, config
    world = None if given is None else world_of(given)
    name = None if world is None else world.name
    if request.resume is not None:
        if config is not None or request.fork is not None:
            raise ConfigError("a resumed run keeps its own config: give resume alone, or fork to change it")
        run = str(request.resume)
        settings = {key: value for key, value in request.settings.items() if key != "num_processes"}  # looked at later
        refuse_when_resumed(settings, run)
        caller = Caller(said(request.trust), name, keeps_parameters=True)
        changed = {key: request.settings[key] for key in SERVICES if request.settings.get(key) is not None}
        changed["time_limit"] = request.time_limit
        if request.total_timesteps is not None:
            changed["total_timesteps"] = coerce("total_timesteps", request.total_timesteps, Count)
        session = resume_run(run, request.runs_dir, request.network, changed, caller, ranks=request.ranks)
        with contextlib.ExitStack() as unless_same:
            unless_same.callback(session.run.release)
            unless_same.callback(session.close)
            _check_parameters(world, session.config, run)
            unless_same.pop_all()
        return session
    parent = None if request.fork is None else _forked(request.fork, request)
    config = _chosen_config(config, name, parent, request.settings.get("algorithm"), trust=request.trust)
    if world is not None and world.parameters is not None:
        config = replace(config, env_parameters=dict(world.parameters))
    lengths = {"total_timesteps": request.total_timesteps, "time_limit": request.time_limit}
    config = with_keywords(config, {**request.settings, **lengths})
    if parent is not None:
        return fork_run(parent, config, request.runs_dir, request.run_name, request.network, ranks=request.ranks)
    return new_run(config, request.runs_dir, request.run_name, request.network, ranks=request.ranks)


def _check_parameters(world: NamedWorld | None, config: RunConfig, run: str) -> None:
    """Refuse an instance with other parameters than those of the run that is resumed."""
    if world is None or world.parameters is None:
        return
    for name, (before, now) in changes(config.env_parameters, world.parameters).items():
        raise ConfigError(
            f"the run's world has {name}={before!r}, and the one given {name}={shortened(now)}: a resumed run keeps "
            f"its world; give the class alone, or begin a new run with fork={run!r}"
        )


def _forked(named: Path, request: StartRequest) -> Checkpoint:
    """The checkpoint to fork, which rank 0 reads and sends to the others."""
    return shared(
        request.ranks,
        lambda: find_checkpoint(named, request.runs_dir),
        checkpoint_to_bytes,
        checkpoint_from_bytes,
    )


def _chosen_config(
    config: RunConfig | str | PurePath | None,
    env: str | None,
    parent: Checkpoint | None,
    algorithm: Any,
    *,
    trust: bool,
) -> RunConfig:
    """The config to begin with: the one given, or that of a config file, a world's preset or the forked checkpoint.

    `env` is a world in place of the config's; `parent` the checkpoint to fork, or None; `algorithm` the one whose
    preset to take, or None.
    """
    algorithm = None if algorithm is None else algorithm_named(algorithm).name
    if isinstance(config, RunConfig):
        return replace(config, env=spelled(config.env)) if env is None else replace(config, env=env, env_parameters={})
    if config is not None and env is not None:
        raise ConfigError(f"give config={str(config)!r} or env={env!r}, not both")
    if config is not None:
        is_file = str(config).endswith((".toml", ".yaml", ".yml"))
        if is_file:
            return config_files.load_config(str(config), trust=trust)
        return config_files.starting_config(name_of(str(config)), algorithm=algorithm)
    if parent is None:
        return config_files.starting_config(RunConfig.env if env is None else env, algorithm=algorithm)
    return with_open_choices(checkpoint_config(parent, Caller(said(trust), env, keeps_parameters=True)))


# --- a new run


def new_run(
    config: RunConfig, runs_dir: Path, run_name: str | None, network: nn.Module | None, *, ranks: Ranks = ALONE
) -> Session:
    """The session of a new run in a new folder, at step 0."""
    about_name = note_on_id(config.env)
    config, about_threads = _resolved(for_ranks(config, ranks), network)

    def build(run: Run) -> Session:
        session = build_session(config, run, network, ranks=ranks)
        if session.league is not None:
            session.league.begin(0)
        return session

    session = _begun(lambda: _create_run(config, runs_dir, run_name), build, ranks)
    about_copy = world_files.note_without_copy(config.env, session.run.path)
    about_length = _note_on_length(config)
    session.note = joined_notes(about_name, about_threads, _advice(config), about_copy, about_length)
    return session


def _begun(make_run: Callable[[], Run], build: Callable[[Run], Session], ranks: Ranks) -> Session:
    """A session in a new folder, built on all ranks or on none: a run that could not begin leaves nothing behind."""
    with contextlib.ExitStack() as unless_begun:
        with failing_together(ranks):
            run = make_run() if ranks.is_first else PrivateRun()
            unless_begun.callback(run.discard)
            if ranks.is_first:
                ranks.began(run.path)
            session = build(run)
            unless_begun.callback(session.close)
        agree(session)
        unless_begun.pop_all()
    return session


def _resolved(config: RunConfig, network: nn.Module | None) -> tuple[RunConfig, str]:
    """The config with every `auto` decided, and a note for the user where other work on the machine took threads.

    Raises a ConfigError where its algorithm cannot search its world, or a tracker is not installed.
    """
    require_installed(config.track)
    if config.actors == "ray":
        require_ray()
    resolved = resolve(config)
    if resolved.video_every:
        require_packages()
    if resolved.traits.search is not None:
        check_searchable(resolved.make_env(), None, resolved.traits.search)
    return (resolved, "") if config.num_threads != "auto" else limit_threads(resolved, network)


def _create_run(config: RunConfig, runs_dir: Path, run_name: str | None, lineage: dict[str, Any] | None = None) -> Run:
    """Make a run's folder with its frozen config and a copy of its world's source, and remember that world."""
    sources = world_files.copied_sources(config.env)
    run = Run.create(
        runs_dir,
        run_name,
        config_files.to_toml(config, _any_run_in(runs_dir)),
        lineage=lineage,
        default_name=world_files.default_run_name(config.env),
        folders={} if sources is None else {world_files.COPY: sources},
    )
    world_files.remember_trained(config.env, config.env_parameters, sources)
    remember_players(config.self_play.opponents)
    return run


def _any_run_in(runs_dir: Path) -> Path:
    """A path to stand for the run's folder before it has a name: relative paths are the same from any name."""
    return Path(os.path.realpath(runs_dir)) / "run"


def _note_on_length(config: RunConfig) -> str:
    """That more steps are trained than were asked for, where that is more than one in a hundred; else empty."""
    asked, whole = config.total_timesteps, config.num_updates * config.batch_size
    if whole <= 1.01 * asked:
        return ""
    return f"{asked:,} steps are rounded up to {whole:,}, whole updates of {config.batch_size:,}"


def _advice(config: RunConfig) -> str:
    """A warning about settings that seldom learn well; empty where there is none."""
    if config.traits.search is not None:
        return _advice_on_search(config, config.traits.search)
    if config.algorithm == "impala" and config.ppo.epochs > 1:
        return (
            f"impala with num_epochs={config.ppo.epochs}: its gradient has no clip, and more than one pass over a "
            f"rollout may lead far astray; --num-epochs 1 is usual"
        )
    return ""


def _advice_on_search(config: RunConfig, kind: SearchKind) -> str:
    """How much a search asks of the network, and a warning about worlds with chance."""
    count = config.traits.evaluations
    evaluations = 0 if count is None else count(getattr(config, config.algorithm))
    cost = f"each of the {config.batch_size:,} moves of an update asks the network {evaluations} times"
    world = config.make_env()
    return joined_notes(cost, note_on_chance(world, kind) if isinstance(world, Env) else "")


# --- a fork


def fork_run(
    checkpoint: Checkpoint,
    config: RunConfig,
    runs_dir: Path,
    run_name: str | None,
    network: nn.Module | None,
    *,
    ranks: Ranks = ALONE,
) -> Session:
    """The session of a new run that takes weights, optimizer, normalizers and step count from a checkpoint.

    Its episodes are fresh ones.
    """
    config, about_threads = _resolved(for_ranks(config, ranks), network)
    check_fits(checkpoint, config, network)
    if config.total_timesteps <= checkpoint.step:
        raise ConfigError(
            f"total_timesteps={config.total_timesteps:,} is reached already: the checkpoint is at step "
            f"{checkpoint.step:,}, and a fork counts on from there; add --total-timesteps {2 * checkpoint.step}"
        )
    lineage = lineage_of(checkpoint, config, _any_run_in(runs_dir))

    def build(run: Run) -> Session:
        session = build_session(config, run, network, checkpoint.state_digest, ranks=ranks)
        before = checkpoint_settings(checkpoint)
        restore_learning(session.policy, session.learner, inherited(checkpoint, before, config))
        session.note = take_over_values(session.learner, session.pool.observation_space, checkpoint, before, config)
        begin_as_fork(session.learner, checkpoint)
        session.first_step = checkpoint.step
        if session.league is not None:
            session.league.begin(checkpoint.step)
        if session.strength is not None:
            session.strength.measured_at = checkpoint.step
        session.lineage = lineage
        return session

    session = _begun(lambda: _create_run(config, runs_dir, run_name, lineage), build, ranks)
    _save_beginning(session)
    forked = f"forked from {checkpoint.path} at step {checkpoint.step:,}"
    note = world_files.note_on_copy(config.env, session.pool.env, checkpoint.metadata["rules"])
    about_processes = _note_on_processes(checkpoint, ranks)
    session.note = joined_notes(forked, about_processes, session.note, about_threads, note, _advice(config))
    return session


def _save_beginning(session: Session) -> None:
    """Save a fork's first checkpoint, so that a resume starts from it; if that fails, nothing of the fork is left."""
    save = checkpoint_of(session, update=0, step=session.first_step, elapsed_seconds=0.0)
    try:
        with failing_together(session.ranks):
            if session.ranks.is_first:
                save()
    except BaseException:
        session.close()
        session.run.discard()
        raise


def _note_on_processes(checkpoint: Checkpoint, ranks: Ranks) -> str:
    """A note where a fork is trained by another number of processes than the run it comes from."""
    before = checkpoint_settings(checkpoint).num_processes
    if before == ranks.size:
        return ""
    return f"it was trained by {before} process{'es' * (before > 1)}, and goes on with {ranks.size}"


# --- a launcher that starts all ranks again gives them the same command: the run that they began goes on


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
