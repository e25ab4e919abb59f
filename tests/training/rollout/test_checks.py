"""What must not reach the weights is found first, and told in words."""

import pytest
import torch

import scramjet
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.engine.trees import leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.errors import TrainingError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.rollout import checks
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.choosing import choosing_world


def played(num_envs=4, num_steps=3):
    pool = scramjet.make("cartpole", num_envs)
    config = PolicyConfig()
    spaces = pool.observation_space, pool.action_space
    policy = Policy(default_network(*spaces, config), *spaces, config)
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps)
    pool.reset(0, out=player.buffers.last)
    return pool, player.play(torch.Generator().manual_seed(0))


def test_a_last_observation_that_is_worth_no_number_names_its_env_and_step():
    pool, rollout = played()
    rollout.final_value[1, 2] = torch.nan
    with pytest.raises(TrainingError, match=r"a last observation with a value of nan in env 2 at step 2;"):
        checks.check(pool, rollout)


def test_a_glance_finds_what_a_check_finds_and_nothing_in_a_sound_rollout():
    pool = NativePool(choosing_world("dict", "multi", "one"), 4, backend="interpreted")
    config, spaces = PolicyConfig(), (pool.observation_space, pool.action_space)
    policy = Policy(default_network(*spaces, config), *spaces, config)
    player = RolloutPlayer(pool, TorchExecutor(policy), 3)
    pool.reset(0, out=player.buffers.last)
    rollout = player.play(torch.Generator().manual_seed(0))
    glance = checks.Glance(pool, rollout)
    assert glance.is_fine()
    spoiled = [(rollout.reward, torch.inf), (rollout.final_value, torch.nan)]
    spoiled += [(leaf, torch.nan if leaf.is_floating_point() else 99) for leaf in leaves(rollout.obs)]
    for data, value in spoiled:
        kept = data.clone()
        data.view(-1)[-1] = value
        assert not glance.is_fine()
        with pytest.raises(TrainingError):
            checks.check(pool, rollout)
        data.copy_(kept)
    assert glance.is_fine()


class OnGpu:
    """Observations that cannot be looked at any more."""

    is_cuda = True


def test_an_index_out_of_range_on_the_gpu_sends_the_user_to_the_cpu():
    pool, _ = played()
    with (
        pytest.raises(TrainingError, match=r"out of range.*CartPole|CartPole.*out of range"),
        checks.errors_explained(pool, OnGpu(), 1),
    ):
        raise RuntimeError("CUDA error: device-side assert triggered")
    with pytest.raises(RuntimeError, match="another"), checks.errors_explained(pool, OnGpu(), 1):
        raise RuntimeError("another")
