"""A checkpoint that plays one env: alone, against itself, or against another player. It yields frames, one a step."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scramjet.adapters.spaces import action_shape_and_dtype
from scramjet.engine.layout import PlayedBy
from scramjet.web.watching.scene import Scene
from scramjet.web.watching.thoughts import Actions, Performer, Thought

MOST_THOUGHTS = 8
"""Agents that act at once and whose thoughts are shown."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One position of an episode: how it looks, what those to move think, and what they are about to do."""

    seed: int
    step: int
    """Steps before it in this episode."""
    picture: np.ndarray | str
    rewards: list[float]
    """What the step to this position paid each player; zeros at the beginning."""
    returns: list[float]
    """Sums of the rewards so far."""
    thoughts: list[Thought]
    """Of those to move; empty once the episode has ended."""
    names: list[str]
    """What the players are called, by seat or agent."""
    ended: bool
    was_cut: bool
    """The episode ended by a limit of steps."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the picture."""
        return {
            **{name: getattr(self, name) for name in ("seed", "step", "names", "ended", "was_cut")},
            "rewards": [_finite(each) for each in self.rewards],
            "returns": [_finite(each) for each in self.returns],
            "thoughts": [asdict(each) for each in self.thoughts],
            "text": self.picture if isinstance(self.picture, str) else None,
        }


def _finite(number: float) -> float | None:
    """JSON knows no NaN and no infinity, which a world's rewards may be."""
    return number if math.isfinite(number) else None


class Performance:
    """Performers in a scene: `agent` has one seat and `opponent` all others; without one the agent has all."""

    def __init__(self, scene: Scene, agent: Performer, opponent: Performer | None = None) -> None:
        self.scene, self._agent, self._opponent = scene, agent, opponent
        self.actions = Actions(scene.pool)
        self.is_over = False

    def begin(self, seed: int) -> Frame:
        """Begin the episode of this seed. Who begins a match follows from it too: the agent where it is even."""
        self._out = self.scene.begin(seed)
        self._seats = self._seated(seed)
        for performer in self._distinct():
            performer.player.begin(self.scene.pool)
        self._seed, self._step, self.is_over = seed, 0, False
        self._random = np.random.default_rng(seed)
        self._returns = np.zeros(self.scene.pool.num_players)
        self._rewards = np.zeros(self.scene.pool.num_players)
        return self._frame(was_cut=False)

    def advance(self) -> Frame:
        """Take the actions that the last frame showed; returns the position after them."""
        assert not self.is_over, "begin another episode first"
        self._out = self.scene.step(self._chosen)
        for performer in self._distinct():
            performer.player.see(self._out)
        self._step += 1
        self._rewards = np.ravel(self._out.reward).astype(np.float64)
        self._returns = self._returns + self._rewards
        is_cut = self._step == self.scene.longest and not self.scene.is_over
        self.is_over = self.scene.is_over or is_cut
        return self._frame(was_cut=is_cut or (self.is_over and bool(self._out.truncated.any())))

    def close(self) -> None:
        """End the scene."""
        self.scene.close()

    def _seated(self, seed: int) -> list[Performer]:
        """Who plays, by seat or agent."""
        pool = self.scene.pool
        if self._opponent is None:
            return [self._agent] * pool.num_players
        first = int(self._out.turn[0]) if pool.played_by is PlayedBy.SEATS else 0
        own = (first + seed) % pool.num_players
        return [self._agent if place == own else self._opponent for place in range(pool.num_players)]

    def _distinct(self) -> list[Performer]:
        return list(dict.fromkeys(self._seats))

    def _movers(self) -> list[int]:
        """Who is to act: the seat in turn, or the agents that are alive."""
        kind = self.scene.pool.played_by
        if kind is PlayedBy.SEATS:
            return [int(self._out.turn[0])]
        return np.flatnonzero(self._out.turn).tolist() if kind is PlayedBy.AGENTS else [0]

    def _frame(self, *, was_cut: bool) -> Frame:
        return Frame(
            seed=self._seed,
            step=self._step,
            picture=self.scene.picture(),
            rewards=self._rewards.tolist(),
            returns=self._returns.tolist(),
            thoughts=[] if self.is_over else self._choose(),
            names=self._names(),
            ended=self.is_over,
            was_cut=was_cut,
        )

    def _names(self) -> list[str]:
        """What the players are called; one that plays against itself by its seats."""
        if len(self._seats) > 1 and len(self._distinct()) == 1:
            return [f"player {place}" for place in range(1, len(self._seats) + 1)]
        return [performer.player.name for performer in self._seats]

    def _choose(self) -> list[Thought]:
        """Have those to move choose their actions for the next step; returns what they think."""
        pool, movers, thoughts = self.scene.pool, self._movers(), []
        shape, dtype = action_shape_and_dtype(pool.action_space)
        self._chosen = np.zeros((pool.num_rows, *shape), dtype)
        for performer in self._distinct():
            own = [mover for mover in movers if self._seats[mover] is performer]
            if own:
                rows, chosen, its = performer.choose(pool, self._out, own, self._random, self.actions)
                self._chosen[rows] = chosen
                thoughts += its
        return sorted(thoughts, key=lambda each: each.player)[:MOST_THOUGHTS]
