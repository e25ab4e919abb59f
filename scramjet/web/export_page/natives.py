"""Python objects that translated code finds ready-made in the page: builtins, parts of math and NumPy, random draws."""

from __future__ import annotations

import builtins
import itertools
import math
from typing import Any

import numpy as np

from scramjet.envs import rng
from scramjet.envs.drawing import Canvas

_BUILTINS = (
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "len", "list", "map", "max", "min",
    "next", "range", "reversed", "round", "sorted", "str", "sum", "zip",
)  # fmt: skip
_MATH = (
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "exp", "log", "log2", "log10",
    "log1p", "expm1", "hypot", "pow", "fabs", "sqrt", "floor", "ceil", "trunc", "degrees", "radians", "isnan",
    "isfinite", "isinf", "copysign", "fmod",
)  # fmt: skip
_NUMPY = (
    "array", "zeros", "ones", "full", "arange", "linspace", "argwhere", "tile", "clip", "where", "flip", "minimum",
    "maximum", "hypot", "mod", "sin", "cos", "tan", "sqrt", "exp", "log", "tanh", "floor", "ceil", "abs", "sign",
    "round", "arctan2", "sum", "min", "max", "ptp", "mean", "any", "all", "argmax", "argmin",
)  # fmt: skip
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
"""Number types that the page's arrays have."""

NATIVE_FUNCTIONS: dict[Any, str] = {
    **{getattr(builtins, name): f"$.{name}" for name in _BUILTINS},
    **{getattr(math, name): f"$.math.{name}" for name in _MATH},
    **{getattr(np, name): f"$.np.{name}" for name in _NUMPY},
    **{getattr(rng, name): f"$.{name}" for name in ("draw_words", "uniform", "randint", "normal")},
    tuple: "$.list",
    np.empty: "$.np.zeros",
    np.asarray: "$.np.array",
    itertools.pairwise: "$.pairwise",
    Canvas: "new $.Canvas",
}
"""Functions and classes by what stands for them in JavaScript."""

NATIVE_DTYPES: dict[Any, str] = {
    **{np.dtype(name).type: name for name in DTYPES},
    float: "float64",
    int: "int64",
    bool: "bool",
}
"""Number types by their name in the page; called, they convert a number."""


def native_name(value: Any) -> str | None:
    """What stands for a Python function or class in JavaScript; None where nothing does."""
    try:
        return NATIVE_FUNCTIONS.get(value)
    except TypeError:  # not hashable
        return None


def native_dtype(value: Any) -> str | None:
    """The page's name of a number type; None for everything else."""
    try:
        return NATIVE_DTYPES.get(value)
    except TypeError:
        return None
