"""Towers of convolutions against torch's convolutions and autograd.

Each test runs in Triton's interpreter on the CPU, or on a CUDA device where there is one.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn
from torch.nn import functional

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")

from scramjet.policies import PolicyConfig
from scramjet.policies.encoders import images
from scramjet.policies.encoders.convolutions import fallback
from scramjet.policies.encoders.convolutions.layers import Layer
from scramjet.policies.encoders.convolutions.tower import convolve
from scramjet.policies.encoders.images import NatureCNN

CLOSE = {"atol": 2e-5, "rtol": 1e-4}


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


def compare(device, layers, source, planes):
    parameters = make_parameters(layers, device)
    ours, theirs = convolve(layers, source, *parameters), with_torch(layers, planes, *parameters)
    torch.testing.assert_close(ours, theirs, **CLOSE)
    for mine, other in zip(gradients(ours, parameters), gradients(theirs, parameters), strict=True):
        torch.testing.assert_close(mine, other, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("height", "width", "channels", "is_residual"),
    [
        (6, 7, (2, 32), False),
        (3, 3, (1, 8), False),
        (5, 4, (5, 16, 16), False),
        (4, 5, (20, 24), False),
        (3, 4, (3, 16, 16, 16), True),
        (1, 5, (17, 40), False),
        (2, 3, (3, 32, 20), False),
        (2, 2, (2, 40, 8), False),
        (2, 2, (1, 64, 64, 16), False),
    ],
)
def test_boards_and_all_gradients_are_torchs(triton_device, height, width, channels, is_residual):
    layers = board_layers(height, width, channels, is_residual=is_residual)
    planes = torch.randn(5, channels[0], height, width, device=triton_device)
    compare(triton_device, layers, planes.permute(0, 2, 3, 1), planes)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.int64])
def test_whole_numbers_are_read_as_they_lie_in_the_observation(triton_device, dtype):
    layers = board_layers(4, 3, (3, 16), divisor=5.0, source_is_channels_first=True)
    source = torch.randint(0, 2, (7, 3, 4, 3), device=triton_device).to(dtype)
    compare(triton_device, layers, source, source.float() / 5)


@pytest.mark.parametrize("size", [36])
def test_strided_convolutions_of_pixels_are_torchs(triton_device, size):
    first = Layer(1, size, size, 16, 8, stride=4, divisor=255.0)
    second = Layer(16, first.out_height, first.out_width, 16, 4, stride=2)
    last = Layer(16, second.out_height, second.out_width, 16, 3, out_is_channels_first=True)
    pixels = torch.randint(0, 256, (1, size, size, 1), dtype=torch.uint8, device=triton_device)
    compare(triton_device, [first, second, last], pixels, pixels.permute(0, 3, 1, 2).float() / 255)


@pytest.mark.parametrize("shape", [(36, 36, 1), (2, 36, 40)])
def test_the_nature_network_reads_pixels_as_they_are(triton_device, monkeypatch, shape):
    network = NatureCNN(Box(0, 255, shape, np.uint8), PolicyConfig())
    pixels = torch.randint(0, 256, (1, *shape), dtype=torch.uint8)
    expected = network(pixels)
    monkeypatch.setattr(images, "takes_kernels", lambda tensor: True)
    features = network.to(triton_device)(pixels.to(triton_device))
    torch.testing.assert_close(features.cpu(), expected, **CLOSE)
    assert expected.any()


@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 2, 1), (2, 3, 0), (5, 3, 2), (1, 1, 0)])
def test_any_size_stride_and_padding_of_the_second_layer_is_torchs(triton_device, size, stride, padding):
    first = Layer(2, 5, 7, 16, 3, padding=1)
    second = Layer(16, 5, 7, 8, size, stride, padding, out_is_channels_first=True)
    planes = torch.randn(2, 2, 5, 7, device=triton_device)
    compare(triton_device, [first, second], planes.permute(0, 2, 3, 1), planes)


def test_weights_in_channels_last_order_get_gradients_in_that_order(triton_device):
    layers = board_layers(3, 4, (2, 16, 8))
    weights, biases = make_parameters(layers, triton_device)
    source = torch.randn(3, 3, 4, 2, device=triton_device)
    expected = gradients(convolve(layers, source, weights, biases), (weights, biases))
    turned = [nn.Parameter(weight.detach().to(memory_format=torch.channels_last)) for weight in weights]
    found = gradients(convolve(layers, source, turned, biases), (turned, biases))
    for one, other, weight in zip(found, expected, turned, strict=False):
        assert one.stride() == weight.stride()
        assert torch.equal(one, other)


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


def test_the_same_boards_give_the_same_bits(triton_device):
    layers = board_layers(3, 3, (2, 16, 16))
    parameters = make_parameters(layers, triton_device)
    source = torch.randn(9, 3, 3, 2, device=triton_device)
    first, second = (convolve(layers, source, *parameters) for _ in range(2))
    assert torch.equal(first, second)
    for one, other in zip(gradients(first, parameters), gradients(second, parameters), strict=True):
        assert torch.equal(one, other)


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


@pytest.mark.parametrize(("size", "padding"), [(2, 1), (3, 2)])
def test_gradients_pass_through_layers_with_as_much_padding_as_can_be(triton_device, size, padding):
    first = Layer(2, 4, 5, 16, size, padding=padding)
    second = Layer(16, first.out_height, first.out_width, 16, size, padding=padding, out_is_channels_first=True)
    source = torch.randn(3, 4, 5, 2, device=triton_device)
    parameters = make_parameters([first, second], triton_device)
    ours = convolve([first, second], source, *parameters)
    theirs = with_torch([first, second], source.permute(0, 3, 1, 2), *parameters)
    for mine, right in zip(gradients(ours, parameters), gradients(theirs, parameters), strict=True):
        torch.testing.assert_close(mine, right, atol=2e-4, rtol=1e-3)
