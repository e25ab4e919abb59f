"""Hashes that tell rows apart: against the published numbers of splitmix64, and in rows that differ by little."""

from __future__ import annotations

import itertools

import numpy as np

from scramjet.engine.hashing import GOLDEN, hash_rows, mixed


def test_the_mix_is_that_of_splitmix64() -> None:
    states = np.array([1, 2, 3], np.uint64) * np.uint64(GOLDEN)  # of a generator seeded with 0
    assert mixed(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_rows_that_differ_in_two_bytes_anywhere_have_different_hashes() -> None:
    rows = np.zeros((1 + 24 * 23 // 2, 24), np.uint8)
    for row, places in enumerate(itertools.combinations(range(24), 2), start=1):
        rows[row, places] = 1
    hashes = hash_rows(rows.view(np.uint64))
    assert len(np.unique(hashes)) == len(rows)
    assert np.array_equal(hash_rows(rows.view(np.uint64)[::-1].copy()), hashes[::-1])
