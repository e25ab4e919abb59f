"""Snake: every way to die by hand, growth and food, and long random games against a second, naive implementation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.envs.games.snake import BODY, BORDER, FOOD, FOODS, FREE, HEAD, NOWHERE, OTHERS, Snake
from scramjet.errors import WorldError
from tests.helpers.greedy_snake import DOWN, LEFT, RIGHT, UP, greedy_action

MOVES = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}
Cell = tuple[int, int]


def begin(env: Snake, seed: int = 0) -> Any:
    """A fresh game, as the record that the rules work on."""
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(seed)
    return pool.record(0)


def lay_out(env: Snake, bodies: list[list[Cell]], foods: list[Cell]) -> Any:
    """A game with snakes (each from head to tail, dead if empty) and food where the test wants them."""
    s = begin(env)
    s.grid[:] = FREE
    s.food[:] = NOWHERE
    for snake, body in enumerate(bodies):
        s.alive[snake] = len(body) > 0
        s.length[snake] = len(body)
        s.head[snake] = 1  # so that the body goes over the seam of its ring
        for place, (row, column) in enumerate(body):
            s.body[snake, 1 - place] = row * env.size + column
            s.grid[row * env.size + column] = 1 + snake
        if body:
            step = (body[0][0] - body[1][0], body[0][1] - body[1][1])
            s.heading[snake] = next(action for action, move in MOVES.items() if move == step)
    for piece, (row, column) in enumerate(foods):
        s.food[piece] = row * env.size + column
        s.grid[row * env.size + column] = FOOD
    return s


def move(env: Snake, s: Any, *actions: int) -> tuple[list[float], bool]:
    reward = np.zeros(env.snakes)
    over = env.step(s, np.array(actions), reward)
    return reward.tolist(), over


def view(env: Snake, s: Any, player: int = 0) -> np.ndarray:
    obs = np.full(env.observation_space.shape, 99, np.uint8)
    env.observe(s, obs, player)
    return obs


def cells_of(plane: np.ndarray) -> list[Cell]:
    """The marked cells of a plane, the brightest first: a snake from head to tail."""
    order = np.argsort(-plane.astype(int).ravel(), kind="stable")[: np.count_nonzero(plane)]
    return [(int(k) // plane.shape[1], int(k) % plane.shape[1]) for k in order]


def snake_cells(env: Snake, s: Any, snake: int) -> list[Cell]:
    return cells_of(view(env, s, snake)[BODY])


def food_cells(env: Snake, s: Any) -> set[Cell]:
    return set(cells_of(view(env, s)[FOODS]))


def living(env: Snake, s: Any) -> list[bool]:
    return [env.alive(s, snake) for snake in range(env.snakes)]


FAR = (6, 6)  # food that is in nobody's way
ALONE = Snake(size=7)
PAIR = Snake(size=7, snakes=2)


# --- one step, by hand ------------------------------------------------------------------------------------------


def test_a_snake_moves_one_cell_and_draws_its_tail_after_it() -> None:
    s = lay_out(ALONE, [[(3, 3), (3, 2), (3, 1)]], [FAR])
    assert move(ALONE, s, UP) == ([0.0], False)
    assert snake_cells(ALONE, s, 0) == [(2, 3), (3, 3), (3, 2)]
    assert move(ALONE, s, UP) == ([0.0], False)
    assert snake_cells(ALONE, s, 0) == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("body", "back", "ahead"),
    [
        ([(3, 3), (3, 2), (3, 1)], LEFT, (3, 4)),
        ([(3, 3), (3, 4), (3, 5)], RIGHT, (3, 2)),
        ([(3, 3), (2, 3), (1, 3)], UP, (4, 3)),
        ([(3, 3), (4, 3), (5, 3)], DOWN, (2, 3)),
    ],
)
def test_turning_right_back_is_going_straight_on(body, back: int, ahead: Cell) -> None:
    s = lay_out(ALONE, [body], [FAR])
    assert move(ALONE, s, back) == ([0.0], False)
    assert snake_cells(ALONE, s, 0) == [ahead, *body[:-1]]


@pytest.mark.parametrize(
    ("body", "action"),
    [
        ([(0, 3), (1, 3), (2, 3)], UP),
        ([(3, 6), (3, 5), (3, 4)], RIGHT),
        ([(6, 3), (5, 3), (4, 3)], DOWN),
        ([(3, 0), (3, 1), (3, 2)], LEFT),
    ],
)
def test_the_wall_is_death_on_every_side(body, action: int) -> None:
    s = lay_out(ALONE, [body], [(3, 3) if (3, 3) not in body else (5, 0)])
    assert move(ALONE, s, action) == ([-1.0], True)
    assert living(ALONE, s) == [False]


def test_ones_own_body_is_death_but_its_leaving_tail_is_not() -> None:
    square = [(3, 3), (3, 4), (4, 4), (4, 3)]
    s = lay_out(ALONE, [square], [FAR])
    assert move(ALONE, s, DOWN) == ([0.0], False)  # round and round
    assert snake_cells(ALONE, s, 0) == [(4, 3), (3, 3), (3, 4), (4, 4)]
    s = lay_out(ALONE, [[*square, (5, 3)]], [FAR])
    assert move(ALONE, s, DOWN) == ([-1.0], True)


def test_eating_makes_a_snake_longer_at_once_and_brings_new_food() -> None:
    s = lay_out(ALONE, [[(3, 3), (3, 2), (3, 1)]], [(3, 4)])
    assert move(ALONE, s, RIGHT) == ([1.0], False)
    assert snake_cells(ALONE, s, 0) == [(3, 4), (3, 3), (3, 2), (3, 1)]
    assert len(food_cells(ALONE, s)) == 1
    assert not food_cells(ALONE, s) & set(snake_cells(ALONE, s, 0))


def test_anothers_body_is_death_and_the_dead_leave_the_board() -> None:
    s = lay_out(PAIR, [[(3, 3), (3, 2), (3, 1)], [(1, 4), (2, 4), (3, 4), (4, 4), (5, 4)]], [FAR, (0, 0)])
    assert move(PAIR, s, RIGHT, UP) == ([-1.0, 0.0], False)
    assert living(PAIR, s) == [False, True]
    assert snake_cells(PAIR, s, 0) == []
    assert snake_cells(PAIR, s, 1) == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert move(PAIR, s, RIGHT, LEFT) == ([0.0, 0.0], False)  # the dead get nothing, whatever they do
    assert move(PAIR, s, RIGHT, UP) == ([0.0, -1.0], True)


def test_anothers_leaving_tail_is_free_unless_that_snake_eats() -> None:
    bodies = [[(3, 3), (3, 2), (3, 1)], [(1, 4), (2, 4), (3, 4)]]
    s = lay_out(PAIR, bodies, [FAR, (6, 0)])
    assert move(PAIR, s, RIGHT, UP) == ([0.0, 0.0], False)
    assert snake_cells(PAIR, s, 0)[0] == (3, 4)
    assert snake_cells(PAIR, s, 1) == [(0, 4), (1, 4), (2, 4)]
    s = lay_out(PAIR, bodies, [(0, 4), (6, 0)])
    assert move(PAIR, s, RIGHT, UP) == ([-1.0, 1.0], False)


def test_two_heads_on_one_cell_both_die() -> None:
    s = lay_out(PAIR, [[(3, 2), (3, 1), (3, 0)], [(3, 4), (3, 5), (3, 6)]], [FAR, (0, 0)])
    assert move(PAIR, s, RIGHT, LEFT) == ([-1.0, -1.0], True)


def test_two_heads_that_would_change_places_both_die() -> None:
    s = lay_out(PAIR, [[(3, 2), (3, 1), (3, 0)], [(3, 3), (3, 4), (3, 5)]], [FAR, (0, 0)])
    assert move(PAIR, s, RIGHT, LEFT) == ([-1.0, -1.0], True)


def test_two_heads_on_one_piece_of_food_die_and_it_stays() -> None:
    trio = Snake(size=9, snakes=3)
    bodies = [[(3, 2), (3, 1), (3, 0)], [(3, 4), (3, 5), (3, 6)], [(8, 2), (8, 1), (8, 0)]]
    s = lay_out(trio, bodies, [(3, 3), (0, 0), (0, 8)])
    assert move(trio, s, RIGHT, LEFT, RIGHT) == ([-1.0, -1.0, 0.0], False)
    assert food_cells(trio, s) == {(3, 3), (0, 0), (0, 8)}


def test_running_into_a_snake_that_dies_in_the_same_step_is_death_too() -> None:
    s = lay_out(PAIR, [[(1, 3), (1, 2), (1, 1)], [(0, 4), (1, 4), (2, 4)]], [FAR, (6, 0)])
    assert move(PAIR, s, RIGHT, UP) == ([-1.0, -1.0], True)


def test_a_tail_drawn_in_by_a_dying_snake_is_free_and_stays_the_others() -> None:
    s = lay_out(PAIR, [[(2, 3), (2, 2), (2, 1)], [(0, 4), (1, 4), (2, 4)]], [FAR, (6, 0)])
    assert move(PAIR, s, RIGHT, UP) == ([0.0, -1.0], False)
    assert snake_cells(PAIR, s, 0) == [(2, 4), (2, 3), (2, 2)]
    np.testing.assert_array_equal(np.flatnonzero(s.grid == 1), [2 * 7 + 2, 2 * 7 + 3, 2 * 7 + 4])


def test_food_death_and_survival_pay_what_the_parameters_say() -> None:
    env = Snake(size=7, snakes=3, start_length=2, food_reward=5.0, death_reward=-7.0, step_reward=0.25)
    bodies = [[(1, 2), (1, 1)], [(3, 2), (3, 1)], [(5, 6), (5, 5)]]
    s = lay_out(env, bodies, [(1, 3), (0, 0), (6, 0)])
    assert move(env, s, RIGHT, RIGHT, RIGHT) == ([5.25, 0.25, -7.0], False)


def test_who_outlives_others_is_paid_for_each_of_them_at_their_death() -> None:
    env = Snake(size=9, snakes=4, start_length=2, outlive_reward=0.5, step_reward=0.25)
    bodies = [[(1, 2), (1, 1)], [(3, 2), (3, 1)], [(5, 8), (5, 7)], [(7, 8), (7, 7)]]
    s = lay_out(env, bodies, [(1, 3), (0, 0), (0, 8), (8, 0)])
    assert move(env, s, RIGHT, RIGHT, RIGHT, RIGHT) == ([2.25, 1.25, -1.0, -1.0], False)
    assert move(env, s, RIGHT, RIGHT, RIGHT, RIGHT)[0] == [0.25, 0.25, 0.0, 0.0]  # once


@pytest.mark.parametrize("ends_with_one", [False, True])
def test_a_competition_may_end_with_the_last_snake_alive(ends_with_one: bool) -> None:
    env = Snake(size=7, snakes=2, ends_with_one=ends_with_one, outlive_reward=1.0)
    s = lay_out(env, [[(1, 3), (1, 2), (1, 1)], [(3, 6), (3, 5), (3, 4)]], [FAR, (6, 0)])
    assert move(env, s, RIGHT, RIGHT) == ([1.0, -1.0], ends_with_one)
    alone = Snake(size=7, ends_with_one=True)
    s = lay_out(alone, [[(1, 3), (1, 2), (1, 1)]], [FAR])
    assert move(alone, s, RIGHT) == ([0.0], False)


# --- a full board -----------------------------------------------------------------------------------------------


def there_and_back(size: int) -> list[Cell]:
    """A way over all cells of a board, row by row."""
    return [(r, c if r % 2 == 0 else size - 1 - c) for r in range(size) for c in range(size)]


def test_a_snake_that_fills_the_board_has_won_and_the_game_ends() -> None:
    env = Snake(size=5)
    way = there_and_back(5)
    s = lay_out(env, [way[1:]], [way[0]])
    assert move(env, s, LEFT) == ([1.0], True)
    assert living(env, s) == [True]
    assert len(snake_cells(env, s, 0)) == 25
    assert food_cells(env, s) == set()


def test_food_that_finds_no_free_cell_waits_for_one() -> None:
    env = Snake(size=5, snakes=2, start_length=2)
    way = there_and_back(5)
    s = lay_out(env, [way[2:20], way[20:25][::-1]], [way[1], way[0]])
    assert move(env, s, LEFT, LEFT) == ([1.0, -1.0], False)  # the second runs into its wall and leaves five cells
    assert len(food_cells(env, s)) == 2
    env = Snake(size=5, foods_per_snake=2)
    s = lay_out(env, [way[2:]], [way[1], way[0]])
    assert move(env, s, LEFT) == ([1.0], False)
    assert food_cells(env, s) == {way[0]}  # the piece that was eaten has no place to come back to
    assert sorted(s.food.tolist()) == [NOWHERE, 0]
    assert move(env, s, LEFT) == ([1.0], True)


def test_waiting_food_comes_back_when_a_snake_dies() -> None:
    env = Snake(size=5, snakes=2, start_length=2)
    way = there_and_back(5)
    s = lay_out(env, [way[1:20], way[20:25][::-1]], [way[0]])
    assert sorted(s.food.tolist()) == [NOWHERE, 0]
    assert move(env, s, LEFT, LEFT) == ([1.0, -1.0], False)
    assert len(food_cells(env, s)) == 2
    assert food_cells(env, s) <= set(way[20:25])


# --- against a naive implementation -----------------------------------------------------------------------------


class Reference:
    """The same rules over lists of cells: slow and plain."""

    def __init__(self, size: int, bodies: list[list[Cell]], headings: list[int]) -> None:
        self.size, self.bodies, self.headings = size, bodies, headings

    def step(self, actions: list[int], foods: set[Cell]) -> tuple[list[float], list[Cell]]:
        """The rewards, and the food eaten."""
        alive = [k for k, body in enumerate(self.bodies) if body]
        heads = {}
        for k in alive:
            if {actions[k], self.headings[k]} not in ({UP, DOWN}, {LEFT, RIGHT}):
                self.headings[k] = actions[k]
            (row, column), (down, right) = self.bodies[k][0], MOVES[self.headings[k]]
            heads[k] = (row + down, column + right)
        rest = {k: self.bodies[k] if heads[k] in foods else self.bodies[k][:-1] for k in alive}
        obstacles = [cell for body in rest.values() for cell in body]
        rewards, eaten = [0.0] * len(self.bodies), []
        for k in alive:
            is_inside = 0 <= heads[k][0] < self.size and 0 <= heads[k][1] < self.size
            if not is_inside or heads[k] in obstacles or list(heads.values()).count(heads[k]) > 1:
                self.bodies[k], rewards[k] = [], -1.0
                continue
            self.bodies[k] = [heads[k], *rest[k]]
            if heads[k] in foods:
                rewards[k] = 1.0
                eaten.append(heads[k])
        return rewards, eaten


def assert_planes_show(env: Snake, s: Any, reference: Reference) -> None:
    """Each player's planes are what the reference says is on the board."""
    for player in range(env.snakes):
        obs = view(env, s, player)
        own = reference.bodies[player]
        assert cells_of(obs[BODY]) == own  # in their order, from head to tail
        assert cells_of(obs[HEAD]) == own[:1]
        others = [body for k, body in enumerate(reference.bodies) if k != player and body]
        assert set(cells_of(obs[OTHERS])) == {cell for body in others for cell in body}
        assert {cell for cell in cells_of(obs[OTHERS]) if obs[OTHERS][cell] == 255} == {body[0] for body in others}


@given(
    st.integers(1, 4), st.integers(7, 12), st.integers(1, 3), st.integers(0, 2**31), st.randoms(use_true_random=False)
)
@settings(max_examples=40)
def test_long_games_equal_a_naive_implementation(snakes, size, foods_per_snake, seed, random) -> None:
    env = Snake(snakes=snakes, size=size, foods_per_snake=foods_per_snake, start_length=2)
    s = begin(env, seed)
    reference = Reference(size, [snake_cells(env, s, k) for k in range(snakes)], s.heading.tolist())
    for _ in range(60):
        foods = food_cells(env, s)
        assert len(foods) == snakes * foods_per_snake
        actions = [
            greedy_action(view(env, s, k)) if random.random() < 0.8 else random.randrange(4) for k in range(snakes)
        ]
        rewards, eaten = reference.step(actions, foods)
        got, over = move(env, s, *actions)
        assert got == rewards
        assert living(env, s) == [bool(body) for body in reference.bodies]
        assert over == (not any(reference.bodies))
        assert foods - food_cells(env, s) == set(eaten)
        taken = {cell for body in reference.bodies for cell in body}
        assert not food_cells(env, s) & taken
        assert np.count_nonzero(s.grid > 0) == len(taken)
        assert_planes_show(env, s, reference)
        if over:
            break


# --- beginnings, observations, stats ----------------------------------------------------------------------------


def test_snakes_begin_straight_apart_and_not_facing_a_wall() -> None:
    env = Snake(size=8, snakes=3, start_length=3)
    obs = NativePool(env, 300, backend="interpreted").reset(0).obs.reshape(300, 3, 5, 8, 8)
    assert ((obs[:, :, BODY] > 0).sum(axis=1).max(axis=(1, 2)) == 1).all()  # nobody upon another
    for game in obs:
        for planes in game:
            head, neck, tail = cells_of(planes[BODY])
            step = (head[0] - neck[0], head[1] - neck[1])
            assert step in MOVES.values()
            assert (neck[0] - tail[0], neck[1] - tail[1]) == step
            assert 0 <= head[0] + step[0] < 8
            assert 0 <= head[1] + step[1] < 8


def test_a_lone_snake_begins_in_every_way_equally_often_and_food_anywhere_else() -> None:
    env = Snake(size=5)
    num_games = 4000
    obs = NativePool(env, num_games, backend="interpreted").reset(0).obs
    heads = obs[:, HEAD].reshape(num_games, 25).argmax(axis=1)
    necks = np.where(obs[:, BODY] == 255, 0, obs[:, BODY]).reshape(num_games, 25).argmax(axis=1)
    # a line of four cells lies in two places in each of five rows, and points two ways; the same for columns
    ways = np.unique(heads * 25 + necks, return_counts=True)[1]
    assert len(ways) == 40
    assert ways == pytest.approx(num_games / 40, abs=5 * np.sqrt(num_games / 40))
    foods = obs[:, FOODS].reshape(num_games, 25) > 0
    bodies = obs[:, BODY].reshape(num_games, 25) > 0
    assert (foods.sum(axis=1) == 1).all()
    assert not (foods & bodies).any()
    expected = (~bodies).sum(axis=0) / 22
    assert foods.sum(axis=0) == pytest.approx(expected, abs=5 * np.sqrt(num_games / 22))


def test_the_border_plane_marks_the_cells_along_the_wall() -> None:
    border = view(ALONE, begin(ALONE))[BORDER]
    assert (border[1:-1, 1:-1] == 0).all()
    border[1:-1, 1:-1] = 255
    assert (border == 255).all()


def test_a_body_fades_from_the_neck_to_the_tail() -> None:
    env = Snake(size=10)
    body = there_and_back(10)[:60]
    shades = [int(view(env, lay_out(env, [body], [(9, 9)]))[BODY][cell]) for cell in body]
    assert (shades[0], shades[1], shades[-1]) == (255, 192, 64)
    assert (np.diff(shades) < 0).all()


def test_the_dead_see_no_snake_of_their_own() -> None:
    s = lay_out(PAIR, [[], [(1, 4), (2, 4), (3, 4)]], [FAR, (0, 0)])
    obs = view(PAIR, s, 0)
    assert not obs[BODY].any()
    assert not obs[HEAD].any()
    assert len(cells_of(obs[OTHERS])) == 3


def test_stats_count_food_length_and_steps_of_each_snake() -> None:
    s = lay_out(PAIR, [[(3, 3), (3, 2), (3, 1)], [(1, 5), (2, 5), (3, 5)]], [(3, 4), (6, 0)])
    move(PAIR, s, RIGHT, UP)
    move(PAIR, s, DOWN, UP)
    stats = [SimpleNamespace(), SimpleNamespace()]
    for player in (0, 1):
        PAIR.stats(s, stats[player], player)
    assert vars(stats[0]) == {"food": 1, "length": 4, "steps": 2}
    assert vars(stats[1]) == {"food": 0, "length": 3, "steps": 1}  # dead in its second step
    assert set(PAIR.stat_names) == set(vars(stats[0]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"size": 4}, "size=4 must be from 5 to 32"),
        ({"size": 33}, "size=33 must be from 5 to 32"),
        ({"snakes": 5}, "snakes=5 must be from 1 to 4"),
        ({"snakes": 0}, "snakes=0 must be from 1 to 4"),
        ({"start_length": 1}, "start_length=1 must be from 2 to 9"),
        (
            {"start_length": 4, "snakes": 4},
            "start_length=4 must be from 2 to 3 with snakes=4 on size=10; a larger size",
        ),
        ({"foods_per_snake": 0}, "foods_per_snake=0 must be from 1 to 97"),
        ({"foods_per_snake": 48, "snakes": 2}, "foods_per_snake=48 must be from 1 to 47"),
    ],
)
def test_boards_that_make_no_game_are_refused(parameters, message: str) -> None:
    with pytest.raises(WorldError, match=message):
        load_env("scramjet.envs.games.snake:Snake", **parameters)


@pytest.mark.parametrize("parameters", [{"size": 5, "snakes": 3, "start_length": 2}, {"size": 32, "start_length": 31}])
def test_the_tightest_boards_that_are_allowed_can_be_set_up(parameters) -> None:
    env = Snake(**parameters)
    obs = NativePool(env, 50, backend="interpreted").reset(0).obs
    assert ((obs[:, BODY] > 0).sum(axis=(1, 2)) == env.start_length).all()


def test_a_greedy_snake_eats_well_but_does_not_fill_the_board() -> None:
    env = Snake(size=8)
    pool = NativePool(env, 12, backend="interpreted")
    out, food = pool.reset(0), []
    while len(food) < 12:
        out = pool.step(np.array([greedy_action(obs) for obs in out.obs]))
        food += pool.episodes().stats["food"].tolist()
    assert 8 < np.mean(food) < 30


# --- pictures ---------------------------------------------------------------------------------------------------


def test_the_picture_as_text_shows_heads_bodies_food_and_lengths() -> None:
    env = Snake(size=5, snakes=2, start_length=2)
    s = lay_out(env, [[(1, 2), (1, 1), (2, 1)], []], [(0, 0), (4, 4)])
    assert env.ascii(s).splitlines() == [
        "+-----------+",
        "| * . . . . |",
        "| . a A . . |",
        "| . a . . . |",
        "| . . . . . |",
        "| . . . . * |",
        "+-----------+",
        "A length 3   B died at length 0",
    ]


@pytest.mark.parametrize("size", [5, 7, 32])
def test_the_picture_has_something_in_each_cell_that_is_taken(size: int) -> None:
    env = Snake(size=size, snakes=2, start_length=2)
    s = begin(env)
    picture = env.render(s)
    assert picture.dtype == np.uint8
    assert picture.shape[0] == picture.shape[1]
    assert 380 < picture.shape[0] < 440
    cell, frame = 400 // size, 12
    for index in range(size * size):
        top, left = frame + index // size * cell, frame + index % size * cell
        tile = picture[top : top + cell, left : left + cell]
        is_plain = (tile == tile[0, 0]).all()
        assert is_plain == (s.grid[index] == FREE)
