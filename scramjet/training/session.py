"""A run in memory: everything the loop works with, built from a config and a run folder."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scramjet.adapters.env_spaces import env_spaces
from scramjet.adapters.registry import is_foreign
from scramjet.algorithms.algorithm import Materials
from scramjet.compile.cuda import require_cuda
from scramjet.engine.pool import Pool
from scramjet.engine.wrappers import ConcatenatedPool
from scramjet.kernels.operations import allow_kernels
from scramjet.policies.policy import Policy
from scramjet.runs.metadata import member_metadata
from scramjet.runs.results import Best
from scramjet.runs.world_files import placeless_name, world_fingerprint
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.runtime.devices import keep_freed_memory, leave_compiler_unloaded, set_precision, set_threads
from scramjet.runtime.logs import MetricsLog
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.runs import Run
from scramjet.selfplay.members import MemberFiles
from scramjet.settings import coerce
from scramjet.telemetry.progress import Progress
from scramjet.telemetry.sinks import MetricsFile, Sink
from scramjet.training.asynchronous.actors import ActorThreads, LocalActors
from scramjet.training.asynchronous.central_actors import CentralActors
from scramjet.training.asynchronous.collector import Asynchronous, Replayed, ScheduleLog
from scramjet.training.asynchronous.ray_actors import make_ray_actors
from scramjet.training.collector import Collector, Synchronous
from scramjet.training.components import make_evaluator, make_pool, make_training_pool, policy_for, symmetry_tables
from scramjet.training.config import files as config_files
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.curiosity import Curiosity
from scramjet.training.evaluator import Evaluator
from scramjet.training.learner import Learner
from scramjet.training.learning import Learning
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.search.player import SearchingPlayer
from scramjet.training.seeds import action_generator, seed_of_fork, training_episodes
from scramjet.training.self_play.league import League
from scramjet.training.self_play.opponents import Opponents
from scramjet.training.self_play.setup import make_league, seat_opponents
from scramjet.training.strength import OPPONENTS, Strength, is_game

SCHEDULE = "schedule.jsonl"
"""The file of a run that records what its actors did and when; see `record_schedule`."""

DRAWN_EVERY_STEP = (
    "warning: {env} has render_mode='human' and draws every step in a window, which allows some 150 steps a second; "
    "train without it, and watch with scramjet eval RUN --render"
)


@dataclass
class Session:
    """A run under way: its config and folder, the objects that train it, and how far it has come."""

    config: RunConfig
    run: Run
    store: CheckpointStore
    metrics_log: MetricsLog
    sinks: list[Sink]
    """Where the metrics of every update go, in this order; metrics.jsonl is the first."""
    pool: Pool
    policy: Policy
    learner: Learning[Any]
    player: RolloutPlayer | SearchingPlayer
    """Holds the rollout that the learner learns from, and plays it in synchronous training."""
    generator: torch.Generator
    """The generator that actions are drawn with."""
    progress: Progress
    evaluator: Evaluator
    collector: Collector
    ranks: Ranks = ALONE
    """The processes that train this run together, of which this is one."""
    league: League | None = None
    """The pool of opponents and the results against them; None without self-play against others."""
    strength: Strength | None = None
    """Measures the policy in games for several; None in other worlds, without evaluations, and on ranks but the first.
    """
    first_update: int = 0
    """Updates done before this process began: not 0 after a resume."""
    first_step: int = 0
    """Env steps trained before the run's own first update: not 0 in a fork."""
    elapsed_seconds: float = 0.0
    """Seconds that earlier processes trained this run."""
    best: Best | None = None
    """The mean return and lower bound of the best checkpoint."""
    lineage: dict[str, Any] | None = None
    """Where a fork comes from; None for a run that is no fork."""
    note: str = ""
    """Remarks for the header of the display, such as "resumed at step 1,024"."""
    news: deque[str] = field(default_factory=deque)
    """Messages of the envs and the metrics log that the display has not shown yet; other threads may add to it."""
    saved: deque[Path] = field(default_factory=deque)
    """Checkpoints written that callbacks have not been told of yet; another thread adds to it."""
    stop_reason: str | None = None
    """The reason of a callback that asked to stop; None while none has."""

    def stop(self, reason: str = "") -> None:
        """End the run after this update, with a checkpoint; the summary says the reason. The first one counts."""
        reason = coerce("reason", reason, str)
        self.stop_reason = reason if self.stop_reason is None else self.stop_reason

    @property
    def rollout(self) -> Rollout:
        """The rollout that the learner learns from."""
        return self.player.rollout

    @property
    def curiosity(self) -> Curiosity | None:
        """What pays bonuses; None without curiosity."""
        return self.learner.curiosity if isinstance(self.learner, Learner) else None

    @property
    def num_updates(self) -> int:
        """The number of the run's last update, counted from its own beginning."""
        remaining = self.config.total_timesteps - self.first_step
        wanted = -(-remaining // self.config.batch_size)
        given = self.collector.num_rollouts
        return wanted if given is None else min(wanted, self.first_update + given)

    def step_after(self, update: int) -> int:
        """Env steps trained once `update` is done; those before a fork count too."""
        return self.first_step + update * self.config.batch_size

    @cached_property
    def rules(self) -> str:
        """A hash of the world's rules, by which a checkpoint recognizes its world."""
        return world_fingerprint(self.pool.env)

    def close(self) -> None:
        """Close the sinks, the last one first, then end the threads and processes of actors and envs."""
        with contextlib.ExitStack() as parts:  # closes all, also where one of them raises
            parts.callback(self.evaluator.pool.close)
            if self.strength is not None:
                parts.callback(self.strength.pool.close)
            if self.league is not None:
                parts.callback(self.league.close)
            parts.callback(self.pool.close)
            parts.callback(self.collector.close)
            for sink in self.sinks:
                parts.callback(sink.close)


def _collector(
    config: RunConfig,
    run: Run,
    player: RolloutPlayer | SearchingPlayer,
    learner: Learning[Any],
    generator: torch.Generator,
    seed: int,
    league: League | None,
    sitting: Sequence[Opponents],
    ranks: Ranks,
) -> Collector:
    """The collector that the config asks for: synchronous, asynchronous, or replaying a schedule.

    `league` has the opponents of the run, `sitting` those that play in each pool that steps.
    """
    policy, pool, rollout = learner.policy, player.pool, player.rollout
    if not isinstance(pool, ConcatenatedPool):
        return Synchronous(player, generator, league)
    assert isinstance(learner, Learner)
    first_actor = ranks.rank * len(pool.pools)
    if config.actors == "ray":
        remote = make_ray_actors(config, pool, policy, rollout, seed=seed, first_actor=first_actor)
        return Asynchronous(remote, pool, learner, rollout)
    shape: dict[str, Any] = {
        "max_lag": config.max_policy_lag,
        "num_steps": config.num_steps,
        "horizon": config.ppo.bptt_horizon,
        "first_actor": first_actor,
    }
    actors: LocalActors
    if is_foreign(config.env):
        actors = CentralActors(pool, policy, **shape, seed=seed, fused=config.fused)
    else:
        restarts = config.on_env_error == "restart"
        actors = ActorThreads(pool, policy, **shape, seed=seed, fused=config.fused, restarts=restarts, others=sitting)
    parameters = {f"env.{name}": value for name, value in config.env_parameters.items()}
    settings = {name: getattr(config, name) for name in ("seed", "num_envs", "num_steps")}
    settings["env"] = placeless_name(config.env)
    settings = json.loads(json.dumps({**settings, **parameters}, default=str))  # as in the first line of a schedule
    if config.replay_schedule is not None:
        return Replayed(actors, pool, learner, rollout, Path(config.replay_schedule), settings, league)
    is_resumed = bool(CheckpointStore(run.checkpoints_path, None).steps())
    if config.record_schedule and not is_resumed:  # a resumed run cannot be replayed from the start
        actors.exchange.record = ScheduleLog(run.path / SCHEDULE, settings)
    return Asynchronous(actors, pool, learner, rollout, league)


def build_session(
    config: RunConfig,
    run: Run,
    network: nn.Module | None = None,
    parent_digest: str | None = None,
    *,
    ranks: Ranks = ALONE,
) -> Session:
    """Build a session that is ready for its first update.

    `config` is resolved, and `run` locked by this process. `network` is the user's own, or None. `parent_digest` is the
    hash of the checkpoint that a fork comes from. `ranks` are the processes that train it together.
    """
    # These come first because they may refuse the files at their paths.
    store = CheckpointStore(run.checkpoints_path, config.checkpoint.keep_last_n, run.check_lock)
    metrics_log = MetricsLog(run.metrics_path, run.check_lock)
    _prepare_process(config)
    seed = config.seed if parent_digest is None else seed_of_fork(config.seed, parent_digest)
    with contextlib.ExitStack() as unless_built:
        pool = make_training_pool(config)
        unless_built.callback(pool.close)
        spaces = pool.observation_space, pool.action_space
        symmetries = symmetry_tables(config, *spaces)
        policy = policy_for(*spaces, config, network, symmetries=symmetries, learns=True).to(config.device)
        if config.device == "cuda":  # convolutions are a third faster over channels that lie together
            policy = policy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        policy.env_spaces = env_spaces(pool)
        policy.uses_bfloat16 = config.precision == "bfloat16"
        pool.prepare()
        rules = world_fingerprint(pool.env)
        metadata = partial(member_metadata, config_files.to_dict(config, run.path), pool, policy, rules)
        sitting = seat_opponents(config, pool, policy, seed)
        league = make_league(config, run.path, pool, policy, network, sitting, metadata, seed=seed) if sitting else None
        player, learner = config.traits.make(Materials(config, pool, policy, seed, sitting, ranks))
        generator = action_generator(policy.device, seed, ranks)
        pool.reset(training_episodes(seed).part(ranks.rank * pool.num_envs), out=player.buffers.last)
        num_evaluated = config.eval.episodes if ranks.is_first else 1  # other ranks do not evaluate
        evaluator = make_evaluator(config, episodes=num_evaluated, beside=pool)
        unless_built.callback(evaluator.pool.close)
        strength = None
        if ranks.is_first and is_game(pool) and (config.eval.every or config.eval.final_episodes):
            games_pool = evaluator.pool
            if not is_foreign(config.env):  # where envs are cheap, all games at once
                games_pool = make_pool(
                    config, num_envs=evaluator.pool.num_envs * len(OPPONENTS) * pool.num_players, num_threads=1
                )
                unless_built.callback(games_pool.close)
            how: dict[str, Any] = {"samples": config.eval.samples, "max_steps": config.eval.max_steps}
            strength = Strength(games_pool, MemberFiles(run.path), metadata, **how)
        session = Session(
            config=config,
            run=run,
            store=store,
            metrics_log=metrics_log,
            sinks=[MetricsFile(metrics_log)] if ranks.is_first else [],
            pool=pool,
            policy=policy,
            learner=learner,
            player=player,
            generator=generator,
            progress=Progress(pool.num_players, pool.num_envs * ranks.size),
            evaluator=evaluator,
            collector=_collector(config, run, player, learner, generator, seed, league, sitting, ranks),
            ranks=ranks,
            league=league,
            strength=strength,
        )
        unless_built.pop_all()
    for each in (pool, session.evaluator.pool, session.metrics_log):
        each.tell(session.news.append)
    if pool.draws_every_step:
        session.news.append(DRAWN_EVERY_STEP.format(env=config.env))
    return session


def _prepare_process(config: RunConfig) -> None:
    """Apply settings of the whole process: threads, reuse of freed memory, the GPU's kernels and precision."""
    assert isinstance(config.num_threads, int)
    set_threads(config.num_threads)
    keep_freed_memory()
    leave_compiler_unloaded()
    allow_kernels(config.fused)
    if config.device == "cuda":
        require_cuda()
        set_precision(config.precision)
