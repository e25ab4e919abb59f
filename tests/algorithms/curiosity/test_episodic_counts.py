"""Visits within episodes, against a dict for each row's episode."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.algorithms.curiosity.episodic_counts import MAX_CAPACITY, EpisodicCounts, table_capacity


class PlainCounts:
    """A dict for each row's episode; a new one where an episode begins."""

    def __init__(self, num_rows):
        self.seen = [None] * num_rows

    def visit(self, keys, ended, counts):
        found = torch.zeros(ended.shape, dtype=torch.int32)
        for t, n in torch.cartesian_prod(*map(torch.arange, ended.shape)).tolist():
            if counts[t, n]:
                if self.seen[n] is None:
                    self.seen[n] = {int(keys[t, n]): 1}
                if not ended[t, n]:
                    key = int(keys[t + 1, n])
                    self.seen[n][key] = found[t, n] = self.seen[n].get(key, 0) + 1
            if ended[t, n]:
                self.seen[n] = None
        return found


def random_visits(generator, num_rollouts, num_steps, num_rows, num_places, ends, idle):
    """Rollouts of keys [T + 1, R], ended and counts [T, R]; each begins where the last one stopped."""
    shape = num_rollouts * num_steps, num_rows
    keys = torch.randint(num_places, (shape[0] + 1, num_rows), generator=generator) * 2**40  # all in one slot at first
    ended = torch.rand(shape, generator=generator) < ends
    counts = torch.rand(shape, generator=generator) >= idle
    for first in range(0, shape[0], num_steps):
        part = slice(first, first + num_steps)
        yield keys[first : first + num_steps + 1], ended[part], counts[part]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    num_steps=st.integers(1, 9),
    num_places=st.sampled_from([1, 3, 12]),
    ends=st.sampled_from([0.0, 0.2, 1.0]),
    idle=st.sampled_from([0.0, 0.3]),
)
def test_visits_of_rollouts_one_after_the_other_are_those_of_a_dict_for_each_episode(
    seed, num_steps, num_places, ends, idle
):
    generator = torch.Generator().manual_seed(seed)
    counted, plain = EpisodicCounts(3, 16), PlainCounts(3)
    for rollout in random_visits(generator, 4, num_steps, 3, num_places, ends, idle):
        assert torch.equal(counted.visit(*rollout), plain.visit(*rollout))


def column(*numbers, dtype=torch.int64):
    return torch.tensor(numbers, dtype=dtype).unsqueeze(1)


def test_the_first_observation_counts_as_visited_and_the_last_step_of_an_episode_visits_nothing():
    counted = EpisodicCounts(1, 16)
    #                    back to the first, on, the end; then 7 is the next episode's first
    found = counted.visit(column(5, 5, 6, 7, 7, 6), column(0, 0, 1, 0, 0, dtype=torch.bool))
    assert found.flatten().tolist() == [2, 1, 0, 2, 1]


def test_steps_of_an_agent_that_does_not_act_visit_nothing_and_its_next_episode_begins_where_it_acts_again():
    counted = EpisodicCounts(1, 16)
    keys, ended = column(1, 2, 1, 1, 1), column(0, 1, 0, 0, dtype=torch.bool)
    found = counted.visit(keys, ended, column(1, 1, 0, 1, dtype=torch.bool))
    assert found.flatten().tolist() == [1, 0, 0, 2]


def test_what_finds_no_room_in_a_full_table_counts_as_seen_and_what_was_kept_goes_on_counting():
    counted = EpisodicCounts(1, 16)
    never = torch.zeros(20, 1, dtype=torch.bool)
    found = counted.visit(column(*range(21)), never)
    assert found.flatten().tolist() == [1] * 11 + [16] * 9  # with the first observation, 12 of 16
    assert counted.visit(column(20, 5, 20), never[:2]).flatten().tolist() == [2, 16]


def test_a_forged_table_without_a_free_entry_does_not_hang():
    counted = EpisodicCounts(1, 16)
    counted.keys.fill_(-5)
    counted.episode_of.copy_(counted.episode.view(-1, 1).expand_as(counted.episode_of))
    counted.is_under_way.fill_(True)
    assert counted.visit(column(1, 2, 3), torch.zeros(2, 1, dtype=torch.bool)).flatten().tolist() == [16, 16]


def test_a_table_has_twice_the_entries_of_the_longest_episode_within_bounds():
    assert table_capacity(1) == 16
    assert table_capacity(100) == 256
    assert table_capacity(127) == 256
    assert table_capacity(128) == 512
    assert table_capacity(None) == table_capacity(10**9) == MAX_CAPACITY


@pytest.mark.gpu
def test_visits_on_the_gpu_are_those_on_the_cpu():
    generator = torch.Generator().manual_seed(3)
    counted, on_gpu = EpisodicCounts(40, 64), EpisodicCounts(40, 64).cuda()
    for rollout in random_visits(generator, 3, 50, 40, 80, 0.02, 0.1):
        found = on_gpu.visit(*(part.cuda() for part in rollout))
        assert torch.equal(found.cpu(), counted.visit(*rollout))
