"""The recurrences of memory on the CPU for autograd: torch's tensors to the compiled sequences and back.

All is float32 and time-major. A thread takes a part of the rows through all steps (see memory_kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.addresses import AVAILABLE, Task
from scramjet.policies.recurrent import kernels
from scramjet.policies.recurrent.kernels import Sequences

THREADS_FROM_UNITS = 16_384
"""Units of all rows and steps, from which on several threads save more than it takes to wake them."""
ROWS_PER_PART = 4
"""At least so many rows for a thread: each reads all weights at every step."""


class Recurrence(NamedTuple):
    """One kind of memory, as torch's operators compute it and as compiled sequences do."""

    plain: Callable[..., tuple[Tensor, Tensor]]
    """(features, state, begins, *weights) to (outputs, state after); weights: of the features, bias, of the state."""
    sequences: Sequences

    def run(self, features: Tensor, state: Tensor, begins: Tensor | None, weights: tuple[Tensor, ...]) -> Any:
        """Outputs [T, B, H] and the state after the last step, the fastest way these tensors allow."""
        if not can_fuse(features, state, weights):
            return self.plain(features, state, begins, *weights)
        if torch.is_grad_enabled():
            return _Fused.apply(self, features, state, begins, *weights)
        return forward(self.sequences, features, state, begins, weights)[:2]


def can_fuse(features: Tensor, state: Tensor, weights: tuple[Tensor, ...]) -> bool:
    """Whether the compiled sequences take these tensors; a layer's weights are all alike."""
    tensors = (features, state, weights[0])
    return (
        AVAILABLE
        and all(tensor.dtype is torch.float32 and tensor.is_cpu for tensor in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kind: Recurrence, features: Tensor, state: Tensor, begins: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        outputs, after, ctx.kept = forward(kind.sequences, features, state, begins, weights)
        ctx.kind = kind
        ctx.save_for_backward(features, state, begins, *weights)
        return outputs, after

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        to_outputs, to_after = grads
        features, state, begins, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _plain_backward(ctx, grads, features, state, begins, weights)
        kept, ctx.kept = ctx.kept, None
        if kept is None:  # a second time: the first wrote over it
            kept = forward(ctx.kind.sequences, features, state, begins, weights)[2]
        to_features, to_state, *to_weights = backward(
            ctx.kind.sequences, to_outputs, to_after, features, state, begins, weights, ctx.needs_input_grad[1], kept
        )
        return None, to_features, to_state, None, *to_weights[: len(weights)]


def _plain_backward(
    ctx: Any, grads: tuple[Tensor, ...], features: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor]
) -> tuple[Any, ...]:
    """The gradients as torch's operators give them: with gradients of their own."""
    is_needed = [ctx.needs_input_grad[i] for i in (1, 2, *range(4, 4 + len(weights)))]
    inputs = [tensor for tensor, needed in zip((features, state, *weights), is_needed, strict=True) if needed]
    outputs = ctx.kind.plain(features, state, begins, *weights)
    found = iter(torch.autograd.grad(outputs, inputs, grads, create_graph=True))
    to_features, to_state, *to_weights = [next(found) if needed else None for needed in is_needed]
    return None, to_features, to_state, None, *to_weights


class CoreNumbers:
    """A core's weights in the numbers of `memory_kernels`: their addresses, and room to turn them round."""

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
        """Weights as they are now; they must be contiguous and kept alive."""
        self.numbers[: len(weights)] = [tensor.data_ptr() for tensor in weights]

    @property
    def size(self) -> int:
        """Of the outputs."""
        return int(self.numbers[kernels.SIZE])

    @property
    def width_kept(self) -> int:
        """Numbers kept for each row of all steps."""
        return kernels.width_kept(*(int(self.numbers[c]) for c in (kernels.NUM_GATES, kernels.STATE_SIZE)))


def forward(
    kind: Sequences, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, the state after, and what the way back needs."""
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
    """Gradients of the features, the state and the three weights. Writes over what was kept: a second copy of the
    largest arrays here would take longer than the arithmetic."""
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
    """In how many parts of rows, each on a thread of its own, sequences are done."""
    pay = outputs.numel() // THREADS_FROM_UNITS
    return max(1, min(torch.get_num_threads(), pay, outputs.shape[1] // ROWS_PER_PART))
