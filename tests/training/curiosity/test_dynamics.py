"""ICM and E3B: what they predict, what they leave out, and what they learn in a small world."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import make_distribution
from scramjet.training.curiosity.actions import ActionNumbers
from scramjet.training.curiosity.bonus import Transitions
from scramjet.training.curiosity.e3b import E3B
from scramjet.training.curiosity.icm import ICM
from tests.helpers.short_walks import NUM_PLACES, flat, walk

pytestmark = pytest.mark.usefixtures("one_thread")

NETWORK = PolicyConfig(hidden=(32,))
PLACES = Box(0, 1, (NUM_PLACES,), np.float32)
LEFT_OR_RIGHT = make_distribution(Discrete(2), NETWORK)


def icm(forward_share=0.2):
    return ICM(PLACES, LEFT_OR_RIGHT, NETWORK, 8, forward_share=forward_share)


def e3b(num_rows):
    return E3B(PLACES, LEFT_OR_RIGHT, NETWORK, 8, num_rows=num_rows, ridge=0.1)


def train(bonus, steps, num_gradient_steps=150):
    optimizer = torch.optim.Adam(bonus.parameters(), lr=1e-2)
    for _ in range(num_gradient_steps):
        optimizer.zero_grad()
        bonus.loss(flat(steps)).backward()
        optimizer.step()


def test_choices_become_one_hot_component_by_component_and_continuous_actions_stay():
    choices = ActionNumbers(make_distribution(MultiDiscrete([2, 3]), NETWORK))
    assert choices(torch.tensor([[1, 0], [0, 2]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    assert ActionNumbers(LEFT_OR_RIGHT)(torch.tensor([1])).tolist() == [[0, 1]]
    numbers = torch.tensor([[0.5, -2.0]])
    assert torch.equal(ActionNumbers(make_distribution(Box(-1, 1, (2,)), NETWORK))(numbers), numbers)


def test_the_error_of_choices_is_their_negative_log_probability_and_of_numbers_half_the_squared_distance():
    distribution = make_distribution(MultiDiscrete([2, 3]), NETWORK)
    logits, action = torch.randn(7, 5), torch.stack([torch.randint(2, (7,)), torch.randint(3, (7,))], 1)
    expected = -distribution.log_prob_and_entropy(logits, action, None)[0]
    torch.testing.assert_close(ActionNumbers(distribution).error(logits, action), expected)
    continuous = ActionNumbers(make_distribution(Box(-1, 1, (2,)), NETWORK))
    error = continuous.error(torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, -2.0]]))
    assert error.tolist() == [12.5]


@pytest.mark.parametrize("make", [icm, lambda: e3b(20)], ids=["icm", "e3b"])
def test_the_inverse_model_learns_which_action_led_from_one_place_to_the_next(make):
    bonus, steps = make(), walk(50, 20)
    bonus.observe(steps)
    train(bonus, steps)
    unseen = flat(walk(50, 20, ends=0.0, seed=1))
    dynamics = bonus.dynamics
    error = dynamics.inverse_error(dynamics.features(unseen.obs), dynamics.features(unseen.next_obs), unseen.action)
    assert error.mean() < 0.05  # of one who guesses: log 2


def test_what_has_been_walked_often_is_predicted_and_a_step_that_the_world_never_took_is_new():
    bonus, steps = icm(), walk(50, 20)
    bonus.observe(steps)
    before = bonus.bonuses(steps).mean()
    train(bonus, steps)
    known = bonus.bonuses(steps)
    across = torch.roll(steps.next_obs, 1, -1)  # as if each step led one place further to the right
    new = bonus.bonuses(Transitions(steps.obs, across, steps.action, steps.ended))
    assert known.mean() < before / 2
    assert new[~steps.ended].mean() > 5 * known[~steps.ended].mean()


@pytest.mark.parametrize("make", [icm, lambda: e3b(20)], ids=["icm", "e3b"])
def test_steps_that_end_an_episode_or_do_not_count_have_no_part_in_the_loss(make):
    bonus, steps = make(), flat(walk(20, 20, ends=0.3))
    counts = torch.rand(len(steps.ended)) < 0.7
    steps = Transitions(steps.obs, steps.next_obs, steps.action, steps.ended, counts)
    kept = torch.nonzero(counts & ~steps.ended).flatten()
    only = Transitions(steps.obs[kept], steps.next_obs[kept], steps.action[kept], steps.ended[kept])
    torch.testing.assert_close(bonus.loss(steps), bonus.loss(only))
    none = Transitions(steps.obs, steps.next_obs, steps.action, torch.ones_like(steps.ended))
    assert bonus.loss(none).item() == 0.0


def test_the_loss_of_icm_weighs_the_inverse_and_the_forward_model():
    torch.manual_seed(0)
    inverse = icm(0.0)
    forward, both = icm(1.0), icm(0.2)
    for other in (forward, both):
        other.load_state_dict(inverse.state_dict())
    steps = flat(walk(10, 10))
    torch.testing.assert_close(both.loss(steps), 0.8 * inverse.loss(steps) + 0.2 * forward.loss(steps))
    bonuses = both.bonuses(walk(10, 10))
    torch.testing.assert_close(forward.loss(steps), bonuses.sum() / (~steps.ended).sum())


def test_the_bonus_of_icm_is_the_error_of_the_prediction_and_nothing_where_an_episode_ends():
    bonus, steps = icm(), walk(10, 5, ends=0.3)
    predicted = bonus.predictor(
        torch.cat([bonus.dynamics.features(flat(steps).obs), torch.eye(2)[flat(steps).action]], 1)
    )
    expected = 0.5 * (predicted - bonus.dynamics.features(flat(steps).next_obs)).square().sum(1)
    found = bonus.bonuses(steps)
    torch.testing.assert_close(found.flatten(), expected * ~flat(steps).ended)
    assert not found[steps.ended].any()


def test_features_have_length_1_so_that_a_bonus_of_e3b_is_at_most_that_of_one_new_direction():
    steps = walk(30, 5, ends=0.0)
    bonus = e3b(5)
    torch.testing.assert_close(bonus.dynamics.visited_features(steps).norm(dim=-1), torch.ones(31, 5))
    assert 1 < bonus.bonuses(steps).max() <= 1 / 0.1


def test_the_bonus_of_e3b_falls_with_each_return_to_a_place_and_begins_anew_with_the_next_episode():
    bonus = e3b(1)
    seen = torch.eye(NUM_PLACES)[torch.tensor([0, 1, 0, 1, 0, 0, 1])].unsqueeze(1)
    ended = torch.tensor([0, 0, 0, 0, 1, 0], dtype=torch.bool).unsqueeze(1)
    steps = Transitions(seen[:-1], seen[1:], torch.zeros(6, 1, dtype=torch.int64), ended)
    found = bonus.bonuses(steps).flatten()
    assert found[0] > 2 * found[2] > 0  # place 1 for the first and the second time
    assert found[1] > found[3] > 0
    assert found[4] == 0
    torch.testing.assert_close(found[5], found[0])
