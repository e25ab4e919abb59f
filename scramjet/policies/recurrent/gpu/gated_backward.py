"""The Triton kernel of LSTM and GRU backward through time; see gated.py for how gates are laid out and rounded."""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import tanh
from scramjet.policies.recurrent.gpu.gated import (
    dot,
    operand,
    read_gates,
    read_resident,
    read_state,
    write_gates,
    write_state,
)

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def _lstm_step_back(i, f, g, o, before, to_hidden, to_cell):  # type: ignore[no-untyped-def]
    """The gradients of the four gates, and that of the cells before the step, which are `before`."""
    squashed = tanh(f * before + i * g)
    to_cell += to_hidden * o * (1.0 - squashed * squashed)
    to_o = to_hidden * squashed * o * (1.0 - o)
    to_i, to_g = to_cell * g * i * (1.0 - i), to_cell * i * (1.0 - g * g)
    to_cell *= f
    return to_i, to_cell * before * (1.0 - f), to_g, to_o, to_cell


@triton_jit()
def _gru_step_back(recalled, r, z, n, before, to_hidden):  # type: ignore[no-untyped-def]
    """The gradients of the four blocks, and that part of the one of the outputs `before` which passes by the gates."""
    to_n = to_hidden * (1.0 - z) * (1.0 - n * n)
    to_recalled = to_n * r
    to_r = to_recalled * recalled * (1.0 - r)
    return to_recalled, to_r, to_hidden * z * (1.0 - z) * (before - n), to_n, to_hidden * z


@triton_jit()
def _scales(first, second, third, fourth, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """For each row a power of two that brings its largest number to between 1 and 2, and the inverse, [block, 1].

    Both are 1 unless operands are float16. They are made of bits, since exponentials are not exact; exponents are kept
    between those of the smallest normal number and of 2^126, so that the inverse exists.
    """
    largest = tl.maximum(tl.maximum(tl.abs(first), tl.abs(second)), tl.maximum(tl.abs(third), tl.abs(fourth)))
    largest = tl.max(largest, axis=1, keep_dims=True)
    if precision == "tf32":
        exponent = largest.to(tl.int32, bitcast=True) & 0x7F800000
        exponent = tl.minimum(tl.maximum(exponent, 0x00800000), 0x7E800000)
        scale = (0x7F000000 - exponent).to(tl.float32, bitcast=True)
        inverse = exponent.to(tl.float32, bitcast=True)
    else:
        scale = tl.full(largest.shape, 1.0, tl.float32)
        inverse = scale
    return scale, inverse


@triton_jit()
def _streamed_product(  # type: ignore[no-untyped-def]
    gates_at, weight_at, at, is_row, scale, kind: tl.constexpr, size: tl.constexpr, units: tl.constexpr,
    block: tl.constexpr, chunk: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The scaled gradients of the gates, read from memory, times the transposed weights, a chunk of gates at a time."""
    width: tl.constexpr = 4 * size if kind == "lstm" else 3 * size
    total = tl.zeros([block, units], tl.float32)
    unit = tl.arange(0, units)[:, None]
    for start in range(0, width, chunk):
        column = start + tl.arange(0, chunk)[None, :]
        is_column = column < width
        to_gates = tl.load(gates_at + at[:, None] * (4 * size) + column, mask=is_row[:, None] & is_column, other=0.0)
        to_gates = operand(to_gates.to(tl.float32) * scale, precision)
        weight = tl.load(weight_at + unit * width + column, mask=(unit < size) & is_column, other=0.0)
        total = dot(to_gates, tl.trans(operand(weight, precision)), total)
    return total


@triton_jit()
def _write_sums(at, first, second, third, fourth, size: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up the rows of four blocks of gates, [block, units] each, and write them side by side."""
    unit = tl.arange(0, units)
    tl.store(at + unit, tl.sum(first, axis=0), mask=unit < size)
    tl.store(at + size + unit, tl.sum(second, axis=0), mask=unit < size)
    tl.store(at + 2 * size + unit, tl.sum(third, axis=0), mask=unit < size)
    tl.store(at + 3 * size + unit, tl.sum(fourth, axis=0), mask=unit < size)


@triton_jit("num_rows", "steps", "begins_at")
def backward_kernel(  # type: ignore[no-untyped-def]
    gates_at, weight_at, begins_at, before_at, cells_at, to_outputs_at, to_after_at, to_state_at, sums_at,
    num_rows, steps, kind: tl.constexpr, size: tl.constexpr, units: tl.constexpr, block: tl.constexpr,
    chunk: tl.constexpr, is_resident: tl.constexpr, precision: tl.constexpr,
    stages: tl.constexpr,
):  # fmt: skip
    """All steps of a block of rows, from the last to the first.

    Turns the activated gates into their gradients, and the gradients of outputs [T, B, H] and of the state after the
    last step into that of the state before the first. Each program writes its sums of the gates' gradients, of which
    those of the biases are made, to its row of `sums_at` [programs, 4H].
    """
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    unit = tl.arange(0, units)[None, :]
    is_row = row < num_rows
    is_unit = is_row[:, None] & (unit < size)
    stride: tl.constexpr = 2 * size if kind == "lstm" else size
    to_hidden, to_cell = read_state(to_after_at, row, stride, unit, is_unit, kind, size)
    if is_resident:
        w1, w2, w3, w4 = read_resident(weight_at, kind, size, units, precision)
    sum1 = tl.zeros([block, units], tl.float32)
    sum2, sum3, sum4 = sum1, sum1, sum1
    at = (steps - 1) * num_rows + row
    own = tl.load(to_outputs_at + at[:, None] * size + unit, mask=is_unit, other=0.0)
    for i in tl.range(0, steps, num_stages=stages):
        at = (steps - 1 - i) * num_rows + row
        place = at[:, None] * size + unit
        if begins_at is not None:
            begins = tl.load(begins_at + at, mask=is_row, other=0)
        to_hidden += own
        own = tl.load(to_outputs_at + place - num_rows * size, mask=is_unit & (at >= num_rows)[:, None], other=0.0)
        g1, g2, g3, g4 = read_gates(gates_at, at, unit, is_unit, size, units, block, True)
        if kind == "lstm":
            cell = tl.load(cells_at + place, mask=is_unit, other=0.0)
            g1, g2, g3, g4, to_cell = _lstm_step_back(g1, g2, g3, g4, cell, to_hidden, to_cell)
        else:
            before = tl.load(before_at + place, mask=is_unit, other=0.0).to(tl.float32)
            g1, g2, g3, g4, passed = _gru_step_back(g1, g2, g3, g4, before, to_hidden)
        scale, inverse = _scales(g1, g2, g3, g4, precision)
        if is_resident:  # before anything is written: writing overlaps with the products
            to_hidden = dot(operand(g1 * scale, precision), tl.trans(w1), tl.zeros([block, units], tl.float32))
            to_hidden = dot(operand(g2 * scale, precision), tl.trans(w2), to_hidden)
            to_hidden = dot(operand(g3 * scale, precision), tl.trans(w3), to_hidden)
            if kind == "lstm":
                to_hidden = dot(operand(g4 * scale, precision), tl.trans(w4), to_hidden)
        write_gates(gates_at, at, unit, is_unit, g1, g2, g3, g4, size)
        sum1, sum2, sum3, sum4 = sum1 + g1, sum2 + g2, sum3 + g3, sum4 + g4
        if not is_resident:
            tl.debug_barrier()  # other threads of the program wrote what is read
            to_hidden = _streamed_product(
                gates_at, weight_at, at, is_row, scale, kind, size, units, block, chunk, precision
            )
        to_hidden *= inverse
        if kind == "gru":
            to_hidden += passed
        if begins_at is not None:
            is_new = (begins != 0)[:, None]
            to_hidden, to_cell = tl.where(is_new, 0.0, to_hidden), tl.where(is_new, 0.0, to_cell)
    write_state(to_state_at, row, unit, is_unit, to_hidden, to_cell, kind, size)
    _write_sums(sums_at + tl.program_id(0) * (4 * size), sum1, sum2, sum3, sum4, size, units)
