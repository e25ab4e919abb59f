"""Tree search on the GPU: one graph, with the results of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scramjet.algorithms.alphazero import AlphaZeroConfig
from scramjet.engine import NativePool
from scramjet.envs import Env
from scramjet.policies.policy import Policy
from scramjet.search.search import Rewards
from scramjet.search.tree import TreeSearch
from tests.helpers.search_worlds import GAMMA, SeatedTableWorld, TableNetwork, TableWorld, search_from, tree_search

pytestmark = pytest.mark.gpu

NUM_ROOTS = 300


@pytest.mark.parametrize("world", [TableWorld, SeatedTableWorld])
def test_the_gpu_finds_what_the_cpu_finds_executed_recorded_and_replayed(world: type[Env]) -> None:
    from scramjet.engine.worlds.cuda_pool import CudaPool

    on_cpu, on_gpu = NativePool(world(), NUM_ROOTS), CudaPool(world(), NUM_ROOTS)
    out = on_cpu.reset(1)
    expected = tree_search(on_cpu, TableNetwork())
    policy = Policy(TableNetwork(), on_gpu.observation_space, on_gpu.action_space).to("cuda")
    rewards = Rewards(GAMMA, torch.ones(1, device="cuda"))
    search = TreeSearch(on_gpu, policy, NUM_ROOTS, rewards, AlphaZeroConfig())
    search.is_deterministic = expected.is_deterministic = True
    generator = torch.Generator("cuda")
    for _ in range(4):
        theirs = search_from(expected, out)
        records = torch.from_numpy(on_cpu.states().view(np.uint8).reshape(NUM_ROOTS, -1)).cuda()
        shown = [torch.from_numpy(each).cuda() for each in (out.obs, out.mask, out.turn)]
        ours = search.search(records, *shown, generator)
        for name in ("visits", "action"):
            assert torch.equal(getattr(ours, name).cpu(), getattr(theirs, name))
        for name in ("q", "policy", "value"):
            torch.testing.assert_close(getattr(ours, name).cpu(), getattr(theirs, name), atol=1e-5, rtol=1e-5)
        out = on_cpu.step(theirs.action.numpy())
    assert search._stage.is_recorded
