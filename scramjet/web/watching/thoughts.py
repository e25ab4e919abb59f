"""What a policy thinks of the position it is about to act in: how likely each action is, and the return it expects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.arena.network_players import NetworkPlayer
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import map_leaves
from scramjet.envs.api import Box, Discrete, Env
from scramjet.players.player import Player
from scramjet.policies.distributions import DiagonalGaussian
from scramjet.policies.networks import PolicyOutput

MOST_CHOICES = 4096
"""Choices of one action, all components together; a world with more is watched without their probabilities."""
ENDLESS = 1e9
"""A bound of an action as large as this is none."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One component of an action that is a choice; a Discrete world has one."""

    probabilities: list[float]
    """How likely each is when actions are drawn as in training; empty where no network plays."""
    legal: list[bool] | None
    """Which of them are legal; None where all are."""
    taken: int


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a continuous action, within the world's bounds."""

    mean: float
    low: float
    """One standard deviation below the mean."""
    high: float
    """One above."""
    taken: float


@dataclass(frozen=True, slots=True)
class Thought:
    """What one player thinks before it acts, and what it does."""

    player: int
    """The seat or agent, counted from 0."""
    value: float | None
    """The return it expects from here, discounted as in training; None where no network plays."""
    choices: list[Choice]
    numbers: list[Number]


class Actions:
    """The actions of a pool as people read them: choices with names, or numbers with bounds."""

    def __init__(self, pool: Pool) -> None:
        space = pool.action_space
        self.is_numbers = isinstance(space, Box)
        self.bounds: list[tuple[float, float]] = []
        self.sizes: list[int] = []
        if self.is_numbers:
            self.bounds = list(zip(np.ravel(space.low).tolist(), np.ravel(space.high).tolist(), strict=True))
            return
        is_one = isinstance(space, Discrete)
        self.sizes = [int(space.n)] if is_one else np.ravel(space.nvec).tolist()
        self.starts = np.ravel(np.asarray(space.start, np.int64))
        if sum(self.sizes) > MOST_CHOICES:
            self.sizes = []
        given = [str(name) for name in pool.env.action_names] if isinstance(pool.env, Env) else []
        numbers = [
            [str(first + each) for each in range(size)] for first, size in zip(self.starts, self.sizes, strict=False)
        ]
        self.names = [given] if given and numbers else numbers

    def as_dict(self) -> dict[str, Any]:
        """For JSON; a bound that is endless is None."""
        bounds = [[each if abs(each) < ENDLESS else None for each in pair] for pair in self.bounds]
        return {"choices": [] if self.is_numbers else self.names, "numbers": bounds}

    def choices(self, logits: Tensor | None, mask: np.ndarray, action: np.ndarray) -> list[Choice]:
        """The choices of an action [components] as the env takes it; of a network with these `logits` [sum(sizes)]."""
        if self.is_numbers:
            return []
        found, first = [], 0
        taken = (np.ravel(action) - self.starts).tolist()
        for place, size in enumerate(self.sizes):
            legal = mask[first : first + size] if mask.size else None
            shares: list[float] = []
            if logits is not None:
                part = logits[first : first + size].double()
                part = part if legal is None else part.masked_fill(~torch.from_numpy(legal), -math.inf)
                shares = torch.softmax(part, 0).nan_to_num(0.0).tolist()
            found.append(Choice(shares, None if legal is None else legal.tolist(), int(taken[place])))
            first += size
        return found

    def numbers(self, spread: Tensor | None, action: np.ndarray) -> list[Number]:
        """The numbers of an action as the env takes it; `spread` [3, D] holds means and what lies a deviation away."""
        if not self.is_numbers:
            return []
        taken = np.ravel(action).astype(np.float64).tolist()
        means, lows, highs = (taken, taken, taken) if spread is None else spread.tolist()
        return [Number(*each) for each in zip(means, lows, highs, taken, strict=True)]


class Performer:
    """A player whose thoughts can be read: of a network all of them, of others the actions alone.

    `reward_scale` is what a network's values are multiplied with to be returns.
    """

    def __init__(self, player: Player, reward_scale: float = 1.0) -> None:
        self.player = player
        self._reward_scale = reward_scale

    @torch.inference_mode()
    def choose(
        self, pool: Pool, seen: Transition, movers: list[int], generator: np.random.Generator, actions: Actions
    ) -> tuple[np.ndarray, np.ndarray, list[Thought]]:
        """Choose for some seats or agents: the rows [M] of the pool, actions [M, ...], and what each of them thinks."""
        rows = np.array(movers if pool.played_by is PlayedBy.AGENTS else [0])
        output = self._output(pool, seen, rows) if isinstance(self.player, NetworkPlayer) else None
        chosen = self.player.choose(seen, rows, generator)
        thoughts = [
            self._thought(output, place, mover, seen.mask[rows[place]], chosen[place], actions)
            for place, mover in enumerate(movers)
        ]
        return rows, chosen, thoughts

    def _output(self, pool: Pool, seen: Transition, rows: np.ndarray) -> PolicyOutput:
        """Logits and values of a network's rows; its memory does not move on."""
        assert isinstance(self.player, NetworkPlayer)
        policy = self.player.policy
        obs = map_leaves(lambda leaf: torch.from_numpy(leaf[rows]).to(policy.device), seen.obs)
        if not policy.state_size:
            return policy.forward(obs)
        slots = rows * pool.num_players + seen.turn[rows] if pool.played_by is PlayedBy.SEATS else rows
        states: Tensor = self.player.memory()[0]
        return policy.forward(obs, states[torch.from_numpy(slots)])

    def _thought(
        self, output: PolicyOutput | None, row: int, mover: int, mask: np.ndarray, action: np.ndarray, actions: Actions
    ) -> Thought:
        if output is None:
            return Thought(mover, None, actions.choices(None, mask, action), actions.numbers(None, action))
        assert isinstance(self.player, NetworkPlayer)
        distribution, logits = self.player.policy.distribution, output.logits[row].cpu()
        value = float(output.value[row]) * self._reward_scale
        expected = value if math.isfinite(value) else None
        if isinstance(distribution, DiagonalGaussian):
            return Thought(mover, expected, [], actions.numbers(_spread(distribution, logits), action))
        return Thought(mover, expected, actions.choices(logits, mask, action), [])


def _spread(distribution: DiagonalGaussian, logits: Tensor) -> Tensor:
    """The mean of each number and one deviation on either side, [3, D], as the env would receive them."""
    mean, log_std = distribution.mean_and_log_std(logits.unsqueeze(0))
    std = log_std.exp()
    return distribution.env_action(torch.cat([mean, mean - std, mean + std])).flatten(1).double().nan_to_num(0.0)
