"""What all kernels of `TritonMLP` share: activations, reading of inputs and weights, the forward pass.

Names that end in `_at` are pointers. Constexpr arguments, and whether a pointer is None, are known when a kernel is
compiled. Functions here are called by kernels. Widths are those of memory; blocks on chip are padded with zeros to
powers of two, and a padded unit or output has weights of 0, so that it adds nothing.

The weights of a network stand one after the other (see `flat_weights.py`): w1 [units1, D], b1, w2 [units2, units1], b2,
w3 [outputs with weights, units2], b3 [outputs]. Outputs are `num_logits` numbers for the distribution, of which the
first `num_weighted` have weights and the others only a bias, then the value if `has_value` is 1.
"""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import clamped, dot, operand, tanh
from scramjet.policies.dense.normalizing import scale_of

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def activate(x, activation: tl.constexpr):  # type: ignore[no-untyped-def]
    """tanh, ReLU or "fast_tanh": one instruction that is exact to 11 bits, as products in tf32 are."""
    if activation == "tanh":
        y = tanh(x)
    elif activation == "fast_tanh":
        y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.where(x < 0.0, 0.0, x)  # NaN stays NaN
    return y


@triton_jit()
def through_activation(gradient, y, activation: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient with respect to an activation's input, from its result `y` and the gradient with respect to that."""
    if activation == "relu":
        gradient = tl.where(y > 0.0, gradient, 0.0)
    else:
        gradient = gradient * (1.0 - y * y)
    return gradient


@triton_jit()
def read_rows(at, row, is_row, width: tl.constexpr, padded: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read rows of a matrix of `width` columns, padded with zeros: [rows, padded]."""
    column = tl.arange(0, padded)
    return tl.load(
        at + row[:, None] * width + column[None, :], mask=is_row[:, None] & (column < width)[None, :], other=0.0
    )


@triton_jit()
def column_of(x, number: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """One column of `x` [block, width]: [block]."""
    return tl.sum(tl.where((tl.arange(0, width) == number)[None, :], x, 0.0), axis=1)


@triton_jit()
def read_scale(mean_at, variance_at, num_inputs: tl.constexpr, inputs: tl.constexpr):  # type: ignore[no-untyped-def]
    """What `ObservationNormalizer` subtracts and multiplies by, [1, inputs] each; zeros if `mean_at` is None."""
    column = tl.arange(0, inputs)[None, :]
    shift, scale = tl.zeros([1, inputs], tl.float32), tl.zeros([1, inputs], tl.float32)
    if mean_at is not None:
        shift, scale = scale_of(mean_at, variance_at, column, column < num_inputs)
    return shift, scale


@triton_jit()
def read_inputs(  # type: ignore[no-untyped-def]
    inputs_at, row, is_row, shift, scale,
    bound: tl.constexpr, num_inputs: tl.constexpr, inputs: tl.constexpr,
):  # fmt: skip
    """Read inputs [block, inputs], normalized and clipped to `bound` if that is not None, each followed by a 1.

    The first layer's bias is treated as one more column of its weights, which is multiplied by that 1. So one product
    gives the gradients of both, and the bias takes no registers. Where inputs need no padding there is no 1.
    """
    x = read_rows(inputs_at, row, is_row, num_inputs, inputs)
    if bound is not None:
        x = (x - shift) * scale
        x = clamped(x, -bound, bound)
    if num_inputs < inputs:
        x = tl.where((tl.arange(0, inputs) == num_inputs)[None, :], 1.0, x)
    return x


@triton_jit()
def read_weights(  # type: ignore[no-untyped-def]
    at, num_inputs: tl.constexpr, inputs: tl.constexpr, units1: tl.constexpr, width1: tl.constexpr,
    units2: tl.constexpr, width2: tl.constexpr, num_logits: tl.constexpr, num_weighted: tl.constexpr,
    has_value: tl.constexpr, outputs: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Read all weights of a network: w1 transposed [inputs, width1], with b1 as a row where there is room; b1 [1,
    width1]; w2 [width2, width1], the same transposed, b2 [1, width2]; w3 [outputs, width2], the same transposed, b3 [1,
    outputs].

    The forward pass multiplies by transposed weights and the backward pass by plain ones. Both are read, because what
    is transposed within a loop over blocks stays in registers and is written to shared memory for each block.
    """
    unit1, unit2 = tl.arange(0, width1), tl.arange(0, width2)
    column, output = tl.arange(0, inputs)[:, None], tl.arange(0, outputs)
    is_unit1, is_unit2 = unit1 < units1, unit2 < units2
    w1_mask = (column < num_inputs) & is_unit1[None, :]
    w1 = tl.load(at + unit1[None, :] * num_inputs + column, mask=w1_mask, other=0.0)
    at += units1 * num_inputs
    b1 = tl.load(at + unit1[None, :], mask=is_unit1[None, :], other=0.0)
    if num_inputs < inputs:
        w1 = tl.where(column == num_inputs, b1, w1)
    at += units1
    w2 = tl.load(at + unit2[:, None] * units1 + unit1[None, :], mask=is_unit2[:, None] & is_unit1[None, :], other=0.0)
    w2_turned = tl.load(
        at + unit2[None, :] * units1 + unit1[:, None], mask=is_unit2[None, :] & is_unit1[:, None], other=0.0
    )
    at += units2 * units1
    b2 = tl.load(at + unit2[None, :], mask=is_unit2[None, :], other=0.0)
    at += units2
    row, has_weights = weight_rows(num_logits, num_weighted, has_value, outputs)
    w3 = tl.load(at + row[:, None] * units2 + unit2[None, :], mask=has_weights[:, None] & is_unit2[None, :], other=0.0)
    w3_turned = tl.load(
        at + row[None, :] * units2 + unit2[:, None], mask=has_weights[None, :] & is_unit2[:, None], other=0.0
    )
    at += (num_weighted + has_value) * units2
    b3 = tl.load(at + output[None, :], mask=(output < num_logits + has_value)[None, :], other=0.0)
    w1, w2, w2_turned = operand(w1, precision), operand(w2, precision), operand(w2_turned, precision)
    return w1, b1, w2, w2_turned, b2, operand(w3, precision), operand(w3_turned, precision), b3


@triton_jit()
def weight_rows(  # type: ignore[no-untyped-def]
    num_logits: tl.constexpr, num_weighted: tl.constexpr, has_value: tl.constexpr, outputs: tl.constexpr
):
    """Which row of w3 each output has, and whether it has one, [outputs] each."""
    output = tl.arange(0, outputs)
    is_value = (output >= num_logits) & (output < num_logits + has_value)
    return tl.where(is_value, num_weighted, output), (output < num_weighted) | is_value


@triton_jit()
def forward(  # type: ignore[no-untyped-def]
    x, w1, b1, w2_turned, b2, w3_turned, b3,
    num_inputs: tl.constexpr, inputs: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
):  # fmt: skip
    """The activations of both hidden layers [block, width] and the outputs [block, outputs] of x [block, inputs]."""
    first = dot(x, w1, None, precision)
    if num_inputs == inputs:
        first += b1
    first = activate(first, activation)
    second = activate(dot(first, w2_turned, None, precision) + b2, activation)
    return first, second, dot(second, w3_turned, None, precision) + b3
