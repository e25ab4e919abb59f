"""Trained policies, afterwards: load one from a run or a checkpoint, evaluate it, play it step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from scramjet.engine.drawn import DrawnPool
from scramjet.engine.foreign import ForeignPool
from scramjet.engine.foreign_worlds import ForeignWorld, register_factory
from scramjet.engine.frame_stack import FrameStackPool
from scramjet.engine.pool import Pool
from scramjet.policies.policy import Policy
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.training.config import RunConfig
from scramjet.training.evaluation import Evaluation
from scramjet.training.memories import Player
from scramjet.training.seeds import unseen_episodes
from scramjet.training.session import make_evaluator, make_policy, make_pool
from scramjet.training.start import check_fits, checkpoint_config, find_checkpoint
from scramjet.training.state import load_weights


def load_policy(path: str | Path, network: nn.Module | None = None) -> Policy:
    """The policy of a run (its newest checkpoint) or of a checkpoint."""
    return load_trained(path, network)[0]


def evaluate(
    path: str | Path,
    episodes: int = 100,
    seed: int | None = None,
    network: nn.Module | None = None,
    env: Callable[..., Any] | None = None,
) -> Evaluation:
    """Play a run's or checkpoint's most likely actions for some episodes; `scramjet eval` from Python.

    `network` and `env` are what `train` was given, where that was a module and a function.
    """
    policy, config, _ = load_trained(path, network, env=env)
    chosen_seed = config.seed if seed is None else seed
    return make_evaluator(config, episodes=episodes)(policy, unseen_episodes(chosen_seed))


def load_trained(
    path: str | Path,
    network: nn.Module | None = None,
    runs_dir: str | Path = "runs",
    env: Callable[..., Any] | None = None,
) -> tuple[Policy, RunConfig, Checkpoint]:
    """A checkpoint's policy, the config it was trained with, and the checkpoint; `env`: a function in place of its."""
    checkpoint = find_checkpoint(path, Path(runs_dir))
    config = checkpoint_config(checkpoint)
    if env is not None:
        config = replace(config, env=register_factory(env))
    check_fits(checkpoint, config, network)
    policy = make_policy(config, network)
    load_weights(policy, checkpoint)
    return policy.eval(), config, checkpoint


def play(policy: Policy, config: RunConfig, seed: int, episodes: int) -> Iterator[tuple[str, float, int, bool]]:
    """Play episodes one step at a time: a picture as text, the return so far, the step, and whether it ended."""
    world = config.make_env()
    if isinstance(world, ForeignWorld):
        yield from _play_drawn(world, policy, config, seed, episodes)
        return
    pool = make_pool(config, num_envs=1)
    assert not isinstance(pool, ForeignPool)
    out, player = pool.reset(unseen_episodes(seed)), Player(pool, policy)
    for _ in range(episodes):
        total, step, ended = 0.0, 0, False
        yield pool.env.ascii(pool.record(0)), total, step, ended
        while not ended:
            action = player.act(out)
            after, _ = pool.simulate(pool.states(), action)  # the last picture, before the next episode begins
            picture = pool.env.ascii(pool.as_record(after[0]))
            out = pool.step(action)
            player.see(out)
            ended = bool(pool.states()["_steps"][0] == 0)
            total, step = total + float(np.sum(out.reward)), step + 1
            yield picture, total, step, ended


def _play_drawn(
    world: ForeignWorld, policy: Policy, config: RunConfig, seed: int, episodes: int
) -> Iterator[tuple[str, float, int, bool]]:
    """The same of another library's env, which draws itself."""
    drawn = DrawnPool(world)
    pool: Pool = drawn if config.frame_stack == 1 else FrameStackPool(drawn, config.frame_stack)
    out, player = pool.reset(unseen_episodes(seed)), Player(pool, policy)
    for _ in range(episodes):
        total, step, ended = 0.0, 0, False
        yield drawn.pictures[-1], total, step, ended
        while not ended:
            drawn.pictures.clear()
            out = pool.step(player.act(out))
            player.see(out)
            ended = bool(out.terminated[0] or out.truncated[0])
            total, step = total + float(out.reward[0]), step + 1
            yield drawn.pictures[0], total, step, ended  # behind it, the first one of the next episode
    drawn.close()
