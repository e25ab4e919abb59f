"""Bonuses one by one, on walks along a ring of places: what they pay, what they leave out and what they learn."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import nn

from scramjet.engine.trees import map_leaves
from scramjet.policies import PolicyConfig, make_distribution
from scramjet.policies.observations import without_entries
from scramjet.training.curiosity.actions import ActionNumbers
from scramjet.training.curiosity.bonus import Transitions
from scramjet.training.curiosity.e3b import E3B
from scramjet.training.curiosity.episodic import CountBonus, ProductBonus
from scramjet.training.curiosity.icm import ICM
from scramjet.training.curiosity.noveld import NoveltyDifference
from scramjet.training.curiosity.rnd import RND

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_PLACES = 6
PLACES = Box(0, 1, (NUM_PLACES,), np.float32)
NETWORK = PolicyConfig(hidden=(32,))
LEFT_OR_RIGHT = make_distribution(Discrete(2), NETWORK)


def walk(num_steps, num_rows, *, ends=0.1, seed=0):
    """Random walkers on a ring of places, one-hot [T, R, places]; action 1 goes right, 0 left.

    Where an episode ends, the next begins at a random place.
    """
    generator = torch.Generator().manual_seed(seed)
    action = torch.randint(2, (num_steps, num_rows), generator=generator)
    ended = torch.rand(num_steps, num_rows, generator=generator) < ends
    begins = torch.randint(NUM_PLACES, (num_steps, num_rows), generator=generator)
    places = [torch.zeros(num_rows, dtype=torch.int64)]
    for t in range(num_steps):
        places.append(torch.where(ended[t], begins[t], (places[-1] + 2 * action[t] - 1) % NUM_PLACES))
    return along(torch.stack(places), action, ended)


def along(places, action, ended):
    """Steps between places [T + 1, R]; action and ended [T, R]."""
    seen = torch.eye(NUM_PLACES)[places]
    return Transitions(seen[:-1], seen[1:], action, ended)


def flat(steps):
    """A rollout [T, R] as one minibatch [T * R]."""
    return steps.select(torch.arange(steps.ended.numel()))


def line(places, ends=()):
    """One row that walks along `places`, with episodes that end at the steps `ends`."""
    ended = torch.zeros(len(places) - 1, 1, dtype=torch.bool)
    ended[list(ends)] = True
    return along(torch.tensor(places).unsqueeze(1), torch.zeros_like(ended, dtype=torch.int64), ended)


def icm(forward_share=0.2):
    return ICM(PLACES, LEFT_OR_RIGHT, NETWORK, 8, forward_share=forward_share)


def e3b(num_rows):
    return E3B(PLACES, LEFT_OR_RIGHT, NETWORK, 8, num_rows=num_rows, ridge=0.1)


def train(bonus, steps):
    bonus.observe(steps)
    optimizer = torch.optim.Adam(bonus.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        bonus.loss(flat(steps)).backward()
        optimizer.step()


def test_choices_become_one_hot_and_their_error_is_their_negative_log_probability_and_numbers_stay():
    distribution = make_distribution(MultiDiscrete([2, 3]), NETWORK)
    choices = ActionNumbers(distribution)
    assert choices(torch.tensor([[1, 0], [0, 2]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    assert ActionNumbers(LEFT_OR_RIGHT)(torch.tensor([1])).tolist() == [[0, 1]]
    logits, action = torch.randn(7, 5), torch.stack([torch.randint(2, (7,)), torch.randint(3, (7,))], 1)
    expected = -distribution.log_prob_and_entropy(logits, action, None)[0]
    torch.testing.assert_close(choices.error(logits, action), expected)
    continuous, numbers = ActionNumbers(make_distribution(Box(-1, 1, (2,)), NETWORK)), torch.tensor([[0.5, -2.0]])
    assert torch.equal(continuous(numbers), numbers)
    error = continuous.error(torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, -2.0]]))
    assert error.tolist() == [12.5]  # half the squared distance


def test_the_inverse_model_learns_which_action_led_where_and_icm_what_has_been_walked_often():
    bonus, steps, unseen = icm(), walk(50, 20), flat(walk(50, 20, ends=0.0, seed=1))
    bonus.observe(steps)
    before = bonus.bonuses(steps).mean()
    for each in (bonus, e3b(20)):
        train(each, steps)
        features = each.dynamics.features
        error = each.dynamics.inverse_error(features(unseen.obs), features(unseen.next_obs), unseen.action)
        assert error.mean() < 0.05  # of one who guesses: log 2
    known = bonus.bonuses(steps)
    across = torch.roll(steps.next_obs, 1, -1)  # as if each step led one place further to the right
    new = bonus.bonuses(Transitions(steps.obs, across, steps.action, steps.ended))
    assert known.mean() < before / 2
    assert new[~steps.ended].mean() > 5 * known[~steps.ended].mean()


def test_steps_that_end_an_episode_or_do_not_count_have_no_part_in_the_loss():
    for bonus in (icm(), e3b(20)):
        steps = flat(walk(20, 20, ends=0.3))
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
    taken = torch.eye(2)[flat(steps).action]
    predicted = bonus.predictor(torch.cat([bonus.dynamics.features(flat(steps).obs), taken], 1))
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
    found = bonus.bonuses(line([0, 1, 0, 1, 0, 0, 1], ends=[4])).flatten()
    assert found[0] > 2 * found[2] > 0  # place 1 for the first and the second time
    assert found[1] > found[3] > 0
    assert found[4] == 0
    torch.testing.assert_close(found[5], found[0])


# --- counts within episodes, differences of novelty, and products ----------------------------------------------------


def counts(*, only_first=False, space=PLACES, num_rows=1):
    return CountBonus(space, num_rows, 16, only_first=only_first)


def test_the_nth_visit_of_an_observation_in_its_episode_earns_one_over_the_root_of_n():
    found = counts().bonuses(line([0, 1, 0, 1, 1, 2, 1], ends=[4]))
    expected = [1, math.sqrt(1 / 2), math.sqrt(1 / 2), math.sqrt(1 / 3), 0, 1]  # the new episode begins at 2
    torch.testing.assert_close(found.flatten(), torch.tensor(expected))


def test_first_visits_earn_one_and_all_later_ones_nothing_over_several_rollouts():
    bonus = counts(only_first=True)
    assert bonus.bonuses(line([0, 1, 0, 2])).flatten().tolist() == [1, 0, 1]
    assert bonus.bonuses(line([2, 1, 3])).flatten().tolist() == [0, 1]
    bonus.forget()
    assert bonus.bonuses(line([3, 3, 1])).flatten().tolist() == [0, 1]


def test_entries_that_the_network_ignores_do_not_tell_observations_apart():
    clock = Dict({"inner": Dict({"place": PLACES, "step_count": Discrete(9)})})
    steps = line([0, 1, 0])
    obs = {"inner": {"place": steps.obs, "step_count": torch.arange(2).view(2, 1, 1)}}
    next_obs = {"inner": {"place": steps.next_obs, "step_count": torch.arange(1, 3).view(2, 1, 1)}}
    timed = Transitions(obs, next_obs, steps.action, steps.ended)
    assert counts(space=clock, only_first=True).bonuses(timed).flatten().tolist() == [1, 1]
    seen = without_entries(clock, ["inner.step_count"])
    assert counts(space=seen, only_first=True).bonuses(timed).flatten().tolist() == [1, 0]


class KnownNovelty(nn.Module):
    """A novelty that the first number of an observation is."""

    def novelty(self, obs):
        return obs[:, 0]


def noveld(alpha=0.5):
    difference = NoveltyDifference(PLACES, NETWORK, 4, alpha=alpha)
    difference.network = KnownNovelty()
    return ProductBonus(difference, counts(only_first=True))


def test_noveld_pays_what_a_step_adds_to_novelty_at_the_first_visit_and_never_less_than_nothing():
    novelty = torch.tensor([1.0, 3.0, 1.0, 2.0, 3.0, 8.0, 9.0, 1.0]).view(-1, 1, 1).expand(-1, 1, NUM_PLACES)
    ended = torch.zeros(7, 1, dtype=torch.bool)
    ended[5] = True  # 9 begins the next episode
    steps = Transitions(novelty[:-1], novelty[1:], torch.zeros(7, 1, dtype=torch.int64), ended)
    # 1 was the first observation of the episode, 3 is visited twice, and from 9 to 1 novelty falls
    assert noveld().bonuses(steps).flatten().tolist() == [2.5, 0.0, 1.5, 0.0, 6.5, 0.0, 0.0]
    assert noveld(alpha=0.0).bonuses(steps).flatten().tolist() == [3.0, 0.0, 2.0, 0.0, 8.0, 0.0, 1.0]


def test_noveld_takes_the_novelty_of_random_network_distillation_and_learns_like_it():
    torch.manual_seed(0)
    rnd, difference = RND(PLACES, NETWORK, 4), NoveltyDifference(PLACES, NETWORK, 4, alpha=0.25)
    difference.load_state_dict(rnd.state_dict())
    steps = walk(6, 3, ends=0.3)
    novelty = rnd.bonuses(steps)
    found = difference.bonuses(steps)
    expected = (novelty[1:] - 0.25 * novelty[:-1]).clamp(min=0) * ~steps.ended[1:]
    torch.testing.assert_close(found[1:], expected)
    torch.testing.assert_close(difference.loss(flat(steps)), rnd.loss(flat(steps)))


def test_a_product_multiplies_bonuses_and_learns_what_its_factors_learn():
    torch.manual_seed(0)
    rnd, steps = RND(PLACES, NETWORK, 4), walk(6, 3)
    product = ProductBonus(rnd, counts(num_rows=3))
    product.observe(steps)
    assert rnd.network.normalizer.entries[0].moments.count == 18
    expected = rnd.bonuses(steps) * counts(num_rows=3).bonuses(steps)
    torch.testing.assert_close(product.bonuses(steps), expected)
    torch.testing.assert_close(product.loss(flat(steps)), rnd.loss(flat(steps)))
    assert ProductBonus(counts(), counts()).loss(flat(steps)) is None
    product.forget()
    torch.testing.assert_close(product.bonuses(steps), expected)


@pytest.mark.gpu
def test_bonuses_by_counts_on_the_gpu_are_those_on_the_cpu():
    steps, bonus, on_gpu = walk(40, 30, ends=0.05), counts(num_rows=30), counts(num_rows=30).cuda()
    there = Transitions(*(map_leaves(lambda x: x.cuda(), part) for part in (steps.obs, steps.next_obs)),
                        steps.action.cuda(), steps.ended.cuda())  # fmt: skip
    torch.testing.assert_close(on_gpu.bonuses(there).cpu(), bonus.bonuses(steps))
