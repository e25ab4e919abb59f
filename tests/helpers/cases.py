"""Cases of a parametrized test."""

from typing import Any

import pytest


def rest(*values: Any) -> Any:
    """A case that the rest of the tests tries, and the core does not."""
    return pytest.param(*values, marks=pytest.mark.rest)
