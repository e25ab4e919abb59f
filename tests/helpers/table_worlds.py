"""Worlds that are tables of random numbers, and a network that is one: another search can read the very same."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.envs import Box, Discrete, Env
from scramjet.envs.rng import randint

NUM_PLACES, NUM_ACTIONS, TIME_LIMIT = 300, 7, 6
_rng = np.random.default_rng(0)
LEADS_TO = _rng.integers(0, NUM_PLACES, (NUM_PLACES, NUM_ACTIONS))  # [places, actions]
PAYS = _rng.choice([-1.0, 0.0, 0.0, 1.0], (NUM_PLACES, NUM_ACTIONS))  # [places, actions], to whoever moves
ALLOWS = _rng.random((NUM_PLACES, NUM_ACTIONS)) < 0.7  # [places, actions]
ALLOWS[np.arange(NUM_PLACES), _rng.integers(0, NUM_ACTIONS, NUM_PLACES)] = True
ENDS = (_rng.random(NUM_PLACES) < 0.1) & (np.arange(NUM_PLACES) > 0)  # [places]
MOVER = _rng.integers(0, 2, NUM_PLACES)  # [places], the seat to move: often the same one twice
LOGITS = 2 * _rng.standard_normal((NUM_PLACES, NUM_ACTIONS)).astype(np.float32)
VALUES = _rng.uniform(-1, 1, NUM_PLACES).astype(np.float32)


class TableWorld(Env):
    """One player moves from place to place; some places end the episode, and so does a time limit."""

    max_episode_steps = TIME_LIMIT
    observation_space = Box(0, NUM_PLACES, (1,), np.float32)
    action_space = Discrete(NUM_ACTIONS)
    state = {"place": np.int32}

    def reset(self, s: Any) -> None:
        s.place = randint(s, NUM_PLACES)
        while ENDS[s.place]:
            s.place = randint(s, NUM_PLACES)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        reward = PAYS[s.place, action]
        s.place = LEADS_TO[s.place, action]
        return reward, ENDS[s.place]

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.place

    def mask(self, s: Any, mask: Any) -> None:
        for action in range(NUM_ACTIONS):
            mask[action] = ALLOWS[s.place, action]


class SeatedTableWorld(Env):
    """The same for two seats, who gain what the other loses; the place says who moves."""

    num_seats = 2
    max_episode_steps = TIME_LIMIT
    observation_space = Box(0, NUM_PLACES, (1,), np.float32)
    action_space = Discrete(NUM_ACTIONS)
    state = {"place": np.int32}

    def reset(self, s: Any) -> None:
        s.place = randint(s, NUM_PLACES)
        while ENDS[s.place]:
            s.place = randint(s, NUM_PLACES)

    def seat(self, s: Any) -> int:
        return MOVER[s.place]

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        mover = MOVER[s.place]
        reward[mover] = PAYS[s.place, action]
        reward[1 - mover] = -PAYS[s.place, action]
        s.place = LEADS_TO[s.place, action]
        return ENDS[s.place]

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs[0] = s.place

    def mask(self, s: Any, mask: Any, player: Any) -> None:
        for action in range(NUM_ACTIONS):
            mask[action] = ALLOWS[s.place, action]


class TableNetwork(nn.Module):
    """Looks logits and values up by the place that is observed."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.Parameter(torch.from_numpy(np.column_stack([LOGITS, VALUES])))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.tables[obs[:, 0].long()]
        return rows[:, :-1], rows[:, -1]
