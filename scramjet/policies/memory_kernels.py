"""The recurrences of memory on the CPU: compiled steps between matrix products, forward and back.

What the features give to the gates is one product over all steps. Then each step is one product with the outputs of the
step before and one compiled pass over the gates; the gradients of the weights are one product over all steps again.
All is float32 and time-major. `begins` is an empty array where no episode begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numba.extending import register_jitable
from torch import Tensor

from scramjet.engine.jit import compiled

NO_BEGINS = np.zeros((0, 0), np.bool_)
SATURATED = np.float32(7.905)
"""Beyond this tanh is 1, to within 3e-7."""

# a * b + c may round once, not twice. Without forceinline each call would count references to its arrays, which takes
# longer than the loop. The cache does not see these options: a change here needs one in a function too.
_inlined = register_jitable(fastmath={"contract"}, error_model="numpy", forceinline=True)


class Recurrence(NamedTuple):
    """One kind of memory, as torch's operators compute it and as compiled steps do."""

    plain: Callable[..., tuple[Tensor, Tensor]]
    """(features, state, begins, *weights) to (outputs, state after); weights: of the features, bias, others."""
    forward: Callable[..., tuple[Tensor, ...]]
    """The same, with what the way back needs behind it."""
    backward: Callable[..., tuple[Tensor, ...]]
    """(gradients of outputs and state after, state, begins, other weights, outputs, what forward kept) to gradients:
    of the gates [T, B, G], the bias, the state and the other weights. Writes over what was kept: a second copy of the
    largest arrays here would take longer than the arithmetic."""

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
        to_gates, to_bias, to_state, *to_others = ctx.kind.backward(*grads, state, begins, weights[2:], outputs, *kept)
        flat = to_gates.flatten(0, 1)
        to_features = to_weight = None
        if ctx.needs_input_grad[1]:
            to_features = torch.mm(flat, weights[0].t()).view(features.shape)
        if ctx.needs_input_grad[4]:
            to_weight = torch.mm(features.flatten(0, 1).t(), flat)
        return None, to_features, to_state, None, to_weight, to_bias, *to_others


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
    _lstm_step(0, *arrays)
    for t, hidden in enumerate(outputs.unbind()[:-1], 1):
        torch.mm(hidden, recurrent_weight, out=recurrent)
        _lstm_step(t, *arrays)
    return outputs, after, gates, cells


def lstm_backward(
    to_outputs: Tensor, to_after: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor],
    outputs: Tensor, gates: Tensor, cells: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of the gates before their nonlinearities, the bias, the state and the recurrent weight."""
    steps, _, size = outputs.shape
    state = state.detach().contiguous()
    recurrent, carried = (half.clone(memory_format=torch.contiguous_format) for half in to_after.split(size, dim=1))
    sums, back = torch.empty(steps, 4 * size), weights[0].t().contiguous()
    arrays = (
        _array(begins), gates.numpy(), cells.numpy(), state.numpy(), to_outputs.contiguous().numpy(),
        recurrent.numpy(), carried.numpy(), sums.numpy(),
    )  # fmt: skip
    for t, to_gates in reversed(list(enumerate(gates.unbind()))):
        _lstm_step_back(t, *arrays)
        torch.mm(to_gates, back, out=recurrent)
    to_state = _unless_begun(torch.cat([recurrent, carried], dim=1), begins)
    return gates, sums.sum(0), to_state, _to_recurrent_weight(state[:, :size], outputs, begins, gates)


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
    _gru_step(0, *arrays)
    for t, hidden in enumerate(outputs.unbind()[:-1], 1):
        torch.mm(hidden, recurrent_weight, out=recurrent)
        _gru_step(t, *arrays)
    return outputs, outputs[-1].clone(), gates


def gru_backward(
    to_outputs: Tensor, to_after: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor],
    outputs: Tensor, gates: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of the gates before their nonlinearities, the biases, the state and the recurrent weight."""
    steps, rows, size = outputs.shape
    state, carried = state.detach().contiguous(), to_after.clone(memory_format=torch.contiguous_format)
    # Of the four blocks of `gates` the state acts on the first three, the features on the last three.
    back, recurrent = weights[0].roll(size, dims=1).t().contiguous(), torch.zeros(rows, size)
    sums, to_recurrent, to_gates = torch.empty(steps, 4 * size), gates[:, :, : 3 * size], gates[:, :, size:]
    arrays = (
        _array(begins), gates.numpy(), state.numpy(), outputs.numpy(), to_outputs.contiguous().numpy(),
        recurrent.numpy(), carried.numpy(), sums.numpy(),
    )  # fmt: skip
    for t, grads in reversed(list(enumerate(to_recurrent.unbind()))):
        _gru_step_back(t, *arrays)
        torch.mm(grads, back, out=recurrent)
    to_state = _unless_begun(recurrent.add_(carried), begins)
    to_weight = _to_recurrent_weight(state, outputs, begins, to_recurrent).roll(-size, dims=1)
    to_biases = sums.sum(0)
    return to_gates, to_biases[size:], to_state, to_weight, to_biases[:size]


def mingru_forward(
    features: Tensor, state: Tensor, begins: Tensor | None, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, the state after, and of each step the gate and the candidate."""
    gates, state = _gates(features, weight), state.detach().contiguous()
    outputs = torch.empty(len(features), *state.shape)
    _mingru_steps(_array(begins), gates.numpy(), bias.detach().numpy(), state.numpy(), outputs.numpy())
    return outputs, outputs[-1].clone(), gates


def mingru_backward(
    to_outputs: Tensor, to_after: Tensor, state: Tensor, begins: Tensor | None, weights: list[Tensor],
    outputs: Tensor, gates: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of the gate before its nonlinearity and the candidate, of the bias and the state."""
    carried = to_after.clone(memory_format=torch.contiguous_format)
    sums = torch.empty(len(gates), gates.shape[2])
    _mingru_steps_back(
        _array(begins), gates.numpy(), state.detach().contiguous().numpy(), outputs.numpy(),
        to_outputs.contiguous().numpy(), carried.numpy(), sums.numpy(),
    )  # fmt: skip
    return gates, sums.sum(0), carried


def _gates(features: Tensor, weight: Tensor) -> Tensor:
    """What the features give to the gates, [T, B, G]; ours to overwrite. The compiled steps add the bias."""
    steps, rows, _ = features.shape
    return torch.mm(features.flatten(0, 1), weight).view(steps, rows, -1)


def _array(begins: Tensor | None) -> np.ndarray:
    return NO_BEGINS if begins is None else begins.contiguous().numpy()


def _unless_begun(state: Tensor, begins: Tensor | None) -> Tensor:
    """A first state [B, S] or its gradient: zeros where an episode begins at once."""
    return state if begins is None else state.masked_fill(begins[0].unsqueeze(1), 0.0)


def _to_recurrent_weight(state: Tensor, outputs: Tensor, begins: Tensor | None, to_gates: Tensor) -> Tensor:
    """The gradient [H, G] from what each step started from and the gradients of its gates [T, B, G]."""
    to_weight = torch.mm(_unless_begun(state, begins).t(), to_gates[0])
    if len(outputs) > 1:
        before = outputs[:-1] if begins is None else outputs[:-1].masked_fill(begins[1:].unsqueeze(2), 0.0)
        to_weight.addmm_(before.flatten(0, 1).t(), to_gates[1:].flatten(0, 1))
    return to_weight


@_inlined
def tanh(x):  # type: ignore[no-untyped-def]
    """Hyperbolic tangent of a float32, within 3e-7: a quotient of polynomials that the compiler can do 16 at a time.

    Compared this way round, what is not a number passes the limits and stays so.
    """
    x = -SATURATED if x < -SATURATED else x
    x = SATURATED if x > SATURATED else x
    s = x * x
    p = s * np.float32(-2.76076847742355e-16) + np.float32(2.00018790482477e-13)
    p = s * p + np.float32(-8.60467152213735e-11)
    p = s * p + np.float32(5.12229709037114e-08)
    p = s * p + np.float32(1.48572235717979e-05)
    p = s * p + np.float32(6.37261928875436e-04)
    p = s * p + np.float32(4.89352455891786e-03)
    q = s * np.float32(1.19825839466702e-06) + np.float32(1.18534705686654e-04)
    q = s * q + np.float32(2.26843463243900e-03)
    q = s * q + np.float32(4.89352518554385e-03)
    return x * p / q


@_inlined
def sigmoid(x):  # type: ignore[no-untyped-def]
    """The logistic function of a float32, within 3e-7."""
    return np.float32(0.5) * tanh(np.float32(0.5) * x) + np.float32(0.5)


# Loops over the units of a row. Each is short: the compiler checks at every start of a loop that none of its arrays
# overlap, and with the whole of a step in one loop that took longer than the rest.


@_inlined
def _open(gate, given, bias):  # type: ignore[no-untyped-def]
    for j in range(len(gate)):
        gate[j] = sigmoid(gate[j] + given[j] + bias[j])


@_inlined
def _squash(gate, given, bias):  # type: ignore[no-untyped-def]
    for j in range(len(gate)):
        gate[j] = tanh(gate[j] + given[j] + bias[j])


@_inlined
def _add(total, row):  # type: ignore[no-untyped-def]
    for j in range(len(total)):
        total[j] += row[j]


@_inlined
def _lstm_outputs(i, f, g, o, before, cell, output):  # type: ignore[no-untyped-def]
    for j in range(len(cell)):
        now = f[j] * before[j] + i[j] * g[j]
        cell[j] = now
        output[j] = o[j] * tanh(now)


@compiled
def _lstm_step(
    t: int, begins: np.ndarray, gates: np.ndarray, recurrent: np.ndarray, bias: np.ndarray, state: np.ndarray,
    cells: np.ndarray, outputs: np.ndarray, after: np.ndarray,
) -> None:  # fmt: skip
    """Step t of all rows, given what the state gives to the gates, `recurrent` [B, 4H]."""
    steps, rows, size = cells.shape
    nothing = np.zeros(size, np.float32)
    for row in range(rows):
        gate, given = gates[t, row], recurrent[row]
        before = cells[t - 1, row] if t > 0 else state[row, size:]
        if begins.size > 0 and begins[t, row]:
            before = nothing
            given[:] = 0
        _open(gate[: 2 * size], given[: 2 * size], bias[: 2 * size])
        _squash(gate[2 * size : 3 * size], given[2 * size : 3 * size], bias[2 * size : 3 * size])
        _open(gate[3 * size :], given[3 * size :], bias[3 * size :])
        i, f, g, o = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
        _lstm_outputs(i, f, g, o, before, cells[t, row], outputs[t, row])
        if t == steps - 1:
            after[row, :size] = outputs[t, row]
            after[row, size:] = cells[t, row]


@_inlined
def _lstm_back_to_cell(o, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(cell)):
        to_hidden, squashed, o_j = to_output[j] + recurrent[j], tanh(cell[j]), o[j]
        carried[j] += to_hidden * o_j * (one - squashed * squashed)
        o[j] = to_hidden * squashed * o_j * (one - o_j)


@_inlined
def _lstm_back_to_input(i, g, to_cell):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(to_cell)):
        to_product, g_j = to_cell[j] * i[j], g[j]
        i[j] = to_product * g_j * (one - i[j])
        g[j] = to_product * (one - g_j * g_j)


@_inlined
def _lstm_back_to_before(f, before, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(carried)):
        to_before = carried[j] * f[j]
        f[j] = to_before * before[j] * (one - f[j])
        carried[j] = to_before


@compiled
def _lstm_step_back(
    t: int, begins: np.ndarray, gates: np.ndarray, cells: np.ndarray, state: np.ndarray, to_outputs: np.ndarray,
    recurrent: np.ndarray, carried: np.ndarray, sums: np.ndarray,
) -> None:  # fmt: skip
    """Step t of all rows backwards, given the gradients of what it handed on: `recurrent` of the outputs, `carried` of
    the cells. Gates become their gradients. `sums` is that of the bias, by step, so that little is rounded away."""
    steps, rows, size = cells.shape
    nothing = np.zeros(size, np.float32)
    sums[t] = 0
    for row in range(rows):
        gate, to_cell = gates[t, row], carried[row]
        before = cells[t - 1, row] if t > 0 else state[row, size:]
        if begins.size > 0:
            if begins[t, row]:
                before = nothing
            if t + 1 < steps and begins[t + 1, row]:
                recurrent[row] = 0
                to_cell[:] = 0
        i, f, g, o = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
        _lstm_back_to_cell(o, cells[t, row], to_outputs[t, row], recurrent[row], to_cell)
        _lstm_back_to_input(i, g, to_cell)
        _lstm_back_to_before(f, before, to_cell)
        _add(sums[t], gate)


@_inlined
def _gru_candidate(recalled, r, n, given, bias, recurrent_bias):  # type: ignore[no-untyped-def]
    for j in range(len(n)):
        recalled_j = given[j] + recurrent_bias[j]
        recalled[j] = recalled_j
        n[j] = tanh(n[j] + bias[j] + r[j] * recalled_j)


@_inlined
def _between(share, start, end, result):  # type: ignore[no-untyped-def]
    for j in range(len(result)):
        result[j] = start[j] + share[j] * (end[j] - start[j])


@compiled
def _gru_step(
    t: int, begins: np.ndarray, gates: np.ndarray, recurrent: np.ndarray, bias: np.ndarray, recurrent_bias: np.ndarray,
    state: np.ndarray, outputs: np.ndarray,
) -> None:  # fmt: skip
    """Step t of all rows, given what the state gives to the gates, `recurrent` [B, 3H]."""
    _, rows, size = outputs.shape
    nothing = np.zeros(size, np.float32)
    for row in range(rows):
        gate, given = gates[t, row], recurrent[row]
        before = outputs[t - 1, row] if t > 0 else state[row]
        if begins.size > 0 and begins[t, row]:
            before = nothing
            given[:] = 0
        _open(gate[size : 3 * size], given[: 2 * size], bias[: 2 * size])
        recalled, r, z, n = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
        _gru_candidate(recalled, r, n, given[2 * size :], bias[2 * size :], recurrent_bias)
        _between(z, n, before, outputs[t, row])


@_inlined
def _gru_back_to_gates(z, n, before, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(before)):
        to_hidden, z_j, n_j = to_output[j] + recurrent[j] + carried[j], z[j], n[j]
        carried[j] = to_hidden * z_j
        n[j] = to_hidden * (one - z_j) * (one - n_j * n_j)
        z[j] = to_hidden * z_j * (one - z_j) * (before[j] - n_j)


@_inlined
def _gru_back_to_reset(recalled, r, to_n):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(to_n)):
        to_recalled, r_j = to_n[j] * r[j], r[j]
        r[j] = to_recalled * recalled[j] * (one - r_j)
        recalled[j] = to_recalled


@compiled
def _gru_step_back(
    t: int, begins: np.ndarray, gates: np.ndarray, state: np.ndarray, outputs: np.ndarray, to_outputs: np.ndarray,
    recurrent: np.ndarray, carried: np.ndarray, sums: np.ndarray,
) -> None:  # fmt: skip
    """Step t of all rows backwards, given the gradients of its outputs through the gates after them, `recurrent`, and
    directly, `carried`. Gates become their gradients; `sums` is that of the biases, by step."""
    steps, rows, size = outputs.shape
    nothing = np.zeros(size, np.float32)
    sums[t] = 0
    for row in range(rows):
        gate = gates[t, row]
        before = outputs[t - 1, row] if t > 0 else state[row]
        if begins.size > 0:
            if begins[t, row]:
                before = nothing
            if t + 1 < steps and begins[t + 1, row]:
                recurrent[row] = 0
                carried[row] = 0
        recalled, r, z, n = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
        _gru_back_to_gates(z, n, before, to_outputs[t, row], recurrent[row], carried[row])
        _gru_back_to_reset(recalled, r, n)
        _add(sums[t], gate)


@_inlined
def _mingru_outputs(z, candidate, z_bias, candidate_bias, before, output):  # type: ignore[no-untyped-def]
    for j in range(len(output)):
        z_j, candidate_j = sigmoid(z[j] + z_bias[j]), candidate[j] + candidate_bias[j]
        z[j], candidate[j] = z_j, candidate_j
        output[j] = before[j] + z_j * (candidate_j - before[j])


@compiled
def _mingru_steps(
    begins: np.ndarray, gates: np.ndarray, bias: np.ndarray, state: np.ndarray, outputs: np.ndarray
) -> None:
    """All steps of all rows; gates [T, B, 2H]: how far to go towards the candidate, and the candidate."""
    steps, rows, size = outputs.shape
    nothing = np.zeros(size, np.float32)
    for t in range(steps):
        for row in range(rows):
            before = outputs[t - 1, row] if t > 0 else state[row]
            if begins.size > 0 and begins[t, row]:
                before = nothing
            gate = gates[t, row]
            _mingru_outputs(gate[:size], gate[size:], bias[:size], bias[size:], before, outputs[t, row])


@_inlined
def _mingru_back(z, candidate, before, to_output, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(before)):
        to_hidden, z_j = to_output[j] + carried[j], z[j]
        to_candidate = to_hidden * z_j
        carried[j] = to_hidden - to_candidate
        z[j] = to_candidate * (one - z_j) * (candidate[j] - before[j])
        candidate[j] = to_candidate


@compiled
def _mingru_steps_back(
    begins: np.ndarray, gates: np.ndarray, state: np.ndarray, outputs: np.ndarray, to_outputs: np.ndarray,
    carried: np.ndarray, sums: np.ndarray,
) -> None:  # fmt: skip
    """All steps of all rows backwards, given the gradient of the state after, `carried`; it becomes that of the state
    before. Gates become their gradients; `sums` is that of the bias, by step."""
    steps, rows, size = outputs.shape
    nothing = np.zeros(size, np.float32)
    for t in range(steps - 1, -1, -1):
        sums[t] = 0
        for row in range(rows):
            gate = gates[t, row]
            before = outputs[t - 1, row] if t > 0 else state[row]
            has_begun = begins.size > 0 and begins[t, row]
            if has_begun:
                before = nothing
            _mingru_back(gate[:size], gate[size:], before, to_outputs[t, row], carried[row])
            _add(sums[t], gate)
            if has_begun:
                carried[row] = 0
