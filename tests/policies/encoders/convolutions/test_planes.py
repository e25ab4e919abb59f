"""Planes by kernels against those of torch's operators, and whole board networks on top of them.

Each test runs in Triton's interpreter on the CPU, or on a CUDA device where there is one.
"""

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")

from scramjet.engine.trees import map_leaves
from scramjet.envs.registry import load_env
from scramjet.policies import PolicyConfig
from scramjet.policies.encoders import grids
from scramjet.policies.encoders.grids import GridCNN, GridPlanes

PIECES = Dict(
    {
        "agent": MultiDiscrete([3, 4], start=[1, -2]),
        "heights": Box(-1, 1, (3, 4, 2), np.float32),
        "layers": Box(0, 255, (2, 3, 4), np.uint8),
        "signs": MultiDiscrete(np.full((3, 4, 2), [3, 2]), start=np.full((3, 4, 2), [-1, 4])),
        "step_count": Discrete(5),
        "walls": MultiBinary((3, 4)),
    }
)
WORLDS = ["connect_four", "deep_sea", "door_key", "game_2048", "maze", "othello", "snake", "sokoban", "tic_tac_toe"]


def batch_of(space, rows, device):
    """Random observations as a pool lays them out."""
    if isinstance(space, Dict):
        return {name: batch_of(entry, rows, device) for name, entry in space.spaces.items()}
    space.seed(0)
    numbers = torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(rows)]))
    return (numbers.unsqueeze(1) if isinstance(space, Discrete) else numbers).to(device)


def space_of(world):
    return PIECES if world == "pieces" else load_env(world).observation_space


@pytest.mark.parametrize("world", ["pieces", *WORLDS])
def test_planes_are_those_of_torchs_operators(triton_device, world):
    planes, obs = GridPlanes(space_of(world), PolicyConfig(), "grid_cnn"), batch_of(space_of(world), 5, triton_device)
    source = planes.source(obs)
    shape = (5, planes.num_planes, planes.height, planes.width)
    boards = source.boards.view(shape) if source.channels_first else source.boards.view(5, *shape[2:], -1).movedim(3, 1)
    torch.testing.assert_close(boards.float() / source.divisor, planes(obs))


@pytest.mark.parametrize("settings", [{"grid_blocks": 1}, {"grid_readout": "pool", "grid_channels": (8, 16)}])
def test_a_board_network_gives_the_features_and_gradients_of_torchs_operators(triton_device, monkeypatch, settings):
    network = GridCNN(PIECES, PolicyConfig(**{"grid_channels": (8,), **settings}))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    obs = batch_of(PIECES, 3, "cpu")
    expected = network(obs)
    turned = torch.linspace(-1, 1, expected.numel()).view_as(expected).sin()
    expected.backward(turned)
    monkeypatch.setattr(grids, "takes_kernels", lambda tensor: True)
    other = copy.deepcopy(network).to(triton_device)
    other.zero_grad()
    features = other(map_leaves(lambda leaf: leaf.to(triton_device), obs))
    features.backward(turned.to(triton_device))
    torch.testing.assert_close(features.cpu(), expected, atol=1e-4, rtol=1e-4)
    for mine, torchs in zip(other.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), torchs.grad, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_positions_in_bytes_are_counted_beyond_what_a_byte_holds(triton_device, dtype):
    space = Dict({"board": Box(0, 1, (16, 20), np.int8), "me": MultiDiscrete([16, 20], dtype=dtype)})
    planes = GridPlanes(space, PolicyConfig(), "grid_cnn")
    me = torch.tensor([[13, 7]]).to(torch.from_numpy(np.zeros(0, dtype)).dtype)
    obs = {"board": torch.zeros(1, 16, 20, dtype=torch.int8), "me": me}
    source = planes.source(map_leaves(lambda leaf: leaf.to(triton_device), obs))
    for found in (planes(obs)[0].sum(0), source.boards.view(16, 20, -1).sum(2).cpu()):
        assert found.nonzero().tolist() == [[13, 7]]


@pytest.mark.parametrize("change", ["activation", "hook", "groups", "norm", "forward"])
def test_layers_that_a_user_changed_are_left_to_torch(change):
    network = GridCNN(PIECES, PolicyConfig(grid_channels=(8, 8), grid_blocks=1))
    assert network.has_known_layers
    if change == "activation":
        network.layers[1] = torch.nn.GELU()
    elif change == "hook":
        network.layers[4].first.register_forward_hook(lambda *_: None)
    elif change == "groups":
        network.layers[2] = torch.nn.Conv2d(8, 8, 3, padding=1, groups=2)
    elif change == "norm":
        torch.nn.utils.spectral_norm(network.layers[2])
    else:
        network.layers[0].forward = lambda board: board
    assert not network.has_known_layers
