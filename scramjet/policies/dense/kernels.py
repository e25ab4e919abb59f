"""Triton kernels of linear layers: hidden ones with their nonlinearity, and a policy head with a value head.

Operands of products are rounded by `precision`: float32, tf32 or bfloat16; sums are float32. Programs that add up over
rows write a row of partial sums each, which torch adds up: without atomics the same inputs give the same bits.

Names that end in `_at` are pointers. Weights are [outputs, inputs], as in torch's linear layers.
"""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import dot, tanh

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
