"""Random draws for rules: `uniform(s)`, `randint(s, n)`, `normal(s)`, `choice(s, options)`, `shuffle(s, array)`.

The generator is Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Draw number d of
episode e of env i is a pure function of (k, i, e, d), k being the key of the pool's seed. The engine keeps these four
integers in the record, so the thread count, the batch split and the device never change an episode. One draw is one
block.

All arithmetic stays within 63 bits, because that means the same in Python's unbounded integers, in Numba and on a GPU:
Numba lets LLVM assume that signed integers never overflow. So a word is multiplied by m - 2**32 in place of m, which
leaves the product's low half as it is and its high half smaller by just that word.
"""

from __future__ import annotations

import math
from typing import Any

_MASK32 = 0xFFFFFFFF
_MULTIPLIER_0 = 0xD2511F53 - (1 << 32)
_MULTIPLIER_1 = 0xCD9E8D57 - (1 << 32)
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_TWO_POW_MINUS_53 = 1.0 / (1 << 53)


def philox4x32(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Ten rounds of Philox on a 128-bit counter and a 64-bit key, all as 32-bit words."""
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        high_0 = (product_0 >> 32) + c0
        high_1 = (product_1 >> 32) + c2
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, product_1 & _MASK32, high_0 ^ c3 ^ k1, product_0 & _MASK32
        k0 = (k0 + _WEYL_0) & _MASK32
        k1 = (k1 + _WEYL_1) & _MASK32
    return c0, c1, c2, c3


def draw_words(s: Any) -> tuple[int, int, int, int]:
    """The next four random 32-bit words of this env's episode."""
    draw = s._draw
    s._draw = draw + 1
    key = s._seed
    return philox4x32(
        draw & _MASK32,
        s._index & _MASK32,
        s._episode & _MASK32,
        0,
        key & _MASK32,
        (key >> 32) & _MASK32,
    )


def uniform(s: Any, low: float = 0.0, high: float = 1.0) -> float:
    """A float in [low, high), 53 random bits."""
    w0, w1, _, _ = draw_words(s)
    return low + (high - low) * (((w0 << 21) | (w1 >> 11)) * _TWO_POW_MINUS_53)


def randint(s: Any, n: int) -> int:
    """An integer in 0 .. n - 1, each exactly as likely (Lemire 2019); n from 1 to 2**31."""
    product = draw_words(s)[0] * n
    if (product & _MASK32) < n:
        threshold = ((1 << 32) - n) % n
        while (product & _MASK32) < threshold:
            product = draw_words(s)[0] * n
    return product >> 32


def normal(s: Any, mean: float = 0.0, std: float = 1.0) -> float:
    """A normal deviate (Box and Muller 1958)."""
    w0, w1, w2, w3 = draw_words(s)
    radius = math.sqrt(-2.0 * math.log((((w0 << 21) | (w1 >> 11)) + 1) * _TWO_POW_MINUS_53))
    angle = 2.0 * math.pi * (((w2 << 21) | (w3 >> 11)) * _TWO_POW_MINUS_53)
    return mean + std * radius * math.cos(angle)


def choice(s: Any, options: Any) -> Any:
    """One of `options` (an array or a tuple of numbers), each as likely."""
    return options[randint(s, len(options))]


def shuffle(s: Any, array: Any) -> None:
    """Shuffle a one-dimensional array in place (Fisher and Yates)."""
    for i in range(len(array) - 1, 0, -1):
        j = randint(s, i + 1)
        array[i], array[j] = array[j], array[i]
