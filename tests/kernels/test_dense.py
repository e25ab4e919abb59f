"""Linear layers and scaled rows in Triton against torch's and autograd, interpreted on the CPU or on a CUDA device."""

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, normalize

pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed here")

from scramjet.kernels import operations as choice
from scramjet.kernels.gpu import dense as layers
from scramjet.kernels.gpu import normalizing as unit_rows
from scramjet.kernels.gpu.normalizing import normalized
from scramjet.policies.layers import mlp
from scramjet.policies.normalization import ObservationNormalizer

pytestmark = pytest.mark.rest
ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}
NUM_ROWS = 150  # several blocks, the last of them not full


@pytest.fixture
def device(triton_device, monkeypatch):
    """Where the kernels are tried; programs of sums take several blocks each."""
    monkeypatch.setattr(layers, "PROGRAMS", 2)
    return triton_device


def numbers(device, *shape):
    return torch.randn(*shape, device=device).requires_grad_()


def weights_of(device, inputs, outputs):
    return numbers(device, outputs, inputs), numbers(device, outputs)


def torchs_heads(features, weight, bias, value_weight, value_bias, precision=None):
    return linear(features, weight, bias), linear(features, value_weight, value_bias).squeeze(-1)


def assert_same_gradients(outputs, expected, inputs):
    """The gradients of random weights' sums of the outputs are equal."""
    weights = [torch.randn_like(output) for output in expected]
    torch.testing.assert_close(list(outputs), list(expected), rtol=1e-5, atol=1e-5)
    found, right = (torch.autograd.grad(each, inputs, weights) for each in (outputs, expected))
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


def test_a_hidden_layer_and_its_gradients_are_those_of_torch(device):
    for activation, inputs, outputs, learns_before in (
        ("tanh", 4, 24, False), ("relu", 49, 130, False), ("tanh", 70, 130, False), ("relu", 5, 24, True),
        ("tanh", 300, 40, True),
    ):  # fmt: skip
        source = numbers(device, NUM_ROWS, inputs).requires_grad_(learns_before)
        weight, bias = weights_of(device, inputs, outputs)
        out = layers.hidden(source, weight, bias, activation, "float32")
        expected = ACTIVATIONS[activation](linear(source, weight, bias))
        assert_same_gradients([out], [expected], [weight, bias, *([source] if learns_before else [])])


def test_two_heads_and_their_gradients_are_those_of_torch(device):
    for inputs, outputs in ((24, 2), (130, 20)):
        every = numbers(device, NUM_ROWS, inputs), *weights_of(device, inputs, outputs), *weights_of(device, inputs, 1)
        assert_same_gradients(layers.heads(*every, "float32"), torchs_heads(*every), every)


def test_an_empty_batch_and_a_head_that_no_loss_reads(device):
    source, (weight, bias) = numbers(device, 0, 5), weights_of(device, 5, 24)
    layers.hidden(source, weight, bias, "tanh", "float32").sum().backward()
    assert source.grad.shape == (0, 5)
    assert not weight.grad.any()
    assert not bias.grad.any()
    source, (weight, bias), unread = numbers(device, 9, 8), weights_of(device, 8, 3), weights_of(device, 8, 1)
    logits, _ = layers.heads(source, weight, bias, *unread, "float32")
    logits.sum().backward()
    assert [each.grad for each in unread] == [None, None]
    torch.testing.assert_close(weight.grad, source.sum(0).expand(3, 8), rtol=1e-4, atol=1e-5)


def test_rounded_products_are_near_those_of_torch_and_the_same_inputs_give_the_same_bits(device):
    source, (weight, bias) = numbers(device, NUM_ROWS, 16), weights_of(device, 16, 32)
    heads = *weights_of(device, 32, 3), *weights_of(device, 32, 1)

    def with_gradients(logits, value):
        loss = logits.square().mean() + value.square().mean()
        return [logits, value, *torch.autograd.grad(loss, [source, weight, bias, *heads])]

    theirs = with_gradients(*torchs_heads(torch.tanh(linear(source, 0.2 * weight, bias)), *heads))
    for precision, tolerance in (("tf32", 0.01), ("bfloat16", 0.05)):
        if precision == "bfloat16" and device.type == "cpu":
            continue  # the interpreter does not multiply it
        once, again = (
            with_gradients(
                *layers.heads(layers.hidden(source, 0.2 * weight, bias, "tanh", precision), *heads, precision)
            )
            for _ in range(2)
        )
        assert all(torch.equal(*pair) for pair in zip(once, again, strict=True))
        for mine, other in zip(once, theirs, strict=True):
            assert (mine - other).norm() < tolerance * other.norm()


def test_what_is_no_number_stays_none_and_in_its_row(device):
    source, (weight, bias) = torch.randn(NUM_ROWS, 4, device=device), weights_of(device, 4, 16)
    source[7, 2] = torch.nan
    for found in (
        *(layers.hidden(source, weight, bias, activation, "float32").isnan() for activation in ACTIVATIONS),
        unit_rows.unit_rows(source).isnan(),
    ):
        assert found[7].all()
        assert found.sum() == found.shape[1]


def test_gradients_can_be_differentiated_again_and_a_weight_used_twice_counts_each_time(device):
    source, (weight, bias) = numbers(device, 6, 8), weights_of(device, 8, 8)
    heads = *weights_of(device, 8, 3), *weights_of(device, 8, 1)

    def penalty(hidden, to_heads):
        logits, value = to_heads(hidden(hidden(source)), *heads, "float32")
        (slope,) = torch.autograd.grad(logits.sum() + value.sum(), source, create_graph=True)
        return slope, *torch.autograd.grad(slope.square().sum(), [weight, heads[0], heads[2]])

    ours = penalty(lambda x: layers.hidden(x, weight, bias, "tanh", "float32"), layers.heads)
    theirs = penalty(lambda x: torch.tanh(linear(x, weight, bias)), torchs_heads)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


# --- rows --------------------------------------------------------------------------------------------------------


def test_rows_of_length_1_and_their_gradients_are_those_of_torch(device):
    for number, width in ((150, 24), (7, 1), (3, 2500), (0, 5)):
        rows = torch.randn(number, width, device=device)
        rows[:2] = torch.tensor([[0.0], [1e-14]], device=device)[:number]  # too short for a direction
        weights = torch.randn_like(rows)
        found = []
        for function in (unit_rows.unit_rows, lambda rows: normalize(rows, dim=-1)):
            source = rows.clone().requires_grad_()
            units = function(source)
            (units * weights).sum().backward()
            found.append((units.detach(), source.grad))
        (ours, our_gradient), (theirs, their_gradient) = found
        torch.testing.assert_close(ours, theirs)
        scale = their_gradient.abs().amax(-1, keepdim=True).clamp(min=1.0)  # that of the short rows is huge
        torch.testing.assert_close(our_gradient / scale, their_gradient / scale, rtol=1e-5, atol=1e-5)


def test_observations_are_normalized_as_by_torch(device, monkeypatch):
    monkeypatch.setattr("scramjet.kernels.operations.takes_kernels", lambda _: True)  # interpreted, too
    for shape in ((1,), (3,), (2, 700)):
        for dtype in (torch.float32, torch.float64, torch.uint8, torch.int32, torch.bool):
            normalizer = ObservationNormalizer(shape, clip=2.0).to(device)
            obs = (torch.randn(40, *shape, device=device) * 30 + 100).to(dtype)
            normalizer.update(obs)
            moments = normalizer.moments
            scale = (moments.variance + 1e-8).rsqrt().float()
            expected = ((obs.float() - moments.mean.float()) * scale).clamp(-2.0, 2.0)
            for found in (normalized(obs, moments.mean, moments.variance, 2.0), normalizer(obs)):
                torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
            assert normalized(obs[:0], moments.mean, moments.variance, 2.0).shape == (0, *shape)


def test_observations_without_their_batch_or_of_another_width_are_left_to_torch(device, monkeypatch):
    monkeypatch.setattr("scramjet.kernels.operations.takes_kernels", lambda _: True)
    normalizer, obs = ObservationNormalizer((4,)).to(device), torch.randn(3, 4, device=device)
    expected = normalizer(obs)
    torch.testing.assert_close(normalizer(obs[1]), expected[1])
    torch.testing.assert_close(normalizer(obs.expand(2, 3, 4)), expected.expand(2, 3, 4))
    with pytest.raises(RuntimeError, match="must match the size"):
        normalizer(obs[:, :3])
    numbers = ObservationNormalizer((1,)).to(device)  # of a Box with the shape ()
    torch.testing.assert_close(numbers(obs[0]), numbers(obs[0].unsqueeze(1)).squeeze(1))


# --- which tensors the kernels take on a GPU ---------------------------------------------------------------------


@pytest.mark.gpu
def test_on_the_gpu_trunks_and_heads_run_in_the_kernels_unless_somebody_hooked_into_them(monkeypatch):
    trunk, actor, critic = (each.to("cuda") for each in (mlp(5, (64, 32), "tanh"), nn.Linear(32, 3), nn.Linear(32, 1)))
    called, calls = [], (layers.hidden, layers.heads)
    for name, call in zip(("hidden", "heads"), calls, strict=True):
        monkeypatch.setattr(layers, name, lambda *given, call=call, name=name: called.append(name) or call(*given))
    source = torch.randn(NUM_ROWS, 5, device="cuda")
    for expected in (["hidden", "hidden", "heads"], []):
        logits, value = choice.run_heads(choice.run_trunk(trunk, source), actor, critic)
        assert called == expected
        torch.testing.assert_close(logits, actor(trunk(source)), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(value, critic(trunk(source)).squeeze(-1), rtol=1e-5, atol=1e-5)
        called.clear()
        trunk[1].register_forward_hook(lambda *_: None)
        critic.register_forward_hook(lambda *_: None)


@pytest.mark.gpu
def test_on_the_gpu_kernels_scale_rows_and_leave_what_is_mapped_or_differentiated_to_torch(monkeypatch):
    calls = []
    monkeypatch.setattr("scramjet.kernels.gpu.normalizing.normalized", lambda obs, *_: calls.append("obs") or obs)
    monkeypatch.setattr(unit_rows, "unit_rows", lambda rows: calls.append("rows") or rows)
    normalizer, rows = ObservationNormalizer((3,)).to("cuda"), torch.randn(5, 3, device="cuda")
    normalizer(rows)
    choice.unit_rows(rows)
    assert calls == ["obs", "rows"]
    normalizer(rows.clone().requires_grad_()).sum().backward()
    torch.vmap(normalizer)(rows.expand(2, 5, 3))
    torch.vmap(choice.unit_rows)(rows.expand(2, 5, 3))
    choice.unit_rows(torch.randn(2, 5000, device="cuda"))
    normalizer(rows.cpu().to("cuda", torch.float16))
    assert calls == ["obs", "rows", "obs"]
