"""Running moments and the observation normalizer, against NumPy over everything seen."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.policies.normalization import ObservationNormalizer, RunningMoments


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    offset=st.sampled_from([0.0, -3.0, 1e5]),
)
def test_mean_and_variance_are_those_of_all_rows_seen_so_far(seed, sizes, offset):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(offset, 2.0, (size, 3, 2)).astype(np.float32) for size in sizes]
    moments = RunningMoments((3, 2))
    for i, batch in enumerate(batches):
        moments.update(torch.from_numpy(batch))
        seen = np.concatenate(batches[: i + 1]).astype(np.float64)
        np.testing.assert_allclose(moments.mean.numpy(), seen.mean(0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(moments.variance.numpy(), seen.var(0), rtol=1e-6, atol=1e-8)
        assert moments.count.item() == len(seen)


def test_the_order_and_split_of_batches_do_not_matter():
    rows = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    whole, parts = RunningMoments((4,)), RunningMoments((4,))
    whole.update(rows)
    for part in reversed(rows.split(7)):
        parts.update(part)
    torch.testing.assert_close(whole.mean, parts.mean)
    torch.testing.assert_close(whole.variance, parts.variance)


def test_before_any_observation_the_normalizer_changes_nothing_but_extremes():
    normalizer = ObservationNormalizer((2,))
    torch.testing.assert_close(normalizer(torch.tensor([[1.5, -100.0]])), torch.tensor([[1.5, -10.0]]))


def test_observations_come_out_with_mean_0_and_deviation_1_and_clipped():
    rows = torch.randn(1000, 2, generator=torch.Generator().manual_seed(1)) * torch.tensor([5.0, 0.1]) + 30.0
    normalizer = ObservationNormalizer((2,))
    normalizer.update(rows)
    normal = normalizer(rows)
    torch.testing.assert_close(normal.mean(0), torch.zeros(2), rtol=0, atol=1e-4)
    torch.testing.assert_close(normal.std(0, unbiased=False), torch.ones(2), rtol=0, atol=1e-4)
    assert normalizer(torch.full((1, 2), 1e9)).tolist() == [[10.0, 10.0]]


def test_normalizing_does_not_move_the_statistics_and_updating_does():
    normalizer = ObservationNormalizer((2,))
    normalizer(torch.ones(5, 2))
    assert normalizer.moments.count.item() == 0
    normalizer.update(torch.ones(5, 2))
    assert normalizer.moments.count.item() == 5


def test_an_observation_that_never_varies_becomes_0_not_nan():
    normalizer = ObservationNormalizer((1,))
    for _ in range(3):
        normalizer.update(torch.full((10, 1), 7.0))
    assert normalizer(torch.full((1, 1), 7.0)).item() == 0.0


def test_the_statistics_are_saved_with_the_weights():
    normalizer, other = ObservationNormalizer((2,)), ObservationNormalizer((2,))
    normalizer.update(torch.randn(20, 2))
    other.load_state_dict(normalizer.state_dict())
    x = torch.randn(3, 2)
    assert torch.equal(normalizer(x), other(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_any_number_type_comes_out_as_float32(dtype):
    assert ObservationNormalizer((2,))(torch.ones(3, 2, dtype=dtype)).dtype == torch.float32
