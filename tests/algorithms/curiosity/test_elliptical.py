"""The elliptical bonus, against matrices that NumPy inverts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.algorithms.curiosity.elliptical import EllipticalMemory, visit_together


class PlainMemory:
    """C of each row's episode in float64, inverted afresh at every step."""

    def __init__(self, num_rows, num_features, ridge):
        self.start = np.eye(num_features) * ridge
        self.matrix = [None] * num_rows

    def visit(self, features, ended, counts):
        bonus, features = np.zeros(ended.shape), features.double().numpy()
        for t, n in np.ndindex(*ended.shape):
            if counts[t, n]:
                if self.matrix[n] is None:
                    self.matrix[n] = self.start + np.outer(features[t, n], features[t, n])
                if not ended[t, n]:
                    phi = features[t + 1, n]
                    bonus[t, n] = phi @ np.linalg.inv(self.matrix[n]) @ phi
                    self.matrix[n] = self.matrix[n] + np.outer(phi, phi)
            if ended[t, n]:
                self.matrix[n] = None
        return bonus


def random_walks(generator, num_rollouts, num_steps, num_rows, num_features, ends, idle):
    """Rollouts of features [T + 1, R, D], ended and counts [T, R]; each begins where the last one stopped."""
    shape = num_rollouts * num_steps, num_rows
    features = torch.randn(shape[0] + 1, num_rows, num_features, generator=generator)
    ended = torch.rand(shape, generator=generator) < ends
    counts = torch.rand(shape, generator=generator) >= idle
    for first in range(0, shape[0], num_steps):
        part = slice(first, first + num_steps)
        yield features[first : first + num_steps + 1], ended[part], counts[part]


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**31),
    num_features=st.sampled_from([1, 3, 8]),
    ridge=st.sampled_from([0.1, 1.0]),
    ends=st.sampled_from([0.0, 0.2, 1.0]),
    idle=st.sampled_from([0.0, 0.3]),
)
def test_bonuses_of_rollouts_one_after_the_other_are_those_of_matrices_inverted_afresh(
    seed, num_features, ridge, ends, idle
):
    generator = torch.Generator().manual_seed(seed)
    memory, plain = EllipticalMemory(3, num_features, ridge), PlainMemory(3, num_features, ridge)
    together = EllipticalMemory(3, num_features, ridge)  # as on the GPU
    for rollout in random_walks(generator, 3, 6, 3, num_features, ends, idle):
        expected = plain.visit(*rollout)
        np.testing.assert_allclose(memory.visit(*rollout).numpy(), expected, rtol=2e-3, atol=1e-4)
        at_once = visit_together(*rollout, together.root, together.is_under_way, ridge)
        np.testing.assert_allclose(at_once.numpy(), expected, rtol=2e-3, atol=1e-4)


def test_the_inverse_stays_exact_over_a_long_episode():
    generator = torch.Generator().manual_seed(1)
    memory, plain = EllipticalMemory(1, 8, 0.1), PlainMemory(1, 8, 0.1)
    for rollout in random_walks(generator, 10, 200, 1, 8, 0.0, 0.0):
        np.testing.assert_allclose(memory.visit(*rollout).numpy(), plain.visit(*rollout), rtol=1e-3, atol=1e-6)


def test_the_inverse_stays_one_where_features_hardly_change_for_a_very_long_episode():
    """The smallest ridge that is allowed, 30,000 steps: C^-1 kept in 32 bits had negative eigenvalues, then NaN."""
    generator = torch.Generator().manual_seed(1)
    memory, matrix = EllipticalMemory(1, 8, 0.001), 0.001 * np.eye(8)
    always = torch.nn.functional.normalize(torch.randn(8, generator=generator), dim=0)
    for part in range(6):
        features = always + 1e-3 * torch.randn(5001, 1, 8, generator=generator)
        features = torch.nn.functional.normalize(features, dim=-1)
        ended = torch.zeros(5000, 1, dtype=torch.bool)
        bonus = memory.visit(features, ended)
        visited = features[(1 if part else 0) :, 0].double().numpy()
        matrix += visited.T @ visited
        assert bonus[1:].max() < 1.1
        inverse = (memory.root[0].double() @ memory.root[0].double().T).numpy()
        np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=2e-3, atol=2e-3 * np.abs(inverse).max())


def test_of_one_hot_features_the_bonus_counts_visits_from_the_first_observation_of_the_episode_on():
    features = torch.eye(3)[torch.tensor([0, 0, 1, 2, 2])].unsqueeze(1)  # 2 begins the next episode
    ended = torch.tensor([[False], [False], [True], [False]])
    bonus = EllipticalMemory(1, 3, 0.5).visit(features, ended)
    torch.testing.assert_close(bonus.flatten(), torch.tensor([1 / 1.5, 1 / 0.5, 0.0, 1 / 1.5]))


@pytest.mark.parametrize("num_features", [1, 5, 32, 40])
def test_the_kernel_computes_what_is_computed_for_all_rows_at_once(triton_device, num_features):
    from scramjet.algorithms.curiosity.elliptical_kernel import visit_by_rows

    generator = torch.Generator().manual_seed(num_features)
    expected, found = (EllipticalMemory(3, num_features, 0.1).to(triton_device) for _ in range(2))
    for rollout in random_walks(generator, 2, 12, 3, num_features, 0.1, 0.2):
        there = [part.to(triton_device) for part in rollout]
        bonuses = [
            visit(*there, memory.root, memory.is_under_way, 0.1)
            for visit, memory in ((visit_together, expected), (visit_by_rows, found))
        ]
        torch.testing.assert_close(bonuses[1], bonuses[0], rtol=1e-3, atol=1e-4)
        assert torch.equal(found.is_under_way, expected.is_under_way)
        goes_on = expected.is_under_way
        torch.testing.assert_close(found.root[goes_on], expected.root[goes_on], rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("num_features", [16, 32, 128, 130])
def test_bonuses_on_the_gpu_are_those_on_the_cpu(num_features):
    generator = torch.Generator().manual_seed(3)
    memory, on_gpu = EllipticalMemory(40, num_features, 0.1), EllipticalMemory(40, num_features, 0.1).cuda()
    for rollout in random_walks(generator, 3, 50, 40, num_features, 0.02, 0.1):
        bonus = on_gpu.visit(*(part.cuda() for part in rollout))
        torch.testing.assert_close(bonus.cpu(), memory.visit(*rollout), rtol=1e-3, atol=1e-4)
