"""The plain executor on the GPU: the network's own forward pass, and what surrounds it in Triton's kernels.

Around a network, torch launches over a hundred small operators for a gradient step, and at usual sizes each launch
takes longer than its work. Here a few kernels do the same: they select the minibatch, compute the loss with its
gradients, bound the norm of the gradients and take Adam's step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.algorithms.ppo import LossTerms
from scramjet.engine.trees import map_fields
from scramjet.executors.flat_adam import FlatAdam, can_be_flat
from scramjet.executors.losses import LossSettings, OwnLosses, minibatch_loss
from scramjet.executors.samples import Samples
from scramjet.executors.supports import DISTRIBUTIONS, replaced_method
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.kernels.gpu import losses
from scramjet.kernels.gpu.language import blocks_of, power_of_two
from scramjet.kernels.gpu.losses import TERMS
from scramjet.kernels.gpu.selection import select_numbers, select_rows
from scramjet.policies.distributions import DiagonalGaussian, Distribution, MultiCategorical
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


def fused_select(samples: Samples, units: Tensor) -> Samples:
    """`Samples.select` with one kernel for all fields of one number a sample.

    `place` is left out: no gradient needs it.
    """
    number = samples.num_units

    def take(data: Tensor) -> Tensor:
        return select_rows(data, units) if samples.state is None else samples.take(data, units)

    choice = samples.action if samples.action.dim() == 1 else None
    fields = samples.log_prob, samples.value, samples.advantage, samples.returns
    size = len(samples.action) // number * len(units)
    numbers, action, counts = select_numbers(units, number, size, fields, choice, samples.counts)
    log_prob, value, advantage, returns = numbers.unbind()
    return map_fields(
        samples,
        take,
        action=take(samples.action) if action is None else action,
        log_prob=log_prob,
        value=value,
        advantage=advantage,
        returns=returns,
        place=samples.place[:0],
        counts=counts,
        state=None if samples.state is None else samples.state.index_select(0, units),
        begins=None if samples.begins is None else samples.begins.index_select(1, units),
        num_rows=1,
        unit=None,
    )


# --- PPO's loss of one minibatch and its gradients in three launches
#
# Torch's operators need some forty launches over numbers [B] for it, and as many backward. Here one kernel computes the
# loss terms and, with them, the gradients of the total with respect to logits and values; the backward pass only
# multiplies these. Numbers are those of `minibatch_loss` up to rounding, and the same inputs give the same bits.
# Nothing waits for the host.


TILE, MAX_ROWS, NUM_WARPS = 2048, 128, 4
"""Numbers that a program of the loss takes at a time, the most samples among them, and its warps."""
MAX_PROGRAMS = 1024
"""Most programs that share the samples of a minibatch; each has a row of sums."""
MAX_WIDTH = 4096
"""Most choices of a component, or normal numbers of an action, that fit on the chip for one sample."""
MOMENTS_BLOCK, MAX_CHUNKS = 1024, 64
"""Advantages that a program of the moments reads at a time, and the most chunks that a minibatch is split into."""
TOTAL_BLOCK = 256
"""Programs whose sums are added at a time."""


def fused_minibatch_loss(
    policy: Policy,
    minibatch: Samples,
    loss: LossSettings,
    own_losses: OwnLosses | None = None,
    statistics: Tensor | None = None,
) -> LossTerms:
    """`minibatch_loss` by the kernels where they compute this loss of this policy, else by torch's operators."""
    is_ppo = not loss.is_impala and own_losses is None and policy.two_hot_head is None
    if not (is_ppo and isinstance(loss.clip, Tensor) and _width(policy.distribution) <= MAX_WIDTH):
        return minibatch_loss(policy, minibatch, loss, own_losses, statistics)
    output = policy(minibatch.obs, minibatch.state, minibatch.begins)
    return fused_terms(policy.distribution, output.logits, output.value, minibatch, loss, statistics)


def fused_terms(
    distribution: Distribution,
    logits: Tensor,
    value: Tensor,
    minibatch: Samples,
    loss: LossSettings,
    statistics: Tensor | None = None,
) -> LossTerms:
    """The loss terms for logits [B, num_inputs] and values [B] of a network; the total has a gradient.

    `loss.clip` and `loss.entropy_coef` are scalars on the device. `statistics` are as for `minibatch_loss`.
    """
    total, terms = _FusedLoss.apply(logits, value, _Inputs(distribution, minibatch, loss, statistics))
    return LossTerms(total, *terms.unbind())


@cache
def one_on(device: torch.device) -> Tensor:
    """The number 1 on a device, always in the same memory: a gradient that lies there need not be multiplied by."""
    return torch.ones((), device=device)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What the loss depends on beside the network's outputs."""

    distribution: Distribution
    minibatch: Samples
    loss: LossSettings
    statistics: Tensor | None


class _FusedLoss(torch.autograd.Function):
    """The total loss, with a gradient, and the other terms [6]."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, inputs: _Inputs) -> tuple[Tensor, Tensor]:
        found, to_logits, to_value = _launch(logits.contiguous(), value.contiguous(), inputs)
        ctx.save_for_backward(to_logits, to_value)
        total, terms = found[0], found[1:7]
        ctx.mark_non_differentiable(terms)
        return total, terms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        to_logits, to_value = ctx.saved_tensors
        if grads[0].data_ptr() != one_on(grads[0].device).data_ptr():
            to_logits, to_value = torch._foreach_mul([to_logits, to_value], grads[0])
        return to_logits, to_value, None


def _launch(logits: Tensor, value: Tensor, inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """Run the kernels; returns the total and the terms, [8], and the gradients with respect to logits and values."""
    distribution, samples, loss = inputs.distribution, inputs.minibatch, inputs.loss
    size, counts = len(value), _bytes(samples.counts)
    width = max(2, power_of_two(int(_width(distribution))))
    rows = min(MAX_ROWS, max(2, TILE // width))
    num_programs = min(MAX_PROGRAMS, blocks_of(size, rows))
    num_chunks = min(MAX_CHUNKS, blocks_of(size, MOMENTS_BLOCK))
    chunks = None
    if counts is not None or (loss.normalizes_advantages and inputs.statistics is None):
        chunks = logits.new_empty(3, MAX_CHUNKS)
        losses.moments_kernel[(num_chunks,)](
            samples.advantage, counts, chunks, size, blocks_of(size, num_chunks),
            max_chunks=MAX_CHUNKS, block=MOMENTS_BLOCK,
        )  # fmt: skip
    to_logits, to_value, sums = torch.empty_like(logits), torch.empty_like(value), logits.new_empty(num_programs, TERMS)
    kernel, own_arguments = _kernel_of(distribution, samples.mask)
    value_clip, value_coef = None if loss.value_clip is None else float(loss.value_clip), float(loss.value_coef)
    kernel[(num_programs,)](
        logits, value, samples.action, samples.log_prob, samples.value, samples.advantage, samples.returns, counts,
        inputs.statistics, chunks, num_chunks, loss.clip, loss.entropy_coef, value_clip, value_coef,
        to_logits, to_value, sums, size, **own_arguments,
        normalizes=loss.normalizes_advantages, width=width, rows=rows, max_chunks=MAX_CHUNKS, num_warps=NUM_WARPS,
    )  # fmt: skip
    found = logits.new_empty(TERMS)
    losses.total_kernel[(1,)](sums, found, num_programs, loss.entropy_coef, value_coef, block=TOTAL_BLOCK)
    return found, to_logits, to_value


def _kernel_of(distribution: Distribution, mask: Tensor | None) -> tuple[Any, dict[str, Any]]:
    """The kernel for a distribution, and those of its arguments that only it has."""
    if isinstance(distribution, DiagonalGaussian):
        squashes = distribution.squashes
        return losses.normal_loss_kernel, {
            "nodes_at": distribution.nodes if squashes else None,
            "weights_at": distribution.weights if squashes else None,
            "log_stretch": float(distribution.log_stretch),
            "size": distribution.size,
            "num_nodes": len(distribution.nodes) if squashes else 0,
        }
    is_multi = isinstance(distribution, MultiCategorical)
    return losses.choice_loss_kernel, {
        "mask_at": _bytes(mask),
        "offsets_at": distribution.offsets if isinstance(distribution, MultiCategorical) else None,
        "num_inputs": distribution.num_inputs,
        "num_components": distribution.action_shape[0] if is_multi else 1,
    }


def _width(distribution: Distribution) -> float:
    """Choices of the largest component, or the normal numbers of an action; infinity for other distributions."""
    if type(distribution) not in DISTRIBUTIONS or replaced_method(distribution):
        return torch.inf
    if isinstance(distribution, MultiCategorical):
        return len(distribution.place) // distribution.action_shape[0]
    return distribution.size if isinstance(distribution, DiagonalGaussian) else distribution.num_inputs


def _bytes(flags: Tensor | None) -> Tensor | None:
    return None if flags is None else flags.contiguous().view(torch.uint8)
