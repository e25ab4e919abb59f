"""Python constructs and their JavaScript, run on the same values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scramjet.envs.games.tic_tac_toe import TicTacToe
from tests.helpers.javascript import translated_function

STEPS = (-1, 0, 1, 0)
TABLE = np.array([[1, 2, 3], [4, 5, 6]], np.int8)
NAMES = {"up": 0, (1, 2): "pair"}


def arithmetic(a: int, b: int) -> Any:
    parts = [a + b, a - b, a * b, -a, +a, abs(a - b), a**2, 2 ** abs(b % 5)]
    if b != 0:
        parts += [a / b, a // b, a % b, divmod(a, b)]
    return parts


def bits(a: int, b: int) -> Any:
    wide = (a & 255) << 30
    return [a & b, a | b, a ^ b, ~a, a << (b & 7), a >> (b & 7), wide | 1, wide >> 3, (wide ^ 5) & 0xFFFFFFFF]


def truth_values(a: int, b: int) -> Any:
    count = 0
    count += a > b
    count += (a < 0) & (b < 0)
    either = a or b
    both = a and b
    return [count, either, both, not a, a > 0 and b > 0, (a > 0) ^ (b > 0), bool(a), True + True, a == True]  # noqa: E712


def comparisons(a: int, b: int) -> Any:
    chained = 0 <= a < b < 5, -3 < a + 1 <= b + 2
    tuples = (a, b) < (b, a), (a, b) == (b, a), [a] == [b], (a, 1) <= (a, b)
    return [*chained, *tuples, a in (1, 2, 3), a not in STEPS, a is None, b in {1, 2}]


def loops(a: int, b: int) -> Any:
    seen, total, k = [], 0, -1
    for k in range(a, b, 2):
        if k % 3 == 0:
            continue
        total += k
        if total > 20:
            break
    for j in range(5, -5, -3):
        seen.append(j)
        j = 100
    while total > 3:
        total //= 2
    return [seen, total, k]


def assignments(a: int, b: int) -> Any:
    x = y = a
    x, y = y + 1, x + b
    (p, q), *rest = (a, b), x, y, 3
    values = [0, 0, 0]
    values[-1], values[0] = p, q
    values[1] += x if (z := a + b) > 0 else -x
    a, b = b, a
    return [x, y, p, q, rest, values, z, a, b]


def conversions(a: int, b: int) -> Any:
    half = a + b / 4
    return [int(half), float(a), round(half), round(a / 2), math.floor(half), math.ceil(half), min(a, b), max(a, b, 3)]


def trigonometry(a: int, b: int) -> Any:
    return [
        math.sqrt(a * a + b * b),
        math.hypot(a, b),
        math.pi * a,
        math.atan2(a, b),
        math.degrees(a),
        math.copysign(1, b),
    ]


def collections(a: int, b: int) -> Any:
    squares = [k * k for k in range(abs(a) % 6) if k != 2]
    pairs = [(i, j) for i in range(3) for j in range(i)]
    counts = {k: k + a for k in range(3)}
    counts[7] = b
    found = sorted([a, b, 0], key=lambda one: -one)
    ends = squares[:2], squares[-1:], "abcdef"[::-1], [1, 2, 3][1:]
    sums = sum(squares), len(pairs), any(squares), all(squares), list(zip(found, "xyz", strict=False))
    return [
        squares,
        pairs,
        list(counts.items()),
        found,
        ends,
        sums,
        NAMES["up"],
        NAMES[1, 2],
        list(enumerate("ab", 1)),
        7 in counts,
    ]


def texts(a: int, b: int) -> Any:
    signs = f"{a:+d}|{a / 3:.2f}|{a / 7:+.1f}|{abs(a) / 100:.1%}|{a:>5}|{b:<4}|{'x':^5}|{abs(b):03d}|{a * 1000:,}"
    return [
        signs,
        " ".join(str(one) for one in (a, b)),
        "ab" * 2 + "c",
        "a b ".rstrip(),
        "XO"[a % 2],
        "=" * 3,
        f"{a:>{3 + b % 3}}",
    ]


def arrays(a: int, b: int) -> Any:
    table = np.zeros((3, 4), np.int8)
    table[1, :] = a % 100
    table[:, -1] = [1, 2, 3]
    table[2, 0] -= 1
    table[0, ::2] = table[2, 1:3]
    row = table[1]
    row += 1
    total = TABLE[b % 2, a % 3] + TABLE[-1][0] + TABLE.shape[1]
    return [table.tolist(), int(total), bool(table.any()), int(table.sum()), (TABLE * 2 + 1).tolist(), len(table)]


def inner_functions(a: int, b: int) -> Any:
    offset = a * 10

    def moved(step: int) -> int:
        return offset + step

    return [moved(b), helper(b, by=a), helper(b), [moved(k) for k in range(2)]]


def helper(value: int, times: int = 3, by: int = 1) -> int:
    """Has default values."""
    return value * times + by


CONSTRUCTS = (
    arithmetic, bits, truth_values, comparisons, loops, assignments, conversions, trigonometry, collections, texts,
    arrays, inner_functions,
)  # fmt: skip


@pytest.mark.parametrize("function", CONSTRUCTS, ids=lambda function: function.__name__)
def test_a_construct_gives_in_javascript_what_it_gives_in_python(function: Callable[..., Any]) -> None:
    translated, chance = translated_function(function, TicTacToe()), random.Random(7)
    pairs = [(0, 0), (1, 0), (0, -1), (-7, 2), (7, -2), (-7, -7)]
    pairs += [(chance.randint(-50, 50), chance.randint(-9, 9)) for _ in range(60)]
    for a, b in pairs:
        assert as_lists(function(a, b)) == translated(a, b), (a, b)


def as_lists(value: Any) -> Any:
    """Tuples as lists and truth values as they are, as JSON has them."""
    if isinstance(value, tuple | list):
        return Nested([as_lists(one) for one in value])
    return value


class Nested(list):
    """A list that compares numbers nearly and everything else exactly."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and len(other) == len(self) and all(map(_is_same, self, other))

    __hash__ = None  # type: ignore[assignment]


def _is_same(mine: Any, other: Any) -> bool:
    if isinstance(mine, float) and not isinstance(other, str):
        return bool(other == pytest.approx(mine, rel=1e-14))
    return bool(mine == other)


def out_of_range(a: int) -> Any:
    return STEPS[a]


def too_large(a: int) -> Any:
    return a * a


def no_quotient(a: int) -> Any:
    return 1 // a


@pytest.mark.parametrize(("function", "value"), [(out_of_range, 4), (too_large, 2**40), (no_quotient, 0)])
def test_what_python_refuses_or_javascript_cannot_count_is_an_error(function: Callable[..., Any], value: int) -> None:
    with pytest.raises(RuntimeError):
        translated_function(function, TicTacToe())(value)
