"""Weights and Adam's moments of a network in one memory each, which kernels read and write as a whole, and clipped
steps of Adam over it.

Parameters and the optimizer's state stay what they are to torch, with the same names and shapes; they become views of
that memory. Loading a checkpoint may replace them: `refresh` and `use_optimizer` copy what was loaded and put the views
back, so that recorded CUDA graphs, which know the addresses, see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scramjet.executors.supports import why_not_adam
from scramjet.kernels.gpu.language import power_of_two
from scramjet.kernels.gpu.steps import norm_kernel, step_kernel


class FlatWeights:
    """The parameters of a network, each at its place in a row of `size` numbers; what is between them stays 0."""

    def __init__(self, parameters: Sequence[Tensor], places: Sequence[int], size: int) -> None:
        self._parameters, device = list(parameters), parameters[0].device
        self.weights, self.exp_avg, self.exp_avg_sq = (torch.zeros(size, device=device) for _ in range(3))
        """Each [size]."""
        self.counts = torch.zeros(len(parameters), device=device)
        """Adam's number of steps, once for each parameter as torch keeps it."""
        self._places = list(places)
        self._weight_views = [(view, view.data_ptr()) for view in self.views_of(self.weights)]
        self._states = list(
            zip(self.counts.unbind(), self.views_of(self.exp_avg), self.views_of(self.exp_avg_sq), strict=True)
        )
        self.refresh()

    def views_of(self, row: Tensor) -> list[Tensor]:
        """The part of a row [size] that belongs to each parameter, in its shape and layout."""
        return [
            row[place : place + parameter.numel()].as_strided(parameter.shape, parameter.stride())
            for parameter, place in zip(self._parameters, self._places, strict=True)
        ]

    @property
    def are_in_place(self) -> bool:
        """Whether every parameter still lies here."""
        pairs = zip(self._parameters, self._weight_views, strict=True)
        return all(parameter.data_ptr() == address for parameter, (_, address) in pairs)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights that have moved to other memory."""
        for parameter, (view, address) in zip(self._parameters, self._weight_views, strict=True):
            if parameter.data_ptr() != address:
                view.copy_(parameter)
                parameter.data = view

    @torch.no_grad()
    def use_optimizer(self, optimizer: torch.optim.Adam) -> bool:
        """Take over an optimizer's moments and step counts that have moved; where it has none yet they begin at 0.

        Returns whether there were any to take over.
        """
        has_moved = False
        for parameter, views in zip(self._parameters, self._states, strict=True):
            state = optimizer.state[parameter]
            for name, view in zip(("step", "exp_avg", "exp_avg_sq"), views, strict=True):
                known = state.get(name)
                if known is view:
                    continue
                has_moved |= known is None or known.data_ptr() != view.data_ptr()
                if known is None:
                    view.zero_()
                elif known.data_ptr() != view.data_ptr():
                    view.copy_(known)
                state[name] = view
        return has_moved

    def snapshot(self) -> list[Tensor]:
        """Copies of everything, for `restore`."""
        return [numbers.clone() for numbers in self._all]

    def restore(self, snapshot: Sequence[Tensor]) -> None:
        """Undo what happened since `snapshot`."""
        for numbers, kept in zip(self._all, snapshot, strict=True):
            numbers.copy_(kept)

    @property
    def _all(self) -> tuple[Tensor, ...]:
        return self.weights, self.exp_avg, self.exp_avg_sq, self.counts


# --- clipped steps of Adam for any network on the GPU, in three launches
#
# Gradients are copied into one row, as weights and moments lie (`FlatWeights`); one kernel finds their norm and one
# takes the step (`kernels/gpu/steps.py`). Torch needs several launches over lists of tensors for the norm and one for
# the step, each of which takes longer. Sums have one order, nothing waits for the host, and a CUDA graph can record a
# step.


COLUMNS, WARPS = 1024, 4
"""Weights that a program takes at a time, and its warps."""
NORM_PROGRAMS = 256
"""Most programs that add up squares: about two for a multiprocessor. The next kernel reads their sums in one go."""
ALIGNMENT = 64
"""Each parameter begins at a multiple of so many numbers: products read weights in wide words."""


def take_step(
    flat: FlatWeights,
    optimizer: torch.optim.Adam,
    gradients: Tensor,
    squares: Tensor,
    max_grad_norm: float | None,
    diagnostics: Tensor,
    *,
    has_terms: bool,
    columns: int,
    block: int,
    num_warps: int,
) -> None:
    """Clip the gradients and take the step that this Adam would take with them, which has been counted.

    `gradients` [size of `flat`, then the loss terms if any]; `squares`: sums that add up to those of all gradients. The
    optimizer's moments and step counts are those that `flat` took over. The norm of the gradients, behind the loss
    terms if any, goes to `diagnostics`. A program moves `columns` weights and adds `block` squares at a time.
    """
    assert not why_not_adam(optimizer)
    (group,) = optimizer.param_groups
    learning_rate, size = group["lr"], len(flat.weights)
    if not isinstance(learning_rate, Tensor):  # on the CPU, where no graph is recorded
        learning_rate = torch.tensor(learning_rate, device=gradients.device)
    beta1, beta2 = group["betas"]
    step_kernel[(size // columns,)](
        flat.weights, flat.exp_avg, flat.exp_avg_sq, gradients, squares, flat.counts, learning_rate, diagnostics,
        len(squares), size, max_grad_norm, group["eps"],
        beta1=beta1, beta2=beta2, log_beta1=math.log(beta1), log_beta2=math.log(beta2),
        columns=columns, block=block, has_terms=has_terms, num_warps=num_warps,
    )  # fmt: skip


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
