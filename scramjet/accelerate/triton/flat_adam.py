"""Clipped steps of Adam for any network on the GPU, in three launches.

Gradients are copied into one row, as weights and moments lie (`flat_weights.py`); one kernel finds their norm and one
takes the step (`steps.py`). Torch needs several launches over lists of tensors for the norm and one for the step, each
of which takes longer. Sums have one order, nothing waits for the host, and a CUDA graph can record a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scramjet.accelerate.supports import why_not_adam
from scramjet.accelerate.triton.flat_weights import FlatWeights
from scramjet.accelerate.triton.steps import norm_kernel, take_step
from scramjet.compile.block_sizes import power_of_two

COLUMNS, WARPS = 1024, 4
"""Weights that a program takes at a time, and its warps."""
NORM_PROGRAMS = 256
"""Most programs that add up squares: about two for a multiprocessor. The next kernel reads their sums in one go."""
ALIGNMENT = 64
"""Each parameter begins at a multiple of so many numbers: products read weights in wide words."""


class FlatAdam:
    """The weights of a network and their moments in flat memory, and Adam's clipped step over it."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        """`parameters`: such as `can_be_flat` takes."""
        self.parameters = list(parameters)
        device = self.parameters[0].device
        ends = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in self.parameters]
        places = [sum(ends[:i]) for i in range(len(ends))]
        num_blocks = -(-sum(ends) // COLUMNS)
        self.flat = FlatWeights(self.parameters, places, num_blocks * COLUMNS)
        self._num_blocks, self._zeros = num_blocks, torch.zeros(ALIGNMENT, device=device)
        self._gradients = torch.zeros(num_blocks * COLUMNS, device=device)
        self._filled = self._gradients[: sum(ends)]
        self._squares = torch.zeros(min(NORM_PROGRAMS, num_blocks), device=device)
        self.is_left = False
        """Whether a weight was moved elsewhere between the start of an update and a step."""
        self._is_even = False  # whether all parameters have made as many steps; the optimizer's state is not known yet

    def can_take(self, optimizer: torch.optim.Adam) -> bool:
        """Whether a step may be taken here with the present gradients; once it may not, torch has to take all others.

        A parameter without a gradient is left out of a step, and from then on has made fewer steps than the others. A
        network whose `forward` moves its weights to other memory, as `flatten_parameters` does, does so again.
        """
        self.is_left = self.is_left or not self.flat.are_in_place
        self._is_even = self._is_even and all(parameter.grad is not None for parameter in self.parameters)
        return self._is_even and not self.is_left and not why_not_adam(optimizer)

    def use_optimizer(self, optimizer: torch.optim.Adam) -> None:
        """Take over the moments of an optimizer, which may have been loaded; called before each update."""
        if self.flat.use_optimizer(optimizer):  # only then: the host waits for the answer
            self._is_even = bool((self.flat.counts == self.flat.counts[0]).all())

    def step(self, optimizer: torch.optim.Adam, max_grad_norm: float | None) -> Tensor:
        """Take a step with the parameters' gradients; returns their norm before clipping, a scalar."""
        pieces: list[Tensor] = []
        for parameter in self.parameters:
            assert parameter.grad is not None
            pieces += [_as_row(parameter.grad, parameter), self._zeros[: -parameter.numel() % ALIGNMENT]]
        torch.cat(pieces, out=self._filled)
        counts = self.flat.counts
        norm_kernel[(len(self._squares),)](
            self._gradients, self._squares, counts, self._num_blocks, len(counts),
            block=COLUMNS, counts=power_of_two(len(counts)), num_warps=WARPS,
        )  # fmt: skip
        norm = torch.empty((), device=counts.device)
        take_step(
            self.flat, optimizer, self._gradients, self._squares, max_grad_norm, norm,
            has_terms=False, columns=COLUMNS, block=NORM_PROGRAMS, num_warps=WARPS,
        )  # fmt: skip
        return norm


def _as_row(gradient: Tensor, parameter: Tensor) -> Tensor:
    """A gradient as a row of numbers, in the order in which those of its parameter lie in memory."""
    if gradient.stride() != parameter.stride():
        gradient = torch.empty_like(parameter).copy_(gradient)
    return gradient.as_strided((gradient.numel(),), (1,))


def can_be_flat(network: nn.Module, parameters: Sequence[nn.Parameter]) -> bool:
    """Whether these weights of a network can lie in flat memory: float32 without gaps on one device, and all learn.

    Torch's own recurrent layers keep theirs in a memory that cuDNN asks for.
    """
    if any(isinstance(module, nn.RNNBase) for module in network.modules()):
        return False
    return bool(parameters) and all(
        parameter.dtype is torch.float32
        and (parameter.is_contiguous() or _is_channels_last(parameter))
        and parameter.requires_grad
        and parameter.device == parameters[0].device
        for parameter in parameters
    )


def _is_channels_last(parameter: Tensor) -> bool:
    return parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last)
