"""PPO's and IMPALA's losses and diagnostics, against closed forms and finite differences; the config's own checks."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.impala import policy_gradient
from scramjet.algorithms.ppo import (
    clipped_surrogate,
    explained_by_moments,
    explained_variance,
    normalize,
    normalize_by,
    normalizing,
    ppo_loss,
    value_loss,
)
from scramjet.errors import ConfigError
from scramjet.runtime.ranks.moments import moments_of


def doubles(*numbers):
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


SURROGATE = [  # ratio, advantage, objective, slope
    (1.0, 2.0, 2.0, 2.0),
    (1.1, 2.0, 2.2, 2.2),
    (1.5, 2.0, 2.4, 0.0),  # beyond the clip on the good side: no further gain, no gradient
    (0.5, 2.0, 1.0, 1.0),  # made a good action rarer: full gradient back
    (1.5, -2.0, -3.0, -3.0),  # made a bad action likelier: full gradient back
    (0.5, -2.0, -1.6, 0.0),  # beyond the clip: no gradient
    (0.9, -2.0, -1.8, -1.8),
]


def test_the_clipped_surrogate_and_its_gradient_in_each_region():
    for ratio, advantage, objective, slope in SURROGATE:
        log_ratio = doubles(math.log(ratio))
        loss = clipped_surrogate(log_ratio, torch.tensor([advantage], dtype=torch.float64), clip=0.2)
        loss.backward()  # d ratio / d log ratio = ratio
        assert (loss.item(), log_ratio.grad.item()) == pytest.approx((-objective, -slope)), (ratio, advantage)


def test_the_gradient_of_impala_weighs_by_the_clipped_ratio_alone():
    log_prob = torch.tensor([-0.5, -1.0, -2.0], requires_grad=True)
    log_ratio, advantage = torch.tensor([0.5, -0.5, 0.0]), torch.tensor([2.0, 3.0, -1.0])
    policy_gradient(log_prob, log_ratio + 0 * log_prob, advantage, rho_clip=1.0).backward()
    expected = -torch.tensor([1.0, math.exp(-0.5), 1.0]) * advantage / 3
    torch.testing.assert_close(log_prob.grad, expected, rtol=1e-6, atol=0)


VALUES = [  # value, clip, loss, slope; the old value is 1, the return 5
    (3.0, None, 0.5 * 2.0**2, -2.0),
    (1.1, None, 0.5 * 3.9**2, -3.9),
    (3.0, 0.2, 0.5 * 3.8**2, 0.0),  # the larger error: moving too far towards the return earns nothing
    (-1.0, 0.2, 0.5 * 6.0**2, -6.0),  # moved away from the return: pulled back
]


def test_the_value_loss_and_its_gradient_with_and_without_a_clip():
    for number, clip, expected, slope in VALUES:
        value = doubles(number)
        loss = value_loss(value, doubles(1.0), doubles(5.0), clip=clip)
        loss.backward()
        assert (loss.item(), value.grad.item()) == pytest.approx((expected, slope)), (number, clip)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), clip=st.sampled_from([0.1, 0.5, None]))
def test_the_value_loss_equals_the_plain_loop(seed, clip):
    value, old, returns = np.random.default_rng(seed).normal(0, 1, (3, 7))
    total = 0.0
    for v, o, r in zip(value, old, returns, strict=True):
        clipped = v if clip is None else min(max(v, o - clip), o + clip)
        total += max((v - r) ** 2, (clipped - r) ** 2)
    loss = value_loss(torch.tensor(value), torch.tensor(old), torch.tensor(returns), clip=clip)
    assert loss.item() == pytest.approx(0.5 * total / 7)


def test_autograd_of_the_whole_loss_agrees_with_finite_differences():
    old_log_prob, old_value, advantage, returns, moved, shifted = torch.randn(6, 6, dtype=torch.float64)
    fixed = {"old_log_prob": old_log_prob, "old_value": old_value, "advantage": advantage, "returns": returns}
    inputs = (old_log_prob + 0.3 * moved, moved.abs(), old_value + shifted)
    for value_clip in (None, 0.3):
        numbers = {"clip": 0.2, "value_clip": value_clip, "entropy_coef": 0.03, "value_coef": 0.7}
        assert torch.autograd.gradcheck(
            lambda *x, n=numbers: ppo_loss(*x, **fixed, **n).total, [x.clone().requires_grad_() for x in inputs]
        )


def loss_terms(log_prob, old_log_prob, clip=0.2):
    zeros = torch.zeros(len(log_prob))
    return ppo_loss(
        torch.tensor(log_prob, requires_grad=True), torch.tensor([0.5, 0.7])[: len(log_prob)], zeros + 2.0,
        old_log_prob=torch.tensor(old_log_prob), old_value=zeros, advantage=zeros + 1.0, returns=zeros,
        clip=clip, value_clip=None, entropy_coef=0.1, value_coef=0.25,
    )  # fmt: skip


def test_the_total_is_policy_loss_plus_weighted_value_loss_minus_weighted_entropy():
    terms = loss_terms([-1.0, -2.0], [-1.0, -2.0])
    assert terms.scaled(torch.tensor(0.5)).value_loss.item() == pytest.approx(1.0)
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
    assert terms.policy_loss.requires_grad
    assert not any(each.requires_grad for each in (terms.approx_kl, terms.approx_kl_k1, terms.clip_fraction))


@settings(max_examples=60)
@given(
    numbers=st.lists(st.floats(-100, 100), min_size=2, max_size=20), shift=st.floats(-50, 50), scale=st.floats(0.1, 9)
)
def test_normalized_advantages_have_mean_0_and_deviation_1_whatever_their_shift_and_scale(numbers, shift, scale):
    assert torch.equal(normalize(torch.full((5,), 3.0)), torch.zeros(5)), "equal ones are 0, not nan"
    assert torch.equal(normalize(torch.tensor([3.0])), torch.zeros(1)), "and so is a single one"
    alike, counts = torch.full((7,), 0.010278369), torch.arange(7) > 0
    assert torch.equal(normalize(alike), torch.zeros(7)), "nor is the mean's rounding error brought to deviation 1"
    assert torch.equal(normalize(torch.where(counts, alike, 5.0), counts), torch.zeros(7)), "by those that count"
    x = torch.tensor(numbers, dtype=torch.float64) * scale + shift
    assume(x.std() > 1e-3)
    normal = normalize(x)
    assert abs(normal.mean().item()) < 1e-6
    np.testing.assert_allclose(normal, (x - x.mean()) / (np.std(x.numpy(), ddof=1) + 1e-8), rtol=1e-6, atol=1e-9)


def test_explained_variance_is_1_for_the_truth_0_for_the_mean_and_negative_for_worse():
    returns = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert float(explained_variance(returns, returns)) == pytest.approx(1.0)
    assert float(explained_variance(torch.full((4,), 2.5), returns)) == pytest.approx(0.0)
    assert float(explained_variance(-returns, returns)) == pytest.approx(1 - 4.0)
    assert float(explained_variance(returns + 7, returns)) == pytest.approx(1.0)  # an offset has no variance


def test_explained_variance_is_no_number_where_returns_are_all_the_same_but_where_they_vary_by_little():
    values = torch.randn(8192)
    for constant in (0.0, 0.1, 1.0, 33.3, 1234.567, -77.7):
        assert explained_variance(values, torch.full((8192,), constant)).isnan(), constant
    returns = 1000 + 0.1 * values  # well above rounding
    assert float(explained_variance(returns, returns)) == pytest.approx(1.0)


def test_numbers_that_do_not_count_leave_no_trace_and_moments_give_what_the_numbers_give():
    numbers, value = 3 * torch.randn(64, dtype=torch.float64) + 5, torch.randn(64, dtype=torch.float64)
    counts = torch.rand(64) < 0.6
    normal = normalize(numbers, counts)
    torch.testing.assert_close(normal[counts], normalize(numbers[counts]))
    assert not normal[~counts].any()
    by_moments = normalize_by(normalizing(moments_of(numbers, counts)), numbers)
    torch.testing.assert_close(by_moments[counts], normal[counts], rtol=1e-5, atol=1e-6)
    expected = explained_variance(value[counts], numbers[counts])
    moments = moments_of(numbers, counts), moments_of(numbers - value, counts)
    for found in (explained_variance(value, numbers, counts), explained_by_moments(*moments)):
        torch.testing.assert_close(found, expected)


# --- the config --------------------------------------------------------------------------------------------------


WRONG = {
    "gamma": (1.5, -0.1, float("nan")), "gae_lambda": (2,), "num_epochs": (0, "many"), "num_minibatches": (0,),
    "minibatch_size": (0,), "value_coef": (-1, float("inf")), "max_grad_norm": (0,), "value_clip": (-0.2,),
    "target_kl": (0,), "adam_eps": (0, float("inf")), "learning_rate": (-1e-3, "fast"), "clip_epsilon": (float("inf"),),
    "entropy_coef": ("0.1@5,0.2@1",),
}  # fmt: skip


def test_a_value_out_of_range_is_refused_with_the_field_and_the_value():
    for field, values in WRONG.items():
        for value in values:
            with pytest.raises(ConfigError, match=rf"{field}.*{re.escape(str(value))}"):
                PPOConfig(**{field: value})
    with pytest.raises(ConfigError, match=re.escape("gamma=1.5 must be from 0 to 1; the default is 0.99")):
        PPOConfig(gamma=1.5)


def test_epochs_follow_from_the_loss_unless_they_are_given():
    assert [PPOConfig(loss=loss).epochs for loss in ("ppo", "impala")] == [10, 1]
    assert [PPOConfig(loss=loss, num_epochs=7).epochs for loss in ("ppo", "impala")] == [7, 7]


@settings(max_examples=200)
@given(
    batch_size=st.integers(1, 300),
    number=st.integers(1, 400),
    name=st.sampled_from(["num_minibatches", "minibatch_size"]),
)
def test_minibatches_split_the_batch_evenly_or_the_suggestion_does(batch_size, number, name):
    config = PPOConfig(**{name: number})
    if batch_size % number == 0:
        expected = number if name == "num_minibatches" else batch_size // number
        assert config.num_minibatches_for(batch_size) == expected
    else:
        assert batch_size % follow_advice(config, batch_size).num_minibatches_for(batch_size) == 0
    with pytest.raises(ConfigError, match=re.escape("minibatch_size=512 is larger than the batch of 256 samples")):
        PPOConfig(minibatch_size=512).num_minibatches_for(256)


def follow_advice(config, batch_size):
    """The config after adding the very flag that the error message tells the user to add."""
    with pytest.raises(ConfigError) as caught:
        config.num_minibatches_for(batch_size)
    flag, number = re.search(r"try --([a-z-]+) (\d+)", str(caught.value)).groups()
    settings_ = {"num_minibatches": config.num_minibatches, "minibatch_size": config.minibatch_size}
    return PPOConfig(**settings_ | {flag.replace("-", "_"): int(number)})
