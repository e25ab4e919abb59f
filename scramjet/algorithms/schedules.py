"""Numbers that change over training: constants and piecewise-linear schedules on env steps."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from decimal import Decimal

from scramjet.errors import ConfigError, shortened
from scramjet.settings import MAX_FLOAT

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def parse_count(text: str) -> int:
    """A number of steps as people write it: 40M, 1e6, 1_000_000, 2.5k."""
    plain = text.strip().lower().replace("_", "").replace(",", "")
    factor = _SUFFIXES.get(plain[-1:], 1)
    try:
        number = Decimal(plain[:-1] if factor != 1 else plain) * factor  # exact: 16.1k is 16100
    except ArithmeticError:  # no number, or one beyond all bounds
        raise ValueError(f"{shortened(text)} is not a number of steps; write 40M, 1e6 or 1_000_000") from None
    if not number.is_finite() or not 0 <= number < 2**63 or number != int(number):
        raise ValueError(f"{shortened(text)} is not a whole number of steps")
    return int(number)


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{shortened(text)} is no number") from None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Values at env steps, linear between them, constant before the first and after the last.

    A step is a count, or a share of the whole training: `50%`, `end`.
    """

    points: tuple[tuple[float, bool, float], ...]  # (step or share, is it a share, value), in order

    @classmethod
    def parse(cls, name: str, text: float | str) -> Schedule:
        """Read `0.001` or `0.001@0,0.0001@40M` or `0.001@0,0@end`; `name` is for the message."""
        try:
            if isinstance(text, int | float) or "@" not in text:
                return cls(((0.0, False, cls._value(text)),))
            return cls(tuple(cls._point(part) for part in text.split(",")))._checked()
        except ValueError as error:
            raise ConfigError(
                f"{name}={shortened(text)} is no schedule ({error}); write a number, or value@step points in order "
                f"such as 0.001@0,0.0001@40M or 0.001@0,0@end"
            ) from None

    @staticmethod
    def _value(text: float | str) -> float:
        number = _parse_float(text) if isinstance(text, str) else text
        if not 0 <= number <= MAX_FLOAT:
            raise ValueError(f"the value {shortened(number)} must be from 0 to {MAX_FLOAT:.2g}")
        return float(number)

    @classmethod
    def _point(cls, part: str) -> tuple[float, bool, float]:
        value, at, step = part.strip().partition("@")
        if not at:
            raise ValueError(f"{shortened(part)} has no @step")
        if step == "end":
            return 1.0, True, cls._value(value)
        if step.endswith("%"):
            share = _parse_float(step[:-1]) / 100
            if not 0 <= share <= 1:
                raise ValueError(f"{shortened(step)} is outside 0% to 100%")
            return share, True, cls._value(value)
        return float(parse_count(step)), False, cls._value(value)

    def _checked(self) -> Schedule:
        for (step, is_share, _), (next_step, next_is_share, _) in zip(self.points, self.points[1:], strict=False):
            if is_share == next_is_share and next_step <= step:
                raise ValueError("the steps must increase")
        return self

    def check(self, name: str, total_steps: int) -> None:
        """Refuse points that are out of order once shares of the training have become steps."""
        steps = [step for step, _ in self._placed(total_steps)]
        if any(after <= before for before, after in itertools.pairwise(steps)):
            raise ConfigError(
                f"the steps of {name} do not increase in a training of {total_steps:,} steps: {shortened(steps)}"
            )

    def _placed(self, total_steps: int) -> list[tuple[float, float]]:
        return [(place * total_steps if is_share else place, value) for place, is_share, value in self.points]

    def at(self, step: int, total_steps: int) -> float:
        """The value after `step` env steps of a training of `total_steps`."""
        points = self._placed(total_steps)
        if step <= points[0][0]:
            return points[0][1]
        for (start, before), (stop, after) in itertools.pairwise(points):
            if step < stop:
                return before + (after - before) * (step - start) / (stop - start)
        return points[-1][1]
