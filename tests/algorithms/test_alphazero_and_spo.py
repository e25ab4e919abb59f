"""Gumbel AlphaZero's and SPO's equations, against closed forms, plain loops and exact frequencies; configs' checks."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.algorithms import alphazero, spo
from scramjet.algorithms.config import AlphaZeroConfig, SPOConfig
from scramjet.errors import ConfigError

# --- AlphaZero ---------------------------------------------------------------------------------------------------

ILLEGAL = -1e9


def visits_of(considered: int, simulations: int, num_actions: int) -> list[int]:
    """How often a search visits each action, the best at the front; raises where none has the visits asked for."""
    visits = [0] * num_actions
    for visited in alphazero.considered_visits(considered, simulations)[num_actions].tolist():
        visits[visits.index(visited)] += 1
    return visits


def test_halving_gives_each_phase_the_same_number_of_simulations_where_all_divide() -> None:
    """With m = 2^L actions and n = c L m simulations, phase i gives each of m / 2^i actions c 2^i visits."""
    rounds = 3
    for phases in range(1, 6):
        places = 2**phases
        expected = [rounds * sum(2**i for i in range(phases) if place < places >> i) for place in range(places)]
        assert visits_of(places, rounds * phases * places, places) == expected, phases


def test_a_schedule_never_asks_for_visits_that_no_action_has() -> None:
    for simulations in (1, 2, 7, 32, 100):
        assert alphazero.considered_visits(20, simulations).shape == (21, simulations)
        for num_actions in range(1, 21):
            assert sum(visits_of(20, simulations, num_actions)) == simulations, (simulations, num_actions)


def softmax(numbers: list[float]) -> list[float]:
    weights = [math.exp(number - max(numbers)) for number in numbers]
    return [weight / sum(weights) for weight in weights]


def improved_by_loops(logits, legal, q, visits, value, value_scale, visit_offset) -> list[float]:
    """Equations 33, 10, 8 and 11 for one node, with plain lists."""
    actions = range(len(logits))
    pi = softmax([logits[a] if legal[a] else -math.inf for a in actions])
    tried = [a for a in actions if visits[a] > 0]
    mixed = value
    if tried:
        mean = sum(pi[a] * q[a] for a in tried) / sum(pi[a] for a in tried)
        mixed = (value + sum(visits) * mean) / (1 + sum(visits))
    full = [q[a] if visits[a] > 0 else mixed for a in actions]
    spread = max(max(full) - min(full), 1e-8)
    scale = (visit_offset + max(visits)) * value_scale
    return softmax([logits[a] + scale * (full[a] - min(full)) / spread if legal[a] else -math.inf for a in actions])


def test_the_improved_policy_is_that_of_plain_loops() -> None:
    rng = np.random.default_rng(4)
    legal = rng.random((50, 6)) < 0.6
    legal[:, 2] = True
    visits = np.where(legal, rng.integers(0, 5, (50, 6)), 0)
    visits[:5] = 0  # nothing tried
    logits, q, value = 3 * rng.standard_normal((50, 6)), rng.standard_normal((50, 6)), rng.standard_normal(50)
    masked = torch.from_numpy(np.where(legal, logits, ILLEGAL))
    given = [torch.from_numpy(each) for each in (q, visits.astype(float), value)]
    ours = alphazero.improved_policy(masked, *given, value_scale=0.3, visit_offset=7.0)
    loops = [improved_by_loops(*row, 0.3, 7.0) for row in zip(logits, legal, q, visits, value, strict=True)]
    np.testing.assert_allclose(ours, loops, rtol=1e-9, atol=1e-12)
    assert (ours.numpy()[~legal] == 0).all()
    torch.testing.assert_close(ours[:5], torch.softmax(masked[:5], -1))  # where nothing is tried the policy stays


def test_the_improved_policy_is_worth_more_than_the_policy_by_the_completed_values() -> None:
    """Policy improvement, the paper's section 4: for any logits, values and visits."""
    logits, q, visits = 2 * torch.randn(200, 5), torch.randn(200, 5), torch.randint(0, 4, (200, 5)).float()
    value = torch.randn(200)
    prior = torch.softmax(logits, -1)
    completed = alphazero.completed_q(prior, q, visits, value)
    improved = alphazero.improved_policy(logits, q, visits, value, value_scale=0.1, visit_offset=50.0)
    assert ((improved * completed).sum(-1) >= (prior * completed).sum(-1) - 1e-5).all()


def test_the_loss_is_0_at_its_target_and_its_slope_is_the_difference_of_policies() -> None:
    target = torch.tensor([[0.2, 0.0, 0.8], [0.5, 0.25, 0.25]], dtype=torch.float64)
    assert alphazero.policy_loss(target.clamp(min=1e-300).log(), target).item() == pytest.approx(0, abs=1e-12)
    logits = torch.tensor([[1.0, ILLEGAL, -0.5], [0.1, 0.2, 0.3]], dtype=torch.float64, requires_grad=True)
    alphazero.policy_loss(logits, target).backward()
    torch.testing.assert_close(logits.grad, (torch.softmax(logits, -1) - target).detach() / 2)
    assert logits.grad[0, 1] == 0  # an illegal action learns nothing


# --- SPO ---------------------------------------------------------------------------------------------------------


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kl_to_uniform(advantages, eta):
    """KL(softmax(A / eta) || uniform) over the last dimension."""
    weights = torch.softmax(advantages / eta, -1)
    return (weights * (weights.log() + math.log(advantages.shape[-1]))).sum(-1)


def test_an_advantage_has_no_next_value_at_an_end():
    gain, value, next_value = torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.5]), torch.tensor([2.0, torch.nan])
    found = spo.advantage(gain, value, next_value, torch.tensor([False, True]), gamma=0.9)
    torch.testing.assert_close(found, torch.tensor([1 + 0.9 * 2 - 0.5, 1 - 0.5]))


def test_weights_are_a_softmax_that_does_not_overflow_and_equal_particles_are_all_effective():
    weights = spo.normalized_weights(torch.tensor([[1e5, 1e5 - 0.5 * math.log(2), -1e5]]), torch.tensor([0.5]))
    torch.testing.assert_close(weights, torch.tensor([[2 / 3, 1 / 3, 0.0]]), rtol=0, atol=0.01)  # 1e5 is coarse
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    torch.testing.assert_close(spo.effective_sample_size(weights), torch.tensor([4.0, 1.0, 2.0]))


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 40), st.floats(0, 1, exclude_max=True, width=32))
def test_every_particle_has_about_its_share_of_descendants(seed, count, uniform):
    weights = torch.softmax(3 * random(2, count, seed=seed), -1).float()
    ancestors = spo.resampled(weights, torch.full((2, 1), uniform))
    assert ancestors.shape == (2, count)
    for row in range(2):
        descendants = torch.bincount(ancestors[row], minlength=count)
        assert ((descendants - count * weights[row]).abs() < 1 + 1e-4).all()


def test_descendants_are_unbiased():
    weights = torch.tensor([[0.07, 0.43, 0.31, 0.19]]).expand(10_000, 4)
    uniform = torch.rand(10_000, 1, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(spo.resampled(weights, uniform).flatten(), minlength=4) / 40_000
    torch.testing.assert_close(shares, weights[0], rtol=0, atol=0.003)


def test_particles_of_weight_zero_have_no_descendants_not_even_by_rounding():
    almost_one = 1 - 2.0**-24
    weights = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]] * 2)
    for uniform in (0.0, almost_one):
        assert set(spo.resampled(weights, torch.full((2, 1), uniform)).flatten().tolist()) == {1, 3}
    points = torch.tensor([[0.0, 0.2999, 0.3001, almost_one, 1.0]]).expand(2, 5)
    assert spo.inverted(weights, points).tolist() == [[1, 1, 3, 3, 3]] * 2


def test_the_policy_that_minimizes_the_loss_has_the_total_weights_of_the_actions():
    actions, weights = torch.tensor([[2, 0, 2, 1]]), torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    logits = torch.log(torch.tensor([[0.2, 0.4, 0.4]], dtype=torch.float64)).requires_grad_()
    loss = spo.policy_loss(torch.log_softmax(logits, -1).gather(1, actions), weights)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))
    assert loss.item() == pytest.approx(-(0.2 * math.log(0.2) + 0.8 * math.log(0.4)))


def test_the_slope_of_the_temperature_is_epsilon_less_the_divergences_of_all_periods():
    """Catches a temperature fitted on resampled weights, which are equal: then the slope would be epsilon always."""
    advantages = random(3, 4, 16)
    is_counted = torch.tensor([[False, True, False, True], [False, False, False, True], [True, True, True, True]])
    eta = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    spo.temperature_loss(eta, advantages, is_counted, epsilon=0.5).backward()
    expected = 0.5 - torch.where(is_counted, kl_to_uniform(advantages, 0.7), 0.0).sum(1).mean()
    torch.testing.assert_close(eta.grad, expected.reshape(1))
    assert abs(expected - 0.5) > 0.5


def test_the_estimate_of_the_normalizing_constant_is_the_product_over_periods():
    """For a sum of two independent steps, E[exp((A + B) / eta)] is the product of both expectations."""
    eta = torch.tensor([2.0], dtype=torch.float64)
    advantages = torch.tensor([[[1.0, 3.0], [0.5, -2.0]]], dtype=torch.float64)
    loss = spo.temperature_loss(eta, advantages, torch.ones(1, 2, dtype=torch.bool), epsilon=0.0)
    pairs = [math.exp((a + b) / 2) for a in (1.0, 3.0) for b in (0.5, -2.0)]
    assert loss.item() == pytest.approx(2 * math.log(sum(pairs) / 4))


def test_the_policy_sees_alpha_as_a_number_and_alpha_the_divergence():
    kl, alpha = torch.tensor([0.1, 0.3], requires_grad=True), torch.tensor([0.5], requires_grad=True)
    penalty, dual = spo.kl_loss(kl, alpha, epsilon_alpha=0.01)
    assert (penalty.item(), dual.item()) == pytest.approx((0.1, 0.5 * (0.01 - 0.2)))
    (penalty + dual).backward()
    torch.testing.assert_close(kl.grad, torch.tensor([0.25, 0.25]))
    torch.testing.assert_close(alpha.grad, torch.tensor([0.01 - 0.2]))  # falls, so that descent lets alpha grow


def test_settings_that_make_no_sense_are_refused_with_the_fix():
    for config, name, value, words in (
        (AlphaZeroConfig, "simulations", 0, "alphazero.simulations=0 must be from 1 to 10000"),
        (AlphaZeroConfig, "considered", 0, "alphazero.considered=0 must be from 1"),
        (AlphaZeroConfig, "value_scale", 0.0, "alphazero.value_scale=0.0 must be above 0"),
        (AlphaZeroConfig, "visit_offset", -1.0, "alphazero.visit_offset=-1.0 must be at least 0"),
        (AlphaZeroConfig, "replay_size", 0, "alphazero.replay_size=0 must be at least 1"),
        (AlphaZeroConfig, "value_target", "n-step", "alphazero.value_target"),
        (SPOConfig, "depth", 0, "spo.depth=0 must be at least 1; the default is 4"),
        (SPOConfig, "particles", 0, "spo.particles=0 must be at least 1; the default is 16"),
        (SPOConfig, "resample_period", 0, "at least 1"),
        (SPOConfig, "replay_size", 0, "at least 1"),
        (SPOConfig, "resample", "often", "spo.resample='often' must be 'period' or 'ess'"),
        (SPOConfig, "ess_threshold", 0.0, "above 0 and at most 1"),
        (SPOConfig, "ess_threshold", 1.5, "above 0 and at most 1"),
        (SPOConfig, "dirichlet_fraction", 1.1, "from 0 to 1"),
        (SPOConfig, "dirichlet_alpha", 0.0, "above 0"),
        (SPOConfig, "temperature", 0.0, "above 0"),
        (SPOConfig, "epsilon", -1.0, "above 0"),
        (SPOConfig, "epsilon_alpha", 1e-60, "is 0 in float32"),
        (SPOConfig, "target_rate", 0.0, "above 0 and at most 1"),
        (SPOConfig, "depth", 2.5, "spo.depth=2.5 must be a whole number"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            config(**{name: value})


def test_particles_are_resampled_after_each_period_but_not_after_the_last_step():
    steps = range(1, 7)
    assert [step for step in steps if SPOConfig(depth=6, resample_period=2).resamples_after(step)] == [2, 4]
    assert [step for step in steps if SPOConfig(depth=6).resamples_after(step)] == [4]
    assert [step for step in steps if SPOConfig(depth=6, resample="ess").resamples_after(step)] == [1, 2, 3, 4, 5]


def test_a_fitted_temperature_holds_the_divergence_of_the_weights_at_epsilon() -> None:
    accumulated = torch.randn(20, 16) * torch.logspace(-4, 4, 20).unsqueeze(1)
    weights = spo.normalized_weights(accumulated, spo.fitted_temperature(accumulated, epsilon=0.5))
    divergence = (weights * (weights * 16).log()).sum(-1)
    torch.testing.assert_close(divergence, torch.full((20,), 0.5), atol=1e-3, rtol=0)
    weights = spo.normalized_weights(torch.zeros(1, 8), spo.fitted_temperature(torch.zeros(1, 8), epsilon=0.5))
    torch.testing.assert_close(weights, torch.full((1, 8), 0.125))  # equal particles stay equal
