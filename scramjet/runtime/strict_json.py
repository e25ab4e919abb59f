"""JSON from files that a stranger may have written: standard JSON only, finite numbers, bounded depth."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 100


def parse_json(data: bytes | str) -> Any:
    """Return the value in `data`; a ValueError says what is wrong with it.

    NaN and infinities are refused, also when written as 1e999, and so is what is nested deeper than MAX_DEPTH: writing,
    copying or showing it would exhaust Python's stack.
    """
    try:
        value = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if is_deeper_than(value, MAX_DEPTH):
        raise ValueError("is nested too deep")
    return value


def is_deeper_than(value: Any, depth: int) -> bool:
    """Say whether lists and dicts are nested in each other more than `depth` times."""
    level = [value]
    for _ in range(depth + 1):
        containers = [item for item in level if isinstance(item, dict | list | tuple)]
        if not containers:
            return False
        level = [each for item in containers for each in (item.values() if isinstance(item, dict) else item)]
    return True


def _refuse_constant(word: str) -> float:
    raise ValueError(f"holds {word}, which standard JSON does not know")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"holds a number too large ({text[:20]})")
    return number
