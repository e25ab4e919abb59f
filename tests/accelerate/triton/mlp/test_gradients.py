"""Gradients of the fused kernels against autograd and `ppo_loss`.

Each test runs in Triton's interpreter on the CPU, or on a CUDA device where there is one.
"""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

pytest.importorskip("triton", reason="the fused kernels are written in Triton, which is not installed here")

from scramjet.accelerate.executor import Diagnostics
from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.triton.mlp.fused_mlp import TritonMLP
from scramjet.accelerate.triton.mlp.plan import plan_of_critic
from scramjet.algorithms.ppo import normalize
from scramjet.policies.layers import mlp
from scramjet.policies.normalization import ObservationNormalizer
from tests.helpers.fused_mlps import SMALL, VALUE_COEF, loss_of, make_case

TERMS = Diagnostics.NAMES[:-1]


def fused_gradients(case, *, is_normalized=False, value_clip=None, indices=None):
    """The loss terms by name; gradients are left in `case.fused`."""
    case.fused.gradients(
        case.inputs,
        case.samples,
        case.indices if indices is None else indices,
        case.statistics() if is_normalized else None,
        loss_of(case.indices.device, value_clip),
    )
    return dict(zip(TERMS, case.fused.terms.tolist(), strict=True))


def autograd_gradients(case, *, is_normalized=False, value_clip=None):
    """The loss terms that `ppo_loss` makes of the same minibatch, and autograd's gradients."""
    loss = loss_of(case.indices.device, value_clip, normalizes=is_normalized)
    terms = minibatch_loss(case.policy, case.samples.select(case.indices), loss)
    return terms, list(torch.autograd.grad(terms.total.sum(), case.parameters))


def assert_close(found, expected, tolerance):
    """Every tensor within `tolerance` of the largest number in it, of 0.001 at least: sums may cancel out."""
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours.shape == theirs.shape
        error = (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-3)
        assert error < tolerance, f"tensor {number}: {error:.2e}"


VARIANTS = [
    {"inputs": 4, "actions": "two"},
    {"inputs": 3, "actions": "seven", "masked": True, "is_normalized": True},
    {"inputs": 17, "actions": "seven", "activation": "relu", "value_clip": 0.2},
    {"inputs": 16, "actions": "two", "activation": "relu", "masked": True, "value_clip": 0.2, "is_normalized": True},
    {"inputs": 17, "actions": "two", "masked": True, "value_clip": 0.2, "hidden": (128, 128)},
    {"inputs": 1, "actions": "sixteen", "is_normalized": True, "value_clip": 0.2},
    {"inputs": 49, "actions": "many", "activation": "relu"},
    {"inputs": 128, "actions": "two", "hidden": (16, 64)},
    {"inputs": 5, "actions": "seven", "hidden": (40, 24), "masked": True, "value_clip": 0.2},
    {"inputs": 3, "actions": "one number", "value_clip": 0.2, "is_normalized": True},
    {"inputs": 6, "actions": "three numbers", "normalized": True},
    {"inputs": 6, "actions": "three numbers", "state_dependent_std": True, "log_std_init": -0.7},
    {"inputs": 5, "actions": "several"},
    {"inputs": 5, "actions": "several", "masked": True, "normalized": True, "activation": "relu"},
    {"inputs": 4, "actions": "sixteen", "shared_trunk": True, "masked": True, "value_clip": 0.2},
    {"inputs": 16, "actions": "three numbers", "shared_trunk": True, "normalized": True, "is_normalized": True},
    {"inputs": 4, "actions": "one number", "shared_trunk": True, "state_dependent_std": True},
    {"inputs": 4, "actions": "several", "shared_trunk": True, "hidden": (20, 50)},
    {"space": Discrete(9), "actions": "two"},
    {
        "space": Dict({"level": Discrete(4), "place": Box(-9, 9, (2, 2), np.float64)}),
        "actions": "seven", "normalized": True, "shared_trunk": True,
    },
]  # fmt: skip


def both_ways(device, variant, **settings):
    """The case, the kernels' terms, and what autograd has to say."""
    variant = dict(variant)
    loss = {"value_clip": variant.pop("value_clip", None), "is_normalized": variant.pop("is_normalized", False)}
    case = make_case(device, **variant, **settings)
    return case, fused_gradients(case, **loss), *autograd_gradients(case, **loss)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients_and_loss_terms_are_those_of_autograd(triton_device, variant):
    case, found, terms, expected = both_ways(triton_device, variant)
    assert 0.2 < terms.clip_fraction.item() < 0.8  # both sides of the clip are there
    assert_close(case.fused.gradients_of, expected, 1e-4)
    for name in TERMS:
        assert found[name] == pytest.approx(getattr(terms, name).item(), rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize(("log_std", "distance"), [(-11.0, 0.5), (-11.0, 2.0), (3.0, 0.5), (3.0, 2.0), (2.0, 2.0)])
def test_a_deviation_outside_its_range_is_only_led_back_into_it(triton_device, log_std, distance):
    case = make_case(triton_device, inputs=3, actions="three numbers")
    samples, distribution = case.samples, case.policy.distribution
    with torch.no_grad():
        case.policy.network.actor_head.log_std.fill_(log_std)
        logits = case.policy.logits(samples.obs)
        mean, kept = distribution.mean_and_log_std(logits)
        samples.action.copy_(mean + distance * kept.exp())
        samples.log_prob.copy_(distribution.log_prob_and_entropy(logits, samples.action, None)[0])
    samples.advantage.fill_(1.0)
    fused_gradients(case)
    expected = autograd_gradients(case)[1]
    is_led_back = (log_std > 2 and distance < 1) or (log_std < -10 and distance > 1) or log_std == 2
    place = next(
        i for i, parameter in enumerate(case.parameters) if parameter is case.policy.network.actor_head.log_std
    )
    assert bool(expected[place].any()) == is_led_back
    assert_close(case.fused.gradients_of, expected, 1e-2)  # deviations as small as the rounding of actions


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "smooth", "with_edges"), [("tf32", 0.01, 0.05), ("bfloat16", 0.04, 0.1)])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients_in_lower_precision_are_near_those_of_autograd(triton_device, variant, precision, smooth, with_edges):
    if triton_device.type == "cpu":
        pytest.skip("the interpreter does not round as tensor cores do")
    case, _, _, expected = both_ways(triton_device, variant, precision=precision)
    ours, theirs = (torch.cat([part.flatten() for part in each]) for each in (case.fused.gradients_of, expected))
    # Of so few samples, one that rounding puts on the other side of a ReLU's edge is a percent or two.
    assert (ours - theirs).norm() / theirs.norm() < (with_edges if variant.get("activation") == "relu" else smooth)


def test_indices_may_be_narrow_and_unaligned(triton_device):
    case = make_case(triton_device)
    fused_gradients(case)
    expected = case.fused.sums.clone()
    shifted = torch.cat([case.indices[:1], case.indices]).int()[1:]
    fused_gradients(case, indices=shifted)
    assert torch.equal(case.fused.sums, expected)


@pytest.mark.parametrize(("inputs", "is_normalized", "is_marked"), [(4, True, False), (16, False, True)])
def test_a_critic_alone_learns_what_autograd_would(triton_device, inputs, is_normalized, is_marked):
    trunk, head = mlp(inputs, (32, 20), "relu"), nn.Linear(20, 1)
    critic = nn.Sequential(trunk, head).to(triton_device)
    obs, returns = torch.randn(150, inputs, device=triton_device), torch.randn(150, device=triton_device)
    normalizer = ObservationNormalizer((inputs,)).to(triton_device) if is_normalized else None
    if normalizer is not None:
        normalizer.update(3 * obs + 1)
    fused = TritonMLP(plan_of_critic(critic, trunk, head, normalizer), precision="float32", launch=SMALL)
    seen = obs if normalizer is None else normalizer(obs)
    values = torch.empty(150, device=triton_device)
    fused.values(obs, values)
    torch.testing.assert_close(values, critic(seen).squeeze(-1).detach(), rtol=1e-5, atol=1e-5)
    places = torch.randperm(150, device=triton_device)[:77]
    counts = torch.rand(150, device=triton_device) < 0.7 if is_marked else None
    weights = torch.ones(77, device=triton_device) if counts is None else counts[places].float()
    loss = (0.5 * (critic(seen[places]).squeeze(-1) - returns[places]).square() * weights).sum() / weights.sum()
    expected = torch.autograd.grad(loss, fused.plan.parameters)
    samples = Samples(obs, None, places, returns, returns, returns, returns, place=places, counts=counts)
    fused.gradients(obs, samples, places, None, loss_of(triton_device), 1.0 / weights.sum().view(1))
    assert fused.terms[TERMS.index("value_loss")].item() == pytest.approx(loss.item(), rel=1e-4)
    assert_close(fused.gradients_of, [VALUE_COEF * gradient for gradient in expected], 1e-4)


@pytest.mark.parametrize("num_programs", [1, 3, 50])
def test_any_number_of_programs_gives_the_same_gradients(triton_device, num_programs):
    case = make_case(triton_device, masked=True, launch=SMALL._replace(programs=num_programs))
    fused_gradients(case)
    assert_close(case.fused.gradients_of, autograd_gradients(case)[1], 1e-4)


def test_the_same_call_twice_gives_the_same_bits(triton_device):
    case = make_case(triton_device, masked=True, launch=SMALL)
    first = fused_gradients(case, is_normalized=True, value_clip=0.2)
    sums = case.fused.sums.clone()
    case.fused.sums.fill_(torch.nan)
    assert fused_gradients(case, is_normalized=True, value_clip=0.2) == first
    assert torch.equal(case.fused.sums, sums)


def test_kernels_see_weights_that_were_changed_or_replaced(triton_device):
    case = make_case(triton_device)
    fused_gradients(case)
    with torch.no_grad():
        for parameter in case.parameters:
            parameter.mul_(0.9)
        case.parameters[2].data = case.parameters[2] * 1.5  # other memory
    case.fused.flat.refresh()
    fused_gradients(case)
    assert_close(case.fused.gradients_of, autograd_gradients(case)[1], 1e-4)


@pytest.mark.parametrize(("size", "num_minibatches"), [(1, 3), (100, 2), (5000, 1), (70000, 1)])
def test_advantage_statistics_are_those_that_normalize_uses(triton_device, size, num_minibatches):
    case = make_case(triton_device)
    advantage = torch.randn(size * num_minibatches + 7, device=triton_device) * 3 + 50  # far from 0: squares cancel
    order = torch.randperm(len(advantage), device=triton_device)[: size * num_minibatches]
    out = torch.empty(num_minibatches, 2, device=triton_device)
    case.fused.advantage_statistics(advantage, order, num_minibatches, out)
    for (mean, inverse), indices in zip(out, order.view(num_minibatches, size), strict=True):
        expected = normalize(advantage[indices].double())
        torch.testing.assert_close((advantage[indices].double() - mean) * inverse, expected, rtol=1e-4, atol=2e-5)
