"""The compiled functions of float32 numbers: accurate everywhere, and what is not a number is passed on."""

import numpy as np
import pytest
from numba import njit

from scramjet.compile.vector_maths import exp, log, sigmoid, sum_of_squares, tanh

ORDINARY = np.concatenate([np.linspace(-20, 20, 400_001), np.geomspace(1e-37, 1e38, 10_001)]).astype(np.float32)


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


@pytest.mark.parametrize(("function", "truth"), [(tanh, np.tanh), (sigmoid, true_sigmoid)])
def test_tanh_and_sigmoid_are_accurate_and_within_their_bounds(function, truth):
    numbers = np.concatenate([ORDINARY, -ORDINARY, np.array([np.inf, -np.inf, 0], np.float32)])
    found = along(function)(numbers)
    with np.errstate(over="ignore"):
        assert np.abs(found - truth(numbers.astype(np.float64))).max() < 3e-7
    assert found.min() >= truth(-np.inf)
    assert found.max() <= 1


def test_exp_is_accurate_vanishes_and_overflows():
    numbers = np.linspace(-87, 88.3, 1_000_001).astype(np.float32)
    exact = np.exp(numbers.astype(np.float64))
    assert (np.abs(along(exp)(numbers) - exact) / exact).max() < 2e-7
    assert (
        along(exp)(np.array([0, -88, -1e9, -np.inf, 89, 1e9, np.inf], np.float32)) == [1, 0, 0, 0, *[np.inf] * 3]
    ).all()


def test_log_is_accurate():
    numbers = np.concatenate([np.linspace(0.5, 2, 100_001), np.geomspace(1e-37, 1e38, 100_001)]).astype(np.float32)
    exact = np.log(numbers.astype(np.float64))
    assert (np.abs(along(log)(numbers) - exact) / np.maximum(np.abs(exact), 1)).max() < 2e-7
    assert along(log)(np.ones(1, np.float32))[0] == 0


@pytest.mark.parametrize("function", [tanh, sigmoid, exp, log])
@pytest.mark.parametrize("length", [1, 64])  # alone, and in the lanes of a vector
def test_what_is_not_a_number_stays_so(function, length):
    assert np.isnan(along(function)(np.full(length, np.nan, np.float32))).all()


def test_squares_are_summed_in_double_precision():
    @njit
    def total(numbers):
        return sum_of_squares(numbers)

    numbers = np.random.default_rng(0).normal(size=1_000_003).astype(np.float32)
    assert total(numbers) == pytest.approx((numbers.astype(np.float64) ** 2).sum(), rel=1e-12)
    numbers[77_777] = np.nan
    assert np.isnan(total(numbers))
