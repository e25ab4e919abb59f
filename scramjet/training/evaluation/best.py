"""Decides which evaluation is the best of a run so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Best:
    """The mean return and its lower confidence bound, as an evaluation or the last hundred episodes gave them."""

    mean_return: float
    lower_bound: float
    """The true mean is above this with 95 % confidence; a new best must have a higher one."""

    @property
    def mean_text(self) -> str:
        """The mean return with about five digits, as messages show it: 500.00, 12.345, 0.9876."""
        return _in_five_digits(self.mean_return)

    @property
    def bound_text(self) -> str:
        """The lower bound in the same way."""
        return _in_five_digits(self.lower_bound)


def _in_five_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.{2 if size >= 100 else 3 if size >= 10 else 4}f}"


def is_new_best(candidate: Best, best: Best | None) -> bool:
    """Whether `candidate` replaces `best`: its lower bound is higher, and its mean return differs as shown.

    Equal means, as shown, are a tie even if the spread differs: the first to reach it stays the best.
    """
    if best is None:
        return True
    return candidate.lower_bound > best.lower_bound and candidate.mean_text != best.mean_text
