"""Values in a space that is easier to learn than that of returns: normalized (PopArt) or compressed (symlog).

The value that a network gives is then a number of that space, its output. The learner brings outputs back to the scale
of returns before advantages are estimated, and takes returns into that space before they are learned. So the losses,
and the kernels that compute them, are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from scramjet.policies.layers import symexp, symlog
from scramjet.runtime.ranks.moments import joined, moments_of

KEPT_SHARE = 0.9
"""PopArt: how much the returns seen so far weigh after another rollout, so that statistics follow a policy that
improves."""
MIN_DEVIATION, MAX_DEVIATION = 1e-4, 1e6
"""PopArt: bounds on the deviation that returns are divided by (van Hasselt et al. 2016)."""


class ValueScale(ABC):
    """Translates between the outputs of a value network and returns."""

    @abstractmethod
    def to_returns(self, output: Tensor) -> Tensor:
        """The returns that outputs of the network stand for, of the same shape."""

    @abstractmethod
    def to_outputs(self, returns: Tensor) -> Tensor:
        """What the network should give for these returns, of the same shape."""

    def follow(self, returns: Tensor, counts: Tensor | None = None) -> None:  # noqa: B027 - symlog has no statistics
        """Take in the returns [B] of a new rollout, of which those with `counts` [B] count; None: all."""

    def tensors(self) -> dict[str, Tensor]:
        """The statistics, by name in a checkpoint; the same on all ranks."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027 - symlog has no statistics
        """Restore what `tensors` gave, where the checkpoint has it."""


class Symlog(ValueScale):
    """The network gives the symlog of the return."""

    def to_returns(self, output: Tensor) -> Tensor:
        """symexp of the outputs."""
        return symexp(output)

    def to_outputs(self, returns: Tensor) -> Tensor:
        """symlog of the returns."""
        return symlog(returns)


class PopArt(ValueScale):
    """The network gives returns normalized to mean 0 and deviation 1 by running statistics (van Hasselt et al. 2016).

    When the statistics change, the last layer of the value network is rescaled, so that the returns that its outputs
    stand for stay the same.
    """

    MOMENTS = "value_scale/moments"
    """The name of the statistics in a checkpoint."""

    def __init__(self, layer: nn.Linear, join: Callable[[Tensor], Tensor] = lambda moments: moments) -> None:
        """`layer` [1, F] gives the values.

        `join` gets the moments of a rollout's returns and returns those that count: of several processes together.
        """
        self._layer, self._join = layer, join
        self.moments = torch.zeros(3, dtype=torch.float64, device=layer.weight.device)
        """Count, mean and sum of squared deviations of the returns, older ones counted less."""
        self._kept = torch.tensor([KEPT_SHARE, 1.0, KEPT_SHARE], dtype=torch.float64, device=layer.weight.device)

    @property
    def mean_and_deviation(self) -> tuple[Tensor, Tensor]:
        """What is subtracted from returns and what they are divided by, float64 scalars; 0 and 1 at first."""
        return mean_and_deviation(self.moments)

    def to_returns(self, output: Tensor) -> Tensor:
        """Outputs times deviation plus mean."""
        mean, deviation = self.mean_and_deviation
        return output * deviation + mean

    def to_outputs(self, returns: Tensor) -> Tensor:
        """Returns minus mean, divided by deviation."""
        mean, deviation = self.mean_and_deviation
        return (returns - mean) / deviation

    @torch.no_grad()
    def follow(self, returns: Tensor, counts: Tensor | None = None) -> None:
        """Update the statistics with the returns of a rollout, and rescale the layer to preserve what it stands for."""
        mean, deviation = self.mean_and_deviation
        self.moments.copy_(joined(self.moments * self._kept, self._join(moments_of(returns, counts))))
        new_mean, new_deviation = self.mean_and_deviation
        rescale(self._layer, deviation / new_deviation, (mean - new_mean) / new_deviation)

    @torch.no_grad()
    def multiply_returns(self, factor: float) -> None:
        """Go on with returns in another unit, `factor` times the numbers they were: so are the values from now on."""
        mean, deviation = self.mean_and_deviation
        self.moments.mul_(torch.tensor([1.0, factor, factor**2], dtype=torch.float64, device=self.moments.device))
        new_mean, new_deviation = self.mean_and_deviation
        rescale(self._layer, factor * deviation / new_deviation, (factor * mean - new_mean) / new_deviation)

    def tensors(self) -> dict[str, Tensor]:
        """The moments."""
        return {self.MOMENTS: self.moments}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the moments; a checkpoint without them leaves 0 and 1."""
        if self.MOMENTS in tensors:
            self.moments.copy_(tensors[self.MOMENTS])


def mean_and_deviation(moments: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the bounded deviation of numbers with these moments [3], scalars; 0 and 1 of no numbers."""
    count, mean, squares = moments.unbind()
    deviation = (squares / count.clamp(min=1e-12)).sqrt().clamp(MIN_DEVIATION, MAX_DEVIATION)
    return mean.clone(), torch.where(count > 0, deviation, 1.0)


@torch.no_grad()
def rescale(layer: nn.Linear, factor: Tensor, offset: Tensor) -> None:
    """Change a layer so that it gives its outputs times `factor` plus `offset`, both float64 scalars."""
    layer.weight.copy_(layer.weight.double() * factor)
    layer.bias.copy_(layer.bias.double() * factor + offset)
