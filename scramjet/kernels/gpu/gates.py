"""Triton kernels of LSTM and GRU: all steps of a block of rows in one program, forward and backward.

Before a kernel runs, torch has multiplied the features of all steps with their weights. What is left is the product of
the state with the recurrent weights at every step. A program holds the state of its rows in registers from the first
step to the last. Where they fit on the chip the weights are `resident`: read once, before the first step. Otherwise
they are read at every step, `chunk` rows or columns at a time, and come from the GPU's cache.

The gates of a row stand side by side in four blocks of H, as in `lstm` and `gru` of policies/recurrent.py. Forward, a
kernel finds there what the features contribute (not to the GRU's first block) and leaves the activated gates; backward,
it finds these and leaves their gradients, of which torch makes those of the weights and features.

Operands of products are rounded by `precision`: to float16 for tf32, which has as many bits behind the point; weights
and states are small enough for its range. Gradients may not be: each row of them is scaled by a power of two such that
its largest number lies between 1 and 2, and the product is scaled back. Everything else is float32.

Names that end in `_at` are pointers. Sums are taken in a fixed order. Letters of shapes: T steps, B rows, H units
(`size`), padded to a power of two (`units`).
"""

from __future__ import annotations

from scramjet.kernels.gpu.language import HAS_TRITON, tanh, triton_jit

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def operand(x, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """`x` converted to the type that `dot` multiplies: float16 for tf32, see above; elsewhere tf32 stays float32."""
    if precision == "tf32":
        x = x.to(tl.float16)
    elif precision == "bfloat16":
        x = x.to(tl.bfloat16)
    return x


@triton_jit()
def dot(a, b, total):  # type: ignore[no-untyped-def]
    """`a` @ `b` + `total`, in float32; `a` and `b` are operands, both of the same type."""
    return tl.dot(a, b, acc=total, input_precision="ieee")


@triton_jit()
def _read_weight(  # type: ignore[no-untyped-def]
    weight_at, start, gate: tl.constexpr, kind: tl.constexpr, size: tl.constexpr, units: tl.constexpr,
    chunk: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Rows `start` to `start + chunk` of the recurrent weights [H, gates * H] of one gate, [chunk, units]."""
    width: tl.constexpr = 4 * size if kind == "lstm" else 3 * size
    row, unit = start + tl.arange(0, chunk)[:, None], tl.arange(0, units)[None, :]
    weight = tl.load(weight_at + row * width + gate * size + unit, mask=(row < size) & (unit < size), other=0.0)
    return operand(weight, precision)


@triton_jit()
def write_gates(gates_at, at, unit, is_unit, first, second, third, fourth, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write four blocks of gates, [block, units] each, into rows `at` of [T * B, 4H]."""
    at = gates_at + at[:, None] * (4 * size) + unit
    tl.store(at, first, mask=is_unit)
    tl.store(at + size, second, mask=is_unit)
    tl.store(at + 2 * size, third, mask=is_unit)
    tl.store(at + 3 * size, fourth, mask=is_unit)


@triton_jit()
def _read_biases(bias_at, size: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """The biases of the four blocks of gates, [1, units] each."""
    unit = tl.arange(0, units)[None, :]
    first = tl.load(bias_at + unit, mask=unit < size, other=0.0)
    second = tl.load(bias_at + size + unit, mask=unit < size, other=0.0)
    third = tl.load(bias_at + 2 * size + unit, mask=unit < size, other=0.0)
    return first, second, third, tl.load(bias_at + 3 * size + unit, mask=unit < size, other=0.0)


@triton_jit()
def read_gates(  # type: ignore[no-untyped-def]
    gates_at, at, unit, is_unit, size: tl.constexpr, units: tl.constexpr, block: tl.constexpr, has_first: tl.constexpr
):
    """The four blocks of gates in rows `at` of [T * B, 4H], [block, units] each; zeros for the first if not asked."""
    at = gates_at + at[:, None] * (4 * size) + unit
    if has_first:
        first = tl.load(at, mask=is_unit, other=0.0).to(tl.float32)
    else:
        first = tl.zeros([block, units], tl.float32)
    second = tl.load(at + size, mask=is_unit, other=0.0).to(tl.float32)
    third = tl.load(at + 2 * size, mask=is_unit, other=0.0).to(tl.float32)
    return first, second, third, tl.load(at + 3 * size, mask=is_unit, other=0.0).to(tl.float32)


@triton_jit()
def _add_streamed(  # type: ignore[no-untyped-def]
    first, second, third, fourth, before_at, weight_at, at, is_row,
    kind: tl.constexpr, size: tl.constexpr, units: tl.constexpr, chunk: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Add the products of the state, read from `before_at`, with weights that are read a chunk of rows at a time."""
    for start in range(0, units, chunk):
        column = start + tl.arange(0, chunk)[None, :]
        hidden = tl.load(before_at + at[:, None] * size + column, mask=is_row[:, None] & (column < size), other=0.0)
        hidden = operand(hidden, precision)
        first = dot(hidden, _read_weight(weight_at, start, 0, kind, size, units, chunk, precision), first)
        second = dot(hidden, _read_weight(weight_at, start, 1, kind, size, units, chunk, precision), second)
        third = dot(hidden, _read_weight(weight_at, start, 2, kind, size, units, chunk, precision), third)
        if kind == "lstm":
            fourth = dot(hidden, _read_weight(weight_at, start, 3, kind, size, units, chunk, precision), fourth)
    return first, second, third, fourth


@triton_jit()
def _step(first, second, third, fourth, hidden, cell, kind: tl.constexpr):  # type: ignore[no-untyped-def]
    """The four blocks of activated gates, and the outputs and cells after a step."""
    second = tl.sigmoid(second)
    if kind == "lstm":
        first, third, fourth = tl.sigmoid(first), tanh(third), tl.sigmoid(fourth)
        cell = second * cell + first * third
        hidden = fourth * tanh(cell)
    else:
        third = tl.sigmoid(third)
        fourth = tanh(fourth + second * first)
        hidden = fourth + third * (hidden - fourth)
    return first, second, third, fourth, hidden, cell


@triton_jit()
def read_resident(  # type: ignore[no-untyped-def]
    weight_at, kind: tl.constexpr, size: tl.constexpr, units: tl.constexpr, precision: tl.constexpr
):
    """The recurrent weights of all gates, [units, units] each; the GRU's fourth is its third again, and not used."""
    first = _read_weight(weight_at, 0, 0, kind, size, units, units, precision)
    second = _read_weight(weight_at, 0, 1, kind, size, units, units, precision)
    third = _read_weight(weight_at, 0, 2, kind, size, units, units, precision)
    fourth = third
    if kind == "lstm":
        fourth = _read_weight(weight_at, 0, 3, kind, size, units, units, precision)
    return first, second, third, fourth


@triton_jit()
def write_state(at, row, unit, is_unit, hidden, cell, kind: tl.constexpr, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write outputs, and with an LSTM cells, as rows of a state [B, H or 2H]."""
    if kind == "lstm":
        tl.store(at + row[:, None] * (2 * size) + unit, hidden, mask=is_unit)
        tl.store(at + row[:, None] * (2 * size) + size + unit, cell, mask=is_unit)
    else:
        tl.store(at + row[:, None] * size + unit, hidden, mask=is_unit)


@triton_jit()
def read_state(at, row, stride, unit, is_unit, kind: tl.constexpr, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """Outputs and cells out of rows of a state; zeros for the cells that a GRU does not have."""
    at += row[:, None] * stride + unit
    hidden = tl.load(at, mask=is_unit, other=0.0)
    if kind == "lstm":
        cell = tl.load(at + size, mask=is_unit, other=0.0)
    else:
        cell = tl.zeros_like(hidden)
    return hidden, cell


@triton_jit("num_rows", "steps", "state_stride", "state_at", "begins_at")
def forward_kernel(  # type: ignore[no-untyped-def]
    gates_at, bias_at, weight_at, state_at, begins_at, outputs_at, after_at, before_at, cells_at,
    num_rows, steps, state_stride, kind: tl.constexpr, size: tl.constexpr, units: tl.constexpr, block: tl.constexpr,
    chunk: tl.constexpr, is_resident: tl.constexpr, keeps: tl.constexpr, precision: tl.constexpr,
    stages: tl.constexpr,
):  # fmt: skip
    """All steps of a block of rows. Writes outputs [T, B, H] and the state after the last step.

    With `keeps`, it also writes what the backward pass needs: the activated gates, and before each step the outputs
    (`before_at`) and the LSTM's cells, zero where an episode begins. Weights that are not resident need `before_at` in
    any case: a chunk of columns can be read from memory, but not be cut out of registers.
    """
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    unit = tl.arange(0, units)[None, :]
    is_row = row < num_rows
    is_unit = is_row[:, None] & (unit < size)
    hidden, cell = read_state(state_at, row, state_stride, unit, is_unit, kind, size)
    if is_resident:
        w1, w2, w3, w4 = read_resident(weight_at, kind, size, units, precision)
    bias1, bias2, bias3, bias4 = _read_biases(bias_at, size, units)
    begins = tl.zeros([block], tl.int32)
    if begins_at is not None:
        begins = tl.load(begins_at + row, mask=is_row, other=0).to(tl.int32)
    for t in tl.range(0, steps, num_stages=stages):
        at = t * num_rows + row
        if begins_at is not None:
            is_new = (begins != 0)[:, None]
            hidden, cell = tl.where(is_new, 0.0, hidden), tl.where(is_new, 0.0, cell)
            at_next = at + num_rows
            begins = tl.load(begins_at + at_next, mask=is_row & (at_next < steps * num_rows), other=0).to(tl.int32)
        place = at[:, None] * size + unit
        first, second, third, fourth = read_gates(gates_at, at, unit, is_unit, size, units, block, kind == "lstm")
        first, second, third, fourth = first + bias1, second + bias2, third + bias3, fourth + bias4
        if is_resident:  # before anything is written: writing overlaps with the products
            state = operand(hidden, precision)
            first, second, third = dot(state, w1, first), dot(state, w2, second), dot(state, w3, third)
            if kind == "lstm":
                fourth = dot(state, w4, fourth)
        if before_at is not None:
            tl.store(before_at + place, hidden, mask=is_unit)
        if cells_at is not None:
            tl.store(cells_at + place, cell, mask=is_unit)
        if not is_resident:
            tl.debug_barrier()  # other threads of the program wrote what is read
            first, second, third, fourth = _add_streamed(
                first, second, third, fourth, before_at, weight_at, at, is_row, kind, size, units, chunk, precision
            )
        first, second, third, fourth, hidden, cell = _step(first, second, third, fourth, hidden, cell, kind)
        if keeps:
            write_gates(gates_at, at, unit, is_unit, first, second, third, fourth, size)
        tl.store(outputs_at + place, hidden, mask=is_unit)
    write_state(after_at, row, unit, is_unit, hidden, cell, kind, size)


# --- backward through time


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
