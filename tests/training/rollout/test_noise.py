"""The noise that actions are drawn with, divided among ranks."""

import pytest
import torch
from gymnasium import spaces

from scramjet.policies import PolicyConfig
from scramjet.policies.distributions import make_distribution
from scramjet.runtime.ranks.interface import ALONE
from scramjet.training.rollout.noise import NoiseOfRank
from tests.helpers.thread_ranks import on_ranks


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,))], ids=lambda space: str(space)
)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_each_rank_keeps_its_own_rows_of_what_one_process_draws(space, size):
    distribution = make_distribution(space, PolicyConfig())
    whole = distribution.noise(5, 8, torch.Generator().manual_seed(3))

    def draw(ranks):
        own = torch.zeros_like(whole[:, : 8 // size]).contiguous()
        generator = torch.Generator().manual_seed(3)
        NoiseOfRank(distribution, own, ranks).draw(generator)
        return own, generator.get_state()

    drawn = [draw(ALONE)] if size == 1 else on_ranks(size, draw)
    assert torch.equal(torch.cat([own for own, _ in drawn], dim=1), whole)
    assert all(torch.equal(state, drawn[0][1]) for _, state in drawn)
