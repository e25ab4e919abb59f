"""Layouts of the MiniGrid worlds: each can be solved, and they are drawn as the package draws its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from scramjet.engine.worlds.native_pool import Backend, NativePool
from scramjet.envs import load_env
from scramjet.envs.minigrid.cells import DOOR, EMPTY_CELL, GOAL, KEY, YELLOW, cell, is_passable, is_portable, kind_of
from scramjet.envs.minigrid.grid_world import toggled
from scramjet.errors import WorldError

WORLDS = [
    ("empty", {"size": 5, "random_start": True}),
    ("door_key", {"size": 5}),
    ("door_key", {}),
    ("four_rooms", {}),
    ("multi_room", {}),
    ("key_corridor", {"room_size": 4}),
    ("key_corridor", {}),
    ("obstructed_maze", {"quarters": 0, "blocked_doors": True, "rooms_visited": 2}),
    ("obstructed_maze", {}),
    ("obstructed_maze", {"quarters": 4, "blocked_doors": True, "middle_start": True, "rooms_visited": 25}),
]
NUM_LAYOUTS = 20
Cells = dict[tuple[int, int], int]


def first_states(name: str, parameters: dict, count: int = NUM_LAYOUTS, backend: Backend = "interpreted") -> np.ndarray:
    """Records at the start of so many episodes. A few are interpreted long before their rules are compiled."""
    pool = NativePool(load_env(name, **parameters), count, num_threads=1, backend=backend)
    pool.reset(7)
    return pool.states()


def around(x: int, y: int) -> Iterator[tuple[int, int]]:
    """The four neighbours of a cell."""
    return iter(((x + 1, y), (x, y + 1), (x - 1, y), (x, y - 1)))


def touched(cells: Cells, start: tuple[int, int]) -> set[tuple[int, int]]:
    """The cells that one can walk to, and those beside them."""
    found, queue = {start}, deque([start])
    while queue:
        for place in around(*queue.popleft()):
            if place in cells and place not in found:
                found.add(place)
                if is_passable(cells[place]):
                    queue.append(place)
    return found


def is_solvable(state: Any) -> bool:
    """Whether someone wins who takes all keys within reach, opens all boxes and doors, and clears balls away.

    Things that were taken are gone: there is always a cell to drop them on. Keys are kept.
    """
    cells = {place: int(code) for place, code in np.ndenumerate(state["grid"])}
    start, target, keys = (int(state["x"]), int(state["y"])), int(state["target"]), set()
    while True:
        changed = False
        for place in touched(cells, start):
            code = cells[place]
            if code == target or kind_of(code) == GOAL:
                return True
            opened = [toggled(code, key) for key in (*keys, 0) if not is_passable(code)]
            new = next((other for other in opened if other != code), code)
            if is_portable(code) and new == code:
                keys.add(code)
                new = EMPTY_CELL
            changed |= new != code
            cells[place] = new
        if not changed:
            return False


@pytest.mark.parametrize(("name", "parameters"), WORLDS)
def test_every_layout_can_be_solved(name: str, parameters: dict) -> None:
    assert all(is_solvable(state) for state in first_states(name, parameters))


def test_a_layout_without_its_key_cannot_be_solved() -> None:
    """The search above is no formality."""
    state = first_states("door_key", {}, count=1)[0]
    state["grid"][state["grid"] & 15 == KEY] = EMPTY_CELL
    assert not is_solvable(state)


def test_of_chains_that_do_not_fit_the_longest_is_taken() -> None:
    rooms = {"min_rooms": 14, "max_rooms": 14, "max_room_size": 5, "size": 15}
    doors = [int((state["grid"] & 15 == DOOR).sum()) for state in first_states("multi_room", rooms, backend="cpu")]
    assert min(doors) >= 7  # of 1,000 chains; of a single one often none


def test_layouts_are_as_frequent_as_those_of_the_package() -> None:
    """Where the wall of DoorKey stands and how many doors KeyCorridor has, by a chi-squared test of two samples."""
    pytest.importorskip("minigrid")
    import gymnasium

    door_key = {}, "interpreted", lambda kinds: int(np.argwhere(kinds == DOOR)[0, 0])
    key_corridor = {"room_size": 3}, "cpu", lambda kinds: int((kinds == DOOR).sum())  # compiled by others anyway
    cases = [
        ("MiniGrid-DoorKey-8x8-v0", "door_key", *door_key),
        ("MiniGrid-KeyCorridorS3R3-v0", "key_corridor", *key_corridor),
    ]
    for theirs, name, parameters, backend, number in cases:
        original = gymnasium.make(theirs).unwrapped
        ours = [number(state["grid"] & 15) for state in first_states(name, parameters, 400, backend)]
        package = []
        for seed in range(400):
            original.reset(seed=seed)
            package.append(number(original.grid.encode()[..., 0]))
        values = sorted({*ours, *package})
        a, b = (np.array([found.count(value) for value in values], float) for found in (ours, package))
        statistic = ((a - b) ** 2 / (a + b)).sum()
        assert statistic < 5 * max(len(values) - 1, 3), (theirs, a, b)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("empty", {"size": 3}, "size=3 must be from 4 to 64"),
        ("four_rooms", {"size": 8}, "size=8 must be odd"),
        ("door_key", {"view_size": 4}, "view_size=4 must be odd and from 3 to 15"),
        ("multi_room", {"min_rooms": 7}, "min_rooms=7 must be from 1 to 6"),
        ("multi_room", {"max_room_size": 63, "size": 64}, "max_room_size=63 must be from 4 to 62"),
        ("multi_room", {"size": 8}, "size=8 must be from 12 to 64"),
        ("multi_room", {"size": 6, "max_room_size": 4, "max_rooms": 2}, "max_rooms=2 must be from 1 to 1"),
        ("key_corridor", {"num_rows": 0}, "num_rows=0 must be from 1 to 12"),
        ("obstructed_maze", {"quarters": 5}, "quarters=5 must be from 0 to 4"),
    ],
)
def test_parameters_that_make_no_world_are_refused(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(WorldError, match=message):
        load_env(name, **parameters)


def test_the_picture_and_the_text_show_the_agent_and_what_it_carries() -> None:
    env = load_env("door_key", size=5)
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(1)
    before = env.render(pool.as_record(pool.states()[0]))
    state = pool.states()[0]
    state["carried"] = cell(KEY, YELLOW)
    record = pool.as_record(state)
    assert before.shape == (400, 400, 3)
    assert (env.render(record) != before).any()
    assert env.ascii(record).endswith("carries Ky")
