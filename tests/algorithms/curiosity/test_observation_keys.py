"""Hashes of observations, against the same mixing of whole numbers in Python."""

from typing import Any

import numpy as np
import pytest
import torch

from scramjet.algorithms.curiosity.observation_keys import observation_keys
from scramjet.engine.trees import leaves

WHOLE = 2**64 - 1


def keys_of(obs: Any, num_axes: int) -> torch.Tensor:
    return observation_keys(leaves(obs), num_axes)


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


def random_observations(seed=0):
    """[4, 3, ...] of each number type, nested."""
    rng = np.random.default_rng(seed)
    return {
        "view": torch.from_numpy(rng.integers(0, 255, (4, 3, 7, 7, 3), dtype=np.uint8)),
        "inner": {
            "speed": torch.from_numpy(rng.normal(size=(4, 3, 5)).astype(np.float32)),
            "place": torch.from_numpy(rng.integers(-9, 9, (4, 3, 1))),
        },
        "flags": torch.from_numpy(rng.integers(0, 2, (4, 3, 2)).astype(bool)),
        "exact": torch.from_numpy(rng.normal(size=(4, 3))),
    }


def test_a_key_mixes_the_bytes_of_all_entries_as_whole_numbers_in_python_do():
    obs = random_observations()
    keys = keys_of(obs, 2)
    assert keys.dtype == torch.int64
    assert keys.shape == (4, 3)
    for t in range(4):
        for n in range(3):
            parts = obs["view"], obs["inner"]["speed"], obs["inner"]["place"], obs["flags"], obs["exact"]
            assert keys[t, n].item() == key_of(*(part[t, n].numpy().tobytes() for part in parts))


def test_equal_observations_have_equal_keys_and_a_change_of_one_number_changes_the_key():
    board = torch.zeros(100, 4, 4, dtype=torch.int8)
    board.view(100, 16)[torch.arange(1, 17), torch.arange(16)] = 1  # rows 1 to 16 differ in one cell each, others agree
    keys = keys_of(board, 1)
    assert len(set(keys[:17].tolist())) == 17
    assert set(keys[17:].tolist()) == {keys[0].item()}
    assert keys.min() >= 0


def test_many_different_observations_share_no_key():
    numbers = torch.arange(200_000).view(-1, 1)
    assert len(keys_of(numbers, 1).unique()) == 200_000


def test_minus_zero_is_zero_and_rows_need_not_lie_side_by_side():
    assert keys_of(torch.tensor([[0.0, 1.0]]), 1) == keys_of(torch.tensor([[-0.0, 1.0]]), 1)
    obs = torch.randn(5, 6, 2)
    assert torch.equal(keys_of(obs[:, 2:4], 2), keys_of(obs, 2)[:, 2:4])


@pytest.mark.gpu
def test_keys_on_the_gpu_are_those_on_the_cpu():
    obs = random_observations(1)
    on_gpu = {name: part.cuda() for name, part in obs.items() if name != "inner"}
    del obs["inner"]
    assert torch.equal(keys_of(on_gpu, 2).cpu(), keys_of(obs, 2))
