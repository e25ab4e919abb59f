"""The compiled steps of memory on the CPU: what happens to the gates of each row between matrix products.

All is float32 and time-major. `begins` is an empty array where no episode begins.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from scramjet.engine.jit import RowKernel

SATURATED = np.float32(7.905)
"""Beyond this tanh is 1, to within 3e-7."""

# a * b + c may round once, not twice. Without forceinline each call would count references to its arrays, which takes
# longer than the loop. The cache does not see these options: a change here needs one in a function too.
_inlined = register_jitable(fastmath={"contract"}, error_model="numpy", forceinline=True)


@_inlined
def tanh(x):  # type: ignore[no-untyped-def]
    """Hyperbolic tangent of a float32, within 3e-7: a quotient of polynomials that the compiler can do 16 at a time.

    The coefficients are those of Eigen's `ptanh` (MathFunctionsImpl.h, eigen.tuxfamily.org). Compared this way round,
    what is not a number passes the limits and stays so.
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
def _lstm_outputs(i, f, g, o, before, cell, output):  # type: ignore[no-untyped-def]
    for j in range(len(cell)):
        now = f[j] * before[j] + i[j] * g[j]
        cell[j] = now
        output[j] = o[j] * tanh(now)


@RowKernel
def lstm_step(
    start: int, stop: int, t: int,
    begins: np.ndarray, gates: np.ndarray, recurrent: np.ndarray, bias: np.ndarray, state: np.ndarray,
    cells: np.ndarray, outputs: np.ndarray, after: np.ndarray,
) -> None:  # fmt: skip
    """Step t of these rows, given what the state gives to the gates, `recurrent` [B, 4H]."""
    steps, _, size = cells.shape
    nothing = np.zeros(size, np.float32)
    for row in range(start, stop):
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


@RowKernel
def lstm_step_back(
    start: int, stop: int, t: int,
    begins: np.ndarray, gates: np.ndarray, cells: np.ndarray, state: np.ndarray, to_outputs: np.ndarray,
    recurrent: np.ndarray, carried: np.ndarray,
) -> None:  # fmt: skip
    """Step t of these rows backwards, given the gradients of what it handed on: `recurrent` of the outputs, `carried`
    of the cells. Gates become their gradients."""
    steps, _, size = cells.shape
    nothing = np.zeros(size, np.float32)
    for row in range(start, stop):
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


@RowKernel
def gru_step(
    start: int, stop: int, t: int,
    begins: np.ndarray, gates: np.ndarray, recurrent: np.ndarray, bias: np.ndarray, recurrent_bias: np.ndarray,
    state: np.ndarray, outputs: np.ndarray,
) -> None:  # fmt: skip
    """Step t of these rows, given what the state gives to the gates, `recurrent` [B, 3H]."""
    _, _, size = outputs.shape
    nothing = np.zeros(size, np.float32)
    for row in range(start, stop):
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


@RowKernel
def gru_step_back(
    start: int, stop: int, t: int,
    begins: np.ndarray, gates: np.ndarray, state: np.ndarray, outputs: np.ndarray, to_outputs: np.ndarray,
    recurrent: np.ndarray, carried: np.ndarray,
) -> None:  # fmt: skip
    """Step t of these rows backwards, given the gradients of its outputs through the gates after them, `recurrent`, and
    directly, `carried`. Gates become their gradients."""
    steps, _, size = outputs.shape
    nothing = np.zeros(size, np.float32)
    for row in range(start, stop):
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


@_inlined
def _mingru_outputs(z, candidate, z_bias, candidate_bias, before, output):  # type: ignore[no-untyped-def]
    for j in range(len(output)):
        z_j, candidate_j = sigmoid(z[j] + z_bias[j]), candidate[j] + candidate_bias[j]
        z[j], candidate[j] = z_j, candidate_j
        output[j] = before[j] + z_j * (candidate_j - before[j])


@RowKernel
def mingru_steps(
    start: int,
    stop: int,
    begins: np.ndarray,
    gates: np.ndarray,
    bias: np.ndarray,
    state: np.ndarray,
    outputs: np.ndarray,
) -> None:
    """All steps of these rows; gates [T, B, 2H]: how far to go towards the candidate, and the candidate."""
    steps, _, size = outputs.shape
    nothing = np.zeros(size, np.float32)
    for t in range(steps):
        for row in range(start, stop):
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


@RowKernel
def mingru_steps_back(
    start: int, stop: int,
    begins: np.ndarray, gates: np.ndarray, state: np.ndarray, outputs: np.ndarray, to_outputs: np.ndarray,
    carried: np.ndarray,
) -> None:  # fmt: skip
    """All steps of these rows backwards, given the gradient of the state after, `carried`; it becomes that of the state
    before. Gates become their gradients;"""
    steps, _, size = outputs.shape
    nothing = np.zeros(size, np.float32)
    for t in range(steps - 1, -1, -1):
        for row in range(start, stop):
            gate = gates[t, row]
            before = outputs[t - 1, row] if t > 0 else state[row]
            has_begun = begins.size > 0 and begins[t, row]
            if has_begun:
                before = nothing
            _mingru_back(gate[:size], gate[size:], before, to_outputs[t, row], carried[row])
            if has_begun:
                carried[row] = 0
