"""The recurrences of memory on the CPU: torch's tensors to the compiled sequences and back.

All is float32 and time-major. A thread takes a part of the rows through all steps (see memory_kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scramjet.engine.machine import Task
from scramjet.policies import memory_kernels as kernels

THREADS_FROM_UNITS = 16_384
"""Units of all rows and steps, from which on several threads save more than it takes to wake them."""
ROWS_PER_PART = 4
"""At least so many rows for a thread: each reads all weights at every step."""


class Recurrence(NamedTuple):
    """One kind of memory, as torch's operators compute it and as compiled sequences do."""

    plain: Callable[..., tuple[Tensor, Tensor]]
    """(features, state, begins, *weights) to (outputs, state after); weights: of the features, bias, others."""
    forward: Callable[..., tuple[Tensor, ...]]
    """The same, with what the way back needs behind it."""
    backward: Callable[..., tuple[Tensor | None, ...]]
    """(gradients of outputs and state after, features, state, begins, weights, whether the features need gradients,
    what forward kept) to gradients: of the features, the state and the weights. Writes over what was kept: a
    second copy of the largest arrays here would take longer than the arithmetic."""

    def run(self, features: Tensor, state: Tensor, begins: Tensor | None, weights: tuple[Tensor, ...]) -> Any:
        """Outputs [T, B, H] and the state after the last step, the fastest way these tensors allow."""
        if not can_fuse(features, state, weights):
            return self.plain(features, state, begins, *weights)
        if torch.is_grad_enabled():
            return _Fused.apply(self, features, state, begins, *weights)
        return self.forward(features, state, begins, *weights)[:2]


def can_fuse(features: Tensor, state: Tensor, weights: tuple[Tensor, ...]) -> bool:
    """Whether the compiled sequences take these tensors; a layer's weights are all alike."""
    tensors = (features, state, weights[0])
    return (
        all(tensor.dtype is torch.float32 and tensor.is_cpu for tensor in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kind: Recurrence, features: Tensor, state: Tensor, begins: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        outputs, after, *kept = kind.forward(features, state, begins, *weights)
        ctx.kind, ctx.kept = kind, kept
        ctx.save_for_backward(features, state, begins, *weights)
        return outputs, after

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        features, state, begins, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _plain_backward(ctx, grads, features, state, begins, weights)
        kept, ctx.kept = ctx.kept, None
        if kept is None:  # a second time
            kept = ctx.kind.forward(features, state, begins, *weights)[2:]
        needs_features = ctx.needs_input_grad[1]
        to_features, *others = ctx.kind.backward(*grads, features, state, begins, weights, needs_features, *kept)
        to_state, *to_weights = others
        return None, to_features, to_state, None, *to_weights


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


def lstm_forward(
    features: Tensor, state: Tensor, begins: Tensor | None, weight: Tensor, bias: Tensor, recurrent_weight: Tensor
) -> tuple[Tensor, ...]:
    """Outputs, the state after, and what the way back needs."""
    return _forward(kernels.LSTM, features, state, begins, weight, bias, recurrent_weight)


def lstm_backward(
    to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor, begins: Tensor | None,
    weights: list[Tensor], needs_features: bool, kept: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the features, the state and the weights."""
    given = to_outputs, to_after, features, state, begins
    return _backward(kernels.LSTM, *given, weights, needs_features, kept)


def gru_forward(
    features: Tensor, state: Tensor, begins: Tensor | None,
    weight: Tensor, bias: Tensor, recurrent_weight: Tensor, recurrent_bias: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Outputs, the state after, and what the way back needs."""
    return _forward(kernels.GRU, features, state, begins, *gru_weights(weight, bias, recurrent_weight, recurrent_bias))


def gru_backward(
    to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor, begins: Tensor | None,
    weights: list[Tensor], needs_features: bool, kept: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the features, the state and the weights."""
    given = to_outputs, to_after, features, state, begins
    to_features, to_state, *to_weights = _backward(kernels.GRU, *given, gru_weights(*weights), needs_features, kept)
    return to_features, to_state, *gru_gradients(*to_weights)  # type: ignore[arg-type]  # weights always have some


def gru_weights(
    weight: Tensor, bias: Tensor, recurrent_weight: Tensor, recurrent_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A GRU's weights as the kernels take them: of four blocks of gates the state acts on the first three, the features
    on the last three."""
    size = len(recurrent_bias)
    return weight, torch.cat([recurrent_bias, bias]), recurrent_weight.roll(size, dims=1)


def gru_gradients(to_weight: Tensor, to_bias: Tensor, to_rolled: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of a GRU's weights from those of the tensors above."""
    size = len(to_rolled)
    return to_weight, to_bias[size:], to_rolled.roll(-size, dims=1), to_bias[:size]


def mingru_forward(
    features: Tensor, state: Tensor, begins: Tensor | None, weight: Tensor, bias: Tensor
) -> tuple[Tensor, ...]:
    """Outputs, the state after, and what the way back needs."""
    return _forward(kernels.MINGRU, features, state, begins, weight, bias, state.new_empty(state.shape[1], 0))


def mingru_backward(
    to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor, begins: Tensor | None,
    weights: list[Tensor], needs_features: bool, kept: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the features, the state and the weights."""
    given = to_outputs, to_after, features, state, begins
    no_weight = state.new_empty(state.shape[1], 0)
    return _backward(kernels.MINGRU, *given, [*weights, no_weight], needs_features, kept)[:-1]


def core_numbers(
    weight: Tensor, bias: Tensor, state_weight: Tensor, state_size: int, back: tuple[Tensor, ...] = ()
) -> np.ndarray:
    """A core as `memory_kernels` has it, of tensors that the caller keeps; without `back` for the way forward only."""
    addresses = [tensor.data_ptr() for tensor in (weight, bias, state_weight, *back)]
    num_features, features_gates = weight.shape
    size, state_gates = state_weight.shape
    sizes = [num_features, size, len(bias), features_gates, state_gates, state_size]
    return np.array(addresses + [0] * (2 - len(back)) + sizes, np.int64)


def _forward(
    kind: kernels.Sequences, features: Tensor, state: Tensor, begins: Tensor | None,
    weight: Tensor, bias: Tensor, state_weight: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    size, state_size = state_weight.shape[0], state.shape[1]
    outputs, after = torch.empty(*features.shape[:2], size), torch.empty(state.shape)
    width = kernels.width_kept(size, len(bias), state_size)
    kept = torch.empty(features.shape[0] * features.shape[1] * width)
    own = [tensor.detach().contiguous() for tensor in (weight, bias, state_weight)]
    numbers = core_numbers(own[0], own[1], own[2], state_size)
    task = _task(kind.forward.address, numbers, features, state, begins, kept, size, width)
    task.set(outputs=outputs.numpy(), after=after.numpy())
    kernels.forward_part.in_parts(_num_parts(outputs), task.address)
    return outputs, after, kept


def _backward(
    kind: kernels.Sequences, to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor,
    begins: Tensor | None, weights: Sequence[Tensor], needs_features: bool, kept: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the features, the state and the three weights."""
    weight, bias, state_weight = weights
    size, state_size = state_weight.shape[0], state.shape[1]
    num_parts, shapes = _num_parts(to_outputs), (weight.shape, bias.shape, state_weight.shape)
    sizes = [shape.numel() for shape in shapes]
    to_features = torch.empty(features.shape if needs_features else 0)
    to_weights, to_state = torch.zeros(num_parts, sum(sizes)), to_after.clone(memory_format=torch.contiguous_format)
    own = [tensor.detach().contiguous() for tensor in (weight, bias, state_weight, weight.t(), state_weight.t())]
    numbers = core_numbers(own[0], own[1], own[2], state_size, tuple(own[3:]))
    width = kernels.width_kept(size, len(bias), state_size)
    task = _task(kind.backward.address, numbers, features, state, begins, kept, size, width)
    task.set(outputs=to_outputs.contiguous().numpy(), after=to_state.numpy(), to_features=to_features.numpy())
    task.set(to_weights=to_weights.numpy(), num_weights=sum(sizes))
    kernels.backward_part.in_parts(num_parts, task.address)
    found = [part.view(shape) for part, shape in zip(to_weights.sum(0).split(sizes), shapes, strict=True)]
    return to_features if needs_features else None, to_state, *found


def _task(
    function: int, core: np.ndarray, features: Tensor, state: Tensor, begins: Tensor | None, kept: Tensor, size: int,
    width: int,
) -> Task:  # fmt: skip
    steps, rows, num_features = features.shape
    task = Task(kernels.WORK)
    task.set(function=function, core=core, rows=rows, steps=steps, num_features=num_features, size=size, width=width)
    task.set(features=features.detach().contiguous().numpy(), state=state.detach().contiguous().numpy())
    task.set(state_size=state.shape[1], kept=kept.numpy())
    if begins is not None:
        task.set(begins=begins.contiguous().numpy())
    return task


def _num_parts(outputs: Tensor) -> int:
    """In how many parts of rows, each on a thread of its own, sequences are done."""
    pay = outputs.numel() // THREADS_FROM_UNITS
    return max(1, min(torch.get_num_threads(), pay, outputs.shape[1] // ROWS_PER_PART))
