"""Tic-tac-toe and Othello: every position, and known numbers of games, against other programs of the rules."""

import numpy as np
import pytest

from scramjet.engine.actions import random_actions
from scramjet.envs.games.othello import Othello
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.errors import WorldError
from tests.helpers.playing import assert_as_likely, begun, compiled, episode_stats, interpreted, play

LINES = [0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100]
"""The eight lines as sets of bits, cells row by row."""


def has_line(cells: int) -> bool:
    return any(cells & line == line for line in LINES)


def bits_of(planes: np.ndarray) -> tuple[int, int]:
    """Own and the other's cells of an observation, as sets of bits."""
    own, other = ((plane.ravel() << np.arange(9)).sum() for plane in planes.astype(np.int64))
    return int(own), int(other)


def test_every_position_is_judged_as_another_program_judges_it() -> None:
    pool, out = compiled(TicTacToe())
    states, obs, masks = pool.states(), out.obs.copy(), out.mask.copy()
    num_positions, num_won, num_drawn = 1, 0, 0
    for ply in range(9):
        boards = [bits_of(planes) for planes in obs]
        for (own, other), legal in zip(boards, masks, strict=True):
            assert legal.tolist() == [not (own | other) >> cell & 1 for cell in range(9)]
        rows, cells = np.nonzero(masks)
        after, out = pool.simulate(states[rows], cells)
        for i, (row, cell) in enumerate(zip(rows, cells, strict=True)):
            own, other = boards[row][0] | 1 << int(cell), boards[row][1]
            assert bits_of(out.obs[i]) == (other, own)
            wins = has_line(own)
            assert out.terminated[i] == (wins or ply == 8)
            assert out.reward[i, ply % 2] == -out.reward[i, 1 - ply % 2] == float(wins)
        _, first = np.unique(after["pieces"].reshape(len(after), -1), axis=0, return_index=True)
        num_positions += len(first)
        num_won += int((out.terminated[first] & (out.reward[first] != 0).any(axis=1)).sum())
        num_drawn += int((out.terminated[first] & (out.reward[first] == 0).all(axis=1)).sum())
        going_on = first[~out.terminated[first]]
        states, obs, masks = after[going_on], out.obs[going_on], out.mask[going_on]
    assert (num_positions, num_won, num_drawn) == (5478, 626 + 316, 16)  # known: 626 wins of X, 316 of O, 16 draws


def test_who_takes_a_taken_cell_loses() -> None:
    env = TicTacToe()
    s = begun(env)
    assert play(env, s, [4, 4]) == ([1.0, -1.0], True)
    assert episode_stats(env, s, 0) == {"win": 1.0, "draw": 0.0, "loss": 0.0, "moves": 1}
    assert episode_stats(env, s, 1) == {"win": 0.0, "draw": 0.0, "loss": 1.0, "moves": 1}


def test_openings_have_every_length_and_none_ends_the_game() -> None:
    pool, out = interpreted(TicTacToe(opening_plies=8), 300)
    states = pool.states()
    assert set(states["moves"].tolist()) == set(range(9))
    assert (states["winner"] == 0).all()
    assert not any(has_line(cells) for planes in out.obs for cells in bits_of(planes))
    np.testing.assert_array_equal(out.turn, states["moves"] % 2)
    short = states["moves"] < 4  # later ones may be cut short
    assert_as_likely(np.bincount(states["moves"][short]))


def test_the_text_shows_the_board_and_the_picture_marks_the_line_that_won() -> None:
    env = TicTacToe()
    s = begun(env)
    play(env, s, (0, 4, 1, 8))
    assert env.ascii(s).splitlines() == [" 1 X X .", " 2 . O .", " 3 . . O", "   a b c", "X to move"]
    before = env.render(s)
    assert (before.dtype, before.shape[2]) == (np.uint8, 3)
    assert play(env, s, [2])[1]
    assert env.ascii(s).endswith("X wins")
    changed = np.argwhere((env.render(s) != before).any(axis=2))
    assert changed[:, 1].min() < before.shape[1] / 3  # not only the new piece
    assert episode_stats(env, s, 0) == {"win": 1.0, "draw": 0.0, "loss": 0.0, "moves": 5}


# --- Othello ----------------------------------------------------------------------------------------------------

KNOWN_GAMES = [4, 12, 56, 244, 1396, 8200, 55092]
"""Sequences of so many plies from the beginning on 8 x 8, as programs of Othello agree on."""
WAYS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0)]


class Slow:
    """Othello with the board as a dict from (row, column) to side, written from the rules of the game."""

    def __init__(self, size: int) -> None:
        low, high = size // 2 - 1, size // 2
        self.size, self.side = size, 0
        self.discs = {(low, low): 1, (high, high): 1, (low, high): 0, (high, low): 0}

    def turned(self, row: int, column: int, side: int) -> list[tuple[int, int]]:
        """The discs that a disc of `side` there would turn; none where the cell is taken."""
        if (row, column) in self.discs:
            return []
        turned = []
        for down, right in WAYS:
            ray = [(row + k * down, column + k * right) for k in range(1, self.size)]
            owners = [self.discs.get(cell) for cell in ray]
            if side in owners:
                between = owners[: owners.index(side)]
                if all(owner == 1 - side for owner in between):
                    turned += ray[: len(between)]
        return turned

    def cells(self, side: int) -> list[int]:
        return [k for k in range(self.size**2) if self.turned(k // self.size, k % self.size, side)]

    def legal(self) -> list[int]:
        return self.cells(self.side) or [self.size**2]

    def play(self, action: int) -> None:
        if action < self.size**2:
            cell = (action // self.size, action % self.size)
            for disc in self.turned(*cell, self.side):
                self.discs[disc] = self.side
            self.discs[cell] = self.side
        self.side = 1 - self.side

    def is_over(self) -> bool:
        return not self.cells(0) and not self.cells(1)

    def count(self, side: int) -> int:
        return sum(owner == side for owner in self.discs.values())

    def planes(self, side: int) -> np.ndarray:
        planes = np.zeros((2, self.size, self.size), np.int8)
        for cell, owner in self.discs.items():
            planes[(int(owner != side), *cell)] = 1
        return planes


def test_the_numbers_of_games_by_length_are_the_known_ones() -> None:
    pool, out = compiled(Othello())
    states, mask, counts = pool.states(), out.mask, []
    while len(counts) < len(KNOWN_GAMES):
        rows, actions = np.nonzero(mask)
        counts.append(len(rows))
        states, out = pool.simulate(states[rows], actions)
        states, mask = states[~out.terminated], out.mask[~out.terminated]
    assert counts == KNOWN_GAMES


@pytest.mark.parametrize("size", [4, 6])
def test_random_games_are_those_of_another_program(size: int) -> None:
    pool, out = interpreted(Othello(size=size), 4)
    random, games = np.random.default_rng(0), [Slow(size) for _ in range(4)]
    num_passes, episodes = 0, []
    for _ in range(60):
        for i, game in enumerate(games):
            assert out.turn[i] == game.side
            assert np.flatnonzero(out.mask[i]).tolist() == game.legal()
            np.testing.assert_array_equal(out.obs[i], game.planes(game.side))
        leads = [(game.count(0) - game.count(1)) / size**2 for game in games]
        np.testing.assert_allclose(pool.scores(pool.states()), [[lead, -lead] for lead in leads], rtol=1e-6)
        actions = random_actions(pool, out, random)
        num_passes += int((actions == size**2).sum())
        out = pool.step(actions)
        for i, game in enumerate(games):
            game.play(int(actions[i]))
            assert out.terminated[i] == game.is_over()
            lead = np.sign(game.count(0) - game.count(1)) if game.is_over() else 0
            assert out.reward[i].tolist() == [lead, -lead]
            if game.is_over():
                for seat in (0, 1):
                    episodes.append((game.count(seat), game.count(seat) - game.count(1 - seat)))
                games[i] = Slow(size)
    assert num_passes > 0
    assert len(episodes) >= 8
    stats = pool.episodes().stats
    discs, leads = np.array(episodes).T
    np.testing.assert_array_equal(stats["discs"], discs)
    for name, sign in (("win", 1), ("draw", 0), ("loss", -1)):
        np.testing.assert_array_equal(stats[name], np.sign(leads) == sign, err_msg=name)


def test_a_cell_that_turns_nothing_and_a_pass_without_need_lose() -> None:
    env = Othello()
    for action in (0, 27, 64):
        assert play(env, begun(env), [action]) == ([-1.0, 1.0], True), action


def test_an_opening_never_ends_the_game_and_has_every_length() -> None:
    num_envs = 300
    pool, out = interpreted(Othello(size=4, opening_plies=8), num_envs)
    states = pool.states()
    assert not states["is_over"].any()
    assert out.mask.any(axis=1).all()
    discs = states["pieces"].sum(axis=(1, 2, 3)) - 4  # a pass places none
    assert set(discs.tolist()) == set(range(9))
    assert (states["turn"][discs == 3] == 1).all()
    assert (discs == 0).mean() == pytest.approx(1 / 9, abs=5 * np.sqrt(8 / 81 / num_envs))


def test_positions_are_scored_for_both_seats_and_only_where_the_world_judges_them() -> None:
    pool, _ = interpreted(Othello(size=6, opening_plies=12), 20, seed=3)
    scores = pool.scores(pool.states())
    assert (scores.dtype, scores.shape) == (np.float32, (20, 2))
    assert np.abs(scores).max() > 0
    without, _ = interpreted(TicTacToe())
    assert (pool.has_scores, without.has_scores) == (True, False)
    with pytest.raises(WorldError, match="TicTacToe does not judge positions; write `def score"):
        without.scores(without.states())


def test_the_text_and_the_picture_show_the_discs_and_who_moves() -> None:
    env = Othello(size=4)
    s = begun(env)
    board = [" 1 . . . .", " 2 . O X .", " 3 . X O .", " 4 . . . .", "   a b c d"]
    assert env.ascii(s).splitlines() == [*board, "X to move; X 2, O 2"]
    before = env.render(s)
    play(env, s, [1])
    assert env.ascii(s).splitlines()[-1] == "O to move; X 4, O 1"
    changed = np.argwhere((env.render(s) != before).any(axis=2))
    cells = (changed - 8) // 50  # row and column
    assert set(map(tuple, cells.tolist())) <= {(0, 1), (1, 1)}
