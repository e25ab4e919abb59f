"""Linear layers in Triton: hidden ones with their nonlinearity, and a policy head with a value head. First the kernels,
then the differentiable functions that launch them.

Operands of products are rounded by `precision`: float32, tf32 or bfloat16; sums are float32. Programs that add up over
rows write a row of partial sums each, which torch adds up: without atomics the same inputs give the same bits.

Names that end in `_at` are pointers. Weights are [outputs, inputs], as in torch's linear layers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from scramjet.kernels.gpu.language import HAS_TRITON, blocks_of, dot, even_programs, product_size, tanh, triton_jit

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def _weights(  # type: ignore[no-untyped-def]
    weight_at, value_weight_at, output, column, inputs: tl.constexpr, outputs: tl.constexpr
):
    """A block of the weights, [block of outputs, block of inputs]; the value's stand behind the last output."""
    output, column = output[:, None], column[None, :]
    is_column = column < inputs
    weight = tl.load(weight_at + output * inputs + column, mask=(output < outputs) & is_column, other=0.0)
    if value_weight_at is not None:
        weight += tl.load(value_weight_at + column + 0 * output, mask=(output == outputs) & is_column, other=0.0)
    return weight


@triton_jit("num_rows")
def forward_kernel(  # type: ignore[no-untyped-def]
    source_at, weight_at, bias_at, value_weight_at, value_bias_at, out_at, value_at, num_rows,
    inputs: tl.constexpr, outputs: tl.constexpr, activation: tl.constexpr, precision: tl.constexpr,
    block_rows: tl.constexpr, block_inputs: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """A linear layer with its nonlinearity, [rows, outputs]; with weights of a value, also that layer's one output."""
    row = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    is_row = (row < num_rows)[:, None]
    total = tl.zeros([block_rows, block_outputs], tl.float32)
    for start in range(0, inputs, block_inputs):
        column = start + tl.arange(0, block_inputs)
        at = source_at + row[:, None] * inputs + column[None, :]
        source = tl.load(at, mask=is_row & (column < inputs)[None, :], other=0.0)
        weight = _weights(weight_at, value_weight_at, output, column, inputs, outputs)
        total = dot(source, tl.trans(weight), total, precision)
    bias = tl.load(bias_at + output, mask=output < outputs, other=0.0)
    if value_at is not None:
        bias += tl.load(value_bias_at + 0 * output, mask=output == outputs, other=0.0)
    total += bias[None, :]
    if activation == "tanh":
        total = tanh(total)
    elif activation == "relu":
        total = tl.where(total <= 0.0, 0.0, total)  # NaN stays
    tl.store(out_at + row[:, None] * outputs + output[None, :], total, mask=is_row & (output < outputs)[None, :])
    if value_at is not None:
        tl.store(value_at + row[:, None] + 0 * output[None, :], total, mask=is_row & (output == outputs)[None, :])


@triton_jit("num_rows")
def heads_gradient_kernel(  # type: ignore[no-untyped-def]
    source_at, weight_at, value_weight_at, to_out_at, to_value_at, to_source_at, partials_at, num_rows,
    inputs: tl.constexpr, outputs: tl.constexpr, precision: tl.constexpr,
    block_rows: tl.constexpr, block_inputs: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """The gradients of a policy head and a value head on the same features, for a block of features.

    Writes that of the features, and to the program's row of `partials_at` the sums over its blocks of rows: weights
    [outputs + 1, inputs], then biases [outputs + 1], the value's behind those of the policy.
    """
    program, chunk = tl.program_id(0), tl.program_id(1)
    column = chunk * block_inputs + tl.arange(0, block_inputs)
    output = tl.arange(0, block_outputs)
    is_column = (column < inputs)[None, :]
    weight = _weights(weight_at, value_weight_at, output, column, inputs, outputs)
    to_weight = tl.zeros([block_outputs, block_inputs], tl.float32)
    to_bias = tl.zeros([block_outputs], tl.float32)
    for start in range(program * block_rows, num_rows, tl.num_programs(0) * block_rows):
        row = (start + tl.arange(0, block_rows)).to(tl.int64)
        is_row = (row < num_rows)[:, None]
        at = to_out_at + row[:, None] * outputs + output[None, :]
        to_out = tl.load(at, mask=is_row & (output < outputs)[None, :], other=0.0)
        at = to_value_at + row[:, None] + 0 * output[None, :]
        to_out += tl.load(at, mask=is_row & (output == outputs)[None, :], other=0.0)
        place = row[:, None] * inputs + column[None, :]
        source = tl.load(source_at + place, mask=is_row & is_column, other=0.0)
        to_source = dot(to_out, weight, tl.zeros([block_rows, block_inputs], tl.float32), precision)
        tl.store(to_source_at + place, to_source, mask=is_row & is_column)
        to_weight = dot(tl.trans(to_out), source, to_weight, precision)
        to_bias += tl.sum(to_out, axis=0)
    partials_at += program * ((outputs + 1) * (inputs + 1))
    is_output = output <= outputs
    at = partials_at + output[:, None] * inputs + column[None, :]
    tl.store(at, to_weight, mask=is_output[:, None] & is_column)
    if chunk == 0:
        tl.store(partials_at + (outputs + 1) * inputs + output, to_bias, mask=is_output)


@triton_jit("num_rows")
def hidden_gradient_kernel(  # type: ignore[no-untyped-def]
    source_at, out_at, to_out_at, to_total_at, partials_at, num_rows,
    inputs: tl.constexpr, outputs: tl.constexpr, activation: tl.constexpr, precision: tl.constexpr,
    block_rows: tl.constexpr, block_inputs: tl.constexpr, block_outputs: tl.constexpr,
):  # fmt: skip
    """The gradients of a hidden layer, from that of what it gave, for a block of outputs.

    Either writes the gradient before the nonlinearity, to `to_total_at`, and to the program's row of `partials_at` its
    sums over the program's rows, [outputs]: those of the bias. Or, without `to_total_at`, writes only such sums: those
    of the weights [outputs, inputs] and then of the bias.
    """
    program = tl.program_id(0)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    column = tl.arange(0, block_inputs)
    is_output = output < outputs
    to_weight = tl.zeros([block_outputs, block_inputs], tl.float32)
    to_bias = tl.zeros([block_outputs], tl.float32)
    for start in range(program * block_rows, num_rows, tl.num_programs(0) * block_rows):
        row = (start + tl.arange(0, block_rows)).to(tl.int64)
        is_row = (row < num_rows)[:, None]
        is_there = is_row & is_output[None, :]
        place = row[:, None] * outputs + output[None, :]
        out = tl.load(out_at + place, mask=is_there, other=0.0).to(tl.float32)
        gradient = tl.load(to_out_at + place, mask=is_there, other=0.0).to(tl.float32)
        if activation == "tanh":
            gradient *= 1.0 - out * out
        else:
            gradient = tl.where(out <= 0.0, 0.0, gradient)
        to_bias += tl.sum(gradient, axis=0)
        if to_total_at is None:
            at = source_at + row[:, None] * inputs + column[None, :]
            source = tl.load(at, mask=is_row & (column < inputs)[None, :], other=0.0)
            to_weight = dot(tl.trans(gradient), source, to_weight, precision)
        else:
            tl.store(to_total_at + place, gradient, mask=is_there)
    if to_total_at is None:
        partials_at += program * (outputs * (inputs + 1))
        at = partials_at + output[:, None] * inputs + column[None, :]
        tl.store(at, to_weight, mask=is_output[:, None] & (column < inputs)[None, :])
        tl.store(partials_at + outputs * inputs + output, to_bias, mask=is_output)
    else:
        tl.store(partials_at + program * outputs + output, to_bias, mask=is_output)


# --- linear layers as differentiable torch functions over the Triton kernels: a hidden layer, and two heads
#
# Torch runs a hidden layer as a product, a nonlinearity and, backward, the nonlinearity's gradient, two products and a
# sum over all rows for the bias; each reads or writes all activations. Here forward is one kernel up to 256 inputs, and
# backward one kernel and a sum for a first layer of up to 64; behind other layers the two products are torch's. A
# policy head and a value head read their features once forward and once backward. Nothing waits for the host, so CUDA
# graphs can record every call.


MAX_INPUTS = 256
"""Most inputs of a hidden layer whose forward product is the kernel's; torch multiplies wider ones."""
MAX_SUMMED = 64
"""Most inputs of a hidden layer whose weights' gradient the kernel adds up, where nothing before it learns."""
MAX_HEADS = 63
"""Most logits of heads that the kernels take."""
PROGRAMS = 256
"""Most programs that share the rows of a sum, for each block of its columns: about two for a multiprocessor."""


class Tile(NamedTuple):
    """What a program takes at a time."""

    rows: int
    inputs: int  # at most
    outputs: int  # at most
    stages: int  # of the pipeline that loads tiles while others are computed
    warps: int = 4


FORWARD = {"float32": Tile(32, 32, 64, 2), "tf32": Tile(64, 64, 128, 2), "bfloat16": Tile(64, 64, 128, 2)}
"""By precision."""
HIDDEN_GRADIENT = {
    "float32": Tile(32, MAX_SUMMED, 64, 2), "tf32": Tile(64, MAX_SUMMED, 64, 2), "bfloat16": Tile(64, MAX_SUMMED, 64, 2)
}  # fmt: skip
HEADS_GRADIENT = {
    "float32": Tile(32, 32, MAX_HEADS + 1, 1), "tf32": Tile(32, 64, MAX_HEADS + 1, 2),
    "bfloat16": Tile(32, 64, MAX_HEADS + 1, 2),
}  # fmt: skip


def hidden(source: Tensor, weight: Tensor, bias: Tensor, activation: str, precision: str) -> Tensor:
    """tanh or relu of a linear layer, [N, outputs]; in bfloat16 if that is the precision."""
    out: Tensor = _Hidden.apply(source, weight, bias, activation, precision)
    return out


def heads(
    source: Tensor, weight: Tensor, bias: Tensor, value_weight: Tensor, value_bias: Tensor, precision: str
) -> tuple[Tensor, Tensor]:
    """Logits [N, outputs] and values [N] of two linear layers on the same features [N, inputs], float32."""
    logits, value = _Heads.apply(source, weight, bias, value_weight, value_bias, precision)
    return logits, value


_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


class _Hidden(torch.autograd.Function):
    """A linear layer with a nonlinearity."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, weight: Tensor, bias: Tensor, activation: str, precision: str) -> Tensor:
        given, source = source, source.contiguous()
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        if weight.shape[1] > MAX_INPUTS:
            out = torch.addmm(bias.to(dtype), source.to(dtype), weight.to(dtype).t())
            out = _ACTIVATIONS[activation](out)
        else:
            out = source.new_empty(len(source), len(weight), dtype=dtype)
            _launch_forward(source, weight, bias, None, None, out, None, activation, precision)
        ctx.save_for_backward(given, weight, bias, out)
        ctx.activation, ctx.precision = activation, precision
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        source, weight, bias, out = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            function = _ACTIVATIONS[ctx.activation]
            found = _plainly(ctx, grads, lambda *inputs: function(linear(*inputs)), (source, weight, bias))
            return *found, None, None
        source, to_out, (outputs, inputs) = source.contiguous(), grads[0].contiguous(), weight.shape
        sums_weight = not ctx.needs_input_grad[0] and inputs <= MAX_SUMMED
        to_total = None if sums_weight else torch.empty_like(out)
        tile = HIDDEN_GRADIENT[ctx.precision]
        num_programs, blocks = _programs(len(source), tile), _blocks(tile, inputs if sums_weight else 1, outputs)
        partials = source.new_empty(num_programs, outputs * (inputs + 1 if sums_weight else 1), dtype=torch.float32)
        hidden_gradient_kernel[(num_programs, -(-outputs // blocks["block_outputs"]))](
            source, out, to_out, to_total, partials, len(source), inputs=inputs, outputs=outputs,
            activation=ctx.activation, precision=ctx.precision, **blocks,
        )  # fmt: skip
        sums = partials.sum(0)
        if to_total is None:
            to_weight, to_bias = sums.split([outputs * inputs, outputs])
            return None, to_weight.view(outputs, inputs), to_bias, None, None
        to_source = None
        if ctx.needs_input_grad[0]:
            to_source = (to_total @ weight.to(to_total.dtype)).to(source.dtype)
        return to_source, (to_total.t() @ source.to(to_total.dtype)).float(), sums, None, None


class _Heads(torch.autograd.Function):
    """A policy head and a value head."""

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, weight: Tensor, bias: Tensor, value_weight: Tensor, value_bias: Tensor, precision: str
    ) -> tuple[Tensor, Tensor]:
        given, source = source, source.contiguous()
        logits = source.new_empty(len(source), len(weight), dtype=torch.float32)
        value = logits.new_empty(len(source))
        _launch_forward(source, weight, bias, value_weight, value_bias, logits, value, "none", precision)
        ctx.save_for_backward(given, weight, bias, value_weight, value_bias)
        ctx.precision = precision
        ctx.set_materialize_grads(False)  # a head that no loss reads has no gradient
        return logits, value

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Any, ...]:
        source, weight, bias, value_weight, value_bias = ctx.saved_tensors
        outputs, inputs = weight.shape
        empty = (source.new_zeros(len(source), outputs), source.new_zeros(len(source)))
        grads = tuple(each.float() if grad is None else grad for grad, each in zip(given, empty, strict=True))
        if torch.is_grad_enabled():  # to be differentiated again
            found = _plainly(ctx, grads, _plain_heads, (source, weight, bias, value_weight, value_bias))
            return *found, None
        source, tile = source.contiguous(), HEADS_GRADIENT[ctx.precision]
        num_programs, blocks = _programs(len(source), tile), _blocks(tile, inputs, outputs + 1)
        to_source = torch.empty_like(source)
        partials = source.new_empty(num_programs, (outputs + 1) * (inputs + 1), dtype=torch.float32)
        heads_gradient_kernel[(num_programs, -(-inputs // blocks["block_inputs"]))](
            source, weight, value_weight, grads[0].contiguous(), grads[1].contiguous(), to_source, partials,
            len(source), inputs=inputs, outputs=outputs, precision=ctx.precision, **blocks,
        )  # fmt: skip
        to_weight, to_value_weight, to_bias, to_value_bias = partials.sum(0).split(
            [outputs * inputs, inputs, outputs, 1]
        )
        of_logits = (None, None) if given[0] is None else (to_weight.view_as(weight), to_bias)
        of_value = (None, None) if given[1] is None else (to_value_weight.view_as(value_weight), to_value_bias)
        return to_source, *of_logits, *of_value, None


def _launch_forward(
    source: Tensor, weight: Tensor, bias: Tensor, value_weight: Tensor | None, value_bias: Tensor | None,
    out: Tensor, value: Tensor | None, activation: str, precision: str,
) -> None:  # fmt: skip
    outputs, inputs = weight.shape
    num_columns, tile = outputs + (value is not None), FORWARD[precision]
    blocks = _blocks(tile, inputs, num_columns)
    forward_kernel[(-(-len(source) // tile.rows), -(-num_columns // blocks["block_outputs"]))](
        source, weight, bias, value_weight, value_bias, out, value, len(source), inputs=inputs, outputs=outputs,
        activation=activation, precision=precision, **blocks,
    )  # fmt: skip


def _plain_heads(
    source: Tensor, weight: Tensor, bias: Tensor, value_weight: Tensor, value_bias: Tensor
) -> tuple[Tensor, Tensor]:
    return linear(source, weight, bias), linear(source, value_weight, value_bias).squeeze(-1)


def _plainly(ctx: Any, grads: tuple[Tensor, ...], function: Any, inputs: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The gradients by torch's operators, which can be differentiated again."""
    is_needed = ctx.needs_input_grad[: len(inputs)]
    inputs = tuple(tensor.view_as(tensor) for tensor in inputs)  # or a weight that is used twice would count twice
    needed = [tensor for tensor, need in zip(inputs, is_needed, strict=True) if need]
    source, *others = inputs
    found = iter(torch.autograd.grad(function(source.float(), *others), needed, grads, create_graph=True))
    return [next(found) if need else None for need in is_needed]


def _programs(num_rows: int, tile: Tile) -> int:
    """How many programs share the rows of a sum."""
    return even_programs(blocks_of(num_rows, tile.rows), PROGRAMS)


def _blocks(tile: Tile, inputs: int, outputs: int) -> dict[str, int]:
    """The sizes of a program's blocks, powers of two, and how it is launched; no product is narrower than 16."""
    return {
        "block_rows": tile.rows,
        "block_inputs": min(tile.inputs, product_size(inputs)),
        "block_outputs": min(tile.outputs, product_size(outputs)),
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
