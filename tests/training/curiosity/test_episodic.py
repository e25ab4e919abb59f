"""Counts within episodes, NovelD and products of bonuses, by hand."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from scramjet.engine.trees import map_leaves
from scramjet.policies.config import PolicyConfig
from scramjet.policies.observations import without_entries
from scramjet.training.curiosity.bonus import Transitions
from scramjet.training.curiosity.episodic import CountBonus, ProductBonus
from scramjet.training.curiosity.noveld import NoveltyDifference
from scramjet.training.curiosity.rnd import RND
from tests.helpers.short_walks import NUM_PLACES, along, flat, walk

pytestmark = pytest.mark.usefixtures("one_thread")

PLACES = Box(0, 1, (NUM_PLACES,), np.float32)
NETWORK = PolicyConfig(hidden=(8,))


def line(places, ends=()):
    """One row that walks along `places`, with episodes that end at the steps `ends`."""
    ended = torch.zeros(len(places) - 1, 1, dtype=torch.bool)
    ended[list(ends)] = True
    return along(torch.tensor(places).unsqueeze(1), torch.zeros_like(ended, dtype=torch.int64), ended)


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
