"""Triton kernels of LSTM and GRU: all steps of a block of rows in one program, forward and backward.

Before a kernel runs, torch has multiplied the features of all steps with their weights. What is left is the product of
the state with the recurrent weights at every step. A program holds the state of its rows in registers from the first
step to the last. Where they fit on the chip the weights are `resident`: read once, before the first step. Otherwise
they are read at every step, `chunk` rows or columns at a time, and come from the GPU's cache.

The gates of a row stand side by side in four blocks of H, as in `lstm` and `gru` of cores.py. Forward, a kernel finds
there what the features contribute (not to the GRU's first block) and leaves the activated gates; backward, it finds
these and leaves their gradients, of which torch makes those of the weights and features.

Operands of products are rounded by `precision`: to float16 for tf32, which has as many bits behind the point; weights
and states are small enough for its range. Gradients may not be: each row of them is scaled by a power of two such that
its largest number lies between 1 and 2, and the product is scaled back. Everything else is float32.

Names that end in `_at` are pointers. Sums are taken in a fixed order. Letters of shapes: T steps, B rows, H units
(`size`), padded to a power of two (`units`).
"""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import tanh

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
