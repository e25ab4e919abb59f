"""Kernels of boards and images against torch's operators and autograd: towers of convolutions, planes, turned boards.

Each test runs in Triton's interpreter on the CPU, or on a CUDA device where there is one.
"""

import copy
import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import nn
from torch.nn import functional

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")

from scramjet.engine.trees import map_leaves
from scramjet.envs.registry import load_env
from scramjet.kernels.gpu import convolutions as blocks
from scramjet.kernels.gpu import convolutions as convolution_layers
from scramjet.kernels.gpu import convolutions as fallback
from scramjet.kernels.gpu.boards import canonical_boards
from scramjet.kernels.gpu.convolutions import Layer, convolve
from scramjet.policies import NatureCNN, PolicyConfig
from scramjet.policies.encoders import grids, images
from scramjet.policies.encoders.grids import GridCNN, GridPlanes
from scramjet.policies.symmetries import CanonicalNetwork, SymmetryTables
from tests.helpers.observed import batch_of

pytestmark = pytest.mark.rest
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """Wide programs where Triton interprets kernels: its time is that of their number. A GPU runs the real ones."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        monkeypatch.setattr(convolution_layers, "REDUCE_COLUMNS", 8192)
        for table, rows in ((blocks.CONVOLUTION, 256), (blocks.GRADIENT, 64)):
            for channels, tuned in table.items():
                monkeypatch.setitem(table, channels, tuned._replace(rows=rows))


# --- towers ------------------------------------------------------------------------------------------------------


def board_layers(height, width, channels, *, is_residual=False, **first):
    """3x3 convolutions with these numbers of channels, the last of which adds the board before the last two."""
    layers = [Layer(a, height, width, b, 3, padding=1) for a, b in pairwise(channels)]
    layers[0] = replace(layers[0], **first)
    last = len(layers) - 1
    layers[last] = replace(layers[last], out_is_channels_first=True, added=last - 1 if is_residual else None)
    return layers


def make_parameters(layers, device):
    weights = [nn.Parameter(torch.randn(at.outputs, at.channels, at.size, at.size) / at.entries**0.5) for at in layers]
    biases = [nn.Parameter(0.1 * torch.randn(at.outputs)) for at in layers]
    return [[nn.Parameter(tensor.to(device)) for tensor in each] for each in (weights, biases)]


def with_torch(layers, planes, weights, biases):
    """What torch makes of planes [B, C, H, W], flattened."""
    boards = [planes]
    for layer, weight, bias in zip(layers, weights, biases, strict=True):
        made = functional.conv2d(boards[-1], weight, bias, layer.stride, layer.padding)
        boards.append(torch.relu(made if layer.added is None else made + boards[layer.added]))
    return boards[-1].flatten(1)


def gradients(features, parameters):
    turned = torch.linspace(-1, 1, features.numel(), device=features.device).view_as(features).sin()
    return torch.autograd.grad((features * turned).sum(), [*parameters[0], *parameters[1]])


def compare(device, layers, source, planes, rtol=1e-4):
    parameters = make_parameters(layers, device)
    ours, theirs = convolve(layers, source, *parameters), with_torch(layers, planes, *parameters)
    torch.testing.assert_close(ours, theirs, **CLOSE)
    torch.testing.assert_close(gradients(ours, parameters), gradients(theirs, parameters), atol=2e-4, rtol=rtol)


@pytest.mark.parametrize(
    ("height", "width", "channels", "is_residual"),
    [
        (6, 7, (2, 32), False), (3, 3, (1, 8), False), (5, 4, (5, 16, 16), False), (4, 5, (20, 24), False),
        (3, 4, (3, 16, 16, 16), True), (1, 5, (17, 40), False), (2, 3, (3, 32, 20), False), (2, 2, (2, 40, 8), False),
        (2, 2, (1, 64, 64, 16), False),
    ],
)  # fmt: skip
def test_boards_and_all_gradients_are_torchs(triton_device, height, width, channels, is_residual):
    layers = board_layers(height, width, channels, is_residual=is_residual)
    planes = torch.randn(5, channels[0], height, width, device=triton_device)
    compare(triton_device, layers, planes.permute(0, 2, 3, 1), planes)


def test_whole_numbers_are_read_as_they_lie_in_the_observation(triton_device):
    layers = board_layers(4, 3, (3, 16), divisor=5.0, source_is_channels_first=True)
    for dtype in (torch.int8, torch.bool, torch.int64):
        source = torch.randint(0, 2, (7, 3, 4, 3), device=triton_device).to(dtype)
        compare(triton_device, layers, source, source.float() / 5)


def test_strided_convolutions_of_pixels_are_torchs(triton_device):
    first = Layer(1, 36, 36, 16, 8, stride=4, divisor=255.0)
    second = Layer(16, first.out_height, first.out_width, 16, 4, stride=2)
    last = Layer(16, second.out_height, second.out_width, 16, 3, out_is_channels_first=True)
    pixels = torch.randint(0, 256, (1, 36, 36, 1), dtype=torch.uint8, device=triton_device)
    compare(triton_device, [first, second, last], pixels, pixels.permute(0, 3, 1, 2).float() / 255)


def test_the_nature_network_reads_pixels_as_they_are(triton_device, monkeypatch):
    for shape in ((36, 36, 1), (2, 36, 40)):
        network = NatureCNN(Box(0, 255, shape, np.uint8), PolicyConfig())
        pixels = torch.randint(0, 256, (1, *shape), dtype=torch.uint8)
        expected = network(pixels)
        with monkeypatch.context() as patch:
            patch.setattr(images, "takes_kernels", lambda tensor: True)
            features = network.to(triton_device)(pixels.to(triton_device))
        torch.testing.assert_close(features.cpu(), expected, **CLOSE)
        assert expected.any()


@pytest.mark.parametrize(
    ("first_size", "first_padding", "size", "stride", "padding"),
    [(3, 1, 3, 2, 1), (3, 1, 2, 3, 0), (3, 1, 5, 3, 2), (3, 1, 1, 1, 0), (2, 1, 2, 1, 1), (3, 2, 3, 1, 2)],
)
def test_any_size_stride_and_padding_is_torchs(triton_device, first_size, first_padding, size, stride, padding):
    first = Layer(2, 5, 7, 16, first_size, padding=first_padding)
    second = Layer(16, first.out_height, first.out_width, 16, size, stride, padding, out_is_channels_first=True)
    planes = torch.randn(2, 2, 5, 7, device=triton_device)
    compare(triton_device, [first, second], planes.permute(0, 2, 3, 1), planes, rtol=1e-3)


def test_the_same_boards_give_the_same_bits_and_weights_in_channels_last_order_get_gradients_in_that_order(
    triton_device,
):
    layers = board_layers(3, 4, (2, 16, 8))
    weights, biases = make_parameters(layers, triton_device)
    source = torch.randn(3, 3, 4, 2, device=triton_device)
    turned = [nn.Parameter(weight.detach().to(memory_format=torch.channels_last)) for weight in weights]
    first, again, other = (convolve(layers, source, each, biases) for each in (weights, weights, turned))
    assert torch.equal(first, again)
    expected, same, found = (
        gradients(features, (each, biases)) for features, each in ((first, weights), (again, weights), (other, turned))
    )
    assert all(map(torch.equal, expected, same))
    assert all(map(torch.equal, expected, found))
    assert [gradient.stride() for gradient in found[:2]] == [weight.stride() for weight in turned]


def test_what_does_not_fit_on_the_gpu_is_left_to_torch_and_said_once(triton_device, monkeypatch):
    from triton.runtime.errors import OutOfResources

    def too_large(*args, **kwargs):
        raise OutOfResources(300_000, 232_448, "shared memory")

    for name in ("forward", "source_gradient", "weight_gradient"):
        monkeypatch.setattr(Layer, name, too_large)
    monkeypatch.setattr(fallback, "_too_large", set())
    layers = board_layers(4, 3, (2, 16, 8, 8), source_is_channels_first=True)
    layers[2] = replace(layers[2], outputs=16, added=1)
    source = torch.randint(0, 2, (3, 2, 4, 3), dtype=torch.int8, device=triton_device)
    with pytest.warns(RuntimeWarning, match="from 2 to 16 channels does not fit on this GPU") as said:
        compare(triton_device, layers, source, source.float())
    assert len(said) == 1


def test_networks_stacked_by_vmap_see_their_own_boards_and_weights(triton_device):
    layers = board_layers(3, 4, (2, 16, 16), is_residual=False)
    networks = [make_parameters(layers, triton_device) for _ in range(3)]
    stacked = [[torch.stack(each) for each in zip(*parts, strict=True)] for parts in zip(*networks, strict=True)]
    source = torch.randn(3, 5, 3, 4, 2, device=triton_device)
    with torch.no_grad():
        every = torch.vmap(lambda boards, weights, biases: convolve(layers, boards, weights, biases))(source, *stacked)
        for k, parameters in enumerate(networks):
            assert torch.equal(every[k], convolve(layers, source[k], *parameters))


@pytest.mark.gpu
def test_bfloat16_is_close_to_float32():
    layers = board_layers(6, 7, (2, 32, 32, 32), is_residual=True)
    parameters = make_parameters(layers, "cuda")
    source = torch.randint(0, 2, (99, 6, 7, 2), device="cuda").float()
    exact = convolve(layers, source, *parameters)
    with torch.autocast("cuda", torch.bfloat16):
        rounded = convolve(layers, source, *parameters)
    assert rounded.dtype == torch.bfloat16
    assert 0 < (rounded.float() - exact).abs().max() < 0.05
    for one, other in zip(gradients(rounded.float(), parameters), gradients(exact, parameters), strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.15 * other.norm()  # rounding alone, in torch, makes 0.05 to 0.09


# --- planes of boards --------------------------------------------------------------------------------------------

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


def moved(obs, device):
    return map_leaves(lambda leaf: leaf.to(device), obs)


def test_planes_are_those_of_torchs_operators(triton_device):
    for space in (PIECES, *(load_env(world).observation_space for world in WORLDS)):
        planes, obs = GridPlanes(space, PolicyConfig(), "grid_cnn"), moved(batch_of(space, 5), triton_device)
        source, shape = planes.source(obs), (5, planes.num_planes, planes.height, planes.width)
        boards = source.boards.view(shape if source.channels_first else (5, *shape[2:], -1))
        boards = boards if source.channels_first else boards.movedim(3, 1)
        torch.testing.assert_close(boards.float() / source.divisor, planes(obs))


@pytest.mark.parametrize("settings", [{"grid_blocks": 1}, {"grid_readout": "pool", "grid_channels": (8, 16)}])
def test_a_board_network_gives_the_features_and_gradients_of_torchs_operators(triton_device, monkeypatch, settings):
    network = GridCNN(PIECES, PolicyConfig(**{"grid_channels": (8,), **settings}))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    obs = batch_of(PIECES, 3)
    expected = network(obs)
    turned = torch.linspace(-1, 1, expected.numel()).view_as(expected).sin()
    expected.backward(turned)
    monkeypatch.setattr(grids, "takes_kernels", lambda tensor: True)
    other = copy.deepcopy(network).to(triton_device)
    other.zero_grad()
    features = other(moved(obs, triton_device))
    features.backward(turned.to(triton_device))
    torch.testing.assert_close(features.cpu(), expected, atol=1e-4, rtol=1e-4)
    for mine, torchs in zip(other.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), torchs.grad, atol=1e-3, rtol=1e-4)


def test_positions_in_bytes_are_counted_beyond_what_a_byte_holds(triton_device):
    for dtype in (torch.int8, torch.uint8, torch.int64):
        position = MultiDiscrete([16, 20], dtype=torch.zeros(0, dtype=dtype).numpy().dtype)
        planes = GridPlanes(Dict({"board": Box(0, 1, (16, 20), np.int8), "me": position}), PolicyConfig(), "grid_cnn")
        obs = {"board": torch.zeros(1, 16, 20, dtype=torch.int8), "me": torch.tensor([[13, 7]], dtype=dtype)}
        source = planes.source(moved(obs, triton_device))
        for found in (planes(obs)[0].sum(0), source.boards.view(16, 20, -1).sum(2).cpu()):
            assert found.nonzero().tolist() == [[13, 7]], dtype


def test_of_all_turned_boards_the_same_one_is_chosen_as_by_torchs_operators(triton_device):
    for world in ("connect_four", "tic_tac_toe"):
        env = load_env(world)
        tables = SymmetryTables.of(env.symmetries, env.observation_space, env.action_space)
        network = CanonicalNetwork(nn.Identity(), tables)
        for dtype in (torch.int8, torch.float32, torch.bool):
            obs = torch.randint(0, 2, (300, *env.observation_space.shape)).to(dtype)
            obs[0], obs[1] = 0, 1  # the same however it is turned: the first of all is taken
            expected, which = network.canonical(obs)
            there = (tensor.to(triton_device) for tensor in (obs, tables.obs_sources, network.order))
            board, chosen = (tensor.cpu() for tensor in canonical_boards(*there))
            assert board.dtype == dtype
            assert torch.equal(board, expected)
            assert chosen[:2].tolist() == [0, 0]
            assert torch.equal(chosen[2:], which[2:])
            assert len(chosen.unique()) == tables.count
