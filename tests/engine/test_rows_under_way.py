"""Rows given by their numbers are different ones that the pool has."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine.rows_under_way import row_numbers
from scramjet.errors import ConfigError


@pytest.mark.parametrize("rows", [[0, 0], [4], [-1], [], [[0], [1]], [0.5]])
def test_rows_that_are_not_different_rows_of_the_pool_are_refused(rows) -> None:
    with pytest.raises(ConfigError, match="must be different whole numbers, at least one, from 0 to 3"):
        row_numbers(np.array(rows), 4)


def test_rows_keep_their_order() -> None:
    assert row_numbers(np.array([3, 0], np.int32), 4).tolist() == [3, 0]
