"""Functions over trees of arrays and over records of them, and hashes that tell rows apart."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from scramjet.engine.trees import GOLDEN, hash_rows, map_fields, mixed


@dataclass(frozen=True)
class Sample:
    obs: Any
    mask: Any
    count: int
    total: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", float(self.obs["position"].sum()))


def test_map_fields_reaches_arrays_in_nested_dicts_and_leaves_the_rest():
    sample = Sample({"position": np.arange(4.0), "deep": {"flag": torch.ones(4)}}, None, 4)
    half = map_fields(sample, lambda array: array[2:])
    np.testing.assert_array_equal(half.obs["position"], [2.0, 3.0])
    assert half.obs["deep"]["flag"].shape == (2,)
    assert (half.mask, half.count) == (None, 4)
    assert (half.total, sample.total) == (5.0, 6.0), "fields that the class fills in are filled in anew"
    mask = np.zeros(7)
    other = map_fields(sample, lambda array: array + 1, mask=mask, count=7)
    assert other.mask is mask
    assert other.count == 7
    np.testing.assert_array_equal(other.obs["position"], [1.0, 2.0, 3.0, 4.0])


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
