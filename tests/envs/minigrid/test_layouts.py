"""MiniGrid's worlds: each layout can be solved, and by hand what actions do and what is seen.

Where the package is installed, whole episodes are compared with it, in tests/parity.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from scramjet.envs import load_env
from scramjet.envs.minigrid import cells
from scramjet.envs.minigrid.cells import BLUE, BOX, CLOSED, KEY, LOCKED, OPEN, RED, box_with_key, cell, kind_of
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
EMPTY, WALL, GOAL = cells.EMPTY_CELL, cells.WALL_CELL, cells.GOAL_CELL
BLUE_KEY, TARGET = cell(KEY, BLUE), cell(cells.BALL, RED)
DOORS = {state: cell(cells.DOOR, BLUE, state) for state in (OPEN, CLOSED, LOCKED)}
Cells = dict[tuple[int, int], int]


def first_states(name: str, parameters: dict, count: int = NUM_LAYOUTS) -> np.ndarray:
    """Records at the start of so many episodes: a few are interpreted long before their rules are compiled."""
    return interpreted(load_env(name, **parameters), count, seed=7)[0].states()


def around(x: int, y: int) -> Iterator[tuple[int, int]]:
    """The four neighbours of a cell."""
    return iter(((x + 1, y), (x, y + 1), (x - 1, y), (x, y - 1)))


def touched(grid: Cells, start: tuple[int, int]) -> set[tuple[int, int]]:
    """The cells that one can walk to, and those beside them."""
    found, queue = {start}, deque([start])
    while queue:
        for place in around(*queue.popleft()):
            if place in grid and place not in found:
                found.add(place)
                if cells.is_passable(grid[place]):
                    queue.append(place)
    return found


def is_solvable(state: Any) -> bool:
    """Whether someone wins who takes all keys within reach, opens all boxes and doors, and clears balls away.

    Things that were taken are gone: there is always a cell to drop them on. Keys are kept.
    """
    grid = {place: int(code) for place, code in np.ndenumerate(state["grid"])}
    start, target, keys = (int(state["x"]), int(state["y"])), int(state["target"]), set()
    while True:
        changed = False
        for place in touched(grid, start):
            code = grid[place]
            if code == target or kind_of(code) == cells.GOAL:
                return True
            opened = [toggled(code, key) for key in (*keys, 0) if not cells.is_passable(code)]
            new = next((other for other in opened if other != code), code)
            if cells.is_portable(code) and new == code:
                keys.add(code)
                new = EMPTY
            changed |= new != code
            grid[place] = new
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
            state["grid"][(kinds == KEY) | (kinds == BOX)] = EMPTY
            assert not is_solvable(state), name


@pytest.mark.rest  # compiles rules that no other test does
def test_of_chains_that_do_not_fit_the_longest_is_taken() -> None:
    env = load_env("multi_room", min_rooms=14, max_rooms=14, max_room_size=5, size=15)
    doors = [int((state["grid"] & 15 == cells.DOOR).sum()) for state in compiled(env, NUM_LAYOUTS, seed=7)[0].states()]
    assert min(doors) >= 7  # of 1,000 chains; of a single one often none


ACTIONS = [
    # an action; what lies ahead and is carried before and afterwards; whether the agent moves and whether it wins
    (FORWARD, EMPTY, EMPTY, EMPTY, EMPTY, True, False),
    (FORWARD, GOAL, EMPTY, GOAL, EMPTY, True, True),
    (FORWARD, WALL, EMPTY, WALL, EMPTY, False, False),
    (FORWARD, BLUE_KEY, EMPTY, BLUE_KEY, EMPTY, False, False),
    (FORWARD, DOORS[OPEN], EMPTY, DOORS[OPEN], EMPTY, True, False),
    (FORWARD, DOORS[CLOSED], EMPTY, DOORS[CLOSED], EMPTY, False, False),
    (PICK_UP, BLUE_KEY, EMPTY, EMPTY, BLUE_KEY, False, False),
    (PICK_UP, TARGET, EMPTY, EMPTY, TARGET, False, True),
    (PICK_UP, BLUE_KEY, TARGET, BLUE_KEY, TARGET, False, False),  # hands full
    (PICK_UP, GOAL, EMPTY, GOAL, EMPTY, False, False),
    (DROP, EMPTY, BLUE_KEY, BLUE_KEY, EMPTY, False, False),
    (DROP, GOAL, BLUE_KEY, GOAL, BLUE_KEY, False, False),
    (DROP, EMPTY, EMPTY, EMPTY, EMPTY, False, False),
    (TOGGLE, DOORS[CLOSED], EMPTY, DOORS[OPEN], EMPTY, False, False),
    (TOGGLE, DOORS[OPEN], EMPTY, DOORS[CLOSED], EMPTY, False, False),
    (TOGGLE, DOORS[LOCKED], BLUE_KEY, DOORS[OPEN], BLUE_KEY, False, False),
    (TOGGLE, DOORS[LOCKED], cell(KEY, RED), DOORS[LOCKED], cell(KEY, RED), False, False),
    (TOGGLE, box_with_key(RED, BLUE), EMPTY, BLUE_KEY, EMPTY, False, False),
    (TOGGLE, cell(BOX, RED), EMPTY, EMPTY, EMPTY, False, False),
    (DONE, GOAL, EMPTY, GOAL, EMPTY, False, False),
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
    """Kinds of cells from the farthest row of the view to its own, from left to right; a space is not seen."""
    for state, picture in ((CLOSED, "     |     |##D##|.....|..K.."), (OPEN, ".....| #...|##D##|.....|..K..")):
        env = load_env("door_key", view_size=5)
        s = begun(env, x=1, y=3, direction=0, carried=BLUE_KEY)
        s.grid[1:7, 1:7] = EMPTY
        s.grid[3, :] = s.grid[4, 2] = WALL
        s.grid[3, 3] = DOORS[state]
        view = observation(env, s)
        assert view[..., 0].T.tolist() == [[" .# DK".index(kind) for kind in row] for row in picture.split("|")]
        assert view[2, [2, 4]].tolist() == [[cells.DOOR, BLUE, state], [KEY, BLUE, 0]]
        assert env.observation_space.contains(view)
    see_through = load_env("empty", view_size=3)
    s = begun(see_through, x=6, y=1, direction=0)  # in a corner
    wall, floor = cells.WALL, cells.NOTHING
    assert observation(see_through, s)[..., 0].tolist() == [[wall] * 3, [wall, wall, floor], [wall, wall, floor]]


def test_the_picture_and_the_text_show_the_agent_and_what_it_carries() -> None:
    env = load_env("door_key", size=5)
    s = begun(env, seed=1)
    before = env.render(s)
    s.carried = cell(KEY, cells.YELLOW)
    assert before.shape == (400, 400, 3)
    assert (env.render(s) != before).any()
    assert env.ascii(s).endswith("carries Ky")
