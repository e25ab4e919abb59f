"""PPO's losses and diagnostics, against closed forms and finite differences; its config's own checks."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scramjet.algorithms.ppo import (
    PPOConfig,
    clipped_surrogate,
    explained_variance,
    normalize,
    ppo_loss,
    value_loss,
)
from scramjet.errors import ConfigError


def doubles(*numbers):
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def finite_difference(function, x, step=1e-6):
    """The gradient of a scalar function by central differences."""
    gradient = torch.zeros_like(x)
    for i in range(len(x)):
        shift = torch.zeros_like(x)
        shift[i] = step
        gradient[i] = (function(x.detach() + shift) - function(x.detach() - shift)) / (2 * step)
    return gradient


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.1, 2.0, 2.2, 2.2),
        (1.5, 2.0, 2.4, 0.0),  # beyond the clip on the good side: no further gain, no gradient
        (0.5, 2.0, 1.0, 1.0),  # made a good action rarer: full gradient back
        (1.5, -2.0, -3.0, -3.0),  # made a bad action likelier: full gradient back
        (0.5, -2.0, -1.6, 0.0),  # beyond the clip: no gradient
        (0.9, -2.0, -1.8, -1.8),
    ],
)
def test_the_clipped_surrogate_and_its_gradient_in_each_region(ratio, advantage, objective, slope):
    log_ratio = doubles(math.log(ratio))
    loss = clipped_surrogate(log_ratio, torch.tensor([advantage], dtype=torch.float64), clip=0.2)
    loss.backward()
    assert loss.item() == pytest.approx(-objective)
    assert log_ratio.grad.item() == pytest.approx(-slope)  # d ratio / d log ratio = ratio


@pytest.mark.parametrize(("value", "expected"), [(3.0, 0.5 * 2.0**2), (1.1, 0.5 * 3.9**2)])
def test_unclipped_value_loss_is_half_the_squared_error(value, expected):
    loss = value_loss(doubles(value), doubles(1.0), doubles(5.0), clip=None)
    assert loss.item() == pytest.approx(expected)


def test_clipped_value_loss_takes_the_larger_error_so_that_moving_too_far_towards_the_return_earns_nothing():
    value = doubles(3.0)
    loss = value_loss(value, doubles(1.0), doubles(5.0), clip=0.2)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * (1.2 - 5.0) ** 2)  # the min form would give 0.5 * (3 - 5)^2
    assert value.grad.item() == 0.0


def test_clipped_value_loss_still_pulls_back_a_value_that_moved_away_from_the_return():
    value = doubles(-1.0)
    loss = value_loss(value, doubles(1.0), doubles(5.0), clip=0.2)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * 36.0)
    assert value.grad.item() == pytest.approx(-6.0)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), clip=st.sampled_from([0.1, 0.5, None]))
def test_value_loss_is_never_below_the_unclipped_one_and_equals_the_plain_loop(seed, clip):
    rng = np.random.default_rng(seed)
    value, old, returns = rng.normal(0, 1, (3, 7))
    total = 0.0
    for v, o, r in zip(value, old, returns, strict=True):
        errors = [(v - r) ** 2]
        if clip is not None:
            errors.append((min(max(v, o - clip), o + clip) - r) ** 2)
        total += max(errors)
    loss = value_loss(torch.tensor(value), torch.tensor(old), torch.tensor(returns), clip=clip)
    assert loss.item() == pytest.approx(0.5 * total / 7)
    assert loss.item() >= 0.5 * np.mean((value - returns) ** 2) - 1e-12


@pytest.mark.parametrize("value_clip", [None, 0.3])
def test_autograd_of_the_whole_loss_agrees_with_finite_differences(value_clip):
    generator = torch.Generator().manual_seed(4)
    fixed = {
        name: torch.randn(6, generator=generator, dtype=torch.float64)
        for name in ("old_log_prob", "old_value", "advantage", "returns")
    }
    numbers = {"clip": 0.2, "value_clip": value_clip, "entropy_coef": 0.03, "value_coef": 0.7}
    inputs = [
        fixed["old_log_prob"] + 0.3 * torch.randn(6, generator=generator, dtype=torch.float64),
        torch.rand(6, generator=generator, dtype=torch.float64),
        fixed["old_value"] + torch.randn(6, generator=generator, dtype=torch.float64),
    ]
    for i in range(3):

        def total(x, i=i):
            return ppo_loss(*inputs[:i], x, *inputs[i + 1 :], **fixed, **numbers).total

        x = inputs[i].clone().requires_grad_()
        total(x).backward()
        torch.testing.assert_close(x.grad, finite_difference(total, x), rtol=1e-6, atol=1e-8)


def loss_terms(log_prob, old_log_prob, *, clip=0.2, entropy=(0.5, 0.7), entropy_coef=0.1):
    count = len(log_prob)
    zeros = torch.zeros(count)
    return ppo_loss(
        torch.tensor(log_prob), torch.tensor(entropy)[:count], zeros + 2.0,
        old_log_prob=torch.tensor(old_log_prob), old_value=zeros, advantage=zeros + 1.0, returns=zeros,
        clip=clip, value_clip=None, entropy_coef=entropy_coef, value_coef=0.25,
    )  # fmt: skip


def test_the_total_is_policy_loss_plus_weighted_value_loss_minus_weighted_entropy():
    terms = loss_terms([-1.0, -2.0], [-1.0, -2.0])
    assert terms.policy_loss.item() == pytest.approx(-1.0)
    assert terms.value_loss.item() == pytest.approx(2.0)
    assert terms.entropy.item() == pytest.approx(0.6)
    assert terms.total.item() == pytest.approx(-1.0 + 0.25 * 2.0 - 0.1 * 0.6)


def test_the_kl_estimators_and_the_clip_fraction_have_their_closed_forms():
    terms = loss_terms([math.log(0.5), math.log(0.3)], [math.log(0.4), math.log(0.2)])
    ratios = (1.25, 1.5)
    assert terms.approx_kl_k1.item() == pytest.approx(-np.mean(np.log(ratios)))
    assert terms.approx_kl.item() == pytest.approx(np.mean([r - 1 - math.log(r) for r in ratios]), rel=1e-5)
    assert terms.clip_fraction.item() == 1.0
    assert loss_terms([math.log(0.5)], [math.log(0.4)], clip=0.3).clip_fraction.item() == 0.0


def test_both_kl_estimators_average_to_the_true_divergence_and_k3_is_never_negative():
    old, new = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.25, 0.35])
    truth = float((old * np.log(old / new)).sum())
    k1 = k3 = 0.0
    for action in range(3):
        terms = loss_terms([math.log(new[action])], [math.log(old[action])])
        assert terms.approx_kl.item() >= 0
        k1 += old[action] * terms.approx_kl_k1.item()
        k3 += old[action] * terms.approx_kl.item()
    assert k1 == pytest.approx(truth, rel=1e-4)
    assert k3 == pytest.approx(truth, rel=1e-4)


def test_diagnostics_carry_no_gradient():
    log_prob = torch.tensor([-1.0], requires_grad=True)
    terms = ppo_loss(
        log_prob, torch.zeros(1), torch.zeros(1), old_log_prob=torch.zeros(1), old_value=torch.zeros(1),
        advantage=torch.ones(1), returns=torch.zeros(1), clip=0.2, value_clip=None, entropy_coef=0, value_coef=0,
    )  # fmt: skip
    assert terms.policy_loss.requires_grad
    for diagnostic in (terms.approx_kl, terms.approx_kl_k1, terms.clip_fraction):
        assert not diagnostic.requires_grad


@settings(max_examples=60)
@given(
    numbers=st.lists(st.floats(-100, 100), min_size=2, max_size=20), shift=st.floats(-50, 50), scale=st.floats(0.1, 9)
)
def test_normalized_advantages_have_mean_0_and_deviation_1_whatever_their_shift_and_scale(numbers, shift, scale):
    x = torch.tensor(numbers, dtype=torch.float64) * scale + shift
    assume(x.std() > 1e-3)
    normal = normalize(x)
    assert abs(normal.mean().item()) < 1e-6
    np.testing.assert_allclose(normal, (x - x.mean()) / (np.std(x.numpy(), ddof=1) + 1e-8), rtol=1e-6, atol=1e-9)


def test_normalizing_equal_advantages_or_a_single_one_gives_zero_not_nan():
    assert torch.equal(normalize(torch.full((5,), 3.0)), torch.zeros(5))
    assert torch.equal(normalize(torch.tensor([3.0])), torch.zeros(1))


def test_explained_variance_is_1_for_the_truth_0_for_the_mean_and_negative_for_worse():
    returns = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert float(explained_variance(returns, returns)) == pytest.approx(1.0)
    assert float(explained_variance(torch.full((4,), 2.5), returns)) == pytest.approx(0.0)
    assert float(explained_variance(-returns, returns)) == pytest.approx(1 - 4.0)
    assert float(explained_variance(returns + 7, returns)) == pytest.approx(
        1.0
    )  # a constant offset explains all variance


@pytest.mark.parametrize("constant", [0.0, 0.1, 1.0, 33.3, 1234.567, -77.7])
def test_explained_variance_is_no_number_where_returns_are_all_the_same(constant):
    values = torch.randn(8192, generator=torch.Generator().manual_seed(1))
    assert explained_variance(values, torch.full((8192,), constant)).isnan()


def test_explained_variance_is_told_where_returns_vary_by_little_but_well_above_rounding():
    returns = 1000 + 0.1 * torch.randn(8192, generator=torch.Generator().manual_seed(1))
    assert float(explained_variance(returns, returns)) == pytest.approx(1.0)


# --- the config --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gamma", 1.5),
        ("gamma", -0.1),
        ("gae_lambda", 2),
        ("num_epochs", 0),
        ("num_epochs", "many"),
        ("num_minibatches", 0),
        ("minibatch_size", 0),
        ("value_coef", -1),
        ("max_grad_norm", 0),
        ("value_clip", -0.2),
        ("target_kl", 0),
        ("adam_eps", 0),
        ("learning_rate", -1e-3),
        ("learning_rate", "fast"),
        ("entropy_coef", "0.1@5,0.2@1"),
        ("clip_epsilon", float("inf")),
        ("value_coef", float("inf")),
        ("adam_eps", float("inf")),
        ("gamma", float("nan")),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_field_and_the_value(field, value):
    with pytest.raises(ConfigError, match=re.escape(field)) as caught:
        PPOConfig(**{field: value})
    assert str(value) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "epochs"),
    [({}, 10), ({"loss": "impala"}, 1), ({"num_epochs": 7}, 7), ({"loss": "impala", "num_epochs": 3}, 3)],
)
def test_epochs_follow_from_the_loss_unless_they_are_given(changes, epochs):
    assert PPOConfig(**changes).epochs == epochs


def test_a_range_message_says_the_rule_and_the_default():
    with pytest.raises(ConfigError, match=re.escape("gamma=1.5 must be from 0 to 1; the default is 0.99")):
        PPOConfig(gamma=1.5)


@settings(max_examples=200)
@given(batch_size=st.integers(1, 300), num_minibatches=st.integers(1, 400))
def test_minibatches_split_the_batch_evenly_or_the_suggestion_does(batch_size, num_minibatches):
    config = PPOConfig(num_minibatches=num_minibatches)
    if batch_size % num_minibatches == 0:
        assert config.num_minibatches_for(batch_size) == num_minibatches
    else:
        assert batch_size % follow_advice(config, batch_size).num_minibatches_for(batch_size) == 0


@settings(max_examples=200)
@given(batch_size=st.integers(1, 300), minibatch_size=st.integers(1, 400))
def test_a_minibatch_size_fits_the_batch_or_the_suggestion_does(batch_size, minibatch_size):
    config = PPOConfig(minibatch_size=minibatch_size)
    if minibatch_size <= batch_size and batch_size % minibatch_size == 0:
        assert config.num_minibatches_for(batch_size) == batch_size // minibatch_size
    else:
        assert batch_size % follow_advice(config, batch_size).num_minibatches_for(batch_size) == 0


def follow_advice(config, batch_size):
    """The config after adding the very flag that the error message tells the user to add."""
    with pytest.raises(ConfigError) as caught:
        config.num_minibatches_for(batch_size)
    flag, number = re.search(r"try --([a-z-]+) (\d+)", str(caught.value)).groups()
    settings_ = {"num_minibatches": config.num_minibatches, "minibatch_size": config.minibatch_size}
    return PPOConfig(**settings_ | {flag.replace("-", "_"): int(number)})


def test_a_minibatch_larger_than_the_batch_is_refused_by_name():
    with pytest.raises(ConfigError, match=re.escape("minibatch_size=512 is larger than the batch of 256 samples")):
        PPOConfig(minibatch_size=512).num_minibatches_for(256)
