"""Python values as JavaScript: numbers, texts, tuples, dictionaries and arrays."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import numpy as np

from scramjet.web.export_page.natives import DTYPES

LARGEST_WHOLE = 2**53
"""Whole numbers are exact in JavaScript below this."""


class NotALiteralError(Exception):
    """A value that has no form in JavaScript; the text says which and why."""


def literal(value: Any) -> str:
    """A Python value as a JavaScript expression; raises NotALiteralError."""
    if isinstance(value, enum.Enum):
        return literal(value.value)
    if isinstance(value, np.generic):
        return literal(value.item())
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if abs(value) >= LARGEST_WHOLE:
            raise NotALiteralError(f"the whole number {value}, beyond 2**53")
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, dict):
        pairs = ", ".join(f"[{literal(key)}, {literal(item)}]" for key, item in value.items())
        return f"$.dict([{pairs}])"
    if isinstance(value, tuple | list | range):
        return f"[{', '.join(literal(item) for item in value)}]"
    raise NotALiteralError(f"a value of type {type(value).__name__}")


def text(value: str) -> str:
    """A text as a JavaScript string that cannot end the script it stands in."""
    escaped = json.dumps(value)
    for mark in ("<", ">", "&", "\u2028", "\u2029"):
        escaped = escaped.replace(mark, f"\\u{ord(mark):04x}")
    return escaped


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _array(value: np.ndarray) -> str:
    if value.dtype.name not in DTYPES:
        raise NotALiteralError(f"an array of {value.dtype}")
    return f"$.np.array({literal(value.tolist())}, {text(value.dtype.name)})"
