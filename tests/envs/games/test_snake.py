"""Snake: every way to die by hand, growth and food, and long random games against a second, naive implementation."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.envs.games.snake import BODY, BORDER, FOOD, FOODS, FREE, HEAD, NOWHERE, OTHERS, Snake
from tests.helpers.playing import assert_as_likely, begun, episode_stats, interpreted, observation

UP, RIGHT, DOWN, LEFT = range(4)
MOVES = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}
Cell = tuple[int, int]


def lay_out(env: Snake, bodies: list[list[Cell]], foods: list[Cell]) -> SimpleNamespace:
    """A game with snakes (each from head to tail, dead if empty) and food where the test wants them."""
    s = begun(env)
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


def cells_of(plane: np.ndarray) -> list[Cell]:
    """The marked cells of a plane, the brightest first: a snake from head to tail."""
    order = np.argsort(-plane.astype(int).ravel(), kind="stable")[: np.count_nonzero(plane)]
    return [(int(k) // plane.shape[1], int(k) % plane.shape[1]) for k in order]


def snakes_of(env: Snake, s: Any) -> list[list[Cell]]:
    """The cells of each snake from head to tail; none of a dead one."""
    return [cells_of(observation(env, s, snake)[BODY]) for snake in range(env.snakes)]


def food_cells(env: Snake, s: Any) -> set[Cell]:
    return set(cells_of(observation(env, s, 0)[FOODS]))


FAR = (6, 6)  # food that is in nobody's way
ACROSS = [(3, 3), (3, 2), (3, 1)]  # a snake that has gone to the right
SQUARE = [(3, 3), (3, 4), (4, 4), (4, 3)]

Bodies = list[list[Cell]]


# --- one step, by hand ------------------------------------------------------------------------------------------

STEPS: dict[str, tuple[Bodies, Sequence[Cell], Sequence[int], list[float], Bodies]] = {
    # name: the snakes on 7 x 7, food, their moves, the rewards, the snakes afterwards (none where they have died)
    "the tail is drawn after": ([ACROSS], [FAR], [UP], [0.0], [[(2, 3), (3, 3), (3, 2)]]),
    "turning right back is going straight on, to the right": ([ACROSS], [FAR], [LEFT], [0.0], [[(3, 4), *ACROSS[:2]]]),
    "to the left": ([[(3, 3), (3, 4), (3, 5)]], [FAR], [RIGHT], [0.0], [[(3, 2), (3, 3), (3, 4)]]),
    "down": ([[(3, 3), (2, 3), (1, 3)]], [FAR], [UP], [0.0], [[(4, 3), (3, 3), (2, 3)]]),
    "up": ([[(3, 3), (4, 3), (5, 3)]], [FAR], [DOWN], [0.0], [[(2, 3), (3, 3), (4, 3)]]),
    "the upper wall is death": ([[(0, 3), (1, 3), (2, 3)]], [FAR], [UP], [-1.0], [[]]),
    "the right wall": ([[(3, 6), (3, 5), (3, 4)]], [FAR], [RIGHT], [-1.0], [[]]),
    "the lower wall": ([[(6, 3), (5, 3), (4, 3)]], [FAR], [DOWN], [-1.0], [[]]),
    "the left wall": ([[(3, 0), (3, 1), (3, 2)]], [FAR], [LEFT], [-1.0], [[]]),
    "one's own leaving tail is free": ([SQUARE], [FAR], [DOWN], [0.0], [[SQUARE[3], *SQUARE[:3]]]),
    "one's own body is death": ([[*SQUARE, (5, 3)]], [FAR], [DOWN], [-1.0], [[]]),
    "eating makes longer at once": ([ACROSS], [(3, 4)], [RIGHT], [1.0], [[(3, 4), *ACROSS]]),
    "another's body is death, and the dead leave the board": (
        [ACROSS, [(1, 4), (2, 4), (3, 4), (4, 4)]], [FAR, (0, 0)], [RIGHT, UP], [-1.0, 0.0],
        [[], [(0, 4), (1, 4), (2, 4), (3, 4)]],
    ),
    "another's leaving tail is free": (
        [ACROSS, [(1, 4), (2, 4), (3, 4)]], [FAR, (6, 0)], [RIGHT, UP], [0.0, 0.0],
        [[(3, 4), *ACROSS[:2]], [(0, 4), (1, 4), (2, 4)]],
    ),
    "unless that snake eats": (
        [ACROSS, [(1, 4), (2, 4), (3, 4)]], [(0, 4), (6, 0)], [RIGHT, UP], [-1.0, 1.0],
        [[], [(0, 4), (1, 4), (2, 4), (3, 4)]],
    ),
    "two heads on one cell both die, and its food stays": (
        [[(3, 2), (3, 1), (3, 0)], [(3, 4), (3, 5), (3, 6)], [(6, 2), (6, 1), (6, 0)]], [(3, 3), (0, 0), (0, 6)],
        [RIGHT, LEFT, RIGHT], [-1.0, -1.0, 0.0], [[], [], [(6, 3), (6, 2), (6, 1)]],
    ),
    "two heads that would change places both die": (
        [[(3, 2), (3, 1), (3, 0)], [(3, 3), (3, 4), (3, 5)]], [FAR, (0, 0)], [RIGHT, LEFT], [-1.0, -1.0], [[], []],
    ),
    "running into a snake that dies in the same step is death too": (
        [[(1, 3), (1, 2), (1, 1)], [(0, 4), (1, 4), (2, 4)]], [FAR, (6, 0)], [RIGHT, UP], [-1.0, -1.0], [[], []],
    ),
    "a tail drawn in by a dying snake is free, and stays the other's": (
        [[(2, 3), (2, 2), (2, 1)], [(0, 4), (1, 4), (2, 4)]], [FAR, (6, 0)], [RIGHT, UP], [0.0, -1.0],
        [[(2, 4), (2, 3), (2, 2)], []],
    ),
}  # fmt: skip


def test_a_step_moves_feeds_and_kills_as_the_rules_say() -> None:
    for name, (bodies, foods, actions, rewards, after) in STEPS.items():
        env = Snake(size=7, snakes=len(bodies))
        s = lay_out(env, bodies, foods)
        assert move(env, s, *actions) == (rewards, not any(after)), name
        assert snakes_of(env, s) == after, name
        assert [env.alive(s, snake) for snake in range(env.snakes)] == [bool(body) for body in after], name
        taken = [1 + snake for snake, body in enumerate(after) for _ in body]
        assert sorted(s.grid[s.grid > FREE].tolist()) == taken, name
        eaten = {foods[k] for k in range(len(foods)) if any(body[:1] == [foods[k]] for body in after)}
        assert len(food_cells(env, s)) == len(foods), name  # eaten food comes back elsewhere
        assert set(foods) - food_cells(env, s) <= eaten, name
        assert not food_cells(env, s) & {cell for body in after for cell in body}, name


def test_the_dead_get_nothing_whatever_they_do_and_see_no_snake_of_their_own() -> None:
    env = Snake(size=7, snakes=2)
    s = lay_out(env, [[], [(1, 4), (2, 4), (3, 4)]], [FAR, (0, 0)])
    obs = observation(env, s, 0)
    assert not obs[[BODY, HEAD]].any()
    assert len(cells_of(obs[OTHERS])) == 3
    assert move(env, s, RIGHT, LEFT) == ([0.0, 0.0], False)
    assert move(env, s, RIGHT, UP) == ([0.0, 0.0], False)
    assert move(env, s, RIGHT, UP) == ([0.0, -1.0], True)


def test_food_death_survival_and_outliving_pay_what_the_parameters_say() -> None:
    bodies = [[(1, 2), (1, 1)], [(3, 2), (3, 1)], [(5, 8), (5, 7)], [(7, 8), (7, 7)]]
    env = Snake(size=9, snakes=4, start_length=2, food_reward=5.0, death_reward=-7.0, step_reward=0.25)
    s = lay_out(env, bodies, [(1, 3), (0, 0), (0, 8), (8, 0)])
    assert move(env, s, RIGHT, RIGHT, RIGHT, RIGHT) == ([5.25, 0.25, -7.0, -7.0], False)
    env = Snake(size=9, snakes=4, start_length=2, outlive_reward=0.5, step_reward=0.25)
    s = lay_out(env, bodies, [(1, 3), (0, 0), (0, 8), (8, 0)])
    assert move(env, s, RIGHT, RIGHT, RIGHT, RIGHT) == ([2.25, 1.25, -1.0, -1.0], False)
    assert move(env, s, RIGHT, RIGHT, RIGHT, RIGHT)[0] == [0.25, 0.25, 0.0, 0.0]  # once


def test_a_competition_may_end_with_the_last_snake_alive() -> None:
    for ends_with_one in (False, True):
        env = Snake(size=7, snakes=2, ends_with_one=ends_with_one, outlive_reward=1.0)
        s = lay_out(env, [[(1, 3), (1, 2), (1, 1)], [(3, 6), (3, 5), (3, 4)]], [FAR, (6, 0)])
        assert move(env, s, RIGHT, RIGHT) == ([1.0, -1.0], ends_with_one)
    alone = Snake(size=7, ends_with_one=True)
    assert move(alone, lay_out(alone, [ACROSS], [FAR]), RIGHT) == ([0.0], False)


# --- a full board -----------------------------------------------------------------------------------------------


def there_and_back(size: int) -> list[Cell]:
    """A way over all cells of a board, row by row."""
    return [(r, c if r % 2 == 0 else size - 1 - c) for r in range(size) for c in range(size)]


def test_a_snake_that_fills_the_board_has_won_and_the_game_ends() -> None:
    env, way = Snake(size=5), there_and_back(5)
    s = lay_out(env, [way[1:]], [way[0]])
    assert move(env, s, LEFT) == ([1.0], True)
    assert env.alive(s, 0)
    assert len(snakes_of(env, s)[0]) == 25
    assert food_cells(env, s) == set()


def test_food_that_finds_no_free_cell_waits_for_one() -> None:
    env, way = Snake(size=5, foods_per_snake=2), there_and_back(5)
    s = lay_out(env, [way[2:]], [way[1], way[0]])
    assert move(env, s, LEFT) == ([1.0], False)
    assert food_cells(env, s) == {way[0]}  # the piece that was eaten has no place to come back to
    assert sorted(s.food.tolist()) == [NOWHERE, 0]
    assert move(env, s, LEFT) == ([1.0], True)
    env = Snake(size=5, snakes=2, start_length=2)
    for foods in ([way[1], way[0]], [way[0]]):
        first = len(foods)
        s = lay_out(env, [way[first:20], way[20:25][::-1]], foods)
        assert move(env, s, LEFT, LEFT) == ([1.0, -1.0], False)  # the second runs into its wall and leaves five cells
        assert len(food_cells(env, s)) == 2
        assert food_cells(env, s) <= {*way[: first - 1], *way[20:25]}


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
        obs = observation(env, s, player)
        own = reference.bodies[player]
        assert cells_of(obs[BODY]) == own  # in their order, from head to tail
        assert cells_of(obs[HEAD]) == own[:1]
        others = [body for k, body in enumerate(reference.bodies) if k != player and body]
        assert set(cells_of(obs[OTHERS])) == {cell for body in others for cell in body}
        assert {cell for cell in cells_of(obs[OTHERS]) if obs[OTHERS][cell] == 255} == {body[0] for body in others}


def greedy_action(obs: np.ndarray) -> int:
    """The move that survives the next step and ends nearest to food; the first of equals. `obs` is [5, H, W]."""
    if not obs[HEAD].any():
        return UP  # dead
    (row, column), size, foods = np.argwhere(obs[HEAD])[0], obs.shape[1], np.argwhere(obs[FOODS])
    taken = (obs[BODY] > 0) | (obs[OTHERS] > 0)
    distances = {UP: np.inf}
    for action, (down, right) in MOVES.items():
        place = row + down, column + right
        if 0 <= min(place) <= max(place) < size and not taken[place]:
            distances[action] = np.abs(foods - place).sum(axis=1).min(initial=2 * size)
    return min(distances, key=lambda action: distances[action])


@given(
    st.integers(1, 4), st.integers(7, 12), st.integers(1, 3), st.integers(0, 2**31), st.randoms(use_true_random=False)
)
@settings(max_examples=15)
def test_long_games_equal_a_naive_implementation(snakes, size, foods_per_snake, seed, random) -> None:
    env = Snake(snakes=snakes, size=size, foods_per_snake=foods_per_snake, start_length=2)
    s = begun(env, seed)
    reference = Reference(size, snakes_of(env, s), s.heading.tolist())
    steps = [0] * snakes
    for _ in range(60):
        foods = food_cells(env, s)
        assert len(foods) == snakes * foods_per_snake
        views = [observation(env, s, k) for k in range(snakes)]
        actions = [greedy_action(view) if random.random() < 0.8 else random.randrange(4) for view in views]
        rewards, eaten = reference.step(actions, foods)
        got, over = move(env, s, *actions)
        assert got == rewards
        assert [env.alive(s, k) for k in range(snakes)] == [bool(body) for body in reference.bodies]
        assert over == (not any(reference.bodies))
        assert foods - food_cells(env, s) == set(eaten)
        taken = {cell for body in reference.bodies for cell in body}
        assert not food_cells(env, s) & taken
        assert np.count_nonzero(s.grid > 0) == len(taken)
        assert_planes_show(env, s, reference)
        for k, body in enumerate(reference.bodies):
            steps[k] += len(body) > 0
            stats = episode_stats(env, s, k)
            assert stats["steps"] == steps[k]
            assert stats["food"] == stats["length"] - 2
            assert stats["length"] == len(body) or not body
        if over:
            break


# --- beginnings, observations, pictures -------------------------------------------------------------------------


def test_snakes_begin_straight_apart_and_not_facing_a_wall() -> None:
    obs = interpreted(Snake(size=8, snakes=3, start_length=3), 200)[1].obs.reshape(200, 3, 5, 8, 8)
    assert ((obs[:, :, BODY] > 0).sum(axis=1).max(axis=(1, 2)) == 1).all()  # nobody upon another
    for planes in obs.reshape(600, 5, 8, 8):
        head, neck, tail = cells_of(planes[BODY])
        step = (head[0] - neck[0], head[1] - neck[1])
        assert step in MOVES.values()
        assert (neck[0] - tail[0], neck[1] - tail[1]) == step
        assert 0 <= head[0] + step[0] < 8
        assert 0 <= head[1] + step[1] < 8


def test_a_lone_snake_begins_in_every_way_equally_often_and_food_anywhere_else() -> None:
    num_games = 2000
    obs = interpreted(Snake(size=5), num_games)[1].obs
    heads = obs[:, HEAD].reshape(num_games, 25).argmax(axis=1)
    necks = np.where(obs[:, BODY] == 255, 0, obs[:, BODY]).reshape(num_games, 25).argmax(axis=1)
    # a line of four cells lies in two places in each of five rows, and points two ways; the same for columns
    ways = np.unique(heads * 25 + necks, return_counts=True)[1]
    assert len(ways) == 40
    assert_as_likely(ways)
    foods = obs[:, FOODS].reshape(num_games, 25) > 0
    bodies = obs[:, BODY].reshape(num_games, 25) > 0
    assert (foods.sum(axis=1) == 1).all()
    assert not (foods & bodies).any()
    expected = (~bodies).sum(axis=0) / 22
    assert foods.sum(axis=0) == pytest.approx(expected, abs=5 * np.sqrt(num_games / 22))


def test_the_border_plane_marks_the_cells_along_the_wall_and_a_body_fades_to_its_tail() -> None:
    env, body = Snake(size=10), there_and_back(10)[:60]
    obs = observation(env, lay_out(env, [body], [(9, 9)]), 0)
    shades = [int(obs[BODY][cell]) for cell in body]
    assert (shades[0], shades[1], shades[-1]) == (255, 192, 64)
    assert (np.diff(shades) < 0).all()
    assert (obs[BORDER, 1:-1, 1:-1] == 0).all()
    obs[BORDER, 1:-1, 1:-1] = 255
    assert (obs[BORDER] == 255).all()


def test_the_tightest_boards_that_are_allowed_can_be_set_up() -> None:
    for parameters in ({"size": 5, "snakes": 3, "start_length": 2}, {"size": 32, "start_length": 31}):
        env = Snake(**parameters)
        assert ((interpreted(env, 20)[1].obs[:, BODY] > 0).sum(axis=(1, 2)) == env.start_length).all()


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


def test_the_picture_has_something_in_each_cell_that_is_taken() -> None:
    for size in (5, 7, 32):
        env = Snake(size=size, snakes=2, start_length=2)
        s = begun(env)
        picture = env.render(s)
        assert picture.dtype == np.uint8
        assert picture.shape[0] == picture.shape[1]
        assert 380 < picture.shape[0] < 440
        cell, frame = 400 // size, 12
        for index in range(size * size):
            top, left = frame + index // size * cell, frame + index % size * cell
            tile = picture[top : top + cell, left : left + cell]
            assert (tile == tile[0, 0]).all() == (s.grid[index] == FREE), (size, index)
