"""The kernels around the planning of value propagation, against torch's operators and autograd.

Each test runs in Triton's interpreter on the CPU, or on a CUDA device where there is one.
"""

import copy

import pytest
import torch
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")

from scramjet.policies import PolicyConfig
from scramjet.policies.encoders import value_propagation
from scramjet.policies.encoders.value_propagation import ValuePropagation

SPACE = Dict(
    {
        "agent": MultiDiscrete([3, 5], start=[1, -1]),
        "target": MultiDiscrete([3, 5]),
        "walls": MultiBinary((3, 5)),
        "water": MultiBinary((3, 5)),
    }
)
ROWS = 19


def make_network(device, channels):
    network = ValuePropagation(SPACE, PolicyConfig(grid_channels=(channels,)))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.7)  # many cells are kept within the sigmoids' bounds
    return network.to(device)


def make_obs(device):
    agent, target = (torch.stack([torch.randint(0, 3, (ROWS,)), torch.randint(0, 5, (ROWS,))], 1) for _ in range(2))
    grids = torch.randint(0, 2, (2, ROWS, 3, 5), dtype=torch.int8)
    obs = {"agent": agent + torch.tensor([1, -1]), "target": target, "walls": grids[0], "water": grids[1]}
    return {name: entry.to(device) for name, entry in obs.items()}


def on_kernels(patch):
    patch.setattr(value_propagation, "takes_kernels", lambda tensor: True)


@pytest.mark.parametrize(("channels", "most_binary_planes"), [(16, 3), (20, 3), (16, 0), (20, 0)])
def test_rewards_shares_and_gradients_are_torchs(triton_device, monkeypatch, channels, most_binary_planes):
    """By kinds of cells, or cell by cell as for planes of any numbers."""
    monkeypatch.setattr(value_propagation, "MOST_BINARY_PLANES", most_binary_planes)
    network, obs = make_network(triton_device, channels), make_obs(triton_device)
    monkeypatch.setattr(value_propagation, "takes_kernels", lambda tensor: False)
    other = copy.deepcopy(network)
    expected = torch.stack(network.reward_and_passes(obs))
    assert ((expected - 0.5).abs() > 0.4995).any()  # kept within bounds, where gradients lead back only
    on_kernels(monkeypatch)
    made = torch.stack(other.reward_and_passes(obs))
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-4)
    turned = torch.randn_like(expected)
    expected.backward(turned)
    made.backward(turned)
    for mine, torchs in zip(other.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, torchs.grad, atol=1e-3, rtol=1e-3)


def test_planes_of_any_numbers_are_not_taken_for_zeros_and_ones(triton_device, monkeypatch):
    space = Dict({"agent": MultiDiscrete([3, 5]), "depth": Box(0.0, 1.0, (3, 5))})
    network = ValuePropagation(space, PolicyConfig(grid_channels=(16,))).to(triton_device)
    obs = {"agent": torch.zeros(ROWS, 2, dtype=torch.int64), "depth": torch.rand(ROWS, 3, 5)}
    obs = {name: entry.to(triton_device) for name, entry in obs.items()}
    expected = torch.stack(network.reward_and_passes(obs))
    on_kernels(monkeypatch)
    torch.testing.assert_close(torch.stack(network.reward_and_passes(obs)), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:overflow")
def test_features_of_agents_and_their_gradients_are_torchs(triton_device, monkeypatch):
    network, obs = make_network(triton_device, 16), make_obs(triton_device)
    cells = torch.rand(2, ROWS, 3, 5, device=triton_device, requires_grad=True)
    monkeypatch.setattr(value_propagation, "takes_kernels", lambda tensor: False)
    expected = network.agent_features(*cells, obs)
    on_kernels(monkeypatch)
    made = network.agent_features(*cells, obs)
    torch.testing.assert_close(made, expected, atol=1e-6, rtol=1e-5)
    turned = torch.randn_like(expected)
    first, second = (torch.autograd.grad(each, cells, turned)[0] for each in (made, expected))
    assert (second == 0).any()  # cells that no agent sees
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-4)
