"""Sokoban: every level can be solved, no two are alike, and moves, rewards and ends are those of a game of sets."""

from types import SimpleNamespace

import numpy as np
import pytest

from scramjet.engine.actions import random_actions
from scramjet.envs.puzzles.sokoban import BOX, GOAL, REACHED, WALL, Sokoban, make_level, mark_reached
from tests.helpers.playing import episode_stats, interpreted, record

UP, RIGHT, DOWN, LEFT = range(4)
MOVES = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}
BITS = {" ": 0, "@": 0, "#": WALL, ".": GOAL, "+": GOAL, "$": BOX, "*": GOAL | BOX}

Cell = tuple[int, int]
Game = tuple[Cell, frozenset[Cell]]
"""Where the player and the boxes are."""


def drawn_game(picture: str) -> tuple[Sokoban, SimpleNamespace]:
    """The level of a picture as `ascii` draws it, with rows of wall added below where it is too small."""
    lines = picture.split("\n")
    cells = np.array([list(line) for line in [*lines, *["#" * len(lines[0])] * (5 - len(lines))]])
    env = Sokoban(rows=cells.shape[0], cols=cells.shape[1], boxes=int(np.isin(cells, ["$", "*"]).sum()))
    ((row, column),) = np.argwhere(np.isin(cells, ["@", "+"])).tolist()
    grid = np.vectorize(BITS.get)(cells)
    return env, record(env, grid=grid, row=row, column=column, num_placed=int((cells == "*").sum()))


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
    return interpreted(env, count, seed=1)[0].states()


def player(state: np.void) -> Cell:
    return int(state["row"]), int(state["column"])


# --- levels -----------------------------------------------------------------------------------------------------


def test_every_level_can_be_solved_none_is_no_two_are_alike_and_more_pulls_make_them_harder() -> None:
    means = []
    for pulls in (1, 15):
        found = levels(Sokoban(rows=7, cols=7, boxes=2, pulls=pulls), 25)
        lengths = [solution_length(state["grid"], player(state)) for state in found]
        assert None not in lengths
        assert 0 not in lengths
        means.append(np.mean(lengths))
        assert len({state["grid"].tobytes() for state in found}) == 25
    assert 1 < means[0] < 6 < means[1] < 30
    _, s = drawn_game("#####\n#$ .#\n# @ #\n#####")
    assert solution_length(s.grid, (s.row, s.column)) is None  # the search is no formality


def test_a_level_is_a_room_in_one_piece_with_as_many_goals_as_boxes() -> None:
    """Also in the fullest rooms that are allowed."""
    for rows, cols, boxes in ((8, 8, 3), (6, 11, 2), (10, 10, 4), (5, 5, 1), (5, 7, 3), (6, 6, 3), (7, 7, 5)):
        env = Sokoban(rows=rows, cols=cols, boxes=boxes, pulls=10)
        for state in levels(env, 4):
            grid = state["grid"]
            assert (grid[[0, -1]] == WALL).all()
            assert (grid[:, [0, -1]] == WALL).all()
            assert len(cells_with(grid, BOX)) == len(cells_with(grid, GOAL)) == env.boxes
            assert not cells_with(grid, WALL) & (cells_with(grid, BOX) | cells_with(grid, GOAL) | {player(state)})
            assert player(state) not in cells_with(grid, BOX)
            assert state["num_placed"] == len(cells_with(grid, BOX) & cells_with(grid, GOAL))
            assert state["num_placed"] == 0 or rows * cols < 60
            floor = {(row, column) for row in range(env.rows) for column in range(env.cols)} - cells_with(grid, WALL)
            reached, ring = set(), {player(state)}
            while ring:
                reached |= ring
                ring = {(r + down, c + right) for r, c in ring for down, right in MOVES.values()} & (floor - reached)
            assert reached == floor
            inside = (env.rows - 2) * (env.cols - 2)
            assert inside // 2 <= len(floor) <= inside // 2 + inside // 4 + 1
            assert cells_with(grid, BOX) != cells_with(grid, GOAL)


def test_the_player_begins_anywhere_within_reach_of_the_first_push() -> None:
    env = Sokoban(rows=6, cols=6, boxes=1)
    shares = []
    for seed in range(40):
        s = record(env, seed)
        make_level(s, 10)
        num_reached = mark_reached(s)
        reached = cells_with(s.grid, REACHED)
        assert len(reached) == num_reached
        shares.append((sorted(reached).index((s.row, s.column)) + 0.5) / num_reached)
    assert np.mean(shares) == pytest.approx(0.5, abs=0.2)
    assert np.std(shares) == pytest.approx(np.sqrt(1 / 12), abs=0.09)


# --- play -------------------------------------------------------------------------------------------------------


def test_moves_rewards_masks_and_ends_are_those_of_a_game_of_sets() -> None:
    """Legal moves; illegal ones are below."""
    env = Sokoban(rows=5, cols=7, boxes=2, pulls=2, step_reward=-0.25, box_reward=2.0, solved_reward=7.0)
    pool, out = interpreted(env, 12, seed=3)
    random, num_solved = np.random.default_rng(3), 0
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


def test_a_box_pushed_onto_its_goal_and_off_it_counts_and_the_stats_tell_what_is_solved() -> None:
    for picture, moves, reward, is_over, solved, on_goals in (
        ("########\n#@ $ . #\n########", (RIGHT, RIGHT), -0.1, False, 0, 0.0),
        ("########\n#@ $ . #\n########", (RIGHT, RIGHT, RIGHT), 10.9, True, 1, 1.0),
        ("########\n#@*  $.#\n#      #\n########", (UP,), -0.1, False, 0, 0.5),
        ("########\n#@*  $.#\n#      #\n########", (RIGHT,), -1.1, False, 0, 0.0),
    ):
        env, s = drawn_game(picture)
        results = [env.step(s, action) for action in moves]
        assert results[:-1] == [(pytest.approx(-0.1), False)] * (len(moves) - 1)
        assert results[-1] == (pytest.approx(reward), is_over), picture
        assert episode_stats(env, s) == {"solved": solved, "boxes_on_goals": on_goals}, picture


def test_a_box_against_a_wall_or_a_box_is_not_pushed() -> None:
    env, s = drawn_game("#########\n#  $@$$ #\n#  ...  #\n#########")
    for action, column in ((RIGHT, 4), (UP, 4), (LEFT, 3), (LEFT, 2), (LEFT, 2)):
        assert env.step(s, action)[1] is False
        assert (s.row, s.column) == (1, column)
    assert env.ascii(s).split("\n")[1] == "#$@  $$ #"


def test_an_episode_is_truncated_after_120_steps() -> None:
    pool, out = interpreted(Sokoban())
    for step in range(1, 121):
        back_and_forth = (np.flatnonzero(out.mask[0])[:1] + 2 * (step % 2 == 0)) % 4
        out = pool.step(back_and_forth)
        if out.terminated[0]:
            pytest.fail("solved by chance; take another seed")
        assert out.truncated[0] == (step == 120)


def test_the_pictures_show_the_level_in_the_usual_symbols() -> None:
    picture = "######\n#+$ .#\n# *  #\n#    #\n######"
    env, s = drawn_game(picture)
    assert env.ascii(s) == picture
    image = env.render(s)
    cell = image.shape[0] // 5
    kinds = [(0, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 2)]
    tiles = {image[cell * r : cell * (r + 1), cell * c : cell * (c + 1)].tobytes() for r, c in kinds}
    assert len(tiles) == len(kinds)
