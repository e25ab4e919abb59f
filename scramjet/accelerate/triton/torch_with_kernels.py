"""The plain executor on the GPU: the network's own forward pass, and what surrounds it in Triton's kernels.

Around a network, torch launches over a hundred small operators for a gradient step, and at usual sizes each launch
takes longer than its work. Here a few kernels do the same: they select the minibatch, compute the loss with its
gradients, bound the norm of the gradients and take Adam's step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.accelerate.triton.flat_adam import FlatAdam, can_be_flat
from scramjet.accelerate.triton.fused_loss import fused_minibatch_loss, one_on
from scramjet.accelerate.triton.selection import fused_select
from scramjet.algorithms.ppo import LossTerms
from scramjet.policies.policy import Policy


class TorchWithKernels(TorchExecutor):
    """Acts, values and learns as `TorchExecutor` does, up to rounding, with fewer launches."""

    def __init__(self, policy: Policy, why: str = "", *, may_move_weights: bool = True) -> None:
        """`may_move_weights`: whether weights may become views of flat memory, which Adam's kernels need."""
        super().__init__(policy, why)
        is_flat = may_move_weights and can_be_flat(policy, self.parameters)
        self._adam = FlatAdam(self.parameters) if is_flat else None

    @property
    def can_be_recorded(self) -> bool:
        return super().can_be_recorded and not (self._adam is not None and self._adam.is_left)

    def refresh(self) -> None:
        super().refresh()
        if self._adam is not None and not self._adam.is_left:
            self._adam.flat.refresh()

    def begin_update(self, samples: Samples, optimizer: torch.optim.Adam) -> None:
        if self._adam is not None and not self._adam.is_left:
            self._adam.flat.refresh()
            self._adam.use_optimizer(optimizer)

    def _select(self, samples: Samples, units: Tensor) -> Samples:
        return fused_select(samples, units)

    def _loss(self, minibatch: Samples, loss: LossSettings, statistics: Tensor | None = None) -> LossTerms:
        return fused_minibatch_loss(self.policy, minibatch, loss, self.own_losses, statistics)

    def _backward(self, total: Tensor) -> None:
        if self.own_losses is None:
            total.backward(one_on(total.device))
        else:
            super()._backward(total)

    @torch.no_grad()
    def _clip_and_step(self, loss: LossSettings, optimizer: torch.optim.Adam) -> Tensor:
        if self._adam is None or not self._adam.can_take(optimizer):
            return super()._clip_and_step(loss, optimizer)
        return self._adam.step(optimizer, loss.max_grad_norm)
