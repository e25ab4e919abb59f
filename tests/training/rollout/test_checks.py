"""What must not reach the weights is found first, and told in words."""

import pytest
import torch

import scramjet
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.errors import TrainingError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.rollout import checks
from scramjet.training.rollout.player import RolloutPlayer


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
