"""Small worlds for several players whose every number can be told in advance."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs import Box, Dict, Discrete, Env, MultiDiscrete


class Mortals(Env):
    """Three agents act at once; agent k dies at an age of 1 to 5 that its env and episode tell, the clock stops at 4.

    Agent 0 may end it for all by choosing 3. The rules go on paying the dead: the engine must not pass it on.
    """

    num_agents = 3
    max_episode_steps = 4

    observation_space = Dict({"me": Box(0, 1000, (3,), np.float32), "who": Discrete(3)})
    action_space = Discrete(4)
    state = {"age": np.int32, "life": (np.int32, 3), "last": (np.int32, 3)}
    stat_names = ("life", "last")

    def reset(self, s: Any) -> None:
        for k in range(3):
            s.life[k] = 1 + (s._index + 2 * s._episode + k * s._index) % 5

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        s.age += 1
        for k in range(3):
            s.last[k] = action[k]
            reward[k] = 10.0 * s.age + action[k]
        return action[0] == 3

    def alive(self, s: Any, player: Any) -> bool:
        return s.age < s.life[player]

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs.me[0] = s.age
        obs.me[1] = s.life[player]
        obs.me[2] = s.last[player]
        obs.who[0] = player

    def mask(self, s: Any, mask: Any, player: Any) -> None:
        mask[(s.age + player) % 3] = False

    def stats(self, s: Any, stats: Any, player: Any) -> None:
        stats.life = s.life[player]
        stats.last = s.last[player]


class Duel(Env):
    """Two seats in the order 0, 1, 1, 0, 1, begun at a place that env and episode tell; the clock stops it at 7.

    The one to move earns its action and the other loses half of it. A 5 wins 100, from the third turn on.
    """

    num_seats = 2
    max_episode_steps = 7
    order = (0, 1, 1, 0, 1)

    observation_space = Box(-1000, 1000, (3,), np.float32)
    action_space = Discrete(6)
    state = {"ply": np.int32, "first": np.int32, "last": np.int32}
    stat_names = ("won",)

    def reset(self, s: Any) -> None:
        s.first = (s._index + s._episode) % 5

    def seat(self, s: Any) -> int:
        return self.order[(s.first + s.ply) % 5]

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        mover = self.order[(s.first + s.ply) % 5]
        s.ply += 1
        s.last = action
        won = action == 5 and s.ply > 2
        reward[mover] = action + (100.0 if won else 0.0)
        reward[1 - mover] = -0.5 * action
        return won

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs[0] = player
        obs[1] = s.ply
        obs[2] = s.last

    def mask(self, s: Any, mask: Any, player: Any) -> None:
        mask[2 * player + s.ply % 2] = False

    def stats(self, s: Any, stats: Any, player: Any) -> None:
        stats.won = 1.0 if s.last == 5 and s.ply > 2 else 0.0


class Trio(Env):
    """Three seats in the order 2, 2, 0, 1, 2; two choices a turn, named observations. The one to move pays the next.

    The game ends at a turn that env and episode tell, 2 to 8 or as much later as `shortest` says; the clock stops it
    at 6.
    """

    shortest: int = 2

    num_seats = 3
    max_episode_steps = 6
    order = (2, 2, 0, 1, 2)

    observation_space = Dict({"place": MultiDiscrete([3, 10]), "last": Box(0, 10, (2,), np.float32)})
    action_space = MultiDiscrete([3, 4])
    state = {"ply": np.int32, "length": np.int32, "last": (np.int32, 2)}

    def reset(self, s: Any) -> None:
        s.length = self.shortest + (s._index + 3 * s._episode) % 7

    def seat(self, s: Any) -> int:
        return self.order[s.ply % 5]

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        mover = self.order[s.ply % 5]
        s.ply += 1
        s.last[0] = action[0]
        s.last[1] = action[1]
        reward[mover] = -1.0 * action[0]
        reward[(mover + 1) % 3] = 10.0 * action[1]
        return s.ply == s.length

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs.place[0] = player
        obs.place[1] = s.ply
        obs.last[0] = s.last[0]
        obs.last[1] = s.last[1]

    def mask(self, s: Any, mask: Any, player: Any) -> None:
        mask[3 + (s.ply + player) % 4] = False  # of the second choice


class Painters(Env):
    """Two agents with two choices each, paid what they chose: 10 times the first and the second. Never ends."""

    num_agents = 2

    observation_space = Box(0, 100, (2,), np.float32)
    action_space = MultiDiscrete([2, 3])
    state = {"last": (np.int32, (2, 2))}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        for k in range(2):
            for c in range(2):
                s.last[k, c] = action[k, c]
            reward[k] = 10.0 * action[k, 0] + action[k, 1]
        return False

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs[0] = s.last[player, 0]
        obs[1] = s.last[player, 1]
