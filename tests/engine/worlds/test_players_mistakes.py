"""Mistakes in worlds for several players are told in the author's words, in declarations and in rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scramjet.engine.layout import PlayedBy
from scramjet.engine.random_play import random_actions
from scramjet.engine.worlds.check import check_world
from scramjet.envs import Box, Dict, Discrete, Env, MultiDiscrete
from scramjet.errors import WorldError
from tests.helpers import HELPERS
from tests.helpers.player_pools import WORLDS, pool_of
from tests.helpers.pool_transitions import BACKENDS


class Plain(Env):
    """A world for one, from which mistakes are made."""

    max_episode_steps = 5
    observation_space: Any = Box(0, 1, (1,), np.float32)
    action_space: Any = Discrete(2)
    state = {"x": np.int32}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> Any:
        return 0.0, False

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 0.0


class Shared(Plain):
    """A world for two agents, from which mistakes are made."""

    num_agents = 2

    def step(self, s: Any, action: Any, reward: Any) -> Any:
        return False

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs[0] = 0.0


class TwoSeats(Shared):
    """A world for two seats, from which mistakes are made."""

    num_agents = 1
    num_seats = 2

    def seat(self, s: Any) -> int:
        return 0


def two_arguments(self: Any, s: Any, mask: Any) -> None:
    pass


def three_arguments(self: Any, s: Any, mask: Any, player: Any) -> None:
    pass


BOX = Box(0, 1, (1,), np.float32)

MISTAKES: dict[str, tuple[type[Env], dict[str, Any], str]] = {
    "agents with the step of one": (Plain, {"num_agents": 2}, r"has 2 players: write `def step\(self, s, action, rew"),
    "seats with the step of one": (Plain, {"num_seats": 2}, r"has 2 players: write `def step\(self, s, action, rewar"),
    "seats without turns": (Shared, {"num_agents": 1, "num_seats": 2}, r"has 2 seats; write `def seat\(self, s\)`"),
    "agents and seats": (TwoSeats, {"num_agents": 3}, r"num_agents=3 and num_seats=2; one of them must be 1"),
    "no agents": (Shared, {"num_agents": 0}, r"num_agents is 0; it must be an integer of at least 1"),
    "half an agent": (Shared, {"num_agents": 1.5}, r"num_agents is 1.5; it must be an integer"),
    "many seats as a bool": (TwoSeats, {"num_seats": True}, r"num_seats is True; it must be an integer"),
    "observe of one": (
        Shared,
        {"observe": Plain.observe},
        r"observe must be written `def observe\(self, s, obs, playe",
    ),
    "mask of one": (Shared, {"mask": two_arguments}, r"mask must be written `def mask\(self, s, mask, player\)`"),
    "mask of players": (Plain, {"mask": three_arguments}, r"mask must be written `def mask\(self, s, mask\)`"),
    "alive of nobody": (Shared, {"alive": Plain.reset}, r"alive must be written `def alive\(self, s, player\)`"),
    "a key with a space": (Plain, {"observation_space": Dict({"my key": BOX})}, r"a key 'my key'; use a plain name"),
    "a key with a digit": (Plain, {"observation_space": Dict({"2nd": BOX})}, r"a key '2nd'; use a plain name"),
    "a key that hides": (Plain, {"observation_space": Dict({"a": Dict({"_b": BOX})})}, r"a key '_b'; use a plain name"),
    "a key that is Python": (Plain, {"observation_space": Dict({"class": BOX})}, r"a key 'class'; use a plain name"),
    "a key with a dot": (Plain, {"observation_space": Dict({"a.b": BOX})}, r"a key 'a.b'; use a plain name"),
    "a field that is Python": (Plain, {"state": {"class": np.int64}}, r"a field 'class'; use a plain name"),
    "a Dict of nothing": (Plain, {"observation_space": Dict({})}, r"observation_space is an empty Dict"),
    "a Dict of actions": (
        Plain,
        {"action_space": Dict({"a": BOX})},
        r"action_space is Dict.*Discrete, MultiDiscrete or",
    ),
    "actions of float64": (
        Plain,
        {"action_space": Box(-1, 1, (2,), np.float64)},
        r"action_space is Box.*dtype float32",
    ),
    "a lone number": (Plain, {"action_space": Box(-1, 1, (), np.float32)}, r"action_space is Box.*at least one number"),
    "a table of choices": (
        Plain,
        {"action_space": MultiDiscrete([[2, 2]])},
        r"give MultiDiscrete a flat list of sizes",
    ),
    "choices from 1": (Plain, {"action_space": MultiDiscrete([2, 2], start=[1, 0])}, r"action_space starts at"),
    "a masked Box": (
        Plain,
        {"action_space": BOX, "mask": two_arguments},
        r"actions of a Box are not masked; drop mask",
    ),
    "a masked Box of agents": (
        Shared,
        {"action_space": BOX, "mask": three_arguments},
        r"has a mask, but actions of a Bo",
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_declaration_is_told_in_the_authors_words(mistake: str, backend: str) -> None:
    base, changes, message = MISTAKES[mistake]
    with pytest.raises(WorldError, match=rf"Mistaken.*{message}"):
        pool_of(type("Mistaken", (base,), changes)(), 2, backend)


def reward_and_end(self: Any, s: Any, action: Any, reward: Any) -> Any:
    return 1.0, False


def nothing(self: Any, s: Any, action: Any, reward: Any) -> Any:
    s.x += 1


def seat_two(self: Any, s: Any) -> int:
    return 2


def first(self: Any, s: Any) -> int:
    return 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (Shared, {"step": reward_and_end}, r"Mistaken\.step must return"),
        (TwoSeats, {"step": reward_and_end}, r"Mistaken\.step must return"),
        (Shared, {"step": nothing}, r"Mistaken\.step must return"),
        (TwoSeats, {"seat": seat_two}, r"Mistaken\.seat.*2"),
        (Shared, {"seat": first}, r"Mistaken.*seat"),
        (Plain, {"seat": first}, r"Mistaken\.?.*step\(self, s, action, reward\)"),
    ],
    ids=[
        "agents' step gives a pair",
        "seats' step gives a pair",
        "step gives nothing",
        "a third of two",
        "seat of agents",
        "seat of one",
    ],
)
def test_a_mistake_in_the_rules_of_players_is_told_when_they_are_played(base, changes, message, backend: str) -> None:
    with pytest.raises(WorldError, match=message):
        play(type("Mistaken", (base,), changes)(), backend)


def play(env: Env, backend: str) -> None:
    """A few steps from the very beginning."""
    pool, random = pool_of(env, 2, backend), np.random.default_rng(0)
    pool.prepare()
    out = pool.reset(0)
    for _ in range(3):
        out = pool.step(random_actions(pool, out, random))


def test_a_world_for_one_may_have_a_parameter_called_seat() -> None:
    class Theatre(Plain):
        seat: int = 3

    pool = pool_of(Theatre(), 2, "interpreted")
    assert pool.played_by is PlayedBy.ONE
    pool.reset(0)
    assert pool.step(np.zeros(2, np.int64)).reward.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("world", WORLDS)
def test_the_worlds_of_these_tests_pass_the_check_of_worlds(world: type[Env]) -> None:
    findings = list(check_world(f"{HELPERS}/player_worlds.py:{world.__name__}", steps=60))
    assert [finding.text for finding in findings if not finding.is_fine] == []
