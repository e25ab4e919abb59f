"""PPO's loss of one minibatch in three kernel launches, and its gradients, for the outputs of any network on the GPU.

Torch's operators need some forty launches over numbers [B] for it, and as many backward. Here one kernel computes the
loss terms and, with them, the gradients of the total with respect to logits and values; the backward pass only
multiplies these. Numbers are those of `minibatch_loss` up to rounding, and the same inputs give the same bits. Nothing
waits for the host. This module calls the kernels, which are in `loss_kernels.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.own_losses import OwnLosses
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.supports import DISTRIBUTIONS, replaced_method
from scramjet.accelerate.triton import loss_kernels, moment_kernels
from scramjet.accelerate.triton.loss_kernels import TERMS
from scramjet.algorithms.ppo import LossTerms
from scramjet.compile.block_sizes import blocks_of, power_of_two
from scramjet.policies.distributions import DiagonalGaussian, Distribution, MultiCategorical
from scramjet.policies.policy import Policy

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
        moment_kernels.moments_kernel[(num_chunks,)](
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
    loss_kernels.total_kernel[(1,)](sums, found, num_programs, loss.entropy_coef, value_coef, block=TOTAL_BLOCK)
    return found, to_logits, to_value


def _kernel_of(distribution: Distribution, mask: Tensor | None) -> tuple[Any, dict[str, Any]]:
    """The kernel for a distribution, and those of its arguments that only it has."""
    if isinstance(distribution, DiagonalGaussian):
        squashes = distribution.squashes
        return loss_kernels.normal_loss_kernel, {
            "nodes_at": distribution.nodes if squashes else None,
            "weights_at": distribution.weights if squashes else None,
            "log_stretch": float(distribution.log_stretch),
            "size": distribution.size,
            "num_nodes": len(distribution.nodes) if squashes else 0,
        }
    is_multi = isinstance(distribution, MultiCategorical)
    return loss_kernels.choice_loss_kernel, {
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
