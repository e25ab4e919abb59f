"""A perfect player with an exact critic makes no error: whatever a rollout's length, every target equals its value.

Nim shows the pile and not whose turn it is, so a critic that has learned what a pile is worth to the seat to move says
the opposite of the truth to the other seat. No target may ask it.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, randint
from scramjet.errors import ConfigError
from scramjet.policies import Policy
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer

pytestmark = pytest.mark.usefixtures("one_thread")


class Nim(Env):
    """Take 1 to 3 of the stones in turn; who takes the last one wins."""

    most: int = 12
    max_episode_steps: int | None = None

    num_seats = 2
    observation_space = Box(0, 20, (1,), np.float32)
    action_space = Discrete(3)
    state = {"stones": np.int32, "mover": np.int32}

    def reset(self, s):
        s.stones = 1 + randint(s, self.most)

    def seat(self, s):
        return s.mover

    def mask(self, s, mask, player):
        for action in range(3):
            mask[action] = action < s.stones

    def step(self, s, action, reward):
        s.stones -= 1 + action
        done = s.stones <= 0
        if done:
            reward[s.mover] = 1.0
            reward[1 - s.mover] = -1.0
        s.mover = 1 - s.mover
        return done

    def observe(self, s, obs, player):
        obs[0] = s.stones


class Perfect(nn.Module):
    """Takes what leaves a multiple of four, and knows that only a multiple of four is lost for the seat to move.

    With memory it counts its own turns since the episode began, and nothing depends on that.
    """

    def __init__(self, has_memory: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.state_size = 1 if has_memory else 0

    def forward(self, obs: Tensor, state: Tensor | None = None, begins: Tensor | None = None) -> tuple[Tensor, ...]:
        stones = obs[:, 0].round().long()
        best = (stones - 1) % 4  # 3 where every move loses: any will do
        logits = torch.where(best.unsqueeze(1) == torch.arange(3), 30.0, 0.0) + 0 * self.weight
        value = torch.where(stones % 4 == 0, -1.0, 1.0) + 0 * self.weight
        if state is None:
            return logits, value
        for t in range(len(obs) // len(state)):
            fresh = torch.zeros(len(state), 1, dtype=torch.bool) if begins is None else begins[t].unsqueeze(1)
            state = torch.where(fresh, 0.0, state) + 1
        return logits, value, state


LENGTHS = [2, 3, 4, 8, 16]


def prepared(config: PPOConfig, *, num_steps: int, time_limit: int | None = None, has_memory: bool = False):
    """The samples of some rollouts of perfect play, and how many steps were played for each."""
    env = Nim(max_episode_steps=time_limit)
    pool = NativePool(env, 32, num_threads=1)
    policy = Policy(Perfect(has_memory), env.observation_space, env.action_space)
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps, config.bptt_horizon)
    rollout = player.rollout
    learner = Learner.for_rollout(rollout, TorchExecutor(policy), config, total_steps=1000, seed=0)
    pool.reset(3, out=player.buffers.last)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        player.play(generator)
        yield learner, learner.prepare(rollout)


@pytest.mark.parametrize("has_memory", [False, True], ids=["", "memory"])
@pytest.mark.parametrize("time_limit", [None, 3], ids=["", "truncated"])
@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
@pytest.mark.parametrize("num_steps", LENGTHS)
def test_an_exact_critic_is_never_wrong_about_a_perfect_player(num_steps, advantage, time_limit, has_memory):
    config = PPOConfig(
        normalize_rewards=False,
        gamma=1.0,
        gae_lambda=0.9,
        advantage=advantage,
        num_minibatches=1,
        normalize_advantages="off",
        num_epochs=2,
    )
    counted = 0
    for learner, samples in prepared(config, num_steps=num_steps, time_limit=time_limit, has_memory=has_memory):
        if advantage == "vtrace":  # as before a second epoch, with the same policy
            learner._correct(samples, samples.targets)
        error = samples.counted(samples.returns - samples.value)
        assert error.abs().max() < 1e-5
        assert samples.counted(samples.advantage).abs().max() < 1e-5
        counted += len(error)
    played = 6 * 32 * num_steps
    if time_limit is None:  # all but the open turn of the seat that is not to move, at the most
        assert counted >= played * (num_steps - 1) / num_steps


def test_the_turns_that_do_not_count_are_those_whose_outcome_is_not_known():
    config = PPOConfig(gamma=1.0, advantage="gae", num_minibatches=1, normalize_rewards=False)
    for learner, samples in prepared(config, num_steps=4):
        missing = set(range(4 * 32)) - set(samples.place.tolist())
        assert missing  # games go on beyond the rollout
        assert min(missing) >= 3 * 32  # seats alternate, so only the last turn can be open
        assert learner.update(samples, 0)["epochs"] == 10


def test_rollouts_in_which_no_seat_moves_twice_are_refused():
    with pytest.raises(ConfigError, match=r"num_steps=1 is too short for a game of 2 seats.*--num-steps 2 or more"):
        next(prepared(PPOConfig(num_minibatches=1), num_steps=1))
