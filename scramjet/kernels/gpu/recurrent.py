"""Forward and backward passes of LSTM, GRU and MinGRU on the GPU: torch's products and the Triton kernels.

Products over all steps at once are torch's: of the features with their weights before the kernels run, and those for
the gradients of features and weights after them. There are no atomics and nothing waits for the host: the same inputs
give the same bits, and a CUDA graph can capture every call. Make the call once before, as kernels compile on first use.

All is time-major. The weights are those of the features, the bias and, but for MinGRU, those of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scramjet.kernels.gpu.gates import backward_kernel, forward_kernel
from scramjet.kernels.gpu.language import HAS_TRITON, power_of_two, product_precision, product_size, triton_jit


def can_run(features: Tensor, state: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether the kernels take these tensors.

    They take float32 on a CUDA device, and bfloat16 features where autocast makes such, up to `MAX_UNITS` units where
    there are weights of the state.
    """
    is_rounded = torch.is_autocast_enabled("cuda")
    types = (torch.float32, torch.bfloat16) if is_rounded else (torch.float32,)
    return (
        HAS_TRITON
        and features.is_cuda
        and features.dtype in types
        and all(tensor.is_cuda and tensor.dtype is torch.float32 for tensor in (state, *weights))
        and not (is_rounded and product_precision() != "bfloat16")
        and (len(weights) < 3 or len(weights[2]) <= MAX_UNITS)
        and features.numel() > 0
    )


def choose(name: str, features: Tensor, state: Tensor, weights: Sequence[Tensor]) -> GatedPasses | ScannedPasses | None:
    """The passes of the recurrence of this name in torch's precision of now; None if they cannot take these tensors."""
    return make(name, product_precision()) if can_run(features, state, weights) else None


def make(name: str, precision: str) -> GatedPasses | ScannedPasses:
    """The passes of lstm, gru or mingru with products of this precision: float32, tf32 or bfloat16."""
    return ScannedPasses(precision) if name == "mingru" else GatedPasses(name, precision)


class Kept(NamedTuple):
    """What the forward pass of an LSTM or GRU keeps for the backward pass, which overwrites the gates."""

    gates: Tensor  # [T * B, 4H], activated
    before: Tensor  # [T * B, H], outputs before each step, zero where an episode begins
    cells: Tensor | None  # [T * B, H], the LSTM's cells before each step likewise


class GatedPasses(NamedTuple):
    """The passes of an LSTM or GRU with products of this precision: float32, tf32 or bfloat16.

    With bfloat16 gates and their gradients are kept in bfloat16 too, as torch's autocast rounds them for the products.
    """

    kind: str  # lstm or gru
    precision: str

    def forward(
        self, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor], keeps: bool
    ) -> tuple[Tensor, Tensor, Kept | None]:
        """Outputs [T, B, H], the state after the last step and, with `keeps`, what `backward` needs."""
        steps, num_rows, size = *features.shape[:2], len(weights[2])
        launch = chosen_launch(FORWARD if keeps else ACT, self.precision, num_rows, size, features.device)
        dtype, numbers = _dtype(self.precision), steps * num_rows
        gates = features.new_empty(numbers, 4 * size, dtype=dtype)
        _multiply(features.reshape(numbers, -1), weights[0], gates[:, 4 * size - weights[0].shape[1] :])
        outputs = features.new_empty(steps, num_rows, size, dtype=torch.float32)
        after = torch.empty_like(state, memory_format=torch.contiguous_format)
        before = gates.new_empty(numbers, size) if keeps or launch.chunk else None
        cells = outputs.new_empty(numbers, size) if keeps and self.kind == "lstm" else None
        state = state if state.stride(1) == 1 else state.contiguous()
        forward_kernel[(-(-num_rows // launch.rows),)](
            gates, weights[1], self._recurrent(weights[2], launch), state, _bytes(begins), outputs, after, before,
            cells, num_rows, steps, state.stride(0), keeps=keeps, **self._constants(size, launch),
        )  # fmt: skip
        return outputs, after, Kept(gates, before, cells) if keeps and before is not None else None

    def backward(
        self, to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor, begins: Tensor | None,
        weights: Sequence[Tensor], needs_features: bool, kept: Kept,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        """Gradients of the features, the state and the three weights, from those of the outputs and the state after."""
        steps, num_rows, size = to_outputs.shape
        launch = chosen_launch(BACKWARD, self.precision, num_rows, size, features.device)
        num_programs = -(-num_rows // launch.rows)
        to_state = torch.empty_like(state, memory_format=torch.contiguous_format)
        sums = to_outputs.new_empty(num_programs, 4 * size)
        backward_kernel[(num_programs,)](
            kept.gates, self._recurrent(weights[2], launch), _bytes(begins), kept.before, kept.cells,
            to_outputs.contiguous(), to_after.contiguous(), to_state, sums, num_rows, steps,
            **self._constants(size, launch),
        )  # fmt: skip
        of_features = kept.gates[:, 4 * size - weights[0].shape[1] :]
        of_state = kept.gates[:, : weights[2].shape[1]]
        to_features, to_weight = _feature_gradients(features, weights[0], of_features, needs_features)
        return to_features, to_state, to_weight, sums.sum(0), (kept.before.t() @ of_state).float()

    def _recurrent(self, weight: Tensor, launch: Launch) -> Tensor:
        """The weights of the state, rounded beforehand if they are read at every step."""
        if launch.chunk and self.precision != "float32":
            weight = weight.to(torch.float16 if self.precision == "tf32" else torch.bfloat16)
        return weight.contiguous()

    def _constants(self, size: int, launch: Launch) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "size": size,
            "units": product_size(size),
            "block": launch.rows,
            "chunk": launch.chunk,
            "is_resident": launch.chunk == 0,
            "precision": self.precision,
            "num_warps": launch.warps,
            "num_stages": launch.stages,
            "stages": launch.stages,
        }


class KeptScan(NamedTuple):
    """What MinGRU's forward pass keeps for the backward pass."""

    gates: Tensor  # [T * B, 2H], without the bias
    outputs: Tensor  # [T, B, H], the memory of the outputs that were handed out
    version: int  # of the outputs' memory, which grows when somebody changes them in place


class ScannedPasses(NamedTuple):
    """The passes of MinGRU with products of this precision: float32, tf32 or bfloat16."""

    precision: str

    def forward(
        self, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor], keeps: bool
    ) -> tuple[Tensor, Tensor, KeptScan | None]:
        """Outputs [T, B, H], the state after the last step and, with `keeps`, what `backward` needs."""
        steps, num_rows, size = *features.shape[:2], state.shape[1]
        gates = features.new_empty(steps * num_rows, 2 * size, dtype=_dtype(self.precision))
        _multiply(features.reshape(steps * num_rows, -1), weights[0], gates)
        outputs = features.new_empty(steps, num_rows, size, dtype=torch.float32)
        after = torch.empty_like(state, memory_format=torch.contiguous_format)
        state = state if state.stride(1) == 1 else state.contiguous()
        grid, constants = _scan_launch(steps, num_rows, size)
        scan_forward_kernel[grid](
            gates, weights[1], state, _bytes(begins), outputs, after, num_rows, steps, state.stride(0), **constants
        )
        # Another tensor over the same memory: the outputs themselves will refer to what is kept.
        return outputs, after, KeptScan(gates, outputs.detach(), outputs._version) if keeps else None

    def backward(
        self, to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor, begins: Tensor | None,
        weights: Sequence[Tensor], needs_features: bool, kept: KeptScan,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        """Gradients of the features, the state and the two weights, from those of the outputs and the state after."""
        if kept.outputs._version != kept.version:
            again = self.forward(features, state, begins, weights, keeps=True)[2]
            assert again is not None
            kept = again
        steps, num_rows, size = to_outputs.shape
        to_gates, sums = torch.empty_like(kept.gates), to_outputs.new_empty(num_rows, 2 * size)
        to_state = torch.empty_like(state, memory_format=torch.contiguous_format)
        state = state if state.stride(1) == 1 else state.contiguous()
        grid, constants = _scan_launch(steps, num_rows, size)
        scan_backward_kernel[grid](
            kept.gates, weights[1], state, _bytes(begins), kept.outputs, to_outputs.contiguous(), to_after.contiguous(),
            to_gates, to_state, sums, num_rows, steps, state.stride(0), **constants,
        )  # fmt: skip
        to_features, to_weight = _feature_gradients(features, weights[0], to_gates, needs_features)
        return to_features, to_state, to_weight, sums.sum(0)


def _scan_launch(steps: int, num_rows: int, size: int) -> tuple[tuple[int], dict[str, int]]:
    """The grid of MinGRU's kernels, a program for each row and some columns, and the constants of a program."""
    block, columns = scan_tile(steps, size)
    constants = {"size": size, "block": block, "columns": columns, "num_warps": SCAN.warps}
    return (num_rows * -(-size // columns),), constants


def _dtype(precision: str) -> torch.dtype:
    """The type of gates and their gradients."""
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _multiply(features: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write features [N, F] times their weights [F, G] to `out` [N, G], in the type of `out`."""
    torch.mm(features.to(out.dtype), weight.to(out.dtype), out=out)


def _feature_gradients(
    features: Tensor, weight: Tensor, to_gates: Tensor, needs_features: bool
) -> tuple[Tensor | None, Tensor]:
    """Gradients of features [T, B, F] and their weights [F, G] from those of the gates [T * B, G]."""
    flat = features.reshape(len(to_gates), -1).to(to_gates.dtype)
    to_features = None
    if needs_features:
        to_features = (to_gates @ weight.to(to_gates.dtype).t()).to(features.dtype).view(features.shape)
    return to_features, (flat.t() @ to_gates).float()


def _bytes(begins: Tensor | None) -> Tensor | None:
    return None if begins is None else begins.contiguous().view(torch.uint8)


# --- triton kernels of MinGRU: a scan over time, forward and backward
#
# Its gates depend on the features alone, so every step is h = keep * h + add with `keep` and `add` known beforehand,
# and two steps in a row are again such a step. A program takes a tile of steps and units of one row and combines the
# steps as a tree: all its loads are under way at once, and few rows fill the GPU too. Longer sequences are a tile after
# the other. A step that begins an episode keeps nothing.
#
# Letters of shapes: T steps, B rows, H units (`size`).


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
def scan_forward_kernel(  # type: ignore[no-untyped-def]
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
def scan_backward_kernel(  # type: ignore[no-untyped-def]
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


# --- sizes of blocks, warps and stages: all that is to be tuned


MAX_UNITS = 256
"""Most units of an LSTM or GRU: a program holds those of its rows, and four gates of each, in registers."""
PROGRAMS = 128
"""Programs that there must be for each of them to take more than the fewest rows: about one for a multiprocessor."""
FEWEST_ROWS = 16
"""Rows of a program of LSTM or GRU where there are few: matrix products have no fewer."""


class Launch(NamedTuple):
    """How a kernel of LSTM or GRU is launched."""

    rows: int
    """Most rows of a program; more would not fit into registers or shared memory."""
    warps: int
    stages: int
    """Of the pipeline that loads gates, or weights that are not resident, ahead of their use; the last one computes."""
    kilobytes: int
    """Of shared memory that the compiled kernel of the LSTM takes; the GRU's takes no more."""
    chunk: int = 0
    """Rows (forward) or columns (backward) of the recurrent weights that are read at a time, at every step. 0: weights
    are resident, in shared memory from the first step to the last."""


ACT = {
    "rounded": {64: Launch(32, 4, 2, 68), 128: Launch(32, 8, 2, 200), MAX_UNITS: Launch(16, 8, 3, 132, chunk=32)},
    "float32": {64: Launch(16, 4, 3, 36, chunk=16), MAX_UNITS: Launch(16, 8, 3, 130, chunk=16)},
}
"""The forward pass without gradients, by precision (rounded: tf32 and bfloat16) and the most units."""
FORWARD = {
    "rounded": {64: Launch(16, 4, 3, 68), 128: Launch(16, 8, 3, 200), MAX_UNITS: Launch(16, 8, 3, 132, chunk=32)},
    "float32": {64: Launch(16, 4, 3, 36, chunk=16), MAX_UNITS: Launch(16, 8, 3, 130, chunk=16)},
}
"""The forward pass that keeps what the backward pass needs."""
BACKWARD = {
    "rounded": {64: Launch(16, 4, 3, 76), 128: Launch(16, 8, 3, 216), MAX_UNITS: Launch(16, 8, 3, 74, chunk=64)},
    "float32": {64: Launch(16, 4, 3, 20, chunk=32), MAX_UNITS: Launch(16, 8, 3, 68, chunk=32)},
}


def chosen_launch(
    table: dict[str, dict[int, Launch]], precision: str, num_rows: int, size: int, device: torch.device
) -> Launch:
    """The launch for these sizes, with `rows` as many as keep the GPU busy. The rows of a program change no result.

    Where a GPU has less shared memory than that takes, weights are not resident, and less is loaded ahead.
    """
    launches = table["float32" if precision == "float32" else "rounded"]
    launch, most = next(launch for units, launch in launches.items() if size <= units), _shared_kilobytes(device)
    if launch.kilobytes > most:
        launch = launches[MAX_UNITS]
    if launch.kilobytes > most:
        launch = launch._replace(stages=2)
    rows = launch.rows
    while rows > FEWEST_ROWS and rows * PROGRAMS > num_rows:
        rows //= 2
    return launch._replace(rows=rows)


def _shared_kilobytes(device: torch.device) -> int:
    """Shared memory that a program may have; no limit in Triton's interpreter."""
    if device.type != "cuda":
        return 1 << 30
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)) // 1024


class ScanLaunch(NamedTuple):
    """How the kernels of MinGRU are launched."""

    steps: int
    """Most steps of a tile."""
    numbers: int
    """Most steps times units of a tile."""
    warps: int


SCAN = ScanLaunch(steps=64, numbers=2048, warps=4)


def scan_tile(steps: int, size: int) -> tuple[int, int]:
    """Steps and units of a tile of MinGRU's kernels, powers of two."""
    block = min(SCAN.steps, max(2, power_of_two(steps)))
    return block, min(SCAN.numbers // block, power_of_two(size))
