"""A run in memory: everything the loop works with, built from a config and a run folder."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scramjet.accelerate.numba.executor import native_play
from scramjet.accelerate.triton.executor import fused_mlp
from scramjet.adapters.env_spaces import env_spaces
from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.registry import ForeignWorld, is_foreign
from scramjet.compile.cuda import require_cuda
from scramjet.engine.layout import check_spaces
from scramjet.engine.pool import Pool
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool
from scramjet.engine.wrappers.frame_stack import FrameStackPool, check_stackable, stacked_space
from scramjet.envs.api import Env
from scramjet.errors import ConfigError
from scramjet.policies.networks import check_network_memory, default_network
from scramjet.policies.policy import Policy
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.runtime.machine.cores import available_cores
from scramjet.runtime.machine.devices import keep_freed_memory, leave_compiler_unloaded, set_precision, set_threads
from scramjet.runtime.metrics_log import MetricsLog
from scramjet.runtime.runs import Run
from scramjet.settings import coerce
from scramjet.training.asynchronous.actors import Actors, ActorThreads
from scramjet.training.asynchronous.central_actors import CentralActors
from scramjet.training.best import Best
from scramjet.training.collector import Asynchronous, Collector, Replayed, ScheduleLog, Synchronous
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluation import MAX_ENVS, MAX_FOREIGN_ENVS, Evaluator
from scramjet.training.learner import Learner
from scramjet.training.rollout.rollout import BYTES_PER_WEIGHT, Rollout, allocate_rollout
from scramjet.training.seeds import seed_of_fork, training_episodes
from scramjet.training.telemetry.progress import Progress
from scramjet.training.worlds.places import placeless_name, world_fingerprint

SCHEDULE = "schedule.jsonl"


DRAWN_EVERY_STEP = (
    "warning: {env} has render_mode='human' and draws every step in a window, which allows some 150 steps a second; "
    "train without it, and watch with scramjet eval RUN --render"
)


@dataclass
class Session:
    """One run under way."""

    config: RunConfig
    run: Run
    store: CheckpointStore
    metrics_log: MetricsLog
    pool: Pool
    policy: Policy
    learner: Learner
    rollout: Rollout
    generator: torch.Generator  # draws actions
    progress: Progress
    evaluator: Evaluator
    collector: Collector
    first_update: int = 0
    first_step: int = 0  # env steps trained before `first_update` (a fork's parent's included)
    elapsed_seconds: float = 0.0  # of earlier processes
    best: Best | None = None  # what chose the best checkpoint
    lineage: dict[str, Any] | None = None  # where a fork comes from
    note: str = ""
    has_hinted_at_samples: bool = False
    has_told_of_cuts: bool = False
    news: deque[str] = field(default_factory=deque)  # of the envs and the metrics log, for the display
    saved: deque[Path] = field(default_factory=deque)  # checkpoints that callbacks are yet to hear of
    stop_reason: str | None = None  # of a callback that asked to stop

    def stop(self, reason: str = "") -> None:
        """End the run after this update, with a checkpoint; the summary says the reason. The first one counts."""
        reason = coerce("reason", reason, str)
        self.stop_reason = reason if self.stop_reason is None else self.stop_reason

    @cached_property
    def rules(self) -> str:
        """What the world's rules are recognized by."""
        return world_fingerprint(self.pool.env)

    def close(self) -> None:
        """End what runs beside this process."""
        self.collector.close()
        self.pool.close()
        self.evaluator.pool.close()


def make_policy(config: RunConfig, network: nn.Module | None = None) -> Policy:
    """The policy of a config for its world: the user's network, or the default one. At most one env is made."""
    return policy_for(*_spaces_of(config), config, network)


def policy_for(
    observation_space: Any,
    action_space: Any,
    config: RunConfig,
    network: nn.Module | None = None,
    *,
    learns: bool = False,
) -> Policy:
    """The policy of a config for these spaces: the user's network, or the default one with weights from the seed;
    `learns`: to be trained."""
    if network is None:
        each = BYTES_PER_WEIGHT if learns and config.device != "cuda" else 4
        check_network_memory(observation_space, action_space, config.policy, bytes_per_weight=each)
    torch.manual_seed(config.seed)
    if network is None:
        network = default_network(observation_space, action_space, config.policy)
    normalizes = config.ppo.normalize_observations
    return Policy(network, observation_space, action_space, config.policy, normalize_observations=normalizes)


def _spaces_of(config: RunConfig) -> tuple[Any, Any]:
    """What a policy of this config observes, frames stacked, and its actions."""
    world = config.make_env()
    if isinstance(world, Env):
        check_spaces(world)
    space = world.observation_space
    if config.frame_stack > 1:
        check_stackable(config.env, space, config.frame_stack)
        space = stacked_space(space, config.frame_stack)
    return space, world.action_space


def make_pool(
    config: RunConfig,
    *,
    num_envs: int,
    num_threads: int | None = None,
    learns: bool = False,
    beside: Pool | None = None,
) -> NativePool | ForeignPool | FrameStackPool:
    """Envs as this config's policy sees them; `learns`: to train with.

    `beside` is the pool that trains, if there is one: where its envs of others live in processes of their own, so do
    these, and where they live in this one, so do these.
    """
    world = config.make_env()
    pool: NativePool | ForeignPool
    if isinstance(world, ForeignWorld):
        workers = replace(
            world.workers,
            apart=learns and config.mode == "async",
            in_halves=learns,
            threads=max(1, 2 * available_cores() // config.num_actors) if isinstance(config.num_actors, int) else 1,
        )
        if beside is not None:
            workers = replace(workers, num_workers=int(beside.is_guarded))
        elif not learns and workers.num_workers is not None:
            workers = replace(workers, num_workers=min(1, workers.num_workers))
        pool = world.pool(num_envs, learns=learns, workers=workers)
    else:
        pool = NativePool(world, num_envs, num_threads=num_threads)
    return pool if config.frame_stack == 1 else FrameStackPool(pool, config.frame_stack)


def _training_pool(config: RunConfig) -> Pool:
    assert isinstance(config.num_envs, int)
    if config.mode == "async":
        return ConcatenatedPool(_pools_of_actors(config))
    if config.env_device == "cuda":
        world = config.make_env()
        assert isinstance(world, Env)
        return CudaPool(world, config.num_envs)
    return make_pool(config, num_envs=config.num_envs, learns=True)


def _pools_of_actors(config: RunConfig) -> list[Pool]:
    assert isinstance(config.num_envs, int)
    assert isinstance(config.num_actors, int)
    num_envs, num_actors = config.num_envs // config.num_actors, config.num_actors
    if not is_foreign(config.env):
        return [make_pool(config, num_envs=num_envs, num_threads=1, learns=True) for _ in range(num_actors)]
    apart = replace(config, num_workers=1)
    with ThreadPoolExecutor(num_actors) as starters:  # a process takes a second to start
        started = [
            starters.submit(make_pool, apart, num_envs=num_envs, num_threads=1, learns=True) for _ in range(num_actors)
        ]
    pools: list[Pool] = [each.result() for each in started if each.exception() is None]
    try:
        for each in started:
            if each.result().waiting is None:
                raise ConfigError(
                    f"mode='async' cannot step {config.env}: it makes many envs at once; use --mode sync, or a "
                    f"function that makes one env"
                )
    except BaseException:
        for pool in pools:
            pool.close()
        raise
    return pools


def _collector(
    config: RunConfig, run: Run, pool: Pool, learner: Learner, rollout: Rollout, generator: torch.Generator, seed: int
) -> Collector:
    policy = learner.policy
    if not isinstance(pool, ConcatenatedPool):
        return Synchronous(pool, policy, rollout, generator)
    shape: dict[str, Any] = {
        "max_lag": config.max_policy_lag,
        "num_steps": config.num_steps,
        "horizon": config.ppo.bptt_horizon,
    }
    actors: Actors
    if is_foreign(config.env):
        actors = CentralActors(pool, policy, **shape, seed=seed, fused=config.fused)
    else:
        restarts = config.on_env_error == "restart"
        actors = ActorThreads(pool, policy, **shape, seed=seed, fused=config.fused, restarts=restarts)
    parameters = {f"env.{name}": value for name, value in config.env_parameters.items()}
    settings = {name: getattr(config, name) for name in ("seed", "num_envs", "num_steps")}
    settings["env"] = placeless_name(config.env)
    settings = json.loads(json.dumps({**settings, **parameters}, default=str))  # as a schedule's first line has them
    if config.replay_schedule is not None:
        return Replayed(actors, pool, learner, rollout, Path(config.replay_schedule), settings)
    is_resumed = bool(CheckpointStore(run.checkpoints_path, None).steps())
    if config.record_schedule and not is_resumed:  # what that plays cannot be replayed from the start
        actors.exchange.record = ScheduleLog(run.path / SCHEDULE, settings)
    return Asynchronous(actors, pool, learner, rollout)


def make_evaluator(config: RunConfig, *, episodes: int, beside: Pool | None = None) -> Evaluator:
    """An evaluator with a pool of its own, of no more envs than episodes; `beside` is the pool that trains, if any."""
    most = MAX_FOREIGN_ENVS if is_foreign(config.env) else MAX_ENVS
    pool = make_pool(config, num_envs=max(1, min(episodes, most)), num_threads=1, beside=beside)
    return Evaluator(pool, episodes=episodes, samples=config.eval.samples, max_steps=config.eval.max_steps)


def build_session(
    config: RunConfig, run: Run, network: nn.Module | None = None, parent_digest: str | None = None
) -> Session:
    """A session at its very beginning; `config` is resolved, `run` is locked by us; of a fork, its parent's digest."""
    assert isinstance(config.num_envs, int)
    assert isinstance(config.num_threads, int)
    # First of all, for what stands in their place may be refused.
    store = CheckpointStore(run.checkpoints_path, config.checkpoint.keep_last_n, run.check_lock)
    metrics_log = MetricsLog(run.metrics_path, run.check_lock)
    set_threads(config.num_threads)
    keep_freed_memory()
    leave_compiler_unloaded()
    if config.device == "cuda":
        require_cuda()
        set_precision(config.precision)
    seed = config.seed if parent_digest is None else seed_of_fork(config.seed, parent_digest)
    with contextlib.ExitStack() as unless_built:
        pool = _training_pool(config)
        unless_built.callback(pool.close)
        policy = policy_for(pool.observation_space, pool.action_space, config, network, learns=True).to(config.device)
        policy.env_spaces = env_spaces(pool)
        policy.uses_bfloat16 = config.precision == "bfloat16"
        pool.prepare()
        rollout, learner = _learning(config, pool, policy, seed)
        generator = torch.Generator(policy.device).manual_seed(seed)
        pool.reset(training_episodes(seed), out=rollout.rows[-1])
        evaluator = make_evaluator(config, episodes=config.eval.episodes, beside=pool)
        unless_built.callback(evaluator.pool.close)
        session = Session(
            config=config,
            run=run,
            store=store,
            metrics_log=metrics_log,
            pool=pool,
            policy=policy,
            learner=learner,
            rollout=rollout,
            generator=generator,
            progress=Progress(pool.num_players, pool.num_envs),
            evaluator=evaluator,
            collector=_collector(config, run, pool, learner, rollout, generator, seed),
        )
        unless_built.pop_all()
    for each in (pool, session.evaluator.pool, session.metrics_log):
        each.tell(session.news.append)
    if pool.draws_every_step:
        session.news.append(DRAWN_EVERY_STEP.format(env=config.env))
    return session


def _learning(config: RunConfig, pool: Pool, policy: Policy, seed: int) -> tuple[Rollout, Learner]:
    """What a run plays into and learns with, ready to begin."""
    assert isinstance(config.num_steps, int)
    is_async = isinstance(pool, ConcatenatedPool)
    rollout = allocate_rollout(
        pool, policy, config.num_steps, config.ppo.bptt_horizon, apart=False if is_async else None
    )
    if config.fused:
        rollout.fused = fused_mlp(policy, pool, config.precision)
        for part in (rollout, *rollout.halves):
            part.native = native_play(policy, part)
    totals = {"total_steps": config.total_timesteps, "seed": seed}
    learner = Learner.for_rollout(rollout, policy, config.ppo, **totals, is_behind=is_async)
    learner.warm_up(rollout)
    return rollout, learner
