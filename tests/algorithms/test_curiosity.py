"""Bonuses for exploring, against plain loops: matrices that NumPy inverts, dicts of visits, hashes in Python."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from scramjet.algorithms.curiosity.elliptical import EllipticalMemory, visit_together
from scramjet.algorithms.curiosity.episodic_counts import MAX_CAPACITY, EpisodicCounts, table_capacity
from scramjet.algorithms.curiosity.observation_keys import observation_keys

WALKS = {"seed": st.integers(0, 2**31), "ends": st.sampled_from([0.0, 0.2, 1.0]), "idle": st.sampled_from([0.0, 0.3])}


def rollouts(seen, num_steps, ends, idle, generator):
    """Rollouts of what is seen [T + 1, R, ...], ended and counts [T, R]; each begins where the last one stopped."""
    shape = len(seen) - 1, seen.shape[1]
    ended, counts = (torch.rand(shape, generator=generator) < share for share in (ends, 1 - idle))
    for first in range(0, len(ended), num_steps):
        part = slice(first, first + num_steps)
        yield seen[first : first + num_steps + 1], ended[part], counts[part]


class PlainEpisodes:
    """One memory for each row's episode, made anew where an episode begins."""

    def __init__(self, num_rows):
        self.memories = [None] * num_rows

    def visit(self, seen, ended, counts):
        seen = seen.double().numpy() if seen.is_floating_point() else seen.numpy()
        found = np.zeros(ended.shape)
        for t, n in np.ndindex(*ended.shape):
            if counts[t, n]:
                if self.memories[n] is None:
                    self.memories[n] = self.begun(seen[t, n])
                if not ended[t, n]:
                    found[t, n], self.memories[n] = self.after(self.memories[n], seen[t + 1, n])
            if ended[t, n]:
                self.memories[n] = None
        return found


# --- the elliptical bonus ----------------------------------------------------------------------------------------


class PlainMemory(PlainEpisodes):
    """C of each row's episode in float64, inverted afresh at every step."""

    def __init__(self, num_rows, num_features, ridge):
        super().__init__(num_rows)
        self.start = np.eye(num_features) * ridge

    def begun(self, features):
        return self.start + np.outer(features, features)

    def after(self, matrix, features):
        return features @ np.linalg.inv(matrix) @ features, matrix + np.outer(features, features)


def random_walks(seed, num_rollouts, num_steps, num_rows, num_features, ends, idle):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_rollouts * num_steps + 1, num_rows, num_features, generator=generator)
    return rollouts(features, num_steps, ends, idle, generator)


@settings(max_examples=30)
@given(**WALKS, num_features=st.sampled_from([1, 3, 8]), ridge=st.sampled_from([0.1, 1.0]))
def test_bonuses_of_rollouts_one_after_the_other_are_those_of_matrices_inverted_afresh(
    seed, num_features, ridge, ends, idle
):
    memory, plain = EllipticalMemory(3, num_features, ridge), PlainMemory(3, num_features, ridge)
    together = EllipticalMemory(3, num_features, ridge)  # as on the GPU
    for rollout in random_walks(seed, 3, 6, 3, num_features, ends, idle):
        expected = plain.visit(*rollout)
        np.testing.assert_allclose(memory.visit(*rollout).numpy(), expected, rtol=2e-3, atol=1e-4)
        at_once = visit_together(*rollout, together.root, together.is_under_way, ridge)
        np.testing.assert_allclose(at_once.numpy(), expected, rtol=2e-3, atol=1e-4)


def test_the_inverse_stays_one_where_features_hardly_change_for_a_very_long_episode():
    """The smallest ridge that is allowed, 30,000 steps: C^-1 kept in 32 bits had negative eigenvalues, then NaN."""
    memory, matrix = EllipticalMemory(1, 8, 0.001), 0.001 * np.eye(8)
    always, ended = normalize(torch.randn(8), dim=0), torch.zeros(5000, 1, dtype=torch.bool)
    for part in range(6):
        features = normalize(always + 1e-3 * torch.randn(5001, 1, 8), dim=-1)
        bonus = memory.visit(features, ended)
        visited = features[(1 if part else 0) :, 0].double().numpy()
        matrix += visited.T @ visited
        assert bonus[1:].max() < 1.1
        inverse = (memory.root[0].double() @ memory.root[0].double().T).numpy()
        np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=2e-3, atol=2e-3 * np.abs(inverse).max())


def test_of_one_hot_features_the_bonus_counts_visits_from_the_first_observation_of_the_episode_on():
    features = torch.eye(3)[torch.tensor([0, 0, 1, 2, 2])].unsqueeze(1)  # 2 begins the next episode
    bonus = EllipticalMemory(1, 3, 0.5).visit(features, column(0, 0, 1, 0, dtype=torch.bool))
    torch.testing.assert_close(bonus.flatten(), torch.tensor([1 / 1.5, 1 / 0.5, 0.0, 1 / 1.5]))


@pytest.mark.rest
def test_the_kernel_computes_what_is_computed_for_all_rows_at_once(triton_device):
    from scramjet.algorithms.curiosity.elliptical_kernel import visit_by_rows

    for num_features in (1, 5, 32, 40):
        expected, found = (EllipticalMemory(3, num_features, 0.1).to(triton_device) for _ in range(2))
        for rollout in random_walks(num_features, 2, 12, 3, num_features, 0.1, 0.2):
            there = [part.to(triton_device) for part in rollout]
            bonuses = [
                visit(*there, memory.root, memory.is_under_way, 0.1)
                for visit, memory in ((visit_together, expected), (visit_by_rows, found))
            ]
            torch.testing.assert_close(bonuses[1], bonuses[0], rtol=1e-3, atol=1e-4)
            assert torch.equal(found.is_under_way, expected.is_under_way)
            goes_on = expected.is_under_way
            torch.testing.assert_close(found.root[goes_on], expected.root[goes_on], rtol=1e-3, atol=1e-4)


# --- visits within episodes --------------------------------------------------------------------------------------


class PlainCounts(PlainEpisodes):
    """A dict for each row's episode."""

    def begun(self, key):
        return {int(key): 1}

    def after(self, visits, key):
        count = visits.get(int(key), 0) + 1
        return count, visits | {int(key): count}


def random_visits(seed, num_rollouts, num_steps, num_rows, num_places, ends, idle):
    generator = torch.Generator().manual_seed(seed)
    shape = num_rollouts * num_steps + 1, num_rows
    keys = torch.randint(num_places, shape, generator=generator) * 2**40  # all in one slot at first
    return rollouts(keys, num_steps, ends, idle, generator)


@settings(max_examples=60)
@given(**WALKS, num_steps=st.integers(1, 9), num_places=st.sampled_from([1, 3, 12]))
def test_visits_of_rollouts_one_after_the_other_are_those_of_a_dict_for_each_episode(
    seed, num_steps, num_places, ends, idle
):
    counted, plain = EpisodicCounts(3, 16), PlainCounts(3)
    for rollout in random_visits(seed, 4, num_steps, 3, num_places, ends, idle):
        assert np.array_equal(counted.visit(*rollout).numpy(), plain.visit(*rollout))


def column(*numbers, dtype=torch.int64):
    return torch.tensor(numbers, dtype=dtype).unsqueeze(1)


def test_visits_by_hand():
    """The first observation counts as visited, and the last step of an episode visits nothing. Steps of an agent that
    does not act visit nothing; its next episode begins where it acts again."""
    #                    back to the first, on, the end; then 7 is the next episode's first
    found = EpisodicCounts(1, 16).visit(column(5, 5, 6, 7, 7, 6), column(0, 0, 1, 0, 0, dtype=torch.bool))
    assert found.flatten().tolist() == [2, 1, 0, 2, 1]
    keys, ended = column(1, 2, 1, 1, 1), column(0, 1, 0, 0, dtype=torch.bool)
    found = EpisodicCounts(1, 16).visit(keys, ended, column(1, 1, 0, 1, dtype=torch.bool))
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
    assert [table_capacity(steps) for steps in (1, 100, 127, 128)] == [16, 256, 256, 512]
    assert table_capacity(None) == table_capacity(10**9) == MAX_CAPACITY


# --- hashes of observations --------------------------------------------------------------------------------------

WHOLE = 2**64 - 1


def key_of(*parts: bytes) -> int:
    """Splitmix64 over the words of each part, in Python's whole numbers."""
    state = 0
    for part in parts:
        for first in range(0, len(part), 8):
            state = ((state ^ int.from_bytes(part[first : first + 8], "little")) + 0x9E3779B97F4A7C15) & WHOLE
            state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & WHOLE
            state = (state ^ (state >> 27)) * 0x94D049BB133111EB & WHOLE
            state ^= state >> 31
        state &= 2**63 - 1
    return state


def random_observations():
    """Parts [4, 3, ...] of many number types."""
    rng = np.random.default_rng(0)
    return [
        torch.from_numpy(rng.integers(0, 255, (4, 3, 7, 7, 3), dtype=np.uint8)),
        torch.from_numpy(rng.normal(size=(4, 3, 5)).astype(np.float32)),
        torch.from_numpy(rng.integers(-9, 9, (4, 3, 1))),
        torch.from_numpy(rng.integers(0, 2, (4, 3, 2)).astype(bool)),
        torch.from_numpy(rng.normal(size=(4, 3))),
    ]


def test_a_key_mixes_the_bytes_of_all_parts_as_whole_numbers_in_python_do():
    parts = random_observations()
    keys = observation_keys(parts, 2)
    assert keys.dtype == torch.int64
    expected = [[key_of(*(part[t, n].numpy().tobytes() for part in parts)) for n in range(3)] for t in range(4)]
    assert keys.tolist() == expected


def test_equal_observations_have_equal_keys_and_a_change_of_one_number_changes_the_key():
    board = torch.zeros(100, 4, 4, dtype=torch.int8)
    board.view(100, 16)[torch.arange(1, 17), torch.arange(16)] = 1  # rows 1 to 16 differ in one cell each, others agree
    keys = observation_keys([board], 1)
    assert len(set(keys[:17].tolist())) == 17
    assert set(keys[17:].tolist()) == {keys[0].item()}
    assert keys.min() >= 0
    assert len(observation_keys([torch.arange(200_000).view(-1, 1)], 1).unique()) == 200_000


def test_minus_zero_is_zero_and_rows_need_not_lie_side_by_side():
    assert observation_keys([torch.tensor([[0.0, 1.0]])], 1) == observation_keys([torch.tensor([[-0.0, 1.0]])], 1)
    obs = torch.randn(5, 6, 2)
    assert torch.equal(observation_keys([obs[:, 2:4]], 2), observation_keys([obs], 2)[:, 2:4])


@pytest.mark.gpu
def test_bonuses_visits_and_keys_on_the_gpu_are_those_on_the_cpu():
    for num_features in (16, 32, 128, 130):
        memory, on_gpu = EllipticalMemory(40, num_features, 0.1), EllipticalMemory(40, num_features, 0.1).cuda()
        for rollout in random_walks(3, 3, 50, 40, num_features, 0.02, 0.1):
            bonus = on_gpu.visit(*(part.cuda() for part in rollout))
            torch.testing.assert_close(bonus.cpu(), memory.visit(*rollout), rtol=1e-3, atol=1e-4)
    counted, on_gpu = EpisodicCounts(40, 64), EpisodicCounts(40, 64).cuda()
    for rollout in random_visits(3, 3, 50, 40, 80, 0.02, 0.1):
        found = on_gpu.visit(*(part.cuda() for part in rollout))
        assert torch.equal(found.cpu(), counted.visit(*rollout))
    parts = random_observations()
    assert torch.equal(observation_keys([part.cuda() for part in parts], 2).cpu(), observation_keys(parts, 2))
