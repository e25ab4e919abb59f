"""Sokoban: every level can be solved, no two are alike, and moves, rewards and ends are those of a game of sets."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.engine.layout import state_dtype
from scramjet.engine.random_play import random_actions
from scramjet.engine.worlds.interpreted import Record
from scramjet.envs.puzzles.sokoban import Sokoban
from scramjet.envs.puzzles.sokoban_levels import BOX, GOAL, REACHED, WALL, make_level, mark_reached
from scramjet.errors import WorldError

UP, RIGHT, DOWN, LEFT = range(4)
MOVES = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}
BITS = {" ": 0, "@": 0, "#": WALL, ".": GOAL, "+": GOAL, "$": BOX, "*": GOAL | BOX}

Cell = tuple[int, int]
Game = tuple[Cell, frozenset[Cell]]
"""Where the player and the boxes are."""

CORRIDOR = "########\n#@ $ . #\n########"
STORE = "#######\n#     #\n# $$  #\n# .@ .#\n#  #  #\n#######"


def drawn_game(picture: str, **parameters: float) -> tuple[Sokoban, Record]:
    """The level of a picture as `ascii` draws it, with rows of wall added below where it is too small."""
    lines = picture.split("\n")
    cells = np.array([list(line) for line in [*lines, *["#" * len(lines[0])] * (5 - len(lines))]])
    boxes = int(np.isin(cells, ["$", "*"]).sum())
    env = Sokoban(rows=cells.shape[0], cols=cells.shape[1], boxes=boxes, **parameters)
    s = Record(np.zeros(1, state_dtype(env))[0], "Sokoban")
    s.grid[:] = np.vectorize(BITS.get)(cells)
    s.row, s.column = (int(i) for i in np.argwhere(np.isin(cells, ["@", "+"]))[0])
    s.num_placed = int((cells == "*").sum())
    return env, s


def cells_with(grid: np.ndarray, bit: int) -> frozenset[Cell]:
    return frozenset((int(row), int(column)) for row, column in np.argwhere(grid & bit))


def moved(game: Game, action: int, walls: frozenset[Cell]) -> Game:
    """The game after a move, by plain sets."""
    player, boxes = game
    down, right = MOVES[action]
    target = player[0] + down, player[1] + right
    if target in walls:
        return game
    if target in boxes:
        beyond = target[0] + down, target[1] + right
        if beyond in walls or beyond in boxes:
            return game
        boxes = boxes - {target} | {beyond}
    return target, boxes


def solution_length(grid: np.ndarray, player: Cell) -> int | None:
    """The fewest moves that solve a level, by breadth-first search; None where nothing does."""
    walls, goals = cells_with(grid, WALL), cells_with(grid, GOAL)
    start = player, cells_with(grid, BOX)
    seen, ring, length = {start}, [start], 0
    while ring:
        if any(boxes == goals for _, boxes in ring):
            return length
        ring = list({moved(game, action, walls) for game in ring for action in range(4)} - seen)
        seen.update(ring)
        length += 1
    return None


def levels(env: Sokoban, count: int) -> np.ndarray:
    """Records of new games; interpreted, since every other size would be compiled anew."""
    pool = NativePool(env, count, backend="interpreted")
    pool.reset(1)
    return pool.states()


def player(state: np.void) -> Cell:
    return int(state["row"]), int(state["column"])


@pytest.fixture(scope="module")
def small_levels() -> np.ndarray:
    return levels(Sokoban(rows=7, cols=7, boxes=2, pulls=15), 40)


def test_every_level_can_be_solved_and_none_is(small_levels) -> None:
    lengths = [solution_length(state["grid"], player(state)) for state in small_levels]
    assert None not in lengths
    assert 0 not in lengths
    assert np.mean(lengths) > 6


def test_the_search_finds_levels_that_cannot_be_solved() -> None:
    _, s = drawn_game("#####\n#$ .#\n# @ #\n#####")
    assert solution_length(s.grid, (s.row, s.column)) is None


@pytest.mark.parametrize(("pulls", "shortest", "longest"), [(1, 1, 8), (20, 12, 30)])
def test_more_pulls_make_harder_levels(pulls, shortest, longest) -> None:
    found = levels(Sokoban(rows=8, cols=8, boxes=2, pulls=pulls), 20)
    mean = np.mean([solution_length(state["grid"], player(state)) for state in found])
    assert shortest < mean < longest


@pytest.mark.parametrize("parameters", [{}, {"rows": 6, "cols": 11, "boxes": 2}, {"rows": 10, "cols": 10, "boxes": 4}])
def test_a_level_is_a_room_in_one_piece_with_as_many_goals_as_boxes(parameters) -> None:
    env = Sokoban(**parameters, pulls=15)
    for state in levels(env, 6):
        grid = state["grid"]
        assert (grid[[0, -1]] == WALL).all()
        assert (grid[:, [0, -1]] == WALL).all()
        assert len(cells_with(grid, BOX)) == len(cells_with(grid, GOAL)) == env.boxes
        assert not cells_with(grid, WALL) & (cells_with(grid, BOX) | cells_with(grid, GOAL) | {player(state)})
        assert player(state) not in cells_with(grid, BOX)
        assert state["num_placed"] == len(cells_with(grid, BOX) & cells_with(grid, GOAL)) == 0
        floor = {(row, column) for row in range(env.rows) for column in range(env.cols)} - cells_with(grid, WALL)
        reached, ring = set(), {player(state)}
        while ring:
            reached |= ring
            ring = {(r + down, c + right) for r, c in ring for down, right in MOVES.values()} & (floor - reached)
        assert reached == floor
        inside = (env.rows - 2) * (env.cols - 2)
        assert inside // 2 <= len(floor) <= inside // 2 + inside // 4 + 1


def test_levels_differ(small_levels) -> None:
    assert len({state["grid"].tobytes() for state in small_levels}) == 40


@pytest.mark.parametrize(("rows", "cols", "boxes"), [(5, 5, 1), (5, 7, 3), (6, 6, 3), (7, 7, 5)])
def test_the_fullest_rooms_that_are_allowed_are_made_too(rows, cols, boxes) -> None:
    for state in levels(Sokoban(rows=rows, cols=cols, boxes=boxes, pulls=10), 4):
        assert len(cells_with(state["grid"], BOX)) == boxes
        assert cells_with(state["grid"], BOX) != cells_with(state["grid"], GOAL)


def test_the_player_begins_anywhere_within_reach_of_the_first_push() -> None:
    env = Sokoban(rows=6, cols=6, boxes=1)
    states = np.zeros(1, state_dtype(env))
    shares = []
    for seed in range(40):
        states["_seed"], states["_draw"] = seed, 0
        s = Record(states[0], "Sokoban")
        make_level(s, 10)
        num_reached = mark_reached(s)
        reached = cells_with(s.grid, REACHED)
        assert len(reached) == num_reached
        shares.append((sorted(reached).index((s.row, s.column)) + 0.5) / num_reached)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.2)
    assert np.std(shares) == pytest.approx(np.sqrt(1 / 12), abs=0.09)


def test_moves_rewards_masks_and_ends_are_those_of_a_game_of_sets() -> None:
    """Legal moves; illegal ones are compared with Jumanji's."""
    env = Sokoban(rows=5, cols=7, boxes=2, pulls=2, step_reward=-0.25, box_reward=2.0, solved_reward=7.0)
    pool = NativePool(env, 12, backend="interpreted")
    out, random, num_solved = pool.reset(3), np.random.default_rng(3), 0
    for _ in range(120):
        before = pool.states()
        actions = random_actions(pool, out, random)
        legal, out = out.mask.copy(), pool.step(actions)
        after = pool.states()
        for i, state in enumerate(before):
            walls, goals = cells_with(state["grid"], WALL), cells_with(state["grid"], GOAL)
            game = player(state), cells_with(state["grid"], BOX)
            assert legal[i].tolist() == [moved(game, action, walls) != game for action in range(4)]
            expected = moved(game, int(actions[i]), walls)
            placed = len(expected[1] & goals) - len(game[1] & goals)
            is_solved = expected[1] == goals
            assert out.reward[i] == pytest.approx(-0.25 + 2.0 * placed + 7.0 * is_solved)
            assert out.terminated[i] == is_solved
            num_solved += is_solved
            if not is_solved and not out.truncated[i]:
                assert (player(after[i]), cells_with(after[i]["grid"], BOX)) == expected
    assert num_solved > 2


def test_a_box_pushed_onto_its_goal_off_it_and_back_pays_counts_against_and_solves() -> None:
    env, s = drawn_game(CORRIDOR)
    rewards = [env.step(s, action) for action in (RIGHT, RIGHT, RIGHT)]
    assert [reward for reward, _ in rewards] == pytest.approx([-0.1, -0.1, 10.9])
    assert [is_over for _, is_over in rewards] == [False, False, True]
    env, s = drawn_game("########\n#@*  $.#\n#      #\n########")
    assert env.step(s, RIGHT) == (pytest.approx(-1.1), False)


def test_a_box_against_a_wall_or_a_box_is_not_pushed() -> None:
    env, s = drawn_game("#########\n#  $@$$ #\n#  ...  #\n#########")
    for action in (RIGHT, UP):
        assert env.step(s, action) == (pytest.approx(-0.1), False)
        assert (s.row, s.column) == (1, 4)
    for column in (3, 2):
        env.step(s, LEFT)
        assert (s.row, s.column) == (1, column)
    env.step(s, LEFT)
    assert (s.row, s.column) == (1, 2)
    assert env.ascii(s).split("\n")[1] == "#$@  $$ #"


def test_an_episode_is_truncated_after_120_steps() -> None:
    pool = NativePool(Sokoban(), 1, backend="interpreted")
    out = pool.reset(0)
    for step in range(1, 121):
        back_and_forth = (np.flatnonzero(out.mask[0])[:1] + 2 * (step % 2 == 0)) % 4
        out = pool.step(back_and_forth)
        if out.terminated[0]:
            pytest.fail("solved by chance; take another seed")
        assert out.truncated[0] == (step == 120)


@pytest.mark.parametrize("size", [(7, 7), (6, 8)])
def test_a_move_on_the_turned_board_leads_to_the_turned_position(size) -> None:
    env = Sokoban(rows=size[0], cols=size[1], boxes=2, pulls=3)
    pool = NativePool(env, 20, backend="interpreted")
    out = pool.reset(0)
    states, actions = pool.states(), np.array([np.flatnonzero(legal)[-1] for legal in out.mask])
    _, after = pool.simulate(states, actions)
    assert len({symmetry.name for symmetry in env.symmetries}) == (7 if size[0] == size[1] else 3)
    for symmetry in env.symmetries:
        turned, places = states.copy(), np.asarray(symmetry.actions)
        turned["grid"] = symmetry.observe(states["grid"])
        cells = np.argwhere(symmetry.observe(out.obs)[:, 3])
        turned["row"], turned["column"] = cells[:, 1], cells[:, 2]
        _, got = pool.simulate(turned, places[actions])
        np.testing.assert_array_equal(got.obs, symmetry.observe(after.obs), err_msg=symmetry.name)
        np.testing.assert_array_equal(got.mask[:, places], after.mask, err_msg=symmetry.name)
        np.testing.assert_array_equal(got.reward, after.reward)


def test_the_stats_tell_what_is_solved() -> None:
    for picture, expected in (
        (STORE, (0.0, 0.0)),
        (STORE.replace(" $$  ", "  $  ").replace(" .@ .", " *@ ."), (0, 0.5)),
    ):
        env, s = drawn_game(picture)
        stats = SimpleNamespace()
        env.stats(s, stats)
        assert (stats.solved, stats.boxes_on_goals) == expected
    env, s = drawn_game(CORRIDOR)
    for _ in range(3):
        env.step(s, RIGHT)
    env.stats(s, stats)
    assert (stats.solved, stats.boxes_on_goals) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rows": 4}, "rows=4 must be from 5 to 16"),
        ({"cols": 17}, "cols=17 must be from 5 to 16"),
        ({"boxes": 0}, "boxes=0 must be from 1 to 8"),
        ({"pulls": 0}, "pulls=0 must be from 1 to 1000"),
        ({"rows": 6, "cols": 6, "boxes": 4}, "boxes=4 have no room to move in rows=6 x cols=6.*boxes=3 have"),
    ],
)
def test_rooms_and_boxes_that_make_no_level_are_refused(parameters, message) -> None:
    with pytest.raises((ValueError, WorldError), match=message):
        Sokoban(**parameters)


def test_the_pictures_show_the_level_in_the_usual_symbols() -> None:
    picture = "######\n#+$ .#\n# *  #\n#    #\n######"
    env, s = drawn_game(picture)
    assert env.ascii(s) == picture
    image = env.render(s)
    cell = image.shape[0] // 5
    kinds = [(0, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 2)]
    tiles = {image[cell * r : cell * (r + 1), cell * c : cell * (c + 1)].tobytes() for r, c in kinds}
    assert len(tiles) == len(kinds)
