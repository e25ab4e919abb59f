"""Matrix products in compiled functions, by torch's BLAS and by the loop that stands in for it, and functions of
numbers, accurate everywhere; what is not a number is passed on."""

import ctypes
import itertools
import platform
import threading
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cfunc, njit, types

from scramjet.compile import blas
from scramjet.compile.vector_maths import exp, log, sigmoid, sum_of_squares, tanh


@njit
def all_three(a, b, c, keep, plain, by_transposed, transposed):
    m, k, n = len(a), a.shape[1], b.shape[1]
    first = a.ctypes.data, a.strides[0] // 4
    blas.multiply(m, n, k, *first, b.ctypes.data, b.strides[0] // 4, keep, plain.ctypes.data, plain.strides[0] // 4)
    blas.multiply_by_transposed(
        m, n, k, *first, c.ctypes.data, c.strides[0] // 4, keep, by_transposed.ctypes.data,
        by_transposed.strides[0] // 4,
    )  # fmt: skip
    blas.multiply_transposed(
        k, n, m, *first, plain.ctypes.data, plain.strides[0] // 4, keep, transposed.ctypes.data,
        transposed.strides[0] // 4,
    )  # fmt: skip


@settings(max_examples=60)
@given(
    m=st.integers(1, 20), k=st.integers(1, 20), n=st.integers(1, 20), keep=st.sampled_from([0.0, 1.0, -0.5]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_products_are_those_of_numpy_also_of_parts_of_larger_matrices(m, k, n, keep, seed):
    random = np.random.default_rng(seed)
    large = [
        random.standard_normal(shape, np.float32) for shape in ((m, k + 3), (k, n + 1), (n, k + 2), (m, n), (m, n))
    ]
    a, b, c, plain, by_transposed = (matrix[:, :width] for matrix, width in zip(large, (k, n, k, n, n), strict=True))
    transposed = random.standard_normal((k, n), np.float32)
    expected = a @ b + keep * plain, a @ c.T + keep * by_transposed
    third = a.T @ expected[0] + keep * transposed
    all_three(a, b, c, np.float32(keep), plain, by_transposed, transposed)
    for found, wanted in zip((plain, by_transposed, transposed), (*expected, third), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_the_loop_that_stands_in_for_blas_is_sgemm():
    # All arguments of BLAS are pointers.
    kinds = ["i1", "i1", "i4", "i4", "i4", "f4", "f4", "i4", "f4", "i4", "f4", "f4", "i4"]
    of_numba = {"i1": types.int8, "i4": types.int32, "f4": types.float32}
    signature = types.void(*(types.CPointer(of_numba[kind]) for kind in kinds))
    loop = cfunc(signature, error_model="numpy")(blas._plain_sgemm)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(loop.address)
    m, n, k, random = 5, 4, 3, np.random.default_rng(0)
    for trans_a, trans_b, beta in itertools.product("NT", "NT", (0.0, 0.5)):
        a, b, c = (np.asfortranarray(random.standard_normal(shape, np.float32)) for shape in ((m, k), (k, n), (m, n)))
        expected = 2 * a @ b + beta * c
        first, second = (np.asfortranarray(x.T) if t == "T" else x for x, t in ((a, trans_a), (b, trans_b)))
        values = (
            ord(trans_a), ord(trans_b), m, n, k, 2.0, first, len(first), second, len(second), beta, c, m,
        )  # fmt: skip
        arguments = [np.asfortranarray(value, kind) for value, kind in zip(values, kinds, strict=True)]
        call(*(array.ctypes.data for array in arguments))
        np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5, err_msg=f"{trans_a} {trans_b} {beta}")


@njit
def exchange_twice(threads):
    before = blas.set_blas_threads(threads)
    return before, blas.set_blas_threads(before)


@pytest.mark.skipif(platform.system() != "Linux", reason="of Linux it is known that torch brings a BLAS")
def test_threads_of_the_blas_that_torch_brings_are_set_and_set_back_for_the_thread_that_asks():
    assert blas.HAS_BLAS  # else all is slower than it says
    found = []
    thread = threading.Thread(target=lambda: found.append(exchange_twice(1)))
    exchange_twice(1)
    before = torch.get_num_threads()
    thread.start()
    thread.join(60)
    assert found[0][1] == 1
    assert torch.get_num_threads() == before


ORDINARY = np.concatenate([np.linspace(-20, 20, 400_001), np.geomspace(1e-37, 1e38, 10_001)]).astype(np.float32)


@cache
def along(function):
    """A loop of it along numbers, as compiled code has it."""

    @njit(error_model="numpy")
    def loop(numbers, results):
        for i in range(len(numbers)):
            results[i] = function(numbers[i])

    def run(numbers):
        results = np.empty_like(numbers)
        loop(numbers, results)
        return results

    return run


def true_sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_tanh_and_sigmoid_are_accurate_and_within_their_bounds():
    numbers = np.concatenate([ORDINARY, -ORDINARY, np.array([np.inf, -np.inf, 0], np.float32)])
    with np.errstate(over="ignore"):
        for function, truth in ((tanh, np.tanh), (sigmoid, true_sigmoid)):
            found = along(function)(numbers)
            assert np.abs(found - truth(numbers.astype(np.float64))).max() < 3e-7
            assert found.min() >= truth(-np.inf)
            assert found.max() <= 1


def test_exp_is_accurate_vanishes_and_overflows():
    numbers = np.linspace(-87, 88.3, 1_000_001).astype(np.float32)
    exact = np.exp(numbers.astype(np.float64))
    assert (np.abs(along(exp)(numbers) - exact) / exact).max() < 2e-7
    ends = np.array([0, -88, -1e9, -np.inf, 89, 1e9, np.inf], np.float32)
    assert along(exp)(ends).tolist() == [1, 0, 0, 0, *[np.inf] * 3]


def test_log_is_accurate():
    numbers = np.concatenate([np.linspace(0.5, 2, 100_001), np.geomspace(1e-37, 1e38, 100_001)]).astype(np.float32)
    exact = np.log(numbers.astype(np.float64))
    assert (np.abs(along(log)(numbers) - exact) / np.maximum(np.abs(exact), 1)).max() < 2e-7
    assert along(log)(np.ones(1, np.float32))[0] == 0


def test_what_is_not_a_number_stays_so():
    for function in (tanh, sigmoid, exp, log):
        for length in (1, 64):  # alone, and in the lanes of a vector
            assert np.isnan(along(function)(np.full(length, np.nan, np.float32))).all(), (function, length)


def test_squares_are_summed_in_double_precision():
    @njit
    def total(numbers):
        return sum_of_squares(numbers)

    numbers = np.random.default_rng(0).normal(size=1_000_003).astype(np.float32)
    assert total(numbers) == pytest.approx((numbers.astype(np.float64) ** 2).sum(), rel=1e-12)
    numbers[77_777] = np.nan
    assert np.isnan(total(numbers))
