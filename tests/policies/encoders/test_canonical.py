"""The kernel that chooses one of all turned boards, against torch's operators."""

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="the kernel is written in Triton, which is not installed here")

from scramjet.envs.registry import load_env
from scramjet.policies.encoders.canonical import canonical_boards
from scramjet.policies.symmetries import CanonicalNetwork, SymmetryTables


@pytest.mark.parametrize("world", ["connect_four", "tic_tac_toe"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float32, torch.bool])
def test_the_same_turned_board_is_chosen_as_by_torchs_operators(triton_device, world, dtype):
    env = load_env(world)
    tables = SymmetryTables.of(env.symmetries, env.observation_space, env.action_space)
    network = CanonicalNetwork(nn.Identity(), tables).to(triton_device)
    obs = torch.randint(0, 2, (300, *env.observation_space.shape), device=triton_device).to(dtype)
    obs[0], obs[1] = 0, 1  # the same however it is turned: the first of all is taken
    expected, which = network._canonical(obs)
    board, chosen = canonical_boards(obs, network.tables.obs_sources, network.order)
    assert board.dtype == dtype
    assert torch.equal(board, expected)
    assert chosen[:2].tolist() == [0, 0]
    assert torch.equal(chosen[2:], which[2:])
    assert len(chosen.unique()) == tables.count
