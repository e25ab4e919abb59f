"""Adapts the weight of the entropy bonus, so that the policy stays about as random as it is asked to be."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from scramjet.errors import ConfigError

MIN_COEF, MAX_COEF = 1e-4, 1.0
"""Where the weight of the entropy bonus is kept."""


class EntropyTuner:
    """Raises the weight of the entropy bonus while the policy's entropy is below a target, and lowers it above.

    One step of dual gradient descent an update, on the logarithm of the weight (after Haarnoja et al. 2018, section 5).
    """

    LOG_COEF = "entropy_tuner/log_coef"
    """The name of its state in a checkpoint."""

    def __init__(self, coef: float | str, *, target: float, unit: float, rate: float) -> None:
        """`coef` is the weight to begin with, `target` the entropy in nats.

        A difference of `unit` nats changes the logarithm of the weight by `rate` an update.
        """
        if not isinstance(coef, float | int):
            raise ConfigError(
                f"entropy_coef={coef} is a schedule, and target_entropy adapts a number; use --entropy-coef 0.01"
            )
        self._target, self._step = target, rate / unit
        self._log_coef = _bounded(math.log(max(coef, MIN_COEF)))

    @property
    def coef(self) -> float:
        """The weight of the entropy bonus now."""
        return math.exp(self._log_coef)

    def follow(self, entropy: float) -> None:
        """Take one step after an update in which the policy's mean entropy was this."""
        self._log_coef = _bounded(self._log_coef + self._step * (self._target - entropy))

    def tensors(self) -> dict[str, Tensor]:
        """Its state, by name in a checkpoint."""
        return {self.LOG_COEF: torch.tensor(self._log_coef, dtype=torch.float64)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` gave, where the checkpoint has it."""
        if self.LOG_COEF in tensors:
            self._log_coef = _bounded(float(tensors[self.LOG_COEF]))


def _bounded(log_coef: float) -> float:
    return min(max(log_coef, math.log(MIN_COEF)), math.log(MAX_COEF))
