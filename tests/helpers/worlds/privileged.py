"""Worlds whose critic sees more than their policy: a hidden bit, agents whose critic sees all of them, seats."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs import Box, Dict, Discrete, Env, MultiDiscrete, randint


class UnseenBit(Env):
    """Pays a bit, -1 or 1, that nobody sees: the value is 0 and the variance of the returns 1."""

    observation_space = Box(0, 1, (2,), np.float32)
    action_space = Discrete(2)
    state = {"bit": np.int8}
    hidden = True

    def reset(self, s: Any) -> None:
        s.bit = 2 * randint(s, 2) - 1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        return float(s.bit), True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 1
        obs[1] = 0.5


class HiddenBit(UnseenBit):
    """The same, and the critic sees the bit."""

    critic_space = Box(-1, 1, (1,), np.float32)

    def observe_critic(self, s: Any, obs: Any) -> None:
        obs[0] = s.bit


class OpenBit(HiddenBit):
    """The same, declared to hide nothing: searches may look at it."""

    hidden = False


class Cards(Env):
    """Each agent holds a card and must say whether it is high; the critic sees all cards, and a count as a choice."""

    agents: int = 3
    cards: int = 5
    max_episode_steps = 4
    action_space = MultiDiscrete([2, 3])
    stat_names = ("right",)
    hidden = True

    @property
    def num_agents(self) -> int:
        return self.agents

    @property
    def observation_space(self) -> Dict:
        return Dict({"own": Dict({"card": Discrete(self.cards)}), "time": Box(0, 1, (1,), np.float32)})

    @property
    def critic_space(self) -> Dict:
        return Dict({"all": MultiDiscrete([self.cards] * self.agents), "share": Box(0, 1, (2,), np.float32)})

    @property
    def state(self) -> dict[str, Any]:
        return {"cards": (np.int32, self.agents), "moves": np.int32, "num_right": (np.int32, self.agents)}

    def reset(self, s: Any) -> None:
        for k in range(self.agents):
            s.cards[k] = randint(s, self.cards)

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        for k in range(self.agents):
            is_right = (action[k][0] == 1) == (2 * s.cards[k] >= self.cards)
            s.num_right[k] += is_right
            reward[k] = is_right
            s.cards[k] = randint(s, self.cards)
        s.moves += 1
        return s.moves == 6

    def observe(self, s: Any, obs: Any, player: int) -> None:
        obs.own.card[0] = s.cards[player]
        obs.time[0] = s.moves / 6

    def observe_critic(self, s: Any, obs: Any, player: int) -> None:
        for k in range(self.agents):
            obs.all[k] = s.cards[(player + k) % self.agents]
        obs.share[0] = s.num_right[player] / 6
        obs.share[1] = player / self.agents

    def mask(self, s: Any, mask: Any, player: int) -> None:
        mask[:] = True
        mask[2 + s.cards[player] % 3] = False

    def stats(self, s: Any, stats: Any, player: int) -> None:
        stats.right = s.num_right[player]


class Nim(Env):
    """Take one or two of a heap, who takes the last wins; the critic sees how much is left, the players a third."""

    heap: int = 7
    num_seats = 2
    observation_space = Box(0, 7, (1,), np.float32)
    critic_space = Box(0, 1, (2,), np.float32)
    action_space = Discrete(2)
    state = {"left": np.int32, "turn": np.int32}

    def reset(self, s: Any) -> None:
        s.left = self.heap

    def seat(self, s: Any) -> int:
        return s.turn

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        s.left = max(s.left - 1 - action, 0)
        over = s.left == 0
        if over:
            reward[s.turn] = 1
            reward[1 - s.turn] = -1
        s.turn = 1 - s.turn
        return over

    def observe(self, s: Any, obs: Any, player: int) -> None:
        obs[0] = s.left // 3

    def observe_critic(self, s: Any, obs: Any, player: int) -> None:
        obs[0] = s.left / self.heap
        obs[1] = player == s.turn
