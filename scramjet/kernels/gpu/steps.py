"""The kernels of a gradient step over flat weights: the sum of partial gradients, their clipped norm, and Adam.

An MLP's gradients come as rows of partial sums, with the loss terms behind them (`reduce_kernel`); those of any other
network in one row, without (`norm_kernel`). `step_kernel` then does what torch's Adam does.
"""

from __future__ import annotations

from scramjet.kernels.gpu.language import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl

TERMS = 8
"""Columns after the last parameter: `Diagnostics.NAMES` without the norm, then padding."""


@triton_jit("num_partials", "num_parameters", "row_size", "num_counts", "increment")
def reduce_kernel(  # type: ignore[no-untyped-def]
    partials_at, sums_at, squares_at, counts_at, num_partials, num_parameters, row_size, num_counts, increment,
    rows: tl.constexpr, columns: tl.constexpr, counts: tl.constexpr,
):  # fmt: skip
    """Add up the rows of all programs, and the squares of the sums of gradients for the norm.

    Each program of this kernel does so for `columns` columns, in a fixed order. The first one adds `increment` to
    Adam's step counts, which the next kernel reads.
    """
    program = tl.program_id(0)
    column = program * columns + tl.arange(0, columns)
    sums = tl.zeros([rows, columns], tl.float32)
    for start in range(0, num_partials, rows):
        row = start + tl.arange(0, rows)
        at = partials_at + row[:, None] * row_size + column[None, :]
        sums += tl.load(at, mask=(row < num_partials)[:, None], other=0.0)
    total = tl.sum(sums, axis=0)
    tl.store(sums_at + column, total)
    tl.store(squares_at + program, tl.sum(tl.where(column < num_parameters, total * total, 0.0), axis=0))
    if program == 0:
        place = tl.arange(0, counts)
        count = tl.load(counts_at + place, mask=place < num_counts, other=0.0)
        tl.store(counts_at + place, count + increment, mask=place < num_counts)


@triton_jit("num_blocks", "num_counts")
def norm_kernel(  # type: ignore[no-untyped-def]
    gradients_at, squares_at, counts_at, num_blocks, num_counts, block: tl.constexpr, counts: tl.constexpr
):
    """Add up the squares of a row of gradients, each program those of every so-many-th block.

    The first program counts the step, which the next kernel reads.
    """
    program = tl.program_id(0)
    place = tl.arange(0, block)
    squares = tl.zeros([block], tl.float32)
    for i in range(program, num_blocks, tl.num_programs(0)):
        gradient = tl.load(gradients_at + i * block + place)
        squares += gradient * gradient
    tl.store(squares_at + program, tl.sum(squares, axis=0))
    if program == 0:
        parameter = tl.arange(0, counts)
        count = tl.load(counts_at + parameter, mask=parameter < num_counts, other=0.0)
        tl.store(counts_at + parameter, count + 1.0, mask=parameter < num_counts)


@triton_jit("num_squares", "num_parameters", "diagnostics_at")
def step_kernel(  # type: ignore[no-untyped-def]
    weights_at, exp_avg_at, exp_avg_sq_at, sums_at, squares_at, counts_at, learning_rate_at, diagnostics_at,
    num_squares, num_parameters, max_norm, epsilon,
    beta1: tl.constexpr, beta2: tl.constexpr, log_beta1: tl.constexpr, log_beta2: tl.constexpr, columns: tl.constexpr,
    block: tl.constexpr, has_terms: tl.constexpr, terms: tl.constexpr = TERMS,
):  # fmt: skip
    """Clip the gradient and take Adam's step (Kingma & Ba 2015, algorithm 1) on `columns` parameters a program.

    The first program writes the norm before clipping: with `has_terms` behind the loss terms, in the order of
    `Diagnostics.NAMES`.
    """
    squares = tl.zeros([block], tl.float32)
    for start in range(0, num_squares, block):
        place = start + tl.arange(0, block)
        squares += tl.load(squares_at + place, mask=place < num_squares, other=0.0)
    norm = tl.sqrt(tl.sum(squares, axis=0))
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    gradient = tl.load(sums_at + column)
    if max_norm is not None:
        excess = (norm + 1e-6) / max_norm
        gradient = tl.where(excess > 1.0, gradient / excess, gradient)
    count = tl.load(counts_at).to(tl.float64)
    correction1 = (1.0 - tl.exp(count * log_beta1)).to(tl.float32)
    correction2 = tl.sqrt(1.0 - tl.exp(count * log_beta2)).to(tl.float32)
    exp_avg = beta1 * tl.load(exp_avg_at + column) + (1.0 - beta1) * gradient
    exp_avg_sq = beta2 * tl.load(exp_avg_sq_at + column) + (1.0 - beta2) * gradient * gradient
    step_size = tl.load(learning_rate_at) / correction1
    moved = tl.load(weights_at + column) - step_size * exp_avg / (tl.sqrt(exp_avg_sq) / correction2 + epsilon)
    tl.store(exp_avg_at + column, exp_avg)
    tl.store(exp_avg_sq_at + column, exp_avg_sq)
    tl.store(weights_at + column, moved)
    if tl.program_id(0) == 0:
        if has_terms:
            term = tl.arange(0, terms)
            means = tl.load(sums_at + num_parameters + term)
            tl.store(diagnostics_at + term, tl.where(term == terms - 2, norm, means), mask=term < terms - 1)
        else:
            tl.store(diagnostics_at, norm)
