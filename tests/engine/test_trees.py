"""Functions over trees of arrays and over records of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from scramjet.engine.trees import map_fields


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
    assert half.mask is None
    assert half.count == 4
    assert half.total == 5.0, "fields that the class fills in are filled in anew"
    assert sample.total == 6.0


def test_map_fields_takes_replaced_fields_as_they_are_given():
    sample = Sample({"position": np.arange(4.0)}, np.ones(4), 4)
    mask = np.zeros(7)
    other = map_fields(sample, lambda array: array + 1, mask=mask, count=7)
    assert other.mask is mask
    assert other.count == 7
    np.testing.assert_array_equal(other.obs["position"], [1.0, 2.0, 3.0, 4.0])
