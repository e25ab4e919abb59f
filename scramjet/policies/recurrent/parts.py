"""Sequences of many rows split among threads: each part of the rows goes through all steps on one thread."""

from __future__ import annotations

import numpy as np

from scramjet.compile.addresses import AddressedFunction, call, record_at
from scramjet.compile.blas import set_blas_threads
from scramjet.policies.recurrent.kernels import ROWS_PER_BLOCK

_FLOAT = 4  # bytes

WORK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "function", "core", "features", "outputs", "begins", "state", "after", "kept", "to_features", "to_weights",
            "rows", "steps", "num_features", "size", "state_size", "width", "num_weights",
        )
    ]
)  # fmt: skip
"""Sequences to be split among threads: `function` is an address out of a `Sequences`, the rest are its arguments. In
the backward pass `outputs` and `after` are gradients; each part has its own `num_weights` numbers of `to_weights`."""

_work = record_at(WORK)


@AddressedFunction
def forward_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """The forward pass for part number `part` of the rows of `WORK`, ROWS_PER_BLOCK at a time."""
    work, threads = _work(address), set_blas_threads(1)
    stop = work.rows * (part + 1) // num_parts
    for start in range(work.rows * part // num_parts, stop, ROWS_PER_BLOCK):
        rows = min(ROWS_PER_BLOCK, stop - start)
        arguments = (
            work.core,
            work.features + _FLOAT * start * work.num_features,
            work.outputs + _FLOAT * start * work.size,
            work.begins + start if work.begins != 0 else 0,
            work.state + _FLOAT * start * work.state_size,
            work.after + _FLOAT * start * work.state_size,
            work.kept + _FLOAT * start * work.steps * work.width,
            rows,
            work.rows,
            work.steps,
        )
        call(work.function, arguments)
    set_blas_threads(threads)


@AddressedFunction
def backward_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """The backward pass for part number `part` of the rows of `WORK`, ROWS_PER_BLOCK at a time."""
    work, threads = _work(address), set_blas_threads(1)
    stop = work.rows * (part + 1) // num_parts
    for start in range(work.rows * part // num_parts, stop, ROWS_PER_BLOCK):
        rows = min(ROWS_PER_BLOCK, stop - start)
        arguments = (
            work.core,
            work.features + _FLOAT * start * work.num_features,
            work.outputs + _FLOAT * start * work.size,
            work.begins + start if work.begins != 0 else 0,
            work.state + _FLOAT * start * work.state_size,
            work.after + _FLOAT * start * work.state_size,
            work.kept + _FLOAT * start * work.steps * work.width,
            rows,
            work.rows,
            work.steps,
            work.to_features + _FLOAT * start * work.num_features if work.to_features != 0 else 0,
            work.to_weights + _FLOAT * part * work.num_weights,
        )
        call(work.function, arguments)
    set_blas_threads(threads)
