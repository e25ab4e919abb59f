"""Matrix products in compiled functions, by torch's BLAS and by the loop that stands in for it."""

import ctypes
import platform
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cfunc, njit, types

from scramjet.compile import blas


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


@pytest.mark.parametrize(("trans_a", "trans_b"), [("N", "N"), ("T", "N"), ("N", "T"), ("T", "T")])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_the_loop_that_stands_in_for_blas_is_sgemm(trans_a, trans_b, beta):
    m, n, k, random = 5, 4, 3, np.random.default_rng(0)
    a, b, c = (np.asfortranarray(random.standard_normal(shape, np.float32)) for shape in ((m, k), (k, n), (m, n)))
    expected = 2 * a @ b + beta * c
    first = np.asfortranarray(a.T) if trans_a == "T" else a
    second = np.asfortranarray(b.T) if trans_b == "T" else b
    pointers = [types.CPointer(kind) for kind in (
        types.int8, types.int8, types.int32, types.int32, types.int32, types.float32, types.float32, types.int32,
        types.float32, types.int32, types.float32, types.float32, types.int32,
    )]  # fmt: skip
    loop = cfunc(types.void(*pointers), error_model="numpy")(blas._plain_sgemm)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(loop.address)
    numbers = [
        np.array([value], kind)
        for value, kind in (
            (ord(trans_a), "i1"), (ord(trans_b), "i1"), (m, "i4"), (n, "i4"), (k, "i4"), (2.0, "f4"),
            (first.shape[0], "i4"), (second.shape[0], "i4"), (beta, "f4"), (m, "i4"),
        )
    ]  # fmt: skip
    ta, tb, m_, n_, k_, alpha, lda, ldb, beta_, ldc = numbers
    arguments = (ta, tb, m_, n_, k_, alpha, first, lda, second, ldb, beta_, c, ldc)
    call(*(array.ctypes.data for array in arguments))
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)


@njit
def exchange_twice(threads):
    before = blas.set_blas_threads(threads)
    return before, blas.set_blas_threads(before)


@pytest.mark.skipif(not blas.HAS_BLAS, reason="torch brings no BLAS that compiled functions can call here")
def test_threads_are_set_and_set_back_for_the_thread_that_asks():
    found = []
    thread = threading.Thread(target=lambda: found.append(exchange_twice(1)))
    exchange_twice(1)
    before = torch.get_num_threads()
    thread.start()
    thread.join()
    assert found[0][1] == 1
    assert torch.get_num_threads() == before


@pytest.mark.skipif(platform.system() != "Linux", reason="of Linux it is known what torch brings")
def test_torch_brings_a_blas_here():
    """Else all is slower than it says."""
    assert blas.HAS_BLAS
