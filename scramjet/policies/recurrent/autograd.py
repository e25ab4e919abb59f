"""The compiled recurrences as differentiable torch functions: Numba's on the CPU, Triton's on a GPU.

All is time-major. On the CPU all is float32, and a thread takes a part of the rows through all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.addresses import AVAILABLE, Task
from scramjet.kernels.cpu import recurrent as kernels
from scramjet.kernels.cpu.recurrent import Sequences
from scramjet.kernels.operations import takes_kernels

THREADS_FROM_UNITS = 16_384
"""Outputs (units of all rows and steps) from which on several threads save more time than it takes to wake them."""
ROWS_PER_PART = 4
"""The fewest rows for a thread: each thread reads all weights at every step."""


class Passes(Protocol):
    """The forward and backward pass of a recurrence on one kind of device."""

    def forward(
        self, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor], keeps: bool
    ) -> tuple[Tensor, Tensor, Any]:
        """Outputs [T, B, H], the state after the last step and, with `keeps`, what `backward` needs."""

    def backward(
        self, to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor, begins: Tensor | None,
        weights: Sequence[Tensor], needs_features: bool, kept: Any,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        """Gradients of features, state and weights; may overwrite what was kept."""


class Recurrence(NamedTuple):
    """One kind of recurrence: as torch's operators compute it, and as the compiled kernels do on CPU and GPU."""

    plain: Callable[..., tuple[Tensor, Tensor]]
    """(features, state, begins, *weights) to (outputs, state after); weights: of the features, bias, of the state."""
    sequences: Sequences
    name: str
    """lstm, gru or mingru."""

    def run(self, features: Tensor, state: Tensor, begins: Tensor | None, weights: tuple[Tensor, ...]) -> Any:
        """Outputs [T, B, H] and the state after the last step: compiled where these tensors allow it, else by torch."""
        passes = self.passes(features, state, weights)
        if passes is None:
            return self.plain(features, state, begins, *weights)
        if torch.is_grad_enabled():
            return _CompiledRecurrence.apply(self, passes, features, state, begins, *weights)
        return passes.forward(features, state, begins, weights, keeps=False)[:2]

    def passes(self, features: Tensor, state: Tensor, weights: tuple[Tensor, ...]) -> Passes | None:
        """The compiled passes that take these tensors; None if there are none."""
        if can_run_compiled(features, state, weights):
            return _CompiledPasses(self.sequences)
        if not takes_kernels(features):
            return None
        from scramjet.kernels.gpu import recurrent as passes

        return passes.choose(self.name, features, state, weights)


def can_run_compiled(features: Tensor, state: Tensor, weights: tuple[Tensor, ...]) -> bool:
    """Whether the kernels for the CPU take these tensors: float32 there, outside autocast and torch.compile."""
    tensors = (features, state, weights[0])
    return (
        AVAILABLE
        and all(tensor.dtype is torch.float32 and tensor.is_cpu for tensor in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _CompiledRecurrence(torch.autograd.Function):
    """A recurrence whose forward and backward passes are compiled kernels."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: Recurrence,
        passes: Passes,
        features: Tensor,
        state: Tensor,
        begins: Tensor | None,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        outputs, after, ctx.kept = passes.forward(features, state, begins, weights, keeps=True)
        ctx.kind, ctx.passes = kind, passes
        ctx.save_for_backward(features, state, begins, *weights)
        return outputs, after

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        features, state, begins, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _plain_backward(ctx, grads, features, state, begins, weights)
        kept, ctx.kept = ctx.kept, None
        if kept is None:  # a second backward pass: the first one overwrote it
            kept = ctx.passes.forward(features, state, begins, weights, keeps=True)[2]
        to_features, to_state, *to_weights = ctx.passes.backward(
            *grads, features, state, begins, weights, ctx.needs_input_grad[2], kept
        )
        return None, None, to_features, to_state, None, *to_weights[: len(weights)]


def _plain_backward(
    ctx: Any, grads: tuple[Tensor, ...], features: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor]
) -> tuple[Any, ...]:
    """The gradients by torch's operators, which can be differentiated again."""
    is_needed = [ctx.needs_input_grad[i] for i in (2, 3, *range(5, 5 + len(weights)))]
    inputs = [tensor for tensor, needed in zip((features, state, *weights), is_needed, strict=True) if needed]
    outputs = ctx.kind.plain(features, state, begins, *weights)
    found = iter(torch.autograd.grad(outputs, inputs, grads, create_graph=True))
    to_features, to_state, *to_weights = [next(found) if needed else None for needed in is_needed]
    return None, None, to_features, to_state, None, *to_weights


class _CompiledPasses(NamedTuple):
    """The passes of the kernels for the CPU."""

    sequences: Sequences

    def forward(
        self, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor], keeps: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        return forward(self.sequences, features, state, begins, weights)

    def backward(self, *arguments: Any) -> tuple[Tensor | None, ...]:
        return backward(self.sequences, *arguments)


class CoreNumbers:
    """One layer of a core as the kernels take it: addresses of weights, sizes, and room for transposed weights."""

    def __init__(self, weights: Sequence[Tensor], state_size: int) -> None:
        """Weights of the features [F, G], bias, and of the state [H, G'], which may be missing."""
        weight, bias, *others = weights
        num_units = state_size if not others else len(others[0])
        shapes = [weight.shape, bias.shape, others[0].shape if others else torch.Size([num_units, 0])]
        self.shapes = shapes
        self._back = [torch.empty(shape[1], shape[0]) for shape in (shapes[0], shapes[2])]
        sizes = [shapes[0][0], shapes[2][0], shapes[1][0], shapes[0][1], shapes[2][1], state_size]
        self.numbers = np.array([0, 0, 0, *(tensor.data_ptr() for tensor in self._back), *sizes], np.int64)
        self.point_to(weights)

    def point_to(self, weights: Sequence[Tensor]) -> None:
        """Use these weights; they must be contiguous, and somebody must keep them alive."""
        self.numbers[: len(weights)] = [tensor.data_ptr() for tensor in weights]

    @property
    def size(self) -> int:
        """Units in the output of a step."""
        return int(self.numbers[kernels.SIZE])

    @property
    def width_kept(self) -> int:
        """Numbers that the forward pass keeps for the backward pass, for each row of each step."""
        return kernels.width_kept(*(int(self.numbers[c]) for c in (kernels.NUM_GATES, kernels.STATE_SIZE)))


def forward(
    kind: Sequences, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs [T, B, H], the state after the last step, and the numbers that `backward` needs."""
    weights = [tensor.detach().contiguous() for tensor in weights]
    core = CoreNumbers(weights, state.shape[1])
    outputs, after = torch.empty(*features.shape[:2], core.size), torch.empty(state.shape)
    kept = torch.empty(features.shape[0] * features.shape[1] * core.width_kept)
    task = _task(kind.forward.address, core, features, state, begins, kept)
    task.set(outputs=outputs.numpy(), after=after.numpy())
    kernels.forward_part.in_parts(_num_parts(outputs), task.address)
    return outputs, after, kept


def backward(
    kind: Sequences, to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor,
    begins: Tensor | None, weights: Sequence[Tensor], needs_features: bool, kept: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the features, the state and the three weights, from those of the outputs and the state after.

    Overwrites `kept`: a second copy of these arrays, the largest here, would take longer than the arithmetic.
    """
    weights = [tensor.detach().contiguous() for tensor in weights]
    core, num_parts = CoreNumbers(weights, state.shape[1]), _num_parts(to_outputs)
    sizes = [shape.numel() for shape in core.shapes]
    to_features = torch.empty(features.shape if needs_features else 0)
    to_weights, to_state = torch.zeros(num_parts, sum(sizes)), to_after.clone(memory_format=torch.contiguous_format)
    kernels.turn_weights(core.numbers.ctypes.data)
    task = _task(kind.backward.address, core, features, state, begins, kept)
    task.set(outputs=to_outputs.contiguous().numpy(), after=to_state.numpy(), to_features=to_features.numpy())
    task.set(to_weights=to_weights.numpy(), num_weights=sum(sizes))
    kernels.backward_part.in_parts(num_parts, task.address)
    found = [part.view(shape) for part, shape in zip(to_weights.sum(0).split(sizes), core.shapes, strict=True)]
    return to_features if needs_features else None, to_state, *found


def _task(
    function: int, core: CoreNumbers, features: Tensor, state: Tensor, begins: Tensor | None, kept: Tensor
) -> Task:
    steps, rows, num_features = features.shape
    task = Task(kernels.WORK)
    task.set(function=function, core=core.numbers, rows=rows, steps=steps, num_features=num_features, size=core.size)
    task.set(features=features.detach().contiguous().numpy(), state=state.detach().contiguous().numpy())
    task.set(state_size=state.shape[1], width=core.width_kept, kept=kept.numpy())
    if begins is not None:
        task.set(begins=begins.contiguous().numpy())
    return task


def _num_parts(outputs: Tensor) -> int:
    """Into how many parts the rows are split, one for each thread."""
    pay = outputs.numel() // THREADS_FROM_UNITS
    return max(1, min(torch.get_num_threads(), pay, outputs.shape[1] // ROWS_PER_PART))
