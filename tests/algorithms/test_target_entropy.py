"""The adapted weight of the entropy bonus: its steps, its bounds, and the entropies that its target names."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from scramjet.algorithms.target_entropy import MAX_COEF, MIN_COEF, EntropyTuner
from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig
from scramjet.policies.distributions import make_distribution

BOX = Box(-1, 1, (3,), np.float32)


def tuner(coef=0.01, **given):
    return EntropyTuner(coef, **{"target": 0.5, "unit": 2.0, "rate": 0.1} | given)


def test_each_step_multiplies_the_weight_by_e_to_the_rate_times_what_is_missing():
    tuned = tuner()
    tuned.follow(0.1)
    assert tuned.coef == pytest.approx(0.01 * math.exp(0.1 * 0.4 / 2))
    tuned.follow(0.9)
    assert tuned.coef == pytest.approx(0.01)


@pytest.mark.parametrize(("entropy", "bound"), [(-1e9, MAX_COEF), (1e9, MIN_COEF)])
def test_the_weight_stays_within_bounds(entropy, bound):
    tuned = tuner()
    tuned.follow(entropy)
    assert tuned.coef == pytest.approx(bound)


def test_a_restored_weight_is_the_same_to_the_last_bit():
    tuned, other = tuner(), tuner(0.5)
    tuned.follow(0.123)
    other.restore(tuned.tensors())
    assert other.coef == tuned.coef


def test_a_schedule_cannot_be_adapted():
    with pytest.raises(ConfigError, match=r"entropy_coef=0.01@0,0@end is a schedule.* use --entropy-coef 0.01"):
        tuner("0.01@0,0@end")


def test_a_weight_of_0_begins_at_the_lowest():
    assert tuner(0.0).coef == pytest.approx(MIN_COEF)


@pytest.mark.parametrize("space", [Discrete(5), MultiDiscrete([2, 7])])
def test_of_choices_the_target_is_a_share_of_the_entropy_of_equal_logits(space):
    distribution = make_distribution(space, PolicyConfig())
    action = torch.zeros(1, *distribution.action_shape, dtype=torch.int64)
    _, largest = distribution.log_prob_and_entropy(torch.zeros(1, distribution.num_inputs), action, None)
    assert distribution.entropy_of(0.3) == pytest.approx((0.3 * float(largest), float(largest)))


def test_of_numbers_the_target_is_the_entropy_of_noise_of_that_deviation():
    distribution = make_distribution(BOX, PolicyConfig())
    logits = torch.tensor([[0.0] * 3 + [math.log(0.3)] * 3])
    _, entropy = distribution.log_prob_and_entropy(logits, torch.zeros(1, 3), None)
    assert distribution.entropy_of(0.3) == pytest.approx((float(entropy), 3.0))


@pytest.mark.parametrize(
    ("space", "share", "message"), [(Discrete(3), 1.5, "use one below 1"), (BOX, 0.5, "bounded-actions scale")]
)
def test_a_target_that_means_nothing_is_refused(space, share, message):
    distribution = make_distribution(space, PolicyConfig(bounded_actions="tanh"))
    with pytest.raises(ConfigError, match=message):
        distribution.entropy_of(share)
