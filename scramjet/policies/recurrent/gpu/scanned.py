"""Triton kernels of MinGRU: a scan over time, forward and backward.

Its gates depend on the features alone, so every step is h = keep * h + add with `keep` and `add` known beforehand, and
two steps in a row are again such a step. A program takes a tile of steps and units of one row and combines the steps as
a tree: all its loads are under way at once, and few rows fill the GPU too. Longer sequences are a tile after the other.
A step that begins an episode keeps nothing.

Names that end in `_at` are pointers. Letters of shapes: T steps, B rows, H units (`size`).
"""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def _follow(keep, add, next_keep, next_add):  # type: ignore[no-untyped-def]
    """One step after another as one. What is not kept does not count at all, even if it is infinite or NaN."""
    is_kept = next_keep != 0.0
    return tl.where(is_kept, keep * next_keep, 0.0), tl.where(is_kept, next_keep * add, 0.0) + next_add


@triton_jit()
def _scan(keep, add, start):  # type: ignore[no-untyped-def]
    """All steps of a tile [steps, columns] after the state `start` [1, columns]: the state after each of them."""
    keep, add = tl.associative_scan((keep, add), 0, _follow)
    return tl.where(keep != 0.0, keep * start, 0.0) + add


@triton_jit()
def _row_of(tile, index, place):  # type: ignore[no-untyped-def]
    """That row of a tile [steps, columns] whose `index` [steps, 1] is `place`, [1, columns]."""
    return tl.sum(tl.where(index == place, tile, 0.0), axis=0, keep_dims=True)


@triton_jit()
def _read_gates(gates_at, bias_at, at, unit, is_step, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """The update gate and the candidate in rows `at` [steps, 1] of [T * B, 2H], biases added; 0 where there is none."""
    is_unit = unit < size
    at, is_read = gates_at + at * (2 * size) + unit, is_step & is_unit
    z = tl.load(at, mask=is_read, other=0.0).to(tl.float32) + tl.load(bias_at + unit, mask=is_unit, other=0.0)
    candidate = tl.load(at + size, mask=is_read, other=0.0).to(tl.float32)
    return tl.sigmoid(z), candidate + tl.load(bias_at + size + unit, mask=is_unit, other=0.0)


@triton_jit()
def _keep(z, begins_at, at, is_step):  # type: ignore[no-untyped-def]
    """How much each step keeps of the state: 1 - z, and 0 where an episode begins."""
    keep = 1.0 - z
    if begins_at is not None:
        keep = tl.where(tl.load(begins_at + at, mask=is_step, other=0) != 0, 0.0, keep)
    return keep


@triton_jit()
def _place(size: tl.constexpr, columns: tl.constexpr):  # type: ignore[no-untyped-def]
    """The row and the units [1, columns] of a program. Neighbours take the units of one row: they lie side by side."""
    num_parts: tl.constexpr = (size + columns - 1) // columns
    program = tl.program_id(0)
    return (program // num_parts).to(tl.int64), program % num_parts * columns + tl.arange(0, columns)[None, :]


@triton_jit("num_rows", "steps", "state_stride", "state_at", "begins_at")
def forward_kernel(  # type: ignore[no-untyped-def]
    gates_at, bias_at, state_at, begins_at, outputs_at, after_at, num_rows, steps, state_stride,
    size: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Outputs [T, B, H] and the state after them [B, H], from what the features contribute to the gates [T * B, 2H]."""
    row, unit = _place(size, columns)
    is_unit = unit < size
    state = tl.load(state_at + row * state_stride + unit, mask=is_unit, other=0.0)
    step = tl.arange(0, block)[:, None]
    for start in range(0, steps, block):
        is_step = start + step < steps
        at = (start + step).to(tl.int64) * num_rows + row
        z, candidate = _read_gates(gates_at, bias_at, at, unit, is_step, size)
        outputs = _scan(_keep(z, begins_at, at, is_step), z * candidate, state)
        tl.store(outputs_at + at * size + unit, outputs, mask=is_step & is_unit)
        state = _row_of(outputs, step, tl.minimum(block, steps - start) - 1)
    tl.store(after_at + row * size + unit, state, mask=is_unit)


@triton_jit("num_rows", "steps", "state_stride", "state_at", "begins_at")
def backward_kernel(  # type: ignore[no-untyped-def]
    gates_at, bias_at, state_at, begins_at, outputs_at, to_outputs_at, to_after_at, to_gates_at, to_state_at, sums_at,
    num_rows, steps, state_stride, size: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Gradients of the gates [T * B, 2H] and of the state before the first step [B, H]; steps go from last to first.

    Those of the outputs are a scan too: a step's own, and what the step after it keeps of its. For each row the sums of
    the gates' gradients over time, of which those of the biases are made, go to `sums_at` [B, 2H].
    """
    row, unit = _place(size, columns)
    is_unit = unit < size
    to_state = tl.load(to_after_at + row * size + unit, mask=is_unit, other=0.0)
    first_state = tl.load(state_at + row * state_stride + unit, mask=is_unit, other=0.0)
    to_z_sum, to_candidate_sum = tl.zeros_like(to_state), tl.zeros_like(to_state)
    step = tl.arange(0, block)[:, None]
    for start in range(0, steps, block):
        t = steps - 1 - start - step
        is_step, is_later = t >= 0, (t >= 0) & (step > 0)
        at = t.to(tl.int64) * num_rows + row
        next_z, _ = _read_gates(gates_at, bias_at, at + num_rows, unit, is_later, size)
        later_keep = tl.where(is_later, _keep(next_z, begins_at, at + num_rows, is_later), 1.0)
        own = tl.load(to_outputs_at + at * size + unit, mask=is_step & is_unit, other=0.0)
        to_outputs = _scan(later_keep, own, to_state)
        z, candidate = _read_gates(gates_at, bias_at, at, unit, is_step, size)
        keep = _keep(z, begins_at, at, is_step)
        before = tl.load(outputs_at + (at - num_rows) * size + unit, mask=(t > 0) & is_unit, other=0.0)
        before = tl.where(keep != 0.0, tl.where(t == 0, first_state, before), 0.0)
        to_candidate = tl.where(is_step, to_outputs * z, 0.0)
        to_z = to_candidate * (1.0 - z) * (candidate - before)
        place = to_gates_at + at * (2 * size) + unit
        tl.store(place, to_z, mask=is_step & is_unit)
        tl.store(place + size, to_candidate, mask=is_step & is_unit)
        to_z_sum += tl.sum(to_z, axis=0, keep_dims=True)
        to_candidate_sum += tl.sum(to_candidate, axis=0, keep_dims=True)
        to_before = tl.where(keep != 0.0, keep * to_outputs, 0.0)
        to_state = _row_of(to_before, step, tl.minimum(block, steps - start) - 1)
    tl.store(to_state_at + row * size + unit, to_state, mask=is_unit)
    tl.store(sums_at + row * (2 * size) + unit, to_z_sum, mask=is_unit)
    tl.store(sums_at + row * (2 * size) + size + unit, to_candidate_sum, mask=is_unit)
