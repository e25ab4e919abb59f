"""One step of an LSTM, GRU or MinGRU for one row, forward and backward, to be inlined into the kernels.

A forward step gets the gates of a row with the matrix products in them, the biases, and the row's outputs and cells
before the step. It writes the cells and outputs after it and leaves the activated gates in `gate`. A backward step gets
these, and the gradients of the outputs. It turns the gates into their gradients, and what comes from the step after
into what goes to the step before. Gates of several kinds stand side by side in one row.

The loops over the units of a row are kept short: before each loop the compiled code checks that its arrays do not
overlap, and with a whole step in one loop these checks took longer than the arithmetic.
"""

from __future__ import annotations

import numpy as np

from scramjet.compile.vector_maths import inlined, sigmoid, tanh


@inlined
def _open(gate, bias):  # type: ignore[no-untyped-def]
    for j in range(len(gate)):
        gate[j] = sigmoid(gate[j] + bias[j])


@inlined
def _squash(gate, bias):  # type: ignore[no-untyped-def]
    for j in range(len(gate)):
        gate[j] = tanh(gate[j] + bias[j])


@inlined
def _lstm_outputs(i, f, g, o, before, cell, output):  # type: ignore[no-untyped-def]
    for j in range(len(cell)):
        now = f[j] * before[j] + i[j] * g[j]
        cell[j] = now
        output[j] = o[j] * tanh(now)


@inlined
def lstm_step(gate, bias, before, cell_before, cell, output):  # type: ignore[no-untyped-def]
    """Gates: input, forget, candidate, output."""
    size = len(output)
    _open(gate[: 2 * size], bias[: 2 * size])
    _squash(gate[2 * size : 3 * size], bias[2 * size : 3 * size])
    _open(gate[3 * size :], bias[3 * size :])
    i, f, g, o = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
    _lstm_outputs(i, f, g, o, cell_before, cell, output)


@inlined
def _lstm_back_to_cell(o, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(cell)):
        to_hidden, squashed, o_j = to_output[j] + recurrent[j], tanh(cell[j]), o[j]
        carried[j] += to_hidden * o_j * (one - squashed * squashed)
        o[j] = to_hidden * squashed * o_j * (one - o_j)


@inlined
def _lstm_back_to_input(i, g, to_cell):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(to_cell)):
        to_product, g_j = to_cell[j] * i[j], g[j]
        i[j] = to_product * g_j * (one - i[j])
        g[j] = to_product * (one - g_j * g_j)


@inlined
def _lstm_back_to_before(f, before, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(carried)):
        to_before = carried[j] * f[j]
        f[j] = to_before * before[j] * (one - f[j])
        carried[j] = to_before


@inlined
def lstm_step_back(gate, before, cell_before, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    """From the step after, `recurrent` are the gradients of the outputs and `carried` those of the cells."""
    size = len(cell)
    i, f, g, o = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
    _lstm_back_to_cell(o, cell, to_output, recurrent, carried)
    _lstm_back_to_input(i, g, carried)
    _lstm_back_to_before(f, cell_before, carried)


@inlined
def _gru_candidate(recalled, r, n, recurrent_bias, bias):  # type: ignore[no-untyped-def]
    for j in range(len(n)):
        recalled_j = recalled[j] + recurrent_bias[j]
        recalled[j] = recalled_j
        n[j] = tanh(n[j] + bias[j] + r[j] * recalled_j)


@inlined
def _between(share, start, end, result):  # type: ignore[no-untyped-def]
    for j in range(len(result)):
        result[j] = start[j] + share[j] * (end[j] - start[j])


@inlined
def gru_step(gate, bias, before, cell_before, cell, output):  # type: ignore[no-untyped-def]
    """Gates: the state's contribution to the candidate, reset, keep, candidate."""
    size = len(output)
    _open(gate[size : 3 * size], bias[size : 3 * size])
    recalled, r, z, n = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
    _gru_candidate(recalled, r, n, bias[:size], bias[3 * size :])
    _between(z, n, before, output)


@inlined
def _gru_back_to_gates(z, n, before, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(before)):
        to_hidden, z_j, n_j = to_output[j] + recurrent[j] + carried[j], z[j], n[j]
        carried[j] = to_hidden * z_j
        n[j] = to_hidden * (one - z_j) * (one - n_j * n_j)
        z[j] = to_hidden * z_j * (one - z_j) * (before[j] - n_j)


@inlined
def _gru_back_to_reset(recalled, r, to_n):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(to_n)):
        to_recalled, r_j = to_n[j] * r[j], r[j]
        r[j] = to_recalled * recalled[j] * (one - r_j)
        recalled[j] = to_recalled


@inlined
def gru_step_back(gate, before, cell_before, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    """The gradients of the outputs from the step after: `recurrent` through its gates, `carried` directly."""
    size = len(before)
    recalled, r, z, n = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
    _gru_back_to_gates(z, n, before, to_output, recurrent, carried)
    _gru_back_to_reset(recalled, r, n)


@inlined
def mingru_step(gate, bias, before, cell_before, cell, output):  # type: ignore[no-untyped-def]
    """Gates: how far to go towards the candidate, candidate."""
    size = len(output)
    _open(gate[:size], bias[:size])
    z, candidate, candidate_bias = gate[:size], gate[size:], bias[size:]
    for j in range(size):
        candidate[j] += candidate_bias[j]
    _between(z, before, candidate, output)


@inlined
def _mingru_back(z, candidate, before, to_output, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(before)):
        to_hidden, z_j = to_output[j] + carried[j], z[j]
        to_candidate = to_hidden * z_j
        carried[j] = to_hidden - to_candidate
        z[j] = to_candidate * (one - z_j) * (candidate[j] - before[j])
        candidate[j] = to_candidate


@inlined
def mingru_step_back(gate, before, cell_before, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    """The gradients of the outputs from the step after are all in `carried`."""
    size = len(before)
    _mingru_back(gate[:size], gate[size:], before, to_output, carried)
