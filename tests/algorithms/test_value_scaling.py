"""PopArt and symlog against closed forms, and the layer that PopArt rescales."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from scramjet.algorithms.value_scaling import KEPT_SHARE, MIN_DEVIATION, PopArt, Symlog
from scramjet.policies.compressed_values import symexp, symlog


def popart_of(features=5, **given):
    torch.manual_seed(0)
    return PopArt(nn.Linear(features, 1), **given)


def test_symlog_is_the_papers_formula_and_symexp_its_inverse():
    numbers = torch.tensor([-1e6, -20.0, -0.5, 0.0, 1e-3, 3.0, 1e6], dtype=torch.float64)
    expected = [math.copysign(math.log(abs(x) + 1), x) for x in numbers.tolist()]
    torch.testing.assert_close(symlog(numbers), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(symexp(symlog(numbers)), numbers)


def test_a_value_that_no_return_has_stays_finite():
    assert bool(Symlog().to_returns(torch.tensor([-500.0, 500.0])).square().isfinite().all())


def test_before_the_first_rollout_popart_changes_nothing():
    values = torch.tensor([-3.0, 0.0, 12.5])
    assert torch.equal(popart_of().to_returns(values), values)
    assert torch.equal(popart_of().to_outputs(values), values)


def test_after_one_rollout_its_returns_have_mean_0_and_deviation_1():
    scale, returns = popart_of(), 5000 + 300 * torch.randn(4096)
    scale.follow(returns)
    outputs = scale.to_outputs(returns)
    assert float(outputs.mean()) == pytest.approx(0, abs=1e-3)
    assert float(outputs.std(correction=0)) == pytest.approx(1, rel=1e-3)
    torch.testing.assert_close(scale.to_returns(outputs), returns)


def test_older_rollouts_weigh_less_by_the_kept_share():
    scale, generator = popart_of(), np.random.default_rng(0)
    rollouts = [generator.normal(10 * k, 1 + k, 50) for k in range(4)]
    for returns in rollouts:
        scale.follow(torch.from_numpy(returns))
    weights = np.concatenate([np.full(50, KEPT_SHARE ** (3 - k)) for k in range(4)])
    everything = np.concatenate(rollouts)
    mean = np.average(everything, weights=weights)
    deviation = np.average((everything - mean) ** 2, weights=weights) ** 0.5
    assert [float(number) for number in scale.mean_and_deviation] == pytest.approx([mean, deviation])


def test_the_returns_that_outputs_stand_for_are_preserved_when_statistics_change():
    torch.manual_seed(0)
    layer, features = nn.Linear(5, 1), torch.randn(64, 5)
    scale = PopArt(layer)
    for returns in (1e4 + 100 * torch.randn(256), 1e4 + 3000 * torch.randn(256), torch.randn(256)):
        before = scale.to_returns(layer(features)).detach()
        scale.follow(returns)
        torch.testing.assert_close(scale.to_returns(layer(features)).detach(), before, rtol=1e-5, atol=1e-5 * 1e4)


@pytest.mark.parametrize("returns", [None, 1e4 + 100 * torch.randn(256, generator=torch.Generator().manual_seed(0))])
def test_values_in_another_unit_stand_for_the_same_returns(returns):
    features, layer = torch.randn(4, 5), nn.Linear(5, 1)
    scale = PopArt(layer)
    if returns is not None:
        scale.follow(returns)
    before = scale.to_returns(layer(features)).detach()
    scale.multiply_returns(0.01)
    torch.testing.assert_close(scale.to_returns(layer(features)).detach(), 0.01 * before, rtol=1e-5, atol=1e-3)
    if returns is not None:
        other = PopArt(nn.Linear(5, 1))
        other.follow(0.01 * returns)
        torch.testing.assert_close(scale.moments, other.moments, rtol=1e-6, atol=1e-6)


def test_returns_that_do_not_count_leave_the_statistics_alone():
    scale, other = popart_of(), popart_of()
    scale.follow(torch.tensor([1.0, 2.0, 1e9]), torch.tensor([True, True, False]))
    other.follow(torch.tensor([1.0, 2.0]))
    assert torch.equal(scale.moments, other.moments)


def test_returns_that_are_all_the_same_are_not_divided_by_zero():
    scale = popart_of()
    scale.follow(torch.full((8,), 7.0))
    assert float(scale.mean_and_deviation[1]) == MIN_DEVIATION
    assert float(scale.to_outputs(torch.tensor([7.0]))) == pytest.approx(0)
