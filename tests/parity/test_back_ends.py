"""One source, several back-ends: the interpreted rules and the compiled ones give the same transitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scramjet.engine import NativePool, Transition
from scramjet.engine.actions import random_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import leaves, named_leaves
from scramjet.envs import Env, load_env, registrations
from tests.helpers import HELPERS, ROOT

WORLDS = HELPERS / "worlds"
FIELDS = ("mask", "turn", "reward", "terminated", "truncated")
BUILT_IN = [entry.name for entry in registrations() if entry.env_class().__module__.startswith("scramjet.envs")]
LONG = ("acrobot", "mountain_car_continuous")
"""Worlds whose episodes outlast the test, unless cut short."""
SMALL = {
    "empty": {"size": 5, "random_start": True},
    "door_key": {"size": 5},
    "key_corridor": {"room_size": 3},
    "obstructed_maze": {"quarters": 4, "blocked_doors": True, "rooms_visited": 1},
}
"""Worlds whose time limit follows from their size, and sizes that end within the test."""
# Tests elsewhere that need compiled rules with other parameters than a world's own take those below.
CASES = [
    *[(name, {"max_episode_steps": 100} if name in LONG else SMALL.get(name, {})) for name in BUILT_IN],
    ("cartpole", {"gravity": 3.5, "max_episode_steps": 30}),
    ("bandit", {"arms": 7, "lucky_arm": 6, "noise": 0.5, "scale": 3.0}),
    ("connect_four", {"rows": 4, "cols": 5, "connect": 3, "random_opponent": True}),
    ("connect_four", {"opening_plies": 36}),
    ("othello", {"size": 6, "opening_plies": 12}),
    ("tic_tac_toe", {"opening_plies": 6}),
    ("snake", {"snakes": 4, "size": 8, "start_length": 2, "foods_per_snake": 3, "max_episode_steps": 40}),
    ("snake", {"snakes": 3, "size": 7, "start_length": 2, "outlive_reward": 0.5, "ends_with_one": True}),
    ("deep_sea", {"size": 3, "deterministic": False, "mapping_seed": 2**32 - 1}),
    ("kuhn", {"players": 3}),
    ("maze", {"rows": 4, "cols": 7}),
    ("game_2048", {"size": 3}),
    ("sokoban", {"rows": 6, "cols": 8, "boxes": 2, "pulls": 5, "max_episode_steps": 30}),
    ("sliding_tiles", {"size": 4, "varied_scrambles": True, "dense_reward": True}),
    ("binpack", {"max_items": 6, "max_spaces": 12}),
    ("identity_continuous", {"dims": 3}),
    (f"{WORLDS}/everything.py:Everything", {}),
    (f"{WORLDS}/everything.py:EveryAgent", {}),
    (f"{WORLDS}/privileged.py:HiddenBit", {}),
    (f"{WORLDS}/privileged.py:Cards", {"agents": 2}),
    (f"{WORLDS}/privileged.py:Nim", {}),
    (f"{WORLDS}/switches.py", {}),
    (f"{ROOT}/examples/corridor.py", {}),
    (f"{ROOT}/examples/doors.py", {}),
    (f"{ROOT}/examples/corridor.py:Corridor", {"length": 3, "max_episode_steps": 7}),
    (f"{WORLDS}/garden.py", {}),
    (f"{WORLDS}/garden.py", {"size": 4, "is_windy": False, "fruit_value": 2.0}),
]

STEPS = {
    "binpack": 40,
    "rubiks_cube": 60,
    "connect_four": 100,
    "snake": 100,
    "tic_tac_toe": 100,
    "four_rooms": 100,
    "othello": 120,
    "multi_room": 120,
    "sokoban": 130,
    "game_2048": 160,
    "obstructed_maze": 150,
    "key_corridor": 270,
}
"""Of worlds whose interpreted rules are slow, or whose episodes are longer; 250 of all others."""
CORE = [
    ("identity_continuous", {}),
    ("connect_four", {}),
    (f"{WORLDS}/everything.py:Everything", {}),
    (f"{WORLDS}/everything.py:EveryAgent", {}),
    (f"{WORLDS}/privileged.py:Nim", {}),
    (f"{WORLDS}/garden.py", {}),
    (f"{WORLDS}/switches.py", {}),
]
"""A world or two of each kind: choices, numbers, masks, seats, agents, critics, nested observations, arrays of every
type, helpers in other files. The rest of the tests plays all others.
"""
assert all(case in CASES for case in CORE)
SIMULATED = [("connect_four", {}), (f"{WORLDS}/everything.py:EveryAgent", {})]
"""`simulate` plays the same rules as `step`, which is compared in every world."""


def ids(case: tuple[str, dict]) -> str:
    name, parameters = case
    return "-".join([Path(name).name, *[f"{k}={v}" for k, v in parameters.items()]])


def as_numpy(array: Any) -> np.ndarray:
    """An array of NumPy's, or a tensor wherever it lies."""
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def assert_same(got: Transition, expected: Transition, where: str, tolerance: float = 0.0) -> None:
    """Two steps gave the same; `final_obs` where an episode ended, elsewhere it is stale."""

    def assert_close(ours: Any, theirs: np.ndarray, name: str, rows: Any = slice(None)) -> None:
        ours, theirs = (as_numpy(array)[rows].astype(np.float64) for array in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=f"{name} {where}")

    for field in FIELDS:
        assert_close(getattr(got, field), getattr(expected, field), field)
    for (name, ours), theirs in zip(named_leaves(got.obs), leaves(expected.obs), strict=True):
        assert_close(ours, theirs, name)
    over = expected.terminated | expected.truncated
    for (name, ours), theirs in zip(named_leaves(got.final_obs), leaves(expected.final_obs), strict=True):
        assert_close(ours, theirs, f"final {name}", np.repeat(over, len(theirs) // len(over)))  # a view for each seat


def both(env: Env, num_envs: int, seed: int | EpisodeSeed) -> tuple[NativePool, Transition, NativePool, Transition]:
    """An interpreted and a compiled pool, each with what it shows first."""
    first, second = NativePool(env, num_envs, backend="interpreted"), NativePool(env, num_envs, num_threads=1)
    return first, first.reset(seed), second, second.reset(seed)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in CORE else pytest.mark.rest) for case in CASES], ids=ids
)
def test_compiled_worlds_play_every_transition_of_the_interpreted_source(case) -> None:
    """With the same legal actions; all they give is compared."""
    name, parameters = case
    env, random, ended = load_env(name, **parameters), np.random.default_rng(42), 0
    interpreted, expected, compiled, got = both(env, 5, 42)
    assert_same(got, expected, "after reset")
    for t in range(STEPS.get(name, 250)):
        actions = random_actions(interpreted, expected, random)
        expected, got = interpreted.step(actions.copy()), compiled.step(actions)
        assert_same(got, expected, f"at step {t}")
        ended += int((expected.terminated | expected.truncated).sum())
    assert ended > 0
    first, second = interpreted.episodes(), compiled.episodes()
    views = interpreted.num_players if interpreted.played_by is PlayedBy.SEATS else 1
    assert len(first) == len(second) == ended * views
    for field in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(second, field), getattr(first, field), err_msg=field)
    assert list(first.stats) == list(second.stats) == list(env.stat_names)
    for name in env.stat_names:
        np.testing.assert_array_equal(second.stats[name], first.stats[name], err_msg=name)
    np.testing.assert_array_equal(compiled.snapshot()["states"], interpreted.snapshot()["states"])
    for ours, theirs in zip(leaves(compiled.views()), leaves(interpreted.views()), strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg="views")
    if compiled.has_scores:
        np.testing.assert_array_equal(compiled.scores(compiled.states()), interpreted.scores(interpreted.states()))


@pytest.mark.parametrize("case", SIMULATED, ids=ids)
def test_simulate_agrees_between_the_back_ends(case) -> None:
    name, parameters = case
    interpreted, out, compiled, _ = both(load_env(name, **parameters), 3, 1)
    actions = random_actions(interpreted, out, np.random.default_rng(1))
    states, expected = interpreted.simulate(interpreted.states(), actions)
    got_states, got = compiled.simulate(compiled.states(), actions)
    np.testing.assert_array_equal(got_states, states)
    assert_same(got, expected, "simulated")


def test_scores_agree_between_the_back_ends() -> None:
    interpreted, out, compiled, _ = both(load_env("othello"), 3, 1)
    for _ in range(5):
        out = interpreted.step(random_actions(interpreted, out, np.random.default_rng(1)))
    scores = interpreted.scores(interpreted.states())
    np.testing.assert_array_equal(compiled.scores(interpreted.states()), scores)
    assert np.abs(scores).max() > 0


def test_both_back_ends_draw_alike_from_unusual_keys_and_numbers_of_envs() -> None:
    env = load_env("cartpole")
    for key in (0, -3, 2**62, 2**63 - 1, -(2**63)):
        for first_env in (0, 2**31 - 2):
            _, expected, _, got = both(env, 2, EpisodeSeed(key, first_env))
            np.testing.assert_array_equal(got.obs, expected.obs, err_msg=f"{key} {first_env}")
            assert not np.array_equal(expected.obs[0], expected.obs[1])


def test_float32_fields_agree_to_their_rounding_in_both_back_ends() -> None:
    """Compiled, the product of two float32 fields is a float32; interpreted it has 64 bits until it is stored."""
    interpreted, expected, compiled, _ = both(load_env(f"{WORLDS}/spring.py"), 5, 42)
    random = np.random.default_rng(42)
    for _ in range(10):
        actions = random_actions(interpreted, expected, random)
        expected, got = interpreted.step(actions), compiled.step(actions)
        np.testing.assert_allclose(got.obs, expected.obs, rtol=1e-5, atol=1e-6)
