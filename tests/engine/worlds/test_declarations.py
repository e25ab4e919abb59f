"""Mistakes in how a world is declared, alone or for several players, are told in the author's words."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scramjet.engine.actions import random_actions
from scramjet.engine.layout import PlayedBy
from scramjet.engine.worlds.check import check_world
from scramjet.engine.worlds.diagnosis import explain
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
    action_names: Any = ("left", "right")
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


MASK, MASK_OF_PLAYERS = (lambda self, s, mask: None), (lambda self, s, mask, player: None)
BOX = Box(0, 1, (1,), np.float32)
OF_PLAYERS = r"has 2 players: write `def step\(self, s, action, reward\)"
Mistake = tuple[type[Env], dict[str, Any], str]


def keys(*names: str) -> list[Mistake]:
    return [(Plain, {"observation_space": Dict({name: BOX})}, rf"a key '{name}'; use a plain name") for name in names]


def spaces_of_actions(*spaces: tuple[Any, str]) -> list[Mistake]:
    return [(Plain, {"action_space": space, "action_names": ()}, message) for space, message in spaces]


def names(*given: tuple[Any, str]) -> list[Mistake]:
    return [(Plain, {"action_names": each}, message) for each, message in given]


DECLARED: list[Mistake] = [
    (Plain, {"num_agents": 2}, OF_PLAYERS),
    (Plain, {"num_seats": 2}, OF_PLAYERS),
    (Shared, {"num_agents": 1, "num_seats": 2}, r"has 2 seats; write `def seat\(self, s\)`"),
    (TwoSeats, {"num_agents": 3}, r"num_agents=3 and num_seats=2; one of them must be 1"),
    (Shared, {"num_agents": 0}, r"num_agents is 0; it must be an integer of at least 1"),
    (Shared, {"num_agents": 1.5}, r"num_agents is 1.5; it must be an integer"),
    (TwoSeats, {"num_seats": True}, r"num_seats is True; it must be an integer"),
    (Shared, {"observe": Plain.observe}, r"observe must be written `def observe\(self, s, obs, playe"),
    (Shared, {"mask": MASK}, r"mask must be written `def mask\(self, s, mask, player\)`"),
    (Plain, {"mask": MASK_OF_PLAYERS}, r"mask must be written `def mask\(self, s, mask\)`"),
    (Shared, {"alive": Plain.reset}, r"alive must be written `def alive\(self, s, player\)`"),
    *keys("my key", "2nd", "class", "a.b"),
    (Plain, {"observation_space": Dict({"a": Dict({"_b": BOX})})}, r"a key '_b'; use a plain name"),
    (Plain, {"state": {"class": np.int64}}, r"a field 'class'; use a plain name"),
    (Plain, {"observation_space": Dict({})}, r"observation_space is an empty Dict"),
    *spaces_of_actions(
        (Dict({"a": BOX}), r"action_space is Dict.*Discrete, MultiDiscrete or"),
        (Box(-1, 1, (2,), np.float64), r"action_space is Box.*dtype float32"),
        (Box(-1, 1, (), np.float32), r"action_space is Box.*at least one number"),
        (MultiDiscrete([[2, 2]]), r"give MultiDiscrete a flat list of sizes"),
        (MultiDiscrete([2, 2], start=[1, 0]), r"action_space starts at"),
    ),
    (Plain, {"action_space": BOX, "mask": MASK}, r"actions of a Box are not masked; drop mask"),
    (Shared, {"action_space": BOX, "mask": MASK_OF_PLAYERS}, r"has a mask, but actions of a Bo"),
    *names(
        (("left",), "has 1 names for 2 actions"),
        (("left", "left"), "has 'left' twice, for actions 0 and 1"),
        (("left", ""), r"action_names\[1\] is ''"),
        (("left", 2), r"action_names\[1\] is 2"),
        (("left", " right"), r"action_names\[1\] is ' right'"),
        (("left", "ri\x1bght"), r"action_names\[1\]"),
        ("lr", "is 'lr'; give a tuple"),
        ({"left", "right"}, "give a tuple"),
    ),
    (Plain, {"action_space": MultiDiscrete([2, 2])}, "action_names are for a Discrete action space"),
]


def play(env: Env, backend: Any) -> None:
    """A few steps from the very beginning."""
    pool, random = pool_of(env, 2, backend), np.random.default_rng(0)
    pool.prepare()
    out = pool.reset(0)
    for _ in range(3):
        out = pool.step(random_actions(pool, out, random))


def test_a_mistake_in_a_declaration_is_told_in_the_authors_words() -> None:
    for base, changes, message in DECLARED:
        for backend in BACKENDS:
            with pytest.raises(WorldError, match=rf"Mistaken.*{message}"):
                pool_of(type("Mistaken", (base,), changes)(), 2, backend)


def test_a_mistake_in_the_rules_of_players_is_told_when_they_are_played() -> None:
    pair, nothing = (lambda self, s, action, reward: (1.0, False)), (lambda self, s, action, reward: None)
    for base, rule, function, message in (
        (Shared, "step", pair, r"Mistaken\.step must return"),
        (TwoSeats, "step", pair, r"Mistaken\.step must return"),
        (Shared, "step", nothing, r"Mistaken\.step must return"),
        (TwoSeats, "seat", lambda self, s: 2, r"Mistaken\.seat.*2"),
        (Shared, "seat", lambda self, s: 0, r"Mistaken.*seat"),
        (Plain, "seat", lambda self, s: 0, r"Mistaken\.?.*step\(self, s, action, reward\)"),
    ):
        for backend in BACKENDS:
            with pytest.raises(WorldError, match=message):
                play(type("Mistaken", (base,), {rule: function})(), backend)


def test_worlds_without_names_and_with_a_parameter_called_seat_are_fine() -> None:
    class Theatre(Plain):
        seat: int = 3
        action_names = ()

    assert pool_of(Theatre(), 2, "interpreted").played_by is PlayedBy.ONE
    play(Theatre(), "interpreted")


def test_an_error_in_a_rule_that_was_compiled_in_another_folder_is_told_as_one_of_the_world() -> None:
    scope: dict[str, Any] = {}
    exec(compile("def step():\n    raise ValueError('broken')", f"/elsewhere/{Path(__file__).name}", "exec"), scope)
    with pytest.raises(ValueError, match="broken") as caught:
        scope["step"]()
    found = explain(Plain(), caught.value)
    assert isinstance(found, WorldError)
    assert "line 2) failed: ValueError: broken" in str(found)


@pytest.mark.rest
def test_the_worlds_of_these_tests_pass_the_check_of_worlds() -> None:
    for world in WORLDS:
        findings = list(check_world(f"{HELPERS}/player_worlds.py:{world.__name__}", steps=60))
        assert [finding.text for finding in findings if not finding.is_fine] == [], world
