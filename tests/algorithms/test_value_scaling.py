"""PopArt, symlog and two-hot values against closed forms, and the layers that PopArt rescales and two-hot learns."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from scramjet.algorithms.value_scaling import KEPT_SHARE, MIN_DEVIATION, PopArt, Symlog
from scramjet.policies.layers import BIN_RANGE, TwoHotHead, symexp, symlog, two_hot


def popart_of(features=5, **given):
    return PopArt(nn.Linear(features, 1), **given)


def test_symlog_is_the_papers_formula_and_symexp_its_inverse():
    numbers = torch.tensor([-1e6, -20.0, -0.5, 0.0, 1e-3, 3.0, 1e6], dtype=torch.float64)
    expected = [math.copysign(math.log(abs(x) + 1), x) for x in numbers.tolist()]
    torch.testing.assert_close(symlog(numbers), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(symexp(symlog(numbers)), numbers)
    assert Symlog().to_returns(torch.tensor([-500.0, 500.0])).square().isfinite().all()  # values that no return has


def test_popart_changes_nothing_at_first_and_after_one_rollout_its_returns_have_mean_0_and_deviation_1():
    scale, returns = popart_of(), 5000 + 300 * torch.randn(4096)
    assert torch.equal(scale.to_returns(returns), returns)
    assert torch.equal(scale.to_outputs(returns), returns)
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
    layer, features = nn.Linear(5, 1), torch.randn(64, 5)
    scale = PopArt(layer)
    for returns in (1e4 + 100 * torch.randn(256), 1e4 + 3000 * torch.randn(256), torch.randn(256)):
        before = scale.to_returns(layer(features)).detach()
        scale.follow(returns)
        torch.testing.assert_close(scale.to_returns(layer(features)).detach(), before, rtol=1e-5, atol=1e-5 * 1e4)


def test_values_in_another_unit_stand_for_the_same_returns():
    returns, features = 1e4 + 100 * torch.randn(256), torch.randn(4, 5)
    for has_seen in (False, True):
        layer = nn.Linear(5, 1)
        scale, other = PopArt(layer), popart_of()
        if has_seen:
            scale.follow(returns)
            other.follow(0.01 * returns)
        before = scale.to_returns(layer(features)).detach()
        scale.multiply_returns(0.01)
        torch.testing.assert_close(scale.to_returns(layer(features)).detach(), 0.01 * before, rtol=1e-5, atol=1e-3)
        torch.testing.assert_close(scale.moments, other.moments, rtol=1e-6, atol=1e-6)


def test_returns_that_do_not_count_leave_the_statistics_alone_and_equal_ones_are_not_divided_by_zero():
    scale, other, equal = popart_of(), popart_of(), popart_of()
    scale.follow(torch.tensor([1.0, 2.0, 1e9]), torch.tensor([True, True, False]))
    other.follow(torch.tensor([1.0, 2.0]))
    assert torch.equal(scale.moments, other.moments)
    equal.follow(torch.full((8,), 7.0))
    assert float(equal.mean_and_deviation[1]) == MIN_DEVIATION
    assert float(equal.to_outputs(torch.tensor([7.0]))) == pytest.approx(0)


# --- two-hot values ----------------------------------------------------------------------------------------------

BINS = torch.linspace(-3, 3, 7)
UNEVEN = symexp(BINS)


def test_two_neighbouring_weights_encode_numbers_within_the_bins_exactly_and_those_beyond_are_the_outermost():
    expected = torch.tensor([[0, 0, 0, 0, 0.75, 0.25, 0], [0, 1, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(two_hot(torch.tensor([1.25, -2.0]), BINS), expected)
    for bins in (BINS, UNEVEN):
        numbers = torch.linspace(float(bins[0]), float(bins[-1]), 1001)
        weights = two_hot(numbers, bins)
        torch.testing.assert_close((weights * bins).sum(1), numbers)
        torch.testing.assert_close(weights.sum(1), torch.ones(1001))
        assert weights.min() >= 0
        assert int((weights > 0).sum(1).max()) == 2
    assert two_hot(torch.tensor([-9.0, 9.0]), BINS).argmax(1).tolist() == [0, 6]


def test_every_value_is_0_at_first_and_a_head_that_computed_them_can_be_copied():
    head = TwoHotHead(4, 101)
    assert float(head(torch.randn(8, 4)).detach().abs().max()) == pytest.approx(0, abs=1e-4)
    assert copy.deepcopy(head).layer.weight.equal(head.layer.weight)


def test_logits_that_are_the_weights_of_a_return_give_it_as_value():
    head, returns = TwoHotHead(1, 101), torch.tensor([12_345.0])
    with torch.no_grad():
        head.layer.bias.copy_(two_hot(returns, head.bins)[0].log().clamp(min=-1e3))
    assert float(head(torch.zeros(1, 1)).detach()) == pytest.approx(12_345, rel=1e-3)


def test_the_loss_is_the_cross_entropy_and_its_gradient_softmax_minus_weights():
    head, returns = TwoHotHead(3, 11), torch.tensor([0.5, -400.0])
    with torch.no_grad():
        head.layer.bias.copy_(torch.randn(11))
    value = head(torch.zeros(2, 3))
    head.loss(returns).sum().backward()
    expected = (head.layer.bias.softmax(0) - two_hot(returns, head.bins)).sum(0)
    torch.testing.assert_close(head.layer.bias.grad, expected.detach())
    torch.testing.assert_close(value[0], (head.layer.bias.softmax(0) * head.bins).sum().view(1))
    assert float(head.bins[-1]) == pytest.approx(math.expm1(BIN_RANGE))


def test_returns_that_come_by_chance_are_valued_by_their_mean_not_by_that_of_their_logarithms():
    head, features, returns = TwoHotHead(1, 101), torch.ones(2, 1), torch.tensor([0.0, 1000.0])
    optimizer = torch.optim.Adam(head.parameters(), 0.1)
    for _ in range(500):
        head(features)
        optimizer.zero_grad()
        head.loss(returns).mean().backward()
        optimizer.step()
    assert head(features).detach().flatten().tolist() == pytest.approx([500, 500], rel=0.02)
