"""Linear layers in Triton against torch's and autograd, interpreted on the CPU or on a CUDA device."""

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")

from scramjet.policies.dense import layers
from scramjet.policies.dense.choice import run_heads, run_trunk
from scramjet.policies.layers import mlp

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}
NUM_ROWS = 150  # several blocks, the last of them not full


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """Programs of sums take several blocks each."""
    monkeypatch.setattr(layers, "PROGRAMS", 2)


def numbers(device, *shape):
    return torch.randn(*shape, device=device).requires_grad_()


def assert_same_gradients(outputs, expected, inputs):
    """The gradients of random weights' sums of the outputs are equal."""
    weights = [torch.randn_like(output) for output in expected]
    for output, other in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, other, rtol=1e-5, atol=1e-5)
    found, right = (torch.autograd.grad(each, inputs, weights) for each in (outputs, expected))
    for ours, theirs in zip(found, right, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("activation", "inputs", "outputs", "learns_before"),
    [
        ("tanh", 4, 24, False), ("relu", 49, 130, False), ("tanh", 70, 130, False),
        ("relu", 5, 24, True), ("tanh", 300, 40, True),
    ],
)  # fmt: skip
def test_a_hidden_layer_and_its_gradients_are_those_of_torch(triton_device, activation, inputs, outputs, learns_before):
    source = numbers(triton_device, NUM_ROWS, inputs).requires_grad_(learns_before)
    weight, bias = numbers(triton_device, outputs, inputs), numbers(triton_device, outputs)
    out = layers.hidden(source, weight, bias, activation, "float32")
    expected = ACTIVATIONS[activation](linear(source, weight, bias))
    assert_same_gradients([out], [expected], [weight, bias, *([source] if learns_before else [])])


def test_an_empty_batch_has_gradients_of_zero(triton_device):
    source, weight, bias = numbers(triton_device, 0, 5), numbers(triton_device, 24, 5), numbers(triton_device, 24)
    layers.hidden(source, weight, bias, "tanh", "float32").sum().backward()
    assert source.grad.shape == (0, 5)
    assert not weight.grad.any()
    assert not bias.grad.any()


@pytest.mark.parametrize(("inputs", "outputs"), [(24, 2), (130, 20)])
def test_two_heads_and_their_gradients_are_those_of_torch(triton_device, inputs, outputs):
    source = numbers(triton_device, NUM_ROWS, inputs)
    weight, bias = numbers(triton_device, outputs, inputs), numbers(triton_device, outputs)
    value_weight, value_bias = numbers(triton_device, 1, inputs), numbers(triton_device, 1)
    every = source, weight, bias, value_weight, value_bias
    expected = linear(source, weight, bias), linear(source, value_weight, value_bias).squeeze(-1)
    assert_same_gradients(layers.heads(*every, "float32"), expected, every)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_rounded_products_are_near_those_of_torch_and_the_same_inputs_give_the_same_bits(triton_device, precision):
    if precision == "bfloat16" and triton_device.type == "cpu":
        pytest.skip("the interpreter does not multiply bfloat16")
    source, weight, bias = (numbers(triton_device, *shape) for shape in ((NUM_ROWS, 16), (32, 16), (32,)))
    heads = [numbers(triton_device, *shape) for shape in ((3, 32), (3,), (1, 32), (1,))]
    found = []
    for _ in range(2):
        features = layers.hidden(source, 0.2 * weight, bias, "tanh", precision)
        logits, value = layers.heads(features, *heads, precision)
        to_all = torch.autograd.grad(logits.square().mean() + value.square().mean(), [source, weight, bias, *heads])
        found.append([logits, value, *to_all])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
    features = torch.tanh(linear(source, 0.2 * weight, bias))
    logits, value = linear(features, *heads[:2]), linear(features, *heads[2:]).squeeze(-1)
    to_all = torch.autograd.grad(logits.square().mean() + value.square().mean(), [source, weight, bias, *heads])
    for ours, theirs in zip(found[0], [logits, value, *to_all], strict=True):
        assert (ours - theirs).norm() < {"tf32": 0.01, "bfloat16": 0.05}[precision] * theirs.norm()


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_what_is_no_number_stays_none_and_in_its_row(triton_device, activation):
    source, weight, bias = (numbers(triton_device, *shape) for shape in ((NUM_ROWS, 4), (16, 4), (16,)))
    with torch.no_grad():
        source[7, 2] = torch.nan
        found = layers.hidden(source, weight, bias, activation, "float32").isnan()
    assert found[7].all()
    assert found.sum() == 16


def test_gradients_can_be_differentiated_again(triton_device):
    source, weight, bias = (numbers(triton_device, *shape) for shape in ((6, 4), (16, 4), (16,)))
    heads = [numbers(triton_device, *shape) for shape in ((3, 16), (3,), (1, 16), (1,))]

    def penalty(ours):
        if ours:
            logits, value = layers.heads(layers.hidden(source, weight, bias, "tanh", "float32"), *heads, "float32")
        else:
            features = torch.tanh(linear(source, weight, bias))
            logits, value = linear(features, *heads[:2]), linear(features, *heads[2:]).squeeze(-1)
        (slope,) = torch.autograd.grad(logits.sum() + value.sum(), source, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), [weight, heads[0], heads[2]])

    for ours, theirs in zip(penalty(True), penalty(False), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("hooked", [False, True])
def test_on_the_gpu_trunks_and_heads_run_in_the_kernels_unless_somebody_hooked_into_them(
    triton_device, monkeypatch, hooked
):
    if triton_device.type == "cpu":
        pytest.skip("needs a CUDA device")
    trunk, actor, critic = (each.to("cuda") for each in (mlp(5, (64, 32), "tanh"), nn.Linear(32, 3), nn.Linear(32, 1)))
    called, calls = [], (layers.hidden, layers.heads)
    for name, call in zip(("hidden", "heads"), calls, strict=True):
        monkeypatch.setattr(layers, name, lambda *given, call=call, name=name: called.append(name) or call(*given))
    if hooked:
        trunk[1].register_forward_hook(lambda *_: None)
        critic.register_forward_hook(lambda *_: None)
    source = torch.randn(NUM_ROWS, 5, device="cuda")
    features = run_trunk(trunk, source)
    logits, value = run_heads(features, actor, critic)
    assert called == ([] if hooked else ["hidden", "hidden", "heads"])
    torch.testing.assert_close(logits, actor(trunk(source)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(value, critic(trunk(source)).squeeze(-1), rtol=1e-5, atol=1e-5)


def test_a_head_that_no_loss_reads_has_no_gradient(triton_device):
    source, weight, bias = numbers(triton_device, 9, 8), numbers(triton_device, 3, 8), numbers(triton_device, 3)
    value_weight, value_bias = numbers(triton_device, 1, 8), numbers(triton_device, 1)
    logits, _ = layers.heads(source, weight, bias, value_weight, value_bias, "float32")
    logits.sum().backward()
    assert value_weight.grad is None
    assert value_bias.grad is None
    torch.testing.assert_close(weight.grad, source.sum(0).expand(3, 8), rtol=1e-4, atol=1e-5)


def test_a_weight_used_twice_counts_each_time_when_differentiated_again(triton_device):
    source, weight, bias = numbers(triton_device, 9, 8), numbers(triton_device, 8, 8), numbers(triton_device, 8)
    ours = layers.hidden(layers.hidden(source, weight, bias, "tanh", "float32"), weight, bias, "tanh", "float32")
    theirs = torch.tanh(linear(torch.tanh(linear(source, weight, bias)), weight, bias))
    for mine, right in zip(
        torch.autograd.grad(ours.sum(), [source, weight], create_graph=True),
        torch.autograd.grad(theirs.sum(), [source, weight]),
        strict=True,
    ):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)
