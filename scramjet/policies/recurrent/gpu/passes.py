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

from scramjet.compile.block_sizes import product_size
from scramjet.compile.kernel_choice import is_traced
from scramjet.compile.triton import HAS_TRITON, product_precision
from scramjet.policies.recurrent.gpu import gated, gated_backward, scanned, tuning
from scramjet.policies.recurrent.gpu.tuning import ACT, BACKWARD, FORWARD, MAX_UNITS, SCAN, Launch


def can_run(features: Tensor, state: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether the kernels take these tensors.

    They take float32 on a CUDA device, and bfloat16 features where autocast makes such, up to `MAX_UNITS` units where
    there are weights of the state. Tensors that torch traces or maps over have no memory that a kernel could read.
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
        and not is_traced()
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
        launch = tuning.choose(FORWARD if keeps else ACT, self.precision, num_rows, size, features.device)
        dtype, numbers = _dtype(self.precision), steps * num_rows
        gates = features.new_empty(numbers, 4 * size, dtype=dtype)
        _multiply(features.reshape(numbers, -1), weights[0], gates[:, 4 * size - weights[0].shape[1] :])
        outputs = features.new_empty(steps, num_rows, size, dtype=torch.float32)
        after = torch.empty_like(state, memory_format=torch.contiguous_format)
        before = gates.new_empty(numbers, size) if keeps or launch.chunk else None
        cells = outputs.new_empty(numbers, size) if keeps and self.kind == "lstm" else None
        state = state if state.stride(1) == 1 else state.contiguous()
        gated.forward_kernel[(-(-num_rows // launch.rows),)](
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
        launch = tuning.choose(BACKWARD, self.precision, num_rows, size, features.device)
        num_programs = -(-num_rows // launch.rows)
        to_state = torch.empty_like(state, memory_format=torch.contiguous_format)
        sums = to_outputs.new_empty(num_programs, 4 * size)
        gated_backward.backward_kernel[(num_programs,)](
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
        scanned.forward_kernel[grid](
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
        scanned.backward_kernel[grid](
            kept.gates, weights[1], state, _bytes(begins), kept.outputs, to_outputs.contiguous(), to_after.contiguous(),
            to_gates, to_state, sums, num_rows, steps, state.stride(0), **constants,
        )  # fmt: skip
        to_features, to_weight = _feature_gradients(features, weights[0], to_gates, needs_features)
        return to_features, to_state, to_weight, sums.sum(0)


def _scan_launch(steps: int, num_rows: int, size: int) -> tuple[tuple[int], dict[str, int]]:
    """The grid of MinGRU's kernels, a program for each row and some columns, and the constants of a program."""
    block, columns = tuning.scan_tile(steps, size)
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
