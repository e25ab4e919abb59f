"""Worlds in which the numbers shown are to be chosen, in every way a world can be observed, acted in and played.

The best score is 1. Where there are masks, what they forbid would pay 5. Of two agents one dies before the other. Of
two seats the first is paid on the turn of the second, which has two turns for each of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs import Box, Dict, Discrete, Env, MultiDiscrete, randint

SIZES = {"discrete": (3,), "multi": (3, 4), "box": (3, 3)}
"""How many numbers may be shown for each choice."""


def choosing_world(obs: str, action: str, players: str, *, masked: bool = False) -> Env:
    """`obs` is box or dict; `action` discrete, multi or box; `players` one, agents or seats."""
    sizes = SIZES[action]
    offsets = tuple(sum(sizes[:c]) for c in range(len(sizes)))
    functions = {**_seen(obs, sizes, offsets, players), **_played(_worth(action, sizes, masked), _draw(sizes), players)}
    if masked:
        functions["mask"] = _mask(sizes, offsets, players)
    declared = {
        "observation_space": _observation_space(obs, sizes),
        "action_space": {
            "discrete": Discrete(sizes[0]),
            "multi": MultiDiscrete(sizes),
            "box": Box(-1, 1, (2,), np.float32),
        }[action],
        "num_agents": 2 if players == "agents" else 1,
        "num_seats": 2 if players == "seats" else 1,
        "state": {
            "turn": np.int32,
            "shown": (np.int32, (2, 2)),
            "score": (np.float64, 2),
            "moves": (np.int32, 2),
            "owed": np.float64,
        },
        "stat_names": ("score",),
    }
    return type("Choosing", (Env,), {**declared, **functions})()


def _observation_space(obs: str, sizes: tuple[int, ...]) -> Any:
    if obs == "box":
        return Box(0, 1, (sum(sizes),), np.float32)
    numbers = Discrete(sizes[0]) if len(sizes) == 1 else MultiDiscrete(sizes)
    return Dict({"inner": Dict({"numbers": numbers}), "clock": Box(0, 1, (1,), np.float32)})


def _draw(sizes: tuple[int, ...]) -> Any:
    def draw(s: Any, player: int) -> None:
        for c in range(len(sizes)):
            s.shown[player, c] = randint(s, sizes[c])

    return draw


def _worth(action: str, sizes: tuple[int, ...], masked: bool) -> Any:
    """(s, player, action) -> what it pays."""

    def of_choice(shown: int, chosen: int, size: int) -> float:
        if masked and chosen == (shown + 1) % size:
            return 5.0
        return 1.0 if chosen == shown else 0.0

    def discrete(s: Any, player: int, chosen: Any) -> float:
        return of_choice(s.shown[player, 0], chosen, sizes[0])

    def multi(s: Any, player: int, chosen: Any) -> float:
        total = 0.0
        for c in range(len(sizes)):
            total += of_choice(s.shown[player, c], chosen[c], sizes[c])
        return total / len(sizes)

    def box(s: Any, player: int, chosen: Any) -> float:
        return 1.0 - 0.5 * (abs(chosen[0] - _target(s, player, 0)) + abs(chosen[1] - _target(s, player, 1)))

    return {"discrete": discrete, "multi": multi, "box": box}[action]


def _target(s: Any, player: int, choice: int) -> float:
    """The number shown, between -1 and 1."""
    return 0.5 * (s.shown[player, choice] - 1)


def _played(worth: Any, draw: Any, players: str) -> dict[str, Any]:
    """`reset`, `step` and what else says who plays."""

    def move(s: Any, player: int, action: Any) -> float:
        gain = worth(s, player, action)
        s.score[player] += gain
        s.moves[player] += 1
        draw(s, player)
        return gain

    def reset(self: Any, s: Any) -> None:
        draw(s, 0)
        draw(s, 1)

    def step(self: Any, s: Any, action: Any) -> tuple[float, bool]:
        s.turn += 1
        return move(s, 0, action), s.turn == 4

    def step_of_agents(self: Any, s: Any, action: Any, reward: Any) -> bool:
        for k in range(2):
            if s.turn < 2 + 2 * k:
                reward[k] = move(s, k, action[k])
        s.turn += 1
        return False

    def alive(self: Any, s: Any, player: Any) -> bool:
        return s.turn < 2 + 2 * player

    def seat(self: Any, s: Any) -> int:
        return 0 if s.turn % 3 == 0 else 1

    def step_of_seats(self: Any, s: Any, action: Any, reward: Any) -> bool:
        reward[0] = s.owed
        s.owed = 0.0
        if s.turn % 3 == 0:
            s.owed = move(s, 0, action)
        else:
            reward[1] = move(s, 1, action)
        s.turn += 1
        return s.turn == 6

    return {
        "one": {"reset": reset, "step": step},
        "agents": {"reset": reset, "step": step_of_agents, "alive": alive},
        "seats": {"reset": reset, "step": step_of_seats, "seat": seat},
    }[players]


def _seen(obs: str, sizes: tuple[int, ...], offsets: tuple[int, ...], players: str) -> dict[str, Any]:
    """`observe` and `stats`."""

    def as_box(self: Any, s: Any, obs: Any, player: Any) -> None:
        obs[:] = 0.0
        for c in range(len(sizes)):
            obs[offsets[c] + s.shown[player, c]] = 1.0

    def as_dict(self: Any, s: Any, obs: Any, player: Any) -> None:
        for c in range(len(sizes)):
            obs.inner.numbers[c] = s.shown[player, c]
        obs.clock[0] = s.turn / 10

    def stats_of_player(self: Any, s: Any, stats: Any, player: Any) -> None:
        stats.score = s.score[player] / max(s.moves[player], 1)

    observe_player = as_box if obs == "box" else as_dict
    if players != "one":
        return {"observe": observe_player, "stats": stats_of_player}

    def observe(self: Any, s: Any, obs: Any) -> None:
        observe_player(self, s, obs, 0)

    def stats(self: Any, s: Any, stats: Any) -> None:
        stats_of_player(self, s, stats, 0)

    return {"observe": observe, "stats": stats}


def _mask(sizes: tuple[int, ...], offsets: tuple[int, ...], players: str) -> Any:
    def mask_of_player(self: Any, s: Any, mask: Any, player: Any) -> None:
        for c in range(len(sizes)):
            mask[offsets[c] + (s.shown[player, c] + 1) % sizes[c]] = False

    def mask(self: Any, s: Any, mask: Any) -> None:
        mask_of_player(self, s, mask, 0)

    return mask if players == "one" else mask_of_player
