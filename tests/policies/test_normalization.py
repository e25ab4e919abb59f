"""Running moments and the observation normalizer, against NumPy over everything seen."""

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.policies.normalization import ObservationNormalizer, RunningMoments, make_normalizer
from tests.helpers.observed import batch_of


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


def test_observations_come_out_with_mean_0_and_deviation_1_and_clipped():
    rows = torch.randn(1000, 2) * torch.tensor([5.0, 0.1]) + 30.0
    normalizer = ObservationNormalizer((2,))
    before = normalizer(torch.tensor([[1.5, -100.0]]))
    torch.testing.assert_close(before, torch.tensor([[1.5, -10.0]]))  # changes nothing but extremes
    assert normalizer.moments.count.item() == 0, "normalizing does not move the statistics"
    normalizer.update(rows)
    normal = normalizer(rows)
    torch.testing.assert_close(normal.mean(0), torch.zeros(2), rtol=0, atol=1e-4)
    torch.testing.assert_close(normal.std(0, unbiased=False), torch.ones(2), rtol=0, atol=1e-4)
    assert normalizer(torch.full((1, 2), 1e9)).tolist() == [[10.0, 10.0]]
    assert normalizer.moments.count.item() == 1000


def test_an_observation_that_never_varies_becomes_0_not_nan_and_any_number_type_float32():
    normalizer = ObservationNormalizer((1,))
    for dtype in (torch.float32, torch.uint8, torch.float64):
        normalizer.update(torch.full((10, 1), 7, dtype=dtype))
        found = normalizer(torch.full((1, 1), 7, dtype=dtype))
        assert (found.item(), found.dtype) == (0.0, torch.float32)


MIXED = Dict(
    {
        "camera": Box(0, 255, (2, 8, 8), np.uint8),
        "counts": Box(0, 9, (2,), np.int32),
        "deep": Dict({"force": Box(20, 60, (2,), np.float64)}),
        "entities": Box(0, 1, (5, 3), np.float32),
        "flags": MultiBinary(4),
        "speed": Box(5, 9, (3,), np.float32),
        "turn": Discrete(3),
    }
)


def test_of_a_dict_the_vectors_of_floats_are_normalized_and_nothing_else_is_touched():
    normalizer, seen = make_normalizer(MIXED), batch_of(MIXED, 500)
    normalizer.update(seen)
    obs = batch_of(MIXED, 20, seed=1)
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
    normalizer.update(batch_of(MIXED, 50))
    other.load_state_dict(normalizer.state_dict())
    obs = batch_of(MIXED, 4, seed=1)
    assert torch.equal(normalizer(obs)["speed"], other(obs)["speed"])
    assert not torch.equal(make_normalizer(MIXED)(obs)["speed"], other(obs)["speed"])


def test_numbers_in_any_shape_have_a_normalizer_and_what_has_a_scale_of_its_own_has_none():
    for space in (Box(0, 255, (8, 8, 3), np.uint8), Discrete(3), MultiBinary(2), MultiDiscrete([2])):
        assert make_normalizer(space) is None, space
    assert make_normalizer(Box(-1, 1, (3, 2), np.float32)).moments.mean.shape == (3, 2)
    assert isinstance(make_normalizer(Box(-1, 1, (3,), np.float64)), ObservationNormalizer)
