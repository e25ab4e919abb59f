"""Trained policies, afterwards: load one from a run or a checkpoint, evaluate it, play it step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from scramjet.engine.drawn import DrawnPool
from scramjet.engine.foreign import ForeignPool
from scramjet.engine.foreign_worlds import ForeignWorld
from scramjet.engine.frame_stack import FrameStackPool
from scramjet.engine.pool import Pool
from scramjet.errors import ConfigError
from scramjet.policies.networks import default_network
from scramjet.policies.normalization import make_normalizer
from scramjet.policies.policy import Policy
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.settings import MAX_COUNT, coerce
from scramjet.training.config import MAX_SEED, RunConfig
from scramjet.training.config_files import Caller
from scramjet.training.evaluation import Evaluation
from scramjet.training.memories import Player
from scramjet.training.seeds import unseen_episodes
from scramjet.training.session import make_evaluator, make_policy, make_pool, policy_for
from scramjet.training.start import (
    check_fits,
    check_network_is_given,
    checkpoint_config,
    checkpoint_settings,
    find_checkpoint,
    name_of,
)
from scramjet.training.state import check_weights, env_terms, load_weights, policy_spaces


def load_policy(path: str | Path, network: nn.Module | None = None, *, trust: bool = False) -> Policy:
    """The policy of a run (its newest checkpoint) or of a checkpoint.

    The world is neither loaded nor needed. Only checkpoints that were written before they said what their policy
    observes need it; `trust` lets such a one of somebody else name a world in a file or module, which runs it.
    """
    path, network = coerce("path", path, Path), coerce("network", network, nn.Module | None)
    checkpoint = find_checkpoint(path, Path("runs"))
    settings = checkpoint_settings(checkpoint)
    spaces = policy_spaces(checkpoint)
    if spaces is None:
        return load_trained(path, network, trust=trust)[0]
    check_network_is_given(checkpoint, network)
    if network is None:
        _check_default_network(checkpoint, spaces, settings)
    policy = policy_for(*spaces, settings, network)
    policy.env_spaces = env_terms(checkpoint, spaces, settings.frame_stack)
    load_weights(policy, checkpoint)
    return policy.eval()


def _check_default_network(checkpoint: Checkpoint, spaces: tuple[Any, Any], settings: RunConfig) -> None:
    """Refuse what does not fit the checkpoint's own tensors before memory is taken for it."""
    with torch.device("meta"):  # shapes without numbers
        network = default_network(*spaces, settings.policy)
        normalizer = make_normalizer(spaces[0]) if settings.ppo.normalize_observations else None
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    if normalizer is not None:
        tensors |= {f"normalizer.{name}": tensor for name, tensor in normalizer.state_dict().items()}
    check_weights(tensors, checkpoint)


def evaluate(
    path: str | Path,
    episodes: int = 100,
    seed: int | None = None,
    network: nn.Module | None = None,
    env: str | Callable[..., Any] | None = None,
    *,
    trust: bool = False,
) -> Evaluation:
    """Play a run's or checkpoint's most likely actions for some episodes; `scramjet eval` from Python.

    `network` is what `train` was given, where that was a module; `env` a world in place of the one that the checkpoint
    names, such as the function that `train` was given. `trust` lets a checkpoint of somebody else name a world in a
    file or module, which runs it.
    """
    episodes, seed = checked_episodes(episodes, seed)
    policy, config, _ = load_trained(path, network, env=env, trust=trust)
    chosen_seed = config.seed if seed is None else seed
    return make_evaluator(config, episodes=episodes)(policy, unseen_episodes(chosen_seed))


def checked_episodes(episodes: int, seed: int | None) -> tuple[int, int | None]:
    """A number of episodes to play, and their seed, as plain numbers; refuses what is none."""
    episodes, seed = coerce("episodes", episodes, int), coerce("seed", seed, int | None)
    if not 1 <= episodes <= MAX_COUNT:
        raise ConfigError(f"episodes={episodes} must be from 1 to {MAX_COUNT}")
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed={seed} must be from 0 to 2**62 - 1")
    return episodes, seed


def load_trained(
    path: str | Path,
    network: nn.Module | None = None,
    runs_dir: str | Path = "runs",
    env: str | Callable[..., Any] | None = None,
    *,
    trust: bool = False,
) -> tuple[Policy, RunConfig, Checkpoint]:
    """A checkpoint's policy, the config it was trained with, and the checkpoint, for who is about to play it.

    `env`: a world in place of the one that the checkpoint names, with the same parameters.
    """
    network, trust = coerce("network", network, nn.Module | None), coerce("trust", trust, bool)
    checkpoint = find_checkpoint(coerce("path", path, Path), coerce("runs_dir", runs_dir, Path))
    caller = Caller(trust, None if env is None else name_of(env), keeps_parameters=True)
    config = checkpoint_config(checkpoint, caller)
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
