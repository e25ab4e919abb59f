"""A checkpoint that plays one env, alone, against itself or against another player: frames with pictures and thoughts.

`Scene` is the env and how it looks, `Performer` a player whose thoughts can be read, `Performance` yields one frame for
each step.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.adapters.registry import ForeignWorld
from scramjet.adapters.spaces import action_shape_and_dtype
from scramjet.arena.network_players import NetworkPlayer
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import map_leaves
from scramjet.envs.api import Box, Discrete, Env
from scramjet.errors import ConfigError, WorldError
from scramjet.players.player import Player
from scramjet.policies.distributions import DiagonalGaussian
from scramjet.policies.networks import PolicyOutput
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluator import steps_at_most
from scramjet.training.pictures.stages import CONTROL_RATE, TURN_RATE, NativeStage, Stage, picture_stage
from scramjet.training.seeds import unseen_episodes
from scramjet.web.pictures import checked_picture, drawn, plain_text

# --- the env

THE_ENV = np.array([0])


class Scene:
    """One env of a config's world, which is drawn: native worlds by `render` or `ascii`, others by themselves."""

    def __init__(self, config: RunConfig) -> None:
        self._stage = _stage(config)
        self.pool: Pool = self._stage.pool
        self.frames_per_second = self._stage.frames_per_second
        """How fast the world is watched, unless somebody chooses."""
        self.longest = steps_at_most(self.pool, config.eval.max_steps)
        """Steps after which an episode is cut, as in an evaluation; None: never."""
        self.is_over = False
        """Whether the last step ended the episode; the pool has then begun another, which is not watched."""

    def begin(self, seed: int) -> Transition:
        """Begin the episode that an evaluation with this seed begins with."""
        out = self.pool.reset(unseen_episodes(seed))
        self._drawing, self.is_over = self._stage.drawings(out)[0], False
        return out

    def step(self, actions: np.ndarray) -> Transition:
        """Step the env."""
        out, drawings = self._stage.step(actions, THE_ENV)
        self._drawing = drawings[0]
        self.is_over = bool(self.pool.unfinished()[1].max() == 0)
        return out

    def picture(self) -> np.ndarray | str:
        """The position as a picture [height, width, 3] uint8, or as text; after the last step, the final one."""
        drawing = self._drawing
        return plain_text(drawing) if isinstance(drawing, str) else checked_picture(drawing, self.pool.name)

    def close(self) -> None:
        """End the env and what runs it."""
        self.pool.close()


class _UndrawnStage:
    """An env of others that draws nothing: words stand in place of its pictures."""

    def __init__(self, config: RunConfig) -> None:
        self.pool: Pool = make_pool(config, num_envs=1)
        self.frames_per_second = TURN_RATE if self.pool.played_by is PlayedBy.SEATS else CONTROL_RATE

    def drawings(self, out: Transition) -> list[str]:
        """The words."""
        return [f"{self.pool.name} draws no pictures."]

    def step(self, actions: np.ndarray, watched: np.ndarray) -> tuple[Transition, dict[int, str]]:
        """Step the env; the words stay."""
        out = self.pool.step(actions)
        return out, {0: self.drawings(out)[0]}


def _stage(config: RunConfig) -> Stage:
    world = config.make_env()
    if not isinstance(world, ForeignWorld):
        return NativeStage(make_pool(config, num_envs=1, num_threads=1), partial(drawn, world))
    try:
        return picture_stage(config, 1, num_workers=1)
    except (ConfigError, WorldError):  # what is wrong with more than its pictures is told by the other stage
        return _UndrawnStage(config)


# --- thoughts

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


# --- the performance

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
