"""The result of an evaluation: returns and lengths of its episodes, a confidence bound, whether it is the best yet."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from scramjet.algorithms.intervals import lower_bound, mean_half_width


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns and lengths over the episodes played.

    Where several agents or seats play, an episode is a game and counts once; mean and deviation are over the returns of
    all its players.
    """

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    stats: dict[str, float]
    cut_episodes: int = 0
    """Episodes that did not end within the bound of steps; their return so far is counted."""

    def __repr__(self) -> str:
        """One line: what an episode brings, the deviation of episodes, and how long they are."""
        std = self.std_return if self.std_return > 1e-9 * abs(self.mean_return) else 0.0  # else what rounding left
        parts = [f"mean_return={self.mean_return:.4g}", f"std_return={std:.3g}"]
        parts += [f"mean_length={self.mean_length:.4g}", f"episodes={self.episodes:,}"]
        parts += [f"{name}={value:.3g}" for name, value in self.stats.items()][:4]
        cut = [f"cut_episodes={self.cut_episodes}"] if self.cut_episodes else []
        return f"Evaluation({', '.join([*parts, *cut])})"

    @property
    def lower_bound(self) -> float:
        """The true mean return is above this with 95 % confidence; the best checkpoint is chosen by it, not by luck."""
        return lower_bound(self.mean_return, self.std_return, self.episodes)

    @property
    def half_width(self) -> float:
        """The ± of the mean return: half the width of its 95 % interval; NaN for a single episode."""
        return mean_half_width(self.std_return, self.episodes)

    @property
    def text(self) -> str:
        """The mean return in words, such as "475.20 ± 3.11 (95 % interval) over 100 episodes"."""
        interval = "" if math.isnan(self.half_width) else f" ± {self.half_width:.2f} (95 % interval)"
        return f"{self.mean_return:.2f}{interval} over {self.episodes:,} episode{'s' * (self.episodes != 1)}"

    def is_far_below(self, mean: float, std: float, count: int) -> bool:
        """Whether this mean return is below that of `count` others, by more than chance and more than their deviation.

        `mean` and `std` are those of the other returns.
        """
        upper_bound = 2 * self.mean_return - self.lower_bound
        return upper_bound < lower_bound(mean, std, count) and mean - self.mean_return > std

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, and the lower bound."""
        return {**asdict(self), "lower_bound": self.lower_bound}


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
