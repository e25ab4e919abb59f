"""Kernels of planning for GPUs, run lane by lane as Python, in numba's or Triton's simulators, or on a GPU, against the
CPU's and torch's operators."""

import itertools
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete

from scramjet.errors import ConfigError
from scramjet.kernels.cpu import planning as on_cpu
from scramjet.kernels.gpu import planning as rows
from scramjet.policies import PolicyConfig
from scramjet.policies.encoders import value_propagation
from scramjet.policies.encoders.value_propagation import ValuePropagation, propagate
from tests.helpers.cuda_graphs import replayed
from tests.helpers.observed import batch_of

pytestmark = pytest.mark.usefixtures("one_thread")

WARP = 32


class Warp:
    """What kernels with shuffles and votes, but no shared memory, know as `cuda`: a thread for each lane of a warp."""

    def __init__(self, number):
        self.local = SimpleNamespace(array=lambda size, dtype: np.full(size, 77, np.dtype(str(dtype))))
        self.blockDim, self.blockIdx = SimpleNamespace(x=WARP), SimpleNamespace(x=number)
        self._barrier = threading.Barrier(WARP, timeout=60)
        self._held = [None] * WARP
        self._own = threading.local()

    @property
    def threadIdx(self):  # noqa: N802
        return SimpleNamespace(x=self._own.lane)

    def shfl_sync(self, mask, number, lane):
        return self._exchange(mask, number, lambda held: held[lane])

    def any_sync(self, mask, flag):
        return self._exchange(mask, flag, any)

    def _exchange(self, mask, number, read):
        assert mask == 0xFFFFFFFF
        self._held[self._own.lane] = number
        self._barrier.wait()
        found = read(self._held)
        self._barrier.wait()
        return found

    def run(self, kernel, arguments):
        errors = []

        def as_lane(lane):
            self._own.lane = lane
            try:
                kernel(*arguments)
            except Exception as error:
                errors.append(error)
                self._barrier.abort()

        lanes = [threading.Thread(target=as_lane, args=(lane,)) for lane in range(WARP)]
        for each in lanes:
            each.start()
        for each in lanes:
            each.join()
        if errors:
            raise errors[0]


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


SMALL_GRIDS = [((2, 1), "random"), *(((3, 7), kind) for kind in ("random", "shares of 1", "ties")), ((12, 3), "ties"),
               ((10, 10), "walls")]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "kind"), [((3, 7), "walls"), *(pytest.param(*each, marks=pytest.mark.rest) for each in SMALL_GRIDS)]
)
def test_kernels_of_small_grids_run_lane_by_lane_give_what_the_cpu_gives(monkeypatch, shape, kind):
    reward, passes, grad = grids_of_kind(kind, shape, 32 // shape[0] + 1)  # one more than a warp takes
    value, settled, max_sweeps = np.empty_like(reward), np.empty_like(reward), shape[0] * shape[1]
    on_cpu.sweep(reward, passes, max_sweeps, value)
    run_rows(monkeypatch, rows.sweep_kernel(*shape), (reward, passes, max_sweeps * shape[0], settled), shape[0])
    np.testing.assert_allclose(settled, value, rtol=0, atol=1e-6)
    expected, routed = np.empty((2, *reward.shape), np.float32), np.empty((2, *reward.shape), np.float32)
    on_cpu.route_back(reward, passes, value, grad, *expected)
    run_rows(monkeypatch, rows.route_back_kernel(*shape), (reward, passes, value, grad, *routed), shape[0])
    np.testing.assert_allclose(routed, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_gradients_that_are_none_or_endless_end_too(monkeypatch):
    reward, passes, grad = grids_of_kind("random", (3, 4))
    value, routed = np.empty_like(reward), np.empty((2, *reward.shape), np.float32)
    on_cpu.sweep(reward, passes, 12, value)
    grad[0, 1, 1], grad[1, 2, 0] = np.nan, np.inf
    run_rows(monkeypatch, rows.route_back_kernel(3, 4), (reward, passes, value, grad, *routed), 3)
    assert np.isfinite(routed).all((0, 2, 3)).tolist() == [False, False, True, True]


SIMULATION = """
import numpy as np
import torch
from numba import cuda
from scramjet.policies import PolicyConfig
from scramjet.kernels.cpu import planning as on_cpu
from scramjet.kernels.gpu import planning as on_gpu

def simulate(kernel, num_blocks, block, shared_bytes, arguments):
    arrays = [each.numpy() if isinstance(each, torch.Tensor) else each for each in arguments]
    assert block >= 32
    cuda.jit(kernel)[num_blocks, 3, 0, shared_bytes](*arrays)

on_gpu._launch = simulate
on_gpu.fits_rows = lambda height, width: False
random = np.random.default_rng(0)
for height, width, max_sweeps, kind in (
    (1, 1, 1, "open"), (1, 5, 5, "open"), (4, 1, 4, "one"), (3, 5, 1, "open"),
    (4, 5, 20, "one"), (5, 3, 4, "winding"), (6, 4, 24, "open"),
):
    def numbers(power):
        return torch.from_numpy(random.random((2, height, width)) ** power).float()
    reward, passes, grad = numbers(4), numbers(0 if kind == "one" else 0.2), numbers(1)
    if kind == "winding":
        passes[:, 1, :-1] = passes[:, 3, 1:] = 0
        reward *= 0.01
        reward[:, 0, 0] = 1
    value, simulated = torch.empty_like(reward), torch.empty_like(reward)
    on_cpu.sweep(reward.numpy(), passes.numpy(), max_sweeps, value.numpy())
    on_gpu.sweep(reward, passes, max_sweeps, simulated)
    torch.testing.assert_close(simulated, value, rtol=0, atol=1e-6)
    inputs = (reward, passes, value, grad)
    gradients, simulated = torch.empty(2, *reward.shape), torch.empty(2, *reward.shape)
    on_cpu.route_back(*(each.numpy() for each in (*inputs, *gradients)))
    on_gpu.route_back(*inputs, *simulated)
    torch.testing.assert_close(simulated, gradients, rtol=1e-5, atol=1e-6)
print("simulated")
"""
"""Values and gradients by the kernels with a block for each grid against the CPU's. Shares of 1 make cells draw from
each other, and a winding way tells the directions of sweeps apart."""


@pytest.mark.rest
def test_the_gpus_kernels_run_in_a_simulator_give_what_the_cpu_gives():
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    result = subprocess.run(
        [sys.executable, "-c", SIMULATION], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.stdout.endswith("simulated\n"), result.stderr


def random_grids(shape, seed=0):
    """Rewards, shares and gradients [300, H, W], on the CPU."""
    random = np.random.default_rng(seed)
    numbers = [random.random((300, *shape)) ** power for power in (4, 0.2)]
    return [torch.from_numpy(each).float() for each in (*numbers, random.standard_normal((300, *shape)))]


def value_and_gradients(reward, passes, grad, max_sweeps):
    reward, passes = reward.detach().requires_grad_(), passes.detach().requires_grad_()
    value = propagate(reward, passes, max_sweeps)
    return value, *torch.autograd.grad(value, (reward, passes), grad)


@pytest.mark.gpu
def test_on_the_gpu_values_and_gradients_are_those_of_the_cpu():
    """In sizes on both sides of where grids no longer fit into rows of registers."""
    shapes = [
        (1, 1), (1, 17), (2, 1), (23, 1), (10, 10), (11, 9), (16, 16), (16, 17), (32, 16), (33, 16), (20, 13), (13, 20),
        (32, 32), (40, 60),
    ]  # fmt: skip
    for shape, max_sweeps in itertools.product(shapes, (1, 3, 1000)):
        grids = random_grids(shape)
        on_cpu = value_and_gradients(*grids, max_sweeps)
        on_gpu = value_and_gradients(*(each.cuda() for each in grids), max_sweeps)
        torch.testing.assert_close(on_gpu[0].cpu(), on_cpu[0], rtol=0, atol=1e-6)
        for one, other in zip(on_gpu[1:], on_cpu[1:], strict=True):
            # Rounding may tip a choice between two neighbours of about the same value.
            is_close = torch.isclose(one.cpu(), other, rtol=1e-5, atol=1e-5).flatten(1).all(1)
            assert is_close.float().mean() > 0.99, (shape, max_sweeps)


@pytest.mark.gpu
def test_on_the_gpu_numbers_that_are_none_or_shares_of_exactly_1_end_too():
    nothing = torch.full((1, 5, 5), torch.nan, device="cuda")
    assert torch.isnan(propagate(nothing, torch.ones_like(nothing), 25)).all()
    reward, _, grad = (each.cuda() for each in random_grids((9, 9)))
    value, *gradients = value_and_gradients(reward, torch.ones_like(reward), grad, 81)
    assert torch.equal(value, reward.amax((1, 2), keepdim=True).expand_as(value))
    assert all(torch.isfinite(each).all() for each in gradients)
    assert propagate(reward[:0], reward[:0], 81).shape == (0, 9, 9)


@pytest.mark.gpu
def test_a_cuda_graph_of_planning_and_its_gradient_serves_other_grids():
    grids = [each.cuda() for each in random_grids((10, 10))]
    others = [each.cuda() for each in random_grids((10, 10), seed=1)]
    replay = replayed(lambda: value_and_gradients(*grids, 100), grids, others)
    for one, other in zip(replay, value_and_gradients(*others, 100), strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
def test_a_grid_too_large_for_the_gpus_shared_memory_is_refused():
    grid = torch.rand(1, 70, 70, device="cuda")
    with pytest.raises(ConfigError, match="this one is 70 x 70; use --device cpu"):
        propagate(grid, grid, 10)


# --- in Triton: what is around the planning ----------------------------------------------------------------------

SPACE = Dict(
    {
        "agent": MultiDiscrete([3, 5], start=[1, -1]),
        "target": MultiDiscrete([3, 5]),
        "walls": MultiBinary((3, 5)),
        "water": MultiBinary((3, 5)),
    }
)
ROWS = 19


def make_case(device, space=SPACE, channels=16):
    """A network, many of whose cells are kept within the sigmoids' bounds, and observations."""
    network = ValuePropagation(space, PolicyConfig(grid_channels=(channels,)))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0, 0.7)
    return network.to(device), {name: entry.to(device) for name, entry in batch_of(space, ROWS).items()}


def by_torch_and_by_kernels(monkeypatch, function, *given):
    for takes_kernels in (False, True):
        monkeypatch.setattr(value_propagation, "takes_kernels", lambda tensor, taken=takes_kernels: taken)
        yield function(*given)


@pytest.mark.rest
def test_rewards_shares_and_gradients_are_torchs(triton_device, monkeypatch):
    """By kinds of cells, or cell by cell as for planes of any numbers."""
    numbers = Dict({"agent": MultiDiscrete([3, 5]), "depth": Box(0.0, 1.0, (3, 5))})
    for space, channels, most_binary_planes in (
        (SPACE, 16, 3), (SPACE, 20, 3), (SPACE, 16, 0), (SPACE, 20, 0), (numbers, 16, 3)
    ):  # fmt: skip
        monkeypatch.setattr(value_propagation, "MOST_BINARY_PLANES", most_binary_planes)
        network, obs = make_case(triton_device, space, channels)
        expected, made = map(torch.stack, by_torch_and_by_kernels(monkeypatch, network.reward_and_passes, obs))
        # kept within bounds, where gradients lead back only
        assert space is numbers or ((expected - 0.5).abs() > 0.4995).any()
        torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-4)
        turned, parameters = torch.randn_like(expected), list(network.parameters())
        mine, torchs = (torch.autograd.grad(each, parameters, turned) for each in (made, expected))
        torch.testing.assert_close(mine, torchs, atol=1e-3, rtol=1e-3)


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:overflow")
def test_features_of_agents_and_their_gradients_are_torchs(triton_device, monkeypatch):
    network, obs = make_case(triton_device)
    cells = torch.rand(2, ROWS, 3, 5, device=triton_device, requires_grad=True)
    expected, made = by_torch_and_by_kernels(monkeypatch, network.agent_features, *cells, obs)
    torch.testing.assert_close(made, expected, atol=1e-6, rtol=1e-5)
    turned = torch.randn_like(expected)
    first, second = (torch.autograd.grad(each, cells, turned)[0] for each in (made, expected))
    assert (second == 0).any()  # cells that no agent sees
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-4)
