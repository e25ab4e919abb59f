"""Searches for rows of a pool: in batches of a few sizes, the same for the same seed, and without touching the pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from scramjet.engine import NativePool
from scramjet.engine.random_play import random_actions
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.search import rows as rows_module
from scramjet.search.rows import RowSearch
from tests.helpers.search_worlds import settings, untrained


def searched(text: str, num_envs: int = 24, plies: int = 3) -> tuple[RowSearch, Any]:
    """Games after a few random moves, and a search for them."""
    pool, random = NativePool(TicTacToe(), num_envs, num_threads=1), np.random.default_rng(0)
    out = pool.reset(0)
    for _ in range(plies):
        out = pool.step(random_actions(pool, out, random))
    return RowSearch(pool, untrained(pool.env), settings(text)), out


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def test_batches_hold_every_row_once_are_at_least_half_full_and_smaller_for_large_searches() -> None:
    search, _ = searched("alphazero:2")
    for num_rows in (1, 3, 64, 65, 100, 300, 1000, 1024, 1025, 5000):
        batches = list(search._batches(np.arange(num_rows)))
        assert np.array_equal(np.concatenate([part for part, _ in batches]), np.arange(num_rows)), num_rows
        for part, size in batches:
            assert size.bit_count() == 1
            assert size // 2 < len(part) <= size <= rows_module.MOST_ROOTS, num_rows
    assert search._most_roots == rows_module.MOST_ROOTS
    assert 1 <= searched("alphazero:10000")[0]._most_roots < rows_module.MOST_ROOTS


def test_what_a_tree_finds_does_not_depend_on_the_other_rows_of_its_batch() -> None:
    search, out = searched("alphazero:16")
    rows = np.arange(24)
    together = search.actions(out, rows, generator())
    apart = [search.actions(out, part, generator()) for part in (rows[:1], rows[1:6], rows[6:])]
    assert np.array_equal(together, np.concatenate(apart))
    assert out.mask[rows, together].all()


def test_the_same_seed_gives_the_same_actions_and_the_pool_stays_as_it_is() -> None:
    for text, explores in (("alphazero:8", True), ("spo:8x2", False), ("spo:8x2", True)):
        search, out = searched(text)
        before = search.pool.state_bytes().clone()
        first, again = (search.actions(out, np.arange(24), generator(), explores=explores) for _ in range(2))
        assert np.array_equal(first, again), text
        assert torch.equal(search.pool.state_bytes(), before), text


def test_a_win_at_hand_is_taken_in_any_row() -> None:
    pool = NativePool(TicTacToe(), 5, num_threads=1)
    out = pool.reset(0)
    for moves in ([0] * 5, [3, 3, 4, 4, 3], [1] * 5, [4, 4, 3, 3, 4]):
        out = pool.step(np.array(moves))
    for text in ("alphazero:32", "spo:64x3"):
        chosen = RowSearch(pool, untrained(pool.env), settings(text)).actions(out, np.array([4, 1, 2]), generator())
        assert chosen.tolist() == [2, 2, 2], text


def test_exploring_searches_differ_and_others_do_not() -> None:
    search, out = searched("alphazero:4", plies=0)
    explored = search.actions(out, np.arange(24), generator(), explores=True)
    assert len(set(explored.tolist())) > 2
    assert len(set(search.actions(out, np.arange(24), generator()).tolist())) == 1
