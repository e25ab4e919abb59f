"""What comes of one run of the study."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """The evaluation after training, and how long training took."""

    mean_return: float
    steps: int
    """Env steps that were trained: the budget, filled up to a whole rollout."""
    seconds: float
