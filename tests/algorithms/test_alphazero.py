"""Gumbel AlphaZero's equations, against closed forms and plain loops; its config's own checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scramjet.algorithms.alphazero import (
    AlphaZeroConfig,
    completed_q,
    considered_visits,
    improved_policy,
    mixed_value,
    policy_loss,
)
from scramjet.errors import ConfigError

ILLEGAL = -1e9


@pytest.mark.parametrize("phases", [1, 2, 3, 4, 5])
def test_halving_gives_each_phase_the_same_number_of_simulations_where_all_divide(phases: int) -> None:
    """With m = 2^L actions and n = c L m simulations, phase i gives each of m / 2^i actions c 2^i visits."""
    rounds, considered = 3, 2**phases
    simulations = rounds * phases * considered
    visits = np.zeros(considered, int)
    for visited in considered_visits(considered, simulations)[considered].tolist():
        visits[np.flatnonzero(visits == visited)[0]] += 1  # the best are at the front
    expected = [rounds * sum(2**i for i in range(phases) if place < considered >> i) for place in range(considered)]
    assert visits.tolist() == expected


@pytest.mark.parametrize("simulations", [1, 2, 7, 32, 100])
def test_a_schedule_never_asks_for_visits_that_no_action_has(simulations: int) -> None:
    table = considered_visits(20, simulations)
    assert table.shape == (21, simulations)
    for num_actions in range(1, 21):
        visits = [0] * num_actions
        for visited in table[num_actions].tolist():
            visits[visits.index(visited)] += 1  # raises where there is none
        assert sum(visits) == simulations


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
    ours = improved_policy(masked, *given, value_scale=0.3, visit_offset=7.0)
    loops = [improved_by_loops(*row, 0.3, 7.0) for row in zip(logits, legal, q, visits, value, strict=True)]
    np.testing.assert_allclose(ours, loops, rtol=1e-9, atol=1e-12)
    assert (ours.numpy()[~legal] == 0).all()


def test_the_improved_policy_is_worth_more_than_the_policy_by_the_completed_values() -> None:
    """Policy improvement, the paper's section 4: for any logits, values and visits."""
    torch.manual_seed(0)
    logits, q, visits = 2 * torch.randn(200, 5), torch.randn(200, 5), torch.randint(0, 4, (200, 5)).float()
    value = torch.randn(200)
    prior = torch.softmax(logits, -1)
    completed = completed_q(prior, q, visits, value)
    improved = improved_policy(logits, q, visits, value, value_scale=0.1, visit_offset=50.0)
    assert ((improved * completed).sum(-1) >= (prior * completed).sum(-1) - 1e-5).all()


def test_without_visits_the_mixed_value_is_the_networks_and_the_policy_stays() -> None:
    logits, value = torch.tensor([[0.5, -1.0, 2.0]]), torch.tensor([0.7])
    nothing = torch.zeros(1, 3)
    assert mixed_value(torch.softmax(logits, -1), nothing, nothing, value).item() == pytest.approx(0.7)
    policy = improved_policy(logits, nothing, nothing, value, value_scale=0.1, visit_offset=50.0)
    torch.testing.assert_close(policy, torch.softmax(logits, -1))


def test_the_loss_is_0_at_its_target_and_its_slope_is_the_difference_of_policies() -> None:
    target = torch.tensor([[0.2, 0.0, 0.8], [0.5, 0.25, 0.25]], dtype=torch.float64)
    assert policy_loss(target.clamp(min=1e-300).log(), target).item() == pytest.approx(0, abs=1e-12)
    logits = torch.tensor([[1.0, ILLEGAL, -0.5], [0.1, 0.2, 0.3]], dtype=torch.float64, requires_grad=True)
    policy_loss(logits, target).backward()
    torch.testing.assert_close(logits.grad, (torch.softmax(logits, -1) - target).detach() / 2)
    assert logits.grad[0, 1] == 0  # an illegal action learns nothing


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"simulations": 0}, "alphazero.simulations=0 must be from 1 to 10000"),
        ({"considered": 0}, "alphazero.considered=0 must be from 1"),
        ({"value_scale": 0.0}, "alphazero.value_scale=0.0 must be above 0"),
        ({"visit_offset": -1.0}, "alphazero.visit_offset=-1.0 must be at least 0"),
        ({"replay_size": 0}, "alphazero.replay_size=0 must be at least 1"),
        ({"value_target": "n-step"}, "alphazero.value_target"),
    ],
)
def test_wrong_settings_are_named(settings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AlphaZeroConfig(**settings)
