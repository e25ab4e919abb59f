"""SPO's mathematics, against closed forms, finite differences and exact frequencies; its config's own checks."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.algorithms.spo import (
    SPOConfig,
    advantage,
    effective_sample_size,
    fitted_temperature,
    inverted,
    kl_loss,
    normalized_weights,
    policy_loss,
    resampled,
    temperature_loss,
)
from scramjet.errors import ConfigError


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kl_to_uniform(advantages, eta):
    """KL(softmax(A / eta) || uniform) over the last dimension."""
    weights = torch.softmax(advantages / eta, -1)
    return (weights * (weights.log() + math.log(advantages.shape[-1]))).sum(-1)


def test_an_advantage_has_no_next_value_at_an_end():
    gain, value, next_value = torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.5]), torch.tensor([2.0, torch.nan])
    found = advantage(gain, value, next_value, torch.tensor([False, True]), gamma=0.9)
    torch.testing.assert_close(found, torch.tensor([1 + 0.9 * 2 - 0.5, 1 - 0.5]))


def test_equal_particles_are_all_effective_and_a_single_heavy_one_counts_as_one():
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    torch.testing.assert_close(effective_sample_size(weights), torch.tensor([4.0, 1.0, 2.0]))


def test_weights_are_a_softmax_and_do_not_overflow():
    weights = normalized_weights(torch.tensor([[1e5, 1e5 - 0.5 * math.log(2), -1e5]]), torch.tensor([0.5]))
    torch.testing.assert_close(weights, torch.tensor([[2 / 3, 1 / 3, 0.0]]), rtol=0, atol=0.01)  # 1e5 is coarse


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.floats(0, 1, exclude_max=True, width=32))
def test_every_particle_has_about_its_share_of_descendants(seed, count, uniform):
    weights = torch.softmax(3 * random(2, count, seed=seed), -1).float()
    ancestors = resampled(weights, torch.full((2, 1), uniform))
    assert ancestors.shape == (2, count)
    for row in range(2):
        descendants = torch.bincount(ancestors[row], minlength=count)
        assert ((descendants - count * weights[row]).abs() < 1 + 1e-4).all()


def test_descendants_are_unbiased():
    weights = torch.tensor([[0.07, 0.43, 0.31, 0.19]]).expand(10_000, 4)
    uniform = torch.rand(10_000, 1, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(resampled(weights, uniform).flatten(), minlength=4) / 40_000
    torch.testing.assert_close(shares, weights[0], rtol=0, atol=0.003)


def test_particles_of_weight_zero_have_no_descendants_not_even_by_rounding():
    almost_one = 1 - 2.0**-24
    weights = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]] * 2)
    for uniform in (0.0, almost_one):
        assert set(resampled(weights, torch.full((2, 1), uniform)).flatten().tolist()) == {1, 3}
    points = torch.tensor([[0.0, 0.2999, 0.3001, almost_one, 1.0]]).expand(2, 5)
    assert inverted(weights, points).tolist() == [[1, 1, 3, 3, 3]] * 2


def test_the_policy_that_minimizes_the_loss_has_the_total_weights_of_the_actions():
    actions, weights = torch.tensor([[2, 0, 2, 1]]), torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    logits = torch.log(torch.tensor([[0.2, 0.4, 0.4]], dtype=torch.float64)).requires_grad_()
    loss = policy_loss(torch.log_softmax(logits, -1).gather(1, actions), weights)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))
    assert loss.item() == pytest.approx(-(0.2 * math.log(0.2) + 0.8 * math.log(0.4)))


def test_the_slope_of_the_temperature_is_epsilon_less_the_divergences_of_all_periods():
    """Catches a temperature fitted on resampled weights, which are equal: then the slope would be epsilon always."""
    advantages = random(3, 4, 16)
    is_counted = torch.tensor([[False, True, False, True], [False, False, False, True], [True, True, True, True]])
    eta = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    temperature_loss(eta, advantages, is_counted, epsilon=0.5).backward()
    expected = 0.5 - torch.where(is_counted, kl_to_uniform(advantages, 0.7), 0.0).sum(1).mean()
    torch.testing.assert_close(eta.grad, expected.reshape(1))
    assert abs(expected - 0.5) > 0.5


def test_the_temperature_that_minimizes_its_dual_holds_the_divergence_at_epsilon():
    advantages, is_counted = random(8, 1, 16, seed=3), torch.ones(8, 1, dtype=torch.bool)
    low, high = 0.01, 100.0
    for _ in range(60):  # the dual is convex: its slope changes sign once
        eta = torch.tensor([(low + high) / 2], dtype=torch.float64, requires_grad=True)
        temperature_loss(eta, advantages, is_counted, epsilon=0.4).backward()
        low, high = (low, eta.item()) if eta.grad.item() > 0 else (eta.item(), high)
    assert kl_to_uniform(advantages, low).mean().item() == pytest.approx(0.4)


def test_the_estimate_of_the_normalizing_constant_is_the_product_over_periods():
    """For a sum of two independent steps, E[exp((A + B) / eta)] is the product of both expectations."""
    eta = torch.tensor([2.0], dtype=torch.float64)
    advantages = torch.tensor([[[1.0, 3.0], [0.5, -2.0]]], dtype=torch.float64)
    loss = temperature_loss(eta, advantages, torch.ones(1, 2, dtype=torch.bool), epsilon=0.0)
    pairs = [math.exp((a + b) / 2) for a in (1.0, 3.0) for b in (0.5, -2.0)]
    assert loss.item() == pytest.approx(2 * math.log(sum(pairs) / 4))


def test_the_policy_sees_alpha_as_a_number_and_alpha_the_divergence():
    kl, alpha = torch.tensor([0.1, 0.3], requires_grad=True), torch.tensor([0.5], requires_grad=True)
    penalty, dual = kl_loss(kl, alpha, epsilon_alpha=0.01)
    assert (penalty.item(), dual.item()) == pytest.approx((0.1, 0.5 * (0.01 - 0.2)))
    (penalty + dual).backward()
    torch.testing.assert_close(kl.grad, torch.tensor([0.25, 0.25]))
    torch.testing.assert_close(alpha.grad, torch.tensor([0.01 - 0.2]))  # falls, so that descent lets alpha grow


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("depth", 0, "spo.depth=0 must be at least 1; the default is 4"),
        ("particles", 0, "spo.particles=0 must be at least 1; the default is 16"),
        ("resample_period", 0, "at least 1"),
        ("replay_size", 0, "at least 1"),
        ("resample", "often", "spo.resample='often' must be 'period' or 'ess'"),
        ("ess_threshold", 0.0, "above 0 and at most 1"),
        ("ess_threshold", 1.5, "above 0 and at most 1"),
        ("dirichlet_fraction", 1.1, "from 0 to 1"),
        ("dirichlet_alpha", 0.0, "above 0"),
        ("temperature", 0.0, "above 0"),
        ("epsilon", -1.0, "above 0"),
        ("epsilon_alpha", 1e-60, "is 0 in float32"),
        ("target_rate", 0.0, "above 0 and at most 1"),
        ("depth", 2.5, "spo.depth=2.5 must be a whole number"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_the_fix(name, value, words):
    with pytest.raises(ConfigError) as error:
        SPOConfig(**{name: value})
    assert words in str(error.value)


def test_particles_are_resampled_after_each_period_but_not_after_the_last_step():
    steps = range(1, 7)
    assert [step for step in steps if SPOConfig(depth=6, resample_period=2).resamples_after(step)] == [2, 4]
    assert [step for step in steps if SPOConfig(depth=6).resamples_after(step)] == [4]
    assert [step for step in steps if SPOConfig(depth=6, resample="ess").resamples_after(step)] == [1, 2, 3, 4, 5]


def test_a_fitted_temperature_holds_the_divergence_of_the_weights_at_epsilon() -> None:
    accumulated = torch.randn(20, 16, generator=torch.Generator().manual_seed(0)) * torch.logspace(-4, 4, 20).view(
        -1, 1
    )
    weights = normalized_weights(accumulated, fitted_temperature(accumulated, epsilon=0.5))
    divergence = (weights * (weights * 16).log()).sum(-1)
    torch.testing.assert_close(divergence, torch.full((20,), 0.5), atol=1e-3, rtol=0)


def test_a_fitted_temperature_of_equal_particles_leaves_them_equal() -> None:
    weights = normalized_weights(torch.zeros(1, 8), fitted_temperature(torch.zeros(1, 8), epsilon=0.5))
    torch.testing.assert_close(weights, torch.full((1, 8), 0.125))
