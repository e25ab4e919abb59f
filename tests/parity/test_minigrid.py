"""Our MiniGrid worlds play by the rules of the package: from the same layout the same actions give the same steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.envs.minigrid.cells import DOOR, EMPTY_CELL, box_with_key, cell
from tests.helpers.playing import compiled, interpreted, restored

pytest.importorskip("minigrid", reason="the original of these worlds: pip install minigrid")

import gymnasium
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC

pytestmark = pytest.mark.rest

CASES = [
    ("MiniGrid-Empty-8x8-v0", "empty", {}),
    ("MiniGrid-Empty-Random-5x5-v0", "empty", {"size": 5, "random_start": True}),
    ("MiniGrid-DoorKey-5x5-v0", "door_key", {"size": 5}),
    ("MiniGrid-DoorKey-8x8-v0", "door_key", {}),
    ("MiniGrid-FourRooms-v0", "four_rooms", {}),
    ("MiniGrid-MultiRoom-N2-S4-v0", "multi_room", {"min_rooms": 2, "max_rooms": 2, "max_room_size": 4}),
    ("MiniGrid-MultiRoom-N6-v0", "multi_room", {}),
    ("MiniGrid-KeyCorridorS4R3-v0", "key_corridor", {"room_size": 4}),
    ("MiniGrid-KeyCorridorS6R3-v0", "key_corridor", {}),
    ("MiniGrid-ObstructedMaze-1Dlhb-v0", "obstructed_maze", {"quarters": 0, "blocked_doors": True, "rooms_visited": 2}),
    ("MiniGrid-ObstructedMaze-2Dlh-v0", "obstructed_maze", {}),
    (
        "MiniGrid-ObstructedMaze-Full-v1",
        "obstructed_maze",
        {"quarters": 4, "blocked_doors": True, "middle_start": True, "rooms_visited": 25},
    ),
]
NUM_STEPS, EPISODE_STEPS = 800, 100
"""Steps compared in each case, and the most of one episode."""
HAPPENS = {
    "empty": ("terminated",),
    "door_key": ("pick up", "drop", "toggle door", "terminated"),
    "four_rooms": ("truncated", "terminated"),
    "multi_room": ("toggle door", "terminated"),
    "key_corridor": ("pick up", "drop", "toggle door", "terminated"),
    "obstructed_maze": ("pick up", "drop", "toggle door", "toggle box", "terminated"),
}
"""What must have happened among them."""
LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE = range(6)


def code_of(thing: Any) -> int:
    """An object of the package as one of our cells."""
    if thing is None:
        return EMPTY_CELL
    if thing.type == "box" and thing.contains is not None:
        return box_with_key(COLOR_TO_IDX[thing.color], COLOR_TO_IDX[thing.contains.color])
    return cell(*thing.encode())


def load_layout(theirs: Any, state: np.ndarray) -> None:
    """Put what the package's env holds into one of our records."""
    state["x"], state["y"] = theirs.agent_pos
    state["direction"], state["steps"] = theirs.agent_dir, theirs.step_count
    state["_steps"], state["carried"] = theirs.step_count, code_of(theirs.carrying)
    state["target"] = code_of(theirs.obj) if hasattr(theirs, "obj") else 0
    state["grid"] = np.array([code_of(thing) for thing in theirs.grid.grid]).reshape(theirs.height, theirs.width).T


def is_inside(theirs: Any, x: int, y: int) -> bool:
    """Whether a cell is free and, in a chain of rooms, in one of them."""
    rooms = getattr(theirs, "rooms", None)
    is_in_room = rooms is None or any(
        room.top[0] < x < room.top[0] + room.size[0] and room.top[1] < y < room.top[1] + room.size[1] for room in rooms
    )
    return is_in_room and theirs.grid.get(x, y) is None


def stand_before_object(theirs: Any, random: np.random.Generator, is_target: bool) -> None:
    """Put the agent on a free cell before a random object, or before the target, so that rare things happen too."""
    found = []
    for place in np.ndindex(theirs.width, theirs.height):
        for direction, step in enumerate(DIR_TO_VEC):
            if is_inside(theirs, *place):
                thing = theirs.grid.get(*(place + step))
                is_thing = thing is not None and thing.type != "wall"
                is_wanted = (
                    not is_target or thing is getattr(theirs, "obj", None) or (is_thing and thing.type == "goal")
                )
                if is_thing and is_wanted:
                    found.append((place, direction))
    theirs.agent_pos, theirs.agent_dir = found[random.integers(len(found))]


def eager_action(theirs: Any, random: np.random.Generator) -> int:
    """An action that mostly does something: what lies ahead is picked up or toggled, and most free cells entered."""
    ahead = theirs.grid.get(*theirs.front_pos)
    if random.random() < 0.3:
        return int(random.integers(7))
    if ahead is None:
        return int(random.choice([FORWARD, LEFT, RIGHT, DROP], p=[0.5, 0.15, 0.15, 0.2]))
    if ahead.type == "door" and not ahead.is_open:
        return int(random.choice([TOGGLE, LEFT, RIGHT, DROP], p=[0.4, 0.25, 0.25, 0.1]))
    if ahead.can_pickup():
        return int(random.choice([TOGGLE if ahead.type == "box" else PICK_UP, LEFT, RIGHT], p=[0.8, 0.1, 0.1]))
    return FORWARD if ahead.can_overlap() else int(random.choice([LEFT, RIGHT]))


def what_happened(theirs: Any, action: int, ahead: Any, before: Any) -> str:
    """A word on a step of the package's, to count what was tried."""
    if before is not theirs.carrying:
        return "pick up" if before is None else "drop"
    if action == TOGGLE and ahead is not None and ahead.type in ("door", "box"):
        return f"toggle {ahead.type}"
    return "other"


def play_both(theirs: Any, pool: NativePool, seed: int) -> Counter[str]:
    """Play an episode in both from a layout of the package's, compare each step and count what happened."""
    random = np.random.default_rng(seed)
    theirs.reset(seed=seed)
    if seed % 2:
        stand_before_object(theirs.unwrapped, random, is_target=seed % 6 == 5)
    view = theirs.unwrapped.gen_obs()
    pool.reset(seed)
    states = pool.states()
    load_layout(theirs.unwrapped, states[0])
    restored(pool, states)
    np.testing.assert_array_equal(pool.views()[0], view["image"])
    seen: Counter[str] = Counter()
    for t in range(EPISODE_STEPS):
        inner = theirs.unwrapped
        action, before, ahead = eager_action(inner, random), inner.carrying, inner.grid.get(*inner.front_pos)
        view, reward, terminated, truncated, _ = theirs.step(action)
        out = pool.step(np.array([action]))
        where = f"seed {seed}, step {t}, action {action}"
        is_over = terminated or truncated
        assert bool(out.terminated[0]) == terminated, where
        assert bool(out.truncated[0]) == (truncated and not terminated), where
        np.testing.assert_allclose(out.reward[0], reward, rtol=1e-6, err_msg=where)
        np.testing.assert_array_equal((out.final_obs if is_over else out.obs)[0], view["image"], err_msg=where)
        seen[what_happened(inner, action, ahead, before)] += 1
        seen["steps"] += 1
        if is_over:
            seen["terminated" if terminated else "truncated"] += 1
            break
    return seen


@pytest.mark.parametrize(("theirs", "name", "parameters"), CASES, ids=[case[0] for case in CASES])
def test_the_same_layout_and_actions_give_the_same_steps(theirs: str, name: str, parameters: dict) -> None:
    original, env = gymnasium.make(theirs), load_env(name, **parameters)
    assert env.max_episode_steps == original.unwrapped.max_steps
    pool = NativePool(env, 1, backend="interpreted")  # `test_back_ends.py` compares the compiled rules with these
    seen: Counter[str] = Counter()
    seed = 0
    while seen["steps"] < NUM_STEPS:
        seen += play_both(original, pool, seed)
        seed += 1
    rare = {what for what in HAPPENS[name] if seen[what] == 0}
    assert not rare, f"never happened in {dict(seen)}"


def test_layouts_are_as_frequent_as_those_of_the_package() -> None:
    """Where the wall of DoorKey stands and how many doors KeyCorridor has, by a chi-squared test of two samples."""
    for theirs, env, make_pool, number in (
        ("MiniGrid-DoorKey-8x8-v0", load_env("door_key"), interpreted, lambda kinds: np.argwhere(kinds == DOOR)[0, 0]),
        # compiled by others anyway
        ("MiniGrid-KeyCorridorS3R3-v0", load_env("key_corridor", room_size=3), compiled, lambda k: (k == DOOR).sum()),
    ):
        original = gymnasium.make(theirs).unwrapped
        ours = [int(number(state["grid"] & 15)) for state in make_pool(env, 400, seed=7)[0].states()]
        package = []
        for seed in range(400):
            original.reset(seed=seed)
            package.append(int(number(original.grid.encode()[..., 0])))
        values = sorted({*ours, *package})
        a, b = (np.array([found.count(value) for value in values], float) for found in (ours, package))
        statistic = ((a - b) ** 2 / (a + b)).sum()
        assert statistic < 5 * max(len(values) - 1, 3), (theirs, a, b)
