"""Parameters that make no world are refused by name, with their value and what would do."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from scramjet.envs import load_env, registrations
from scramjet.errors import WorldError

REFUSED: list[tuple[str, str, str, dict[str, Any]]] = [
    # a world; values, each of which is refused alone; what is said after it; what else is given
    ("acrobot", "goal_height=2.0", "is out of reach: the tip moves between -2.0 and 2.0", {}),
    ("acrobot", "torque_noise=-0.1", "must be at least 0", {}),
    ("bandit", "arms=1", "must be at least 2", {"lucky_arm": 0}),
    ("bandit", "lucky_arm=4 lucky_arm=-1", "must be in 0 .. 3", {}),
    ("binpack", "max_items=0 max_items=1", "must be in 2 .. 1000", {}),
    ("binpack", "split_num_same_items=1", "must be in 2 .. 20", {}),
    ("binpack", "split_num_same_items=5", "must be in 2 .. 4", {"max_items": 4}),
    ("binpack", "max_spaces=0", "must be in 1 .. 10000", {}),
    ("binpack", "split_eps=0.6 split_eps=-0.1", "must be in 0.0 .. 0.5", {}),
    ("binpack", "prob_split_one_item=1.5", "must be in 0.0 .. 1.0", {}),
    ("binpack", "length=0 height=100001", "must be in 1 .. 100000", {}),
    ("binpack", "max_items=20", "; make it larger or", {"length": 3, "width": 3, "height": 2}),
    ("cartpole", "mass_pole=0.0 half_length=-1.0", "must be above 0", {}),
    ("connect_four", "rows=1 cols=21", "must be from 2 to 20", {}),
    ("connect_four", "connect=1", "must be from 2 to 7", {}),
    ("connect_four", "opening_plies=-1", "must be at least 0", {}),
    ("connect_four", "connect=5", "must be from 2 to 4, the longest line on a board of 4 x 4", {"rows": 4, "cols": 4}),
    ("connect_four", "connect=9", "; lower connect, or raise rows or cols", {}),
    ("deep_sea", "size=0 size=1001 mapping_seed=-1 mapping_seed=4294967296", "must be in", {}),
    ("door_key", "view_size=4", "must be odd and from 3 to 15", {}),
    ("door_key", "size=4", "must be from 5 to 64", {}),
    ("empty", "size=3", "must be from 4 to 64", {}),
    ("flickering_cartpole", "blank_probability=-0.1 blank_probability=1.0", "must be at least 0 and below 1", {}),
    ("flickering_cartpole", "mass_pole=0.0", "must be above 0", {}),
    ("four_rooms", "size=8", "must be odd", {}),
    ("game_2048", "size=1 size=7", "must be from 2 to 6", {}),
    ("identity_continuous", "dims=0 num_targets=0", "must be at least 1", {}),
    ("key_corridor", "num_rows=0", "must be from 1 to 12", {}),
    ("kuhn", "players=4", "must be from 2 to 3", {}),
    ("maze", "rows=0 cols=-3", "must be at least 1", {}),
    ("maze", "rows=1", "and cols=1 leave no cell for the target; make rows or cols at least 2", {"cols": 1}),
    ("memory", "length=0", "must be at least 1: there is nothing to remember", {}),
    ("memory", "delay=-1", "must be at least 0", {}),
    ("mountain_car", "force=0.0", "must be above 0", {}),
    ("mountain_car", "goal_position=-0.4 goal_position=0.7", "must be above -0.4, where the car may start, and at", {}),
    ("mountain_car", "goal_velocity=0.1", "must be at most 0.07, the car's top speed", {}),
    ("mountain_car_continuous", "force=-1.0", "must be above 0", {}),
    ("multi_room", "min_rooms=7", "must be from 1 to 6", {}),
    ("multi_room", "max_room_size=63", "must be from 4 to 62", {"size": 64}),
    ("multi_room", "size=8", "must be from 12 to 64", {}),
    ("multi_room", "max_rooms=2", "must be from 1 to 1", {"size": 6, "max_room_size": 4}),
    ("obstructed_maze", "quarters=5", "must be from 0 to 4", {}),
    ("othello", "size=7 size=12", "must be an even number from 4 to 10", {}),
    ("othello", "opening_plies=9", "must be from 0 to 8, half of the cells", {"size": 4}),
    ("pendulum", "mass=0.0 length=0.0 max_torque=0.0", "must be above 0", {}),
    ("probe_delay", "delay=-1", "must be at least 0", {}),
    ("rubiks_cube", "scrambles=0 scrambles=-1 scrambles=1001", "must be from 1 to 1000", {}),
    ("sliding_tiles", "size=1 size=11", "must be from 2 to 10", {}),
    ("sliding_tiles", "scrambles=0 scrambles=10001", "must be from 1 to 10000", {}),
    ("snake", "size=4 size=33", "must be from 5 to 32", {}),
    ("snake", "snakes=5 snakes=0", "must be from 1 to 4", {}),
    ("snake", "start_length=1", "must be from 2 to 9", {}),
    ("snake", "start_length=4", "must be from 2 to 3 with snakes=4 on size=10; a larger size", {"snakes": 4}),
    ("snake", "foods_per_snake=0", "must be from 1 to 97", {}),
    ("snake", "foods_per_snake=48", "must be from 1 to 47", {"snakes": 2}),
    ("sokoban", "rows=4 cols=17", "must be from 5 to 16", {}),
    ("sokoban", "boxes=0", "must be from 1 to 8", {}),
    ("sokoban", "pulls=0", "must be from 1 to 1000", {}),
    ("sokoban", "boxes=4", "have no room to move in rows=6 x cols=6", {"rows": 6, "cols": 6}),
    ("squared", "distance=0", "must be in 1 .. 1000", {}),
    ("squared", "targets=25", "must be in 1 .. 24, the cells of the rim at distance=3, or 0 for 12", {}),
    ("squared", "targets=-1", "must be in 1 .. 8, the cells of the rim at distance=1, or 0 for 4", {"distance": 1}),
    ("tic_tac_toe", "opening_plies=9", "must be from 0 to 8", {}),
    ("tmaze", "length=0", "must be at least 1", {}),
]


def test_parameters_that_make_no_world_are_refused_with_their_value_and_what_would_do() -> None:
    for world, values, message, others in REFUSED:
        for value in values.split():
            name, _, number = value.partition("=")
            with pytest.raises(WorldError) as caught:
                load_env(world, **{name: ast.literal_eval(number)}, **others)
            assert value in str(caught.value), (world, value)
            assert message in str(caught.value), (world, value)


def test_every_world_with_a_check_of_its_own_is_among_the_cases() -> None:
    own = {entry.name for entry in registrations() if "validate" in vars(entry.env_class())}
    assert own <= {world for world, *_ in REFUSED}
