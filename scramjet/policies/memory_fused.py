"""The recurrences of memory on the CPU: compiled steps between matrix products, forward and back.

What the features give to the gates is one product over all steps. Then each step is one product with the outputs of the
step before and one compiled pass over the gates. On the way back, products over many steps are made part by part, while
the gates are in the cache. All is float32 and time-major. `begins` is an empty array where no episode begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scramjet.engine.jit import RowKernel
from scramjet.policies import memory_kernels as kernels

NO_BEGINS = np.zeros((0, 0), np.bool_)
THREADS_FROM_UNITS = 16_384
"""Units of all rows, from which on a step on several threads saves more than it takes to wake them."""
ROWS_PER_PART = 2048
"""Rows of all steps in one product on the way back."""

Finish = Callable[[slice, Tensor], None]
"""Takes a slice of steps and the gradients of its gates."""


class Recurrence(NamedTuple):
    """One kind of memory, as torch's operators compute it and as compiled steps do."""

    plain: Callable[..., tuple[Tensor, Tensor]]
    """(features, state, begins, *weights) to (outputs, state after); weights: of the features, bias, others."""
    forward: Callable[..., tuple[Tensor, ...]]
    """The same, with what the way back needs behind it."""
    backward: Callable[..., tuple[Tensor, ...]]
    """(gradients of outputs and state after, state, begins, other weights, outputs, what forward kept) to gradients:
    of the state and the other weights. Those of the gates [S, B, G] it hands to its last argument, with each slice of
    steps that is done. Writes over what was kept: a second copy of the largest arrays here would take longer
    than the arithmetic."""

    def run(self, features: Tensor, state: Tensor, begins: Tensor | None, weights: tuple[Tensor, ...]) -> Any:
        """Outputs [T, B, H] and the state after the last step, the fastest way these tensors allow."""
        if not can_fuse(features, state, weights):
            return self.plain(features, state, begins, *weights)
        if torch.is_grad_enabled():
            return _Fused.apply(self, features, state, begins, *weights)
        return self.forward(features, state, begins, *weights)[:2]


def can_fuse(features: Tensor, state: Tensor, weights: tuple[Tensor, ...]) -> bool:
    """Whether the compiled steps take these tensors; a layer's weights are all alike."""
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
        ctx.save_for_backward(outputs, features, state, begins, *weights)
        return outputs, after

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        outputs, features, state, begins, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _plain_backward(ctx, grads, features, state, begins, weights)
        kept, ctx.kept = ctx.kept, None
        if kept is None:  # a second time
            kept = ctx.kind.forward(features, state, begins, *weights)[2:]
        inputs = _InputGradients(features, weights[0], ctx.needs_input_grad[1], ctx.needs_input_grad[4])
        to_state, *to_others = ctx.kind.backward(*grads, state, begins, weights[2:], outputs, *kept, inputs.add)
        return None, inputs.to_features, to_state, None, inputs.to_weight, inputs.to_bias, *to_others


class _InputGradients:
    """The gradients of the features, their weight and the bias, from those of the gates."""

    def __init__(self, features: Tensor, weight: Tensor, needs_features: bool, needs_weight: bool) -> None:
        self.features = features
        self.to_features = torch.empty(features.shape) if needs_features else None
        self.to_weight = torch.zeros(weight.shape) if needs_weight else None
        self.to_bias = torch.zeros(weight.shape[1])
        self.back = weight.t().contiguous()  # faster in products than a transposed view

    def add(self, part: slice, to_gates: Tensor) -> None:
        """What a slice of steps gives, from the gradients of its gates [S, B, G]."""
        flat = to_gates.flatten(0, 1)
        self.to_bias += flat.sum(0)
        if self.to_features is not None:
            torch.mm(flat, self.back, out=self.to_features[part].flatten(0, 1))
        if self.to_weight is not None:
            self.to_weight.addmm_(self.features[part].flatten(0, 1).t(), flat)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs, the state after, and of each step the gates and the cells."""
    gates, state = _gates(features, weight), state.detach().contiguous()
    steps, rows, _ = gates.shape
    size = len(recurrent_weight)
    outputs, cells = torch.empty(steps, rows, size), torch.empty(steps, rows, size)
    recurrent, after = torch.mm(state[:, :size], recurrent_weight), torch.empty_like(state)
    arrays = (
        _array(begins), gates.numpy(), recurrent.numpy(), bias.detach().numpy(), state.numpy(),
        cells.numpy(), outputs.numpy(), after.numpy(),
    )  # fmt: skip
    step = _for_units(kernels.lstm_step, rows * size)
    step(0, rows, 0, *arrays)
    for t, hidden in enumerate(outputs.unbind()[:-1], 1):
        torch.mm(hidden, recurrent_weight, out=recurrent)
        step(0, rows, t, *arrays)
    return outputs, after, gates, cells


def lstm_backward(
    to_outputs: Tensor, to_after: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor],
    outputs: Tensor, gates: Tensor, cells: Tensor, finish: Finish,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of the state and the recurrent weight."""
    steps, rows, size = outputs.shape
    state = state.detach().contiguous()
    recurrent, carried = (half.clone(memory_format=torch.contiguous_format) for half in to_after.split(size, dim=1))
    back, to_weight = weights[0].t().contiguous(), torch.zeros_like(weights[0])
    arrays = (
        _array(begins), gates.numpy(), cells.numpy(), state.numpy(), to_outputs.contiguous().numpy(),
        recurrent.numpy(), carried.numpy(),
    )  # fmt: skip
    step, to_gates = _for_units(kernels.lstm_step_back, rows * size), gates.unbind()
    for part in _parts_backwards(steps, rows):
        for t in reversed(range(steps)[part]):
            step(0, rows, t, *arrays)
            torch.mm(to_gates[t], back, out=recurrent)
        to_weight.addmm_(_before(part, state[:, :size], outputs, begins).t(), gates[part].flatten(0, 1))
        finish(part, gates[part])
    return _unless_begun(torch.cat([recurrent, carried], dim=1), begins), to_weight


def gru_forward(
    features: Tensor, state: Tensor, begins: Tensor | None,
    weight: Tensor, bias: Tensor, recurrent_weight: Tensor, recurrent_bias: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Outputs, the state after, and of each step what the state gives to the candidate before the gates [T, B, 4H]."""
    (steps, rows, _), size, state = features.shape, len(recurrent_weight), state.detach().contiguous()
    gates, outputs = torch.empty(steps, rows, 4 * size), torch.empty(steps, rows, size)
    torch.mm(features.flatten(0, 1), weight, out=gates.view(steps * rows, 4 * size)[:, size:])
    recurrent = torch.mm(state, recurrent_weight)
    arrays = (
        _array(begins), gates.numpy(), recurrent.numpy(), bias.detach().numpy(), recurrent_bias.detach().numpy(),
        state.numpy(), outputs.numpy(),
    )  # fmt: skip
    step = _for_units(kernels.gru_step, rows * size)
    step(0, rows, 0, *arrays)
    for t, hidden in enumerate(outputs.unbind()[:-1], 1):
        torch.mm(hidden, recurrent_weight, out=recurrent)
        step(0, rows, t, *arrays)
    return outputs, outputs[-1].clone(), gates


def gru_backward(
    to_outputs: Tensor, to_after: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor],
    outputs: Tensor, gates: Tensor, finish: Finish,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of the state, the recurrent weight and the recurrent bias."""
    steps, rows, size = outputs.shape
    state, carried = state.detach().contiguous(), to_after.clone(memory_format=torch.contiguous_format)
    # Of the four blocks of `gates` the state acts on the first three, the features on the last three.
    rolled = weights[0].roll(size, dims=1)
    back, recurrent, to_weight = rolled.t().contiguous(), torch.zeros(rows, size), torch.zeros_like(rolled)
    to_bias, to_recurrent, to_gates = torch.zeros(size), gates[:, :, : 3 * size], gates[:, :, size:]
    arrays = (
        _array(begins), gates.numpy(), state.numpy(), outputs.numpy(), to_outputs.contiguous().numpy(),
        recurrent.numpy(), carried.numpy(),
    )  # fmt: skip
    step, by_step = _for_units(kernels.gru_step_back, rows * size), to_recurrent.unbind()
    for part in _parts_backwards(steps, rows):
        for t in reversed(range(steps)[part]):
            step(0, rows, t, *arrays)
            torch.mm(by_step[t], back, out=recurrent)
        to_weight.addmm_(_before(part, state, outputs, begins).t(), to_recurrent[part].flatten(0, 1))
        to_bias += gates[part, :, :size].sum((0, 1))
        finish(part, to_gates[part])
    return _unless_begun(recurrent.add_(carried), begins), to_weight.roll(-size, dims=1), to_bias


def mingru_forward(
    features: Tensor, state: Tensor, begins: Tensor | None, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, the state after, and of each step the gate and the candidate."""
    gates, state = _gates(features, weight), state.detach().contiguous()
    outputs = torch.empty(len(features), *state.shape)
    run = _for_units(kernels.mingru_steps, outputs.numel())
    run(0, len(state), _array(begins), gates.numpy(), bias.detach().numpy(), state.numpy(), outputs.numpy())
    return outputs, outputs[-1].clone(), gates


def mingru_backward(
    to_outputs: Tensor, to_after: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor],
    outputs: Tensor, gates: Tensor, finish: Finish,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradient of the state."""
    carried = to_after.clone(memory_format=torch.contiguous_format)
    run = _for_units(kernels.mingru_steps_back, outputs.numel())
    run(
        0, len(state), _array(begins), gates.numpy(), state.detach().contiguous().numpy(), outputs.numpy(),
        to_outputs.contiguous().numpy(), carried.numpy(),
    )  # fmt: skip
    finish(slice(0, len(gates)), gates)
    return (carried,)


def _gates(features: Tensor, weight: Tensor) -> Tensor:
    """What the features give to the gates, [T, B, G]; ours to overwrite. The compiled steps add the bias."""
    steps, rows, _ = features.shape
    return torch.mm(features.flatten(0, 1), weight).view(steps, rows, -1)


def _array(begins: Tensor | None) -> np.ndarray:
    return NO_BEGINS if begins is None else begins.contiguous().numpy()


def _unless_begun(state: Tensor, begins: Tensor | None) -> Tensor:
    """A first state [B, S] or its gradient: zeros where an episode begins at once."""
    return state if begins is None else state.masked_fill(begins[0].unsqueeze(1), 0.0)


def _before(part: slice, state: Tensor, outputs: Tensor, begins: Tensor | None) -> Tensor:
    """What each row started a slice of steps from, [S * B, H]: outputs of the step before, zeros where it begins."""
    before = outputs[max(part.start - 1, 0) : part.stop - 1]
    if part.start == 0:
        before = torch.cat([state.unsqueeze(0), before])
    return (before if begins is None else before.masked_fill(begins[part].unsqueeze(2), 0.0)).flatten(0, 1)


def _parts_backwards(steps: int, rows: int) -> list[slice]:
    """Slices of steps, from the last to the first."""
    length = max(1, ROWS_PER_PART // max(rows, 1))
    return [slice(start, min(start + length, steps)) for start in range(0, steps, length)][::-1]


def _for_units(kernel: RowKernel, num_units: int) -> Callable[..., None]:
    """A kernel on as many threads as pay for so many units of all rows together."""
    return kernel.threaded if num_units >= THREADS_FROM_UNITS and torch.get_num_threads() > 1 else kernel.alone
