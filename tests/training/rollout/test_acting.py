"""Deciding actions for half of the rows at a time gives what deciding for all at once gives."""

import sys

import cloudpickle
import pytest
import torch

import scramjet
from scramjet.accelerate.choice import choose_executor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.components import make_pool
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.staircase import settings

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("fused", [True, False])
def test_deciding_by_halves_gives_what_deciding_at_once_gives(memory, fused):
    """Up to the rounding of products of fewer rows."""
    rollouts = []
    for in_halves in (True, False):
        config = settings("gym:CartPole-v1", num_workers=0, num_envs=5)
        pool = make_pool(config, num_envs=5, learns=True)
        policy_config = PolicyConfig(memory=memory, memory_size=8)
        spaces = pool.observation_space, pool.action_space
        torch.manual_seed(3)
        policy = Policy(default_network(*spaces, policy_config), *spaces, policy_config)
        executor = choose_executor(policy, pool, fused=fused)
        assert executor.name == ("numba" if fused else "torch")
        player = RolloutPlayer(pool, executor, 64, in_halves=in_halves)
        assert [len(part.rollout.action[0]) for part in player.parts] == ([2, 3] if in_halves else [5])
        pool.reset(0, out=player.buffers.last)
        generator = torch.Generator().manual_seed(0)
        for _ in range(2):
            player.play(generator)
        rollouts.append(player.rollout)
    for name in ("obs", "action", "reward", "log_prob", "value", "terminated", "truncated", "final_value", "states"):
        mine, other = (getattr(rollout, name) for rollout in rollouts)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(rollouts[0].recurrent.states, rollouts[1].recurrent.states, rtol=1e-4, atol=1e-5)


def test_envs_receive_the_actions_that_a_kernel_wrote_for_them(triton_device, monkeypatch):
    """Steps of a continuous world need no operator between the kernel that draws and the envs."""
    from scramjet.accelerate.triton.executor import TritonExecutor
    from tests.helpers.fused_mlps import TritonMLP, plan_of

    pool = scramjet.make("pendulum", 5, **({"backend": "cuda"} if triton_device.type == "cuda" else {}))
    spaces, policy_config = (pool.observation_space, pool.action_space), PolicyConfig(hidden=(16, 16))
    policy = Policy(default_network(*spaces, policy_config), *spaces, policy_config).to(triton_device)
    played, calls, kind = [], [], type(policy.distribution)
    usual = kind.env_action
    monkeypatch.setattr(kind, "env_action", lambda self, action: calls.append(1) or usual(self, action))
    for is_written in (True, False):
        executor = TritonExecutor(policy, TritonMLP(plan_of(policy), precision="float32"))
        assert executor.writes_env_actions
        executor.writes_env_actions = is_written
        player = RolloutPlayer(pool, executor, 3)
        pool.reset(0, out=player.buffers.last)
        calls.clear()
        played.append(player.play(torch.Generator(triton_device).manual_seed(0)))
        assert bool(calls) != is_written
    for name in ("obs", "action", "reward"):
        torch.testing.assert_close(getattr(played[0], name), getattr(played[1], name), rtol=0, atol=0, msg=name)
