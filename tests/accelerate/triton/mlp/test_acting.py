"""Actions and values of the fused kernels against the policy's own, interpreted or on a CUDA device."""

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

pytest.importorskip("triton", reason="the fused kernels are written in Triton, which is not installed here")

from tests.helpers.fused_mlps import ACTIONS, NUM_SAMPLES, make_case

VARIANTS = [
    {"inputs": 3, "actions": "two"},
    {"inputs": 17, "actions": "seven", "activation": "relu", "masked": True},
    {"inputs": 4, "actions": "sixteen", "masked": True, "shared_trunk": True},
    {"inputs": 128, "actions": "many", "normalized": True},
    {"inputs": 5, "actions": "several", "hidden": (40, 24)},
    {"inputs": 16, "actions": "several", "masked": True, "shared_trunk": True},
    {"inputs": 3, "actions": "one number", "normalized": True},
    {"inputs": 5, "actions": "three numbers", "state_dependent_std": True, "shared_trunk": True},
]


def drawn_by_both(case, noise):
    """Actions, log-probabilities and values, of the kernels and of the policy; those of the policy on the CPU."""
    samples, plan = case.samples, case.fused.plan
    action, log_prob, value = torch.empty_like(samples.action), *torch.empty(2, NUM_SAMPLES, device=noise.device)
    case.fused.act(case.inputs, samples.mask, noise, action, log_prob, value if plan.is_one_network else None)
    if not plan.is_one_network:
        case.fused.values(case.inputs, value)
    policy = copy.deepcopy(case.policy).cpu()
    with torch.no_grad():
        logits, expected_value, _ = policy(samples.obs.cpu())
    expected, expected_log_prob = torch.empty_like(action, device="cpu"), torch.empty(NUM_SAMPLES)
    mask = None if samples.mask is None else samples.mask.cpu()
    policy.distribution.sample(logits, mask, noise.cpu(), expected, expected_log_prob)
    return (action.cpu(), log_prob.cpu(), value.cpu()), (expected, expected_log_prob, expected_value)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_actions_log_probabilities_and_values_are_those_of_the_policy(triton_device, variant):
    case = make_case(triton_device, **variant)
    distribution = case.policy.distribution
    noise = distribution.noise(1, NUM_SAMPLES, torch.Generator(triton_device).manual_seed(3))[0]
    if not case.fused.plan.is_normal:
        noise[:2] = torch.tensor([0.0, 1.0 - 2**-24]).view(2, *[1] * (noise.dim() - 1))  # the ends of the range
    (action, log_prob, value), (expected, expected_log_prob, expected_value) = drawn_by_both(case, noise)
    same = torch.isclose(action, expected, rtol=1e-4, atol=1e-4).view(NUM_SAMPLES, -1).all(1)
    assert same.float().mean() > 0.99  # but where a uniform number falls on a border, to rounding
    torch.testing.assert_close(log_prob[same], expected_log_prob[same], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(value, expected_value, rtol=1e-4, atol=1e-5)
    if case.samples.mask is not None:
        offsets = case.fused.plan.offsets[:-1].cpu()
        chosen = action.view(NUM_SAMPLES, -1) + offsets
        assert case.samples.mask.cpu().gather(1, chosen).all()


@pytest.mark.parametrize(
    ("space", "bounded"),
    [
        (Box(np.float32([-2, 0, 1]), np.float32([2, 5, 1.5])), "scale"),
        (Box(np.float32([-0.5, 0, -1]), np.float32([0.5, 5, np.inf])), "clip"),
        (Box(-1, 1, (3,), np.float32), "scale"),
    ],
)
def test_what_the_env_receives_is_what_the_distribution_gives_it(triton_device, monkeypatch, space, bounded):
    monkeypatch.setitem(ACTIONS, "bounded", space)
    case = make_case(triton_device, actions="bounded", bounded_actions=bounded)
    noise = 2 * torch.randn(NUM_SAMPLES, 3, device=triton_device)
    noise[3] = torch.nan
    action, given, log_prob = torch.zeros_like(noise), torch.zeros_like(noise), torch.zeros_like(noise[:, 0])
    case.fused.act(case.inputs, None, noise, action, log_prob, None, given)
    expected = case.policy.distribution.env_action(action)
    assert case.fused.plan.scales == case.policy.distribution.scales
    assert given[3].isnan().all()
    # Where the centre is not 0, a GPU may round centre + half width * action once.
    torch.testing.assert_close(given, expected, rtol=3e-7, atol=3e-7, equal_nan=True)
    assert ((given == expected) | expected.isnan())[:, :1].all()  # the first centre is 0


@pytest.mark.parametrize(("actions", "num_rows"), [("seven", 1), ("several", 64), ("three numbers", 65)])
def test_rows_past_the_last_are_not_written(triton_device, actions, num_rows):
    case = make_case(triton_device, actions=actions)
    action = torch.full((128, *case.samples.action.shape[1:]), -9, device=triton_device).to(case.samples.action.dtype)
    log_prob, value = torch.full((2, 128), torch.nan, device=triton_device)
    noise = torch.rand(num_rows, *action.shape[1:], device=triton_device)
    case.fused.act(case.inputs[:num_rows], None, noise, action, log_prob, None)
    case.fused.values(case.inputs[:num_rows], value)
    assert (action[:num_rows] != -9).all()
    assert (action[num_rows:] == -9).all()
    for written in (log_prob, value):
        assert written[:num_rows].isfinite().all()
        assert written[num_rows:].isnan().all()


@pytest.mark.parametrize("actions", ["seven", "several"])
def test_logits_that_are_not_numbers_still_choose_an_action_and_show_in_its_log_prob(triton_device, actions):
    case = make_case(triton_device, actions=actions)
    with torch.no_grad():
        case.policy.network.actor_head.bias.fill_(torch.nan)
    shape = (8, *case.samples.action.shape[1:])
    action, log_prob = torch.full(shape, -1, device=triton_device), torch.zeros(8, device=triton_device)
    case.fused.act(case.inputs[:8], None, torch.rand(shape, device=triton_device), action, log_prob, None)
    assert (action == 0).all()
    assert log_prob.isnan().all()
