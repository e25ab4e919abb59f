"""Values on a logarithmic scale (Hafner et al. 2023), on which large and small returns are learned alike."""

from __future__ import annotations

from torch import Tensor

MAX_SYMLOG = 40.0
"""Where numbers are cut before they are exponentiated: 2e17, whose square is far from infinity."""


def symlog(numbers: Tensor) -> Tensor:
    """sign(x) log(|x| + 1): large numbers compressed, small ones hardly changed (Hafner et al. 2023, eq. 9)."""
    return numbers.sign() * numbers.abs().log1p()


def symexp(numbers: Tensor) -> Tensor:
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`; numbers beyond `MAX_SYMLOG` count as that."""
    return numbers.sign() * numbers.abs().clamp(max=MAX_SYMLOG).expm1()
