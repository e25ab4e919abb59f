"""Running moments and the observation normalizer, against NumPy over everything seen."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.policies.normalization import ObservationNormalizer, RunningMoments, make_normalizer


@settings(max_examples=60)
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


MIXED = Dict(
    {
        "camera": Box(0, 255, (2, 8, 8), np.uint8),
        "counts": Box(0, 9, (2,), np.int32),
        "deep": Dict({"force": Box(-np.inf, np.inf, (2,), np.float64)}),
        "entities": Box(0, 1, (5, 3), np.float32),
        "flags": MultiBinary(4),
        "speed": Box(-np.inf, np.inf, (3,), np.float32),
        "turn": Discrete(3),
    }
)


def mixed_batch(rows, seed):
    rng = np.random.default_rng(seed)
    return {
        "camera": torch.from_numpy(rng.integers(256, size=(rows, 2, 8, 8), dtype=np.uint8)),
        "counts": torch.from_numpy(rng.integers(9, size=(rows, 2), dtype=np.int32)),
        "deep": {"force": torch.from_numpy(rng.normal(-40, 5, (rows, 2)))},
        "entities": torch.from_numpy(rng.random((rows, 5, 3), dtype=np.float32)),
        "flags": torch.from_numpy(rng.integers(2, size=(rows, 4), dtype=np.int8)),
        "speed": torch.from_numpy(rng.normal(7, 3, (rows, 3)).astype(np.float32)),
        "turn": torch.from_numpy(rng.integers(3, size=(rows, 1))),
    }


def test_of_a_dict_the_vectors_of_floats_are_normalized_and_nothing_else_is_touched():
    normalizer, seen = make_normalizer(MIXED), mixed_batch(500, 0)
    normalizer.update(seen)
    obs = mixed_batch(20, 1)
    normal = normalizer(obs)
    for name in ("camera", "counts", "entities", "flags", "turn"):
        assert normal[name] is obs[name], name
    for got, raw, all_seen in (
        (normal["speed"], obs["speed"], seen["speed"]),
        (normal["deep"]["force"], obs["deep"]["force"], seen["deep"]["force"]),
    ):
        expected = (raw.double() - all_seen.double().mean(0)) / all_seen.double().std(0, unbiased=False)
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)
        assert got.dtype == torch.float32
    assert set(normal) == set(obs)
    assert obs["speed"].mean() > 5  # what was given stays as it was


def test_the_statistics_of_a_dict_are_saved_with_the_weights():
    normalizer, other = make_normalizer(MIXED), make_normalizer(MIXED)
    normalizer.update(mixed_batch(50, 0))
    other.load_state_dict(normalizer.state_dict())
    obs = mixed_batch(4, 1)
    assert torch.equal(normalizer(obs)["speed"], other(obs)["speed"])
    assert not torch.equal(make_normalizer(MIXED)(obs)["speed"], other(obs)["speed"])


@pytest.mark.parametrize("space", [Box(0, 255, (8, 8, 3), np.uint8), Discrete(3), MultiBinary(2), MultiDiscrete([2])])
def test_a_space_with_a_scale_of_its_own_has_no_normalizer(space):
    assert make_normalizer(space) is None


def test_a_box_of_numbers_that_is_the_whole_observation_is_normalized_in_any_shape():
    assert make_normalizer(Box(-1, 1, (3, 2), np.float32)).moments.mean.shape == (3, 2)
    assert isinstance(make_normalizer(Box(-1, 1, (3,), np.float64)), ObservationNormalizer)
