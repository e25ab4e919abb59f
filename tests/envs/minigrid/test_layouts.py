"""MiniGrid's worlds: each layout can be solved, and by hand what actions do and what is seen.

Where the package is installed, whole episodes are compared with it, in tests/parity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from scramjet.envs import load_env
from scramjet.envs.minigrid.cells import (
    BALL,
    BLUE,
    BOX,
    CLOSED,
    DOOR,
    EMPTY_CELL,
    GOAL,
    GOAL_CELL,
    KEY,
    LOCKED,
    NOTHING,
    OPEN,
    RED,
    WALL,
    WALL_CELL,
    YELLOW,
    box_with_key,
    cell,
    is_passable,
    is_portable,
    kind_of,
)
from scramjet.envs.minigrid.grid_world import DONE, DROP, FORWARD, PICK_UP, TOGGLE, toggled
from scramjet.envs.minigrid.grid_world import TURN_LEFT as LEFT
from scramjet.envs.minigrid.grid_world import TURN_RIGHT as RIGHT
from tests.helpers.playing import begun, compiled, episode_stats, interpreted, observation

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
NUM_LAYOUTS = 10
BLUE_KEY, TARGET = cell(KEY, BLUE), cell(BALL, RED)
Cells = dict[tuple[int, int], int]


def first_states(name: str, parameters: dict, count: int = NUM_LAYOUTS) -> np.ndarray:
    """Records at the start of so many episodes: a few are interpreted long before their rules are compiled."""
    return interpreted(load_env(name, **parameters), count, seed=7)[0].states()


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


def test_every_layout_can_be_solved() -> None:
    for name, parameters in WORLDS:
        assert all(is_solvable(state) for state in first_states(name, parameters)), (name, parameters)


def test_a_layout_without_its_keys_cannot_be_solved() -> None:
    """The search above is no formality, and there is no other way in."""
    for name, parameters in (("door_key", {}), ("key_corridor", {"room_size": 4}), ("obstructed_maze", {})):
        for state in first_states(name, parameters):
            kinds = state["grid"] & 15
            state["grid"][(kinds == KEY) | (kinds == BOX)] = EMPTY_CELL
            assert not is_solvable(state), name


@pytest.mark.rest  # compiles rules that no other test does
def test_of_chains_that_do_not_fit_the_longest_is_taken() -> None:
    env = load_env("multi_room", min_rooms=14, max_rooms=14, max_room_size=5, size=15)
    doors = [int((state["grid"] & 15 == DOOR).sum()) for state in compiled(env, NUM_LAYOUTS, seed=7)[0].states()]
    assert min(doors) >= 7  # of 1,000 chains; of a single one often none


ACTIONS = [
    # an action; what lies ahead and is carried before and afterwards; whether the agent moves and whether it wins
    (FORWARD, EMPTY_CELL, EMPTY_CELL, EMPTY_CELL, EMPTY_CELL, True, False),
    (FORWARD, GOAL_CELL, EMPTY_CELL, GOAL_CELL, EMPTY_CELL, True, True),
    (FORWARD, WALL_CELL, EMPTY_CELL, WALL_CELL, EMPTY_CELL, False, False),
    (FORWARD, BLUE_KEY, EMPTY_CELL, BLUE_KEY, EMPTY_CELL, False, False),
    (FORWARD, cell(DOOR, BLUE, OPEN), EMPTY_CELL, cell(DOOR, BLUE, OPEN), EMPTY_CELL, True, False),
    (FORWARD, cell(DOOR, BLUE, CLOSED), EMPTY_CELL, cell(DOOR, BLUE, CLOSED), EMPTY_CELL, False, False),
    (PICK_UP, BLUE_KEY, EMPTY_CELL, EMPTY_CELL, BLUE_KEY, False, False),
    (PICK_UP, TARGET, EMPTY_CELL, EMPTY_CELL, TARGET, False, True),
    (PICK_UP, BLUE_KEY, TARGET, BLUE_KEY, TARGET, False, False),  # hands full
    (PICK_UP, GOAL_CELL, EMPTY_CELL, GOAL_CELL, EMPTY_CELL, False, False),
    (DROP, EMPTY_CELL, BLUE_KEY, BLUE_KEY, EMPTY_CELL, False, False),
    (DROP, GOAL_CELL, BLUE_KEY, GOAL_CELL, BLUE_KEY, False, False),
    (DROP, EMPTY_CELL, EMPTY_CELL, EMPTY_CELL, EMPTY_CELL, False, False),
    (TOGGLE, cell(DOOR, BLUE, CLOSED), EMPTY_CELL, cell(DOOR, BLUE, OPEN), EMPTY_CELL, False, False),
    (TOGGLE, cell(DOOR, BLUE, OPEN), EMPTY_CELL, cell(DOOR, BLUE, CLOSED), EMPTY_CELL, False, False),
    (TOGGLE, cell(DOOR, BLUE, LOCKED), BLUE_KEY, cell(DOOR, BLUE, OPEN), BLUE_KEY, False, False),
    (TOGGLE, cell(DOOR, RED, LOCKED), BLUE_KEY, cell(DOOR, RED, LOCKED), BLUE_KEY, False, False),
    (TOGGLE, box_with_key(RED, BLUE), EMPTY_CELL, BLUE_KEY, EMPTY_CELL, False, False),
    (TOGGLE, cell(BOX, RED), EMPTY_CELL, EMPTY_CELL, EMPTY_CELL, False, False),
    (DONE, GOAL_CELL, EMPTY_CELL, GOAL_CELL, EMPTY_CELL, False, False),
]


def test_each_action_does_what_the_rules_say() -> None:
    env = load_env("empty")
    for case in ACTIONS:
        action, ahead, carried, ahead_after, carried_after, moves, wins = case
        for direction, (x, y) in enumerate(around(3, 3)):  # right, down, left, up
            s = begun(env, x=3, y=3, direction=direction, carried=carried, target=TARGET, steps=9)
            s.grid[x, y] = ahead
            reward, is_over = env.step(s, action)
            assert (s.grid[x, y], s.carried) == (ahead_after, carried_after), case
            assert (s.x, s.y) == ((x, y) if moves else (3, 3)), case
            assert (reward, is_over) == (pytest.approx(1 - 0.9 * 10 / 256) if wins else 0.0, wins), case
            assert episode_stats(env, s) == {"solved": float(wins)}
    s = begun(env)
    directions = [(env.step(s, action), s.direction)[1] for action in (LEFT, LEFT, RIGHT, RIGHT, RIGHT)]
    assert directions == [3, 2, 3, 0, 1]


def test_the_agent_sees_the_square_before_it_but_not_behind_walls_and_closed_doors() -> None:
    """Rows of the view from the farthest to its own, from left to right; 0 is not seen."""
    open_cells, wall = [NOTHING] * 5, [WALL, WALL, DOOR, WALL, WALL]
    for state, beyond, farthest in (
        (CLOSED, [0] * 5, [0] * 5),
        (OPEN, [0, WALL, NOTHING, NOTHING, NOTHING], open_cells),
    ):
        env = load_env("door_key", view_size=5)
        s = begun(env, x=1, y=3, direction=0, carried=BLUE_KEY)
        s.grid[1:7, 1:7] = EMPTY_CELL
        s.grid[3, :] = WALL_CELL
        s.grid[3, 3] = cell(DOOR, RED, state)
        s.grid[4, 2] = WALL_CELL
        view = observation(env, s)
        own = [NOTHING, NOTHING, KEY, NOTHING, NOTHING]
        assert view[..., 0].T.tolist() == [farthest, beyond, wall, open_cells, own], state
        assert view[2, 2].tolist() == [DOOR, RED, state]
        assert view[2, 4].tolist() == [KEY, BLUE, 0]
        assert env.observation_space.contains(view)
    see_through = load_env("empty", view_size=3)
    s = begun(see_through, x=6, y=1, direction=0)
    beside, ahead = [WALL] * 3, [WALL, WALL, NOTHING]
    assert observation(see_through, s)[..., 0].tolist() == [beside, ahead, ahead]


def test_the_picture_and_the_text_show_the_agent_and_what_it_carries() -> None:
    env = load_env("door_key", size=5)
    s = begun(env, seed=1)
    before = env.render(s)
    s.carried = cell(KEY, YELLOW)
    assert before.shape == (400, 400, 3)
    assert (env.render(s) != before).any()
    assert env.ascii(s).endswith("carries Ky")
