"""Which tests run: no item is lost when they are dealt, and the line that sets a whole file aside is recognized."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests import tiers


def test_items_are_dealt_whole_file_by_file_long_ones_first_and_evenly() -> None:
    names = {"tests/engine/a.py": 7, "tests/learning/b.py": 4, "tests/engine/c.py": 30, "tests/runtime/d.py": 11}
    items = [
        SimpleNamespace(nodeid=f"{name}::test_{number}", path=Path(name))
        for name, count in names.items()
        for number in range(count)
    ]
    order = tiers.dealt(cast("Any", items), workers=2)
    assert sorted(item.nodeid for item in order) == sorted(item.nodeid for item in items)
    assert order[0].path == Path("tests/learning/b.py")  # which trains
    changes = sum(before.path != after.path for before, after in itertools.pairwise(order))
    assert changes == len(names) - 1


def test_a_whole_file_is_of_the_rest_by_one_line() -> None:
    for line in ("pytestmark = pytest.mark.rest", "pytestmark = [pytest.mark.faults, pytest.mark.rest]"):
        assert tiers.WHOLE_FILE.search(f"import pytest\n\n{line}\n"), line
    for line in ("    pytestmark = pytest.mark.rest", "pytestmark = pytest.mark.faults", "@pytest.mark.rest"):
        assert not tiers.WHOLE_FILE.search(f"import pytest\n{line}\n"), line
