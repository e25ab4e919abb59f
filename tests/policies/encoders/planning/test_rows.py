"""Kernels of small grids, run lane by lane on the CPU, against the CPU's own sweeps and gradients."""

import numpy as np
import pytest

from scramjet.policies.encoders import value_propagation
from scramjet.policies.encoders.planning import rows
from tests.helpers.warps import Warp

pytestmark = pytest.mark.usefixtures("one_thread")


def grids_of_kind(kind, shape, count=4):
    """Rewards, shares and gradients [count, H, W] as arrays, of four kinds of grids."""
    random = np.random.default_rng(0)
    reward, passes = random.random((count, *shape)) ** 4, random.random((count, *shape)) ** 0.2
    if kind == "shares of 1":
        passes[:] = 1
    elif kind == "ties":
        reward, passes = np.round(reward * 3) / 3, np.where(passes > 0.7, 1.0, 0.5)
    elif kind == "walls":
        passes = np.where(random.random(passes.shape) < 0.35, 0.0, 0.97)
        reward[:] = 5e-4
        reward[:, shape[0] // 2, shape[1] // 2] = 0.9
    return tuple(each.astype(np.float32) for each in (reward, passes, random.standard_normal(reward.shape)))


def run_rows(monkeypatch, kernel, arguments, height):
    """Run a kernel of small grids as Python, one warp after the other."""
    for number in range(-(-len(arguments[0]) // (32 // height))):
        warp = Warp(number)
        monkeypatch.setattr(rows, "cuda", warp)
        warp.run(kernel, arguments)


KINDS = ("random", "shares of 1", "ties", "walls")
SMALL_GRIDS = [((2, 1), "random"), *(((3, 7), kind) for kind in KINDS), ((12, 3), "ties"), ((10, 10), "walls")]


@pytest.mark.parametrize(("shape", "kind"), SMALL_GRIDS)
def test_kernels_of_small_grids_run_lane_by_lane_give_what_the_cpu_gives(monkeypatch, shape, kind):
    reward, passes, grad = grids_of_kind(kind, shape, 32 // shape[0] + 1)  # one more than a warp takes
    value, settled, max_sweeps = np.empty_like(reward), np.empty_like(reward), shape[0] * shape[1]
    value_propagation.sweep(reward, passes, max_sweeps, value)
    kernel = rows.sweep_kernel(*shape)
    run_rows(monkeypatch, kernel, (reward, passes, max_sweeps * shape[0], settled), shape[0])
    np.testing.assert_allclose(settled, value, rtol=0, atol=1e-6)
    expected, routed = np.empty((2, *reward.shape), np.float32), np.empty((2, *reward.shape), np.float32)
    value_propagation.route_back(reward, passes, value, grad, *expected)
    kernel = rows.route_back_kernel(*shape)
    run_rows(monkeypatch, kernel, (reward, passes, value, grad, *routed), shape[0])
    np.testing.assert_allclose(routed, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_gradients_that_are_none_or_endless_end_too(monkeypatch):
    reward, passes, grad = grids_of_kind("random", (3, 4))
    value, routed = np.empty_like(reward), np.empty((2, *reward.shape), np.float32)
    value_propagation.sweep(reward, passes, 12, value)
    grad[0, 1, 1], grad[1, 2, 0] = np.nan, np.inf
    kernel = rows.route_back_kernel(3, 4)
    run_rows(monkeypatch, kernel, (reward, passes, value, grad, *routed), 3)
    assert np.isfinite(routed).all((0, 2, 3)).tolist() == [False, False, True, True]
