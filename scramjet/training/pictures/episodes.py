"""Episodes played one step at a time to be watched: the one loop behind text in a terminal and videos."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.policies.policy import Policy
from scramjet.search.rows import SearchSettings
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluation.evaluator import make_player, steps_at_most
from scramjet.training.pictures.stages import Drawing, Stage


@dataclass(frozen=True, slots=True)
class Moment:
    """How the episodes of N envs stand after a step; those that have ended stay as they were."""

    drawings: list[Drawing]  # [N]
    returns: np.ndarray  # [N, players] float64, so far
    steps: np.ndarray  # [N] int64
    has_ended: np.ndarray  # [N] bool: by itself, or cut


def watch(
    stage: Stage,
    policy: Policy,
    config: RunConfig,
    seeds: EpisodeSeed,
    *,
    rounds: int = 1,
    search: SearchSettings | None = None,
) -> Iterator[Moment]:
    """Play one episode of every env, `rounds` times, and tell of each step; the first moment is before any.

    Actions are searched or drawn, and episodes cut, as in an evaluation with this config; the first round plays the
    episodes that an evaluation with these seeds begins with.
    """
    pool = stage.pool
    longest = steps_at_most(pool, config.eval.max_steps)
    generator = torch.Generator().manual_seed(seeds.key)
    shape = (pool.num_envs, pool.num_players)
    is_through = False  # every env has begun its next episode by itself
    for number in range(rounds):
        if not is_through:
            out = pool.reset(seeds if number == 0 else seeds.after("cut", number))
            player = make_player(pool, policy, generator, samples=config.eval.samples, search=search)
        drawings, returns = stage.drawings(out), np.zeros(shape)
        steps, is_over = np.zeros(pool.num_envs, np.int64), np.zeros(pool.num_envs, np.bool_)
        ended = is_over.copy()
        yield Moment(list(drawings), returns.copy(), steps.copy(), ended.copy())
        while not ended.all():
            out, drawn = stage.step(player.act(out), np.flatnonzero(~ended))
            player.see(out)
            for i, drawing in drawn.items():
                drawings[i] = drawing
            returns += np.where(ended[:, None], 0.0, out.reward.reshape(shape))
            steps += ~ended
            lengths = pool.unfinished()[1].reshape(shape)
            is_over = is_over | (~ended & (lengths.max(1) == 0))
            ended = is_over | (steps == longest)
            yield Moment(list(drawings), returns.copy(), steps.copy(), ended.copy())
        is_through = bool(is_over.all()) and pool.num_envs == 1
