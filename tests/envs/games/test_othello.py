"""Othello: known numbers of games, another program of the rules, passes, ends and scores."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.envs.games.othello import Othello
from scramjet.errors import WorldError

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
    pool = NativePool(Othello(), 1, num_threads=1)
    out = pool.reset(0)
    states, mask, counts = pool.states(), out.mask, []
    while len(counts) < len(KNOWN_GAMES):
        rows, actions = np.nonzero(mask)
        counts.append(len(rows))
        states, out = pool.simulate(states[rows], actions)
        states, mask = states[~out.terminated], out.mask[~out.terminated]
    assert counts == KNOWN_GAMES


@pytest.mark.parametrize("size", [4, 6])
def test_random_games_are_those_of_another_program(size: int) -> None:
    pool = NativePool(Othello(size=size), 8, backend="interpreted")
    out, random = pool.reset(0), np.random.default_rng(0)
    games = [Slow(size) for _ in range(8)]
    num_passes = num_ended = 0
    for _ in range(60):
        for i, game in enumerate(games):
            assert out.turn[i] == game.side
            assert np.flatnonzero(out.mask[i]).tolist() == game.legal()
            np.testing.assert_array_equal(out.obs[i], game.planes(game.side))
        leads = [(game.count(0) - game.count(1)) / size**2 for game in games]
        np.testing.assert_allclose(pool.scores(pool.states()), [[lead, -lead] for lead in leads], rtol=1e-6)
        actions = np.array([random.choice(np.flatnonzero(legal)) for legal in out.mask])
        num_passes += int((actions == size**2).sum())
        out = pool.step(actions)
        for i, game in enumerate(games):
            game.play(int(actions[i]))
            assert out.terminated[i] == game.is_over()
            lead = np.sign(game.count(0) - game.count(1)) if game.is_over() else 0
            assert out.reward[i].tolist() == [lead, -lead]
            if game.is_over():
                ended = pool.episodes()
                num_ended += len(ended) // 2
                games[i] = Slow(size)
    assert num_passes > 0
    assert num_ended > 5


def test_results_and_discs_of_both_seats_add_up() -> None:
    pool = NativePool(Othello(size=4), 32, backend="interpreted")
    out, random = pool.reset(0), np.random.default_rng(0)
    for _ in range(40):
        out = pool.step(np.array([random.choice(np.flatnonzero(legal)) for legal in out.mask]))
    episodes = pool.episodes()
    results = np.stack([episodes.stats[name] for name in ("win", "draw", "loss")])
    assert (results.sum(axis=0) == 1).all()
    assert (results.sum(axis=1) > 0).all()
    discs = episodes.stats["discs"].reshape(-1, 2)
    np.testing.assert_array_equal(episodes.returns.reshape(-1, 2), np.sign(discs - discs[:, ::-1]))
    assert (discs.sum(axis=1) <= 16).all()


@pytest.mark.parametrize("action", [0, 27, 64])
def test_a_cell_that_turns_nothing_and_a_pass_without_need_lose(action: int) -> None:
    pool = NativePool(Othello(), 1, num_threads=1)
    assert not pool.reset(0).mask[0, action]
    out = pool.step(np.array([action]))
    assert out.reward[0].tolist() == [-1.0, 1.0]
    assert out.terminated[0]


def test_an_opening_never_ends_the_game_and_has_every_length() -> None:
    num_envs = 300
    pool = NativePool(Othello(size=4, opening_plies=8), num_envs, backend="interpreted")
    out = pool.reset(0)
    states = pool.states()
    assert not states["is_over"].any()
    assert out.mask.any(axis=1).all()
    discs = states["pieces"].sum(axis=(1, 2, 3)) - 4  # a pass places none
    assert set(discs.tolist()) == set(range(9))
    assert (states["turn"][discs == 3] == 1).all()
    assert (discs == 0).mean() == pytest.approx(1 / 9, abs=5 * np.sqrt(8 / 81 / num_envs))


def test_positions_are_scored_alike_by_both_back_ends_and_only_where_the_world_judges_them() -> None:
    env = Othello(size=6, opening_plies=12)
    compiled, interpreted = NativePool(env, 20, num_threads=1), NativePool(env, 20, backend="interpreted")
    compiled.reset(3)
    interpreted.reset(3)
    scores = compiled.scores(compiled.states())
    np.testing.assert_array_equal(scores, interpreted.scores(interpreted.states()))
    assert (scores.dtype, scores.shape) == (np.float32, (20, 2))
    assert np.abs(scores).max() > 0
    without = NativePool(load_env("tic_tac_toe"), 1, num_threads=1)
    assert compiled.has_scores
    assert not without.has_scores
    with pytest.raises(WorldError, match="TicTacToe does not judge positions; write `def score"):
        without.scores(without.states())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"size": 7}, "size=7 must be an even number from 4 to 10"),
        ({"size": 12}, "size=12 must be an even number from 4 to 10"),
        ({"size": 4, "opening_plies": 9}, "opening_plies=9 must be from 0 to 8, half of the cells"),
    ],
)
def test_boards_that_make_no_game_are_refused(parameters, message: str) -> None:
    with pytest.raises(WorldError, match=message):
        load_env("othello", **parameters)


def test_the_text_and_the_picture_show_the_discs_and_who_moves() -> None:
    env = Othello(size=4)
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(0)
    s = pool.record(0)
    assert env.ascii(s).splitlines() == [" 1 . . . .", " 2 . O X .", " 3 . X O .", " 4 . . . .", "   a b c d",
                                         "X to move; X 2, O 2"]  # fmt: skip
    before = env.render(s)
    env.step(s, 1, np.zeros(2))
    assert env.ascii(s).splitlines()[-1] == "O to move; X 4, O 1"
    changed = np.argwhere((env.render(s) != before).any(axis=2))
    rows, columns = (changed[:, 0] - 8) // 50, (changed[:, 1] - 8) // 50
    assert {(int(row), int(column)) for row, column in zip(rows, columns, strict=True)} <= {(0, 1), (1, 1)}
