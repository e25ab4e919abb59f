"""Rollouts whose steps are played in one compiled function: the same to the last bit as step by step."""

import numpy as np
import pytest
import torch

from scramjet.accelerate.numba.executor import NumbaExecutor
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env
from scramjet.envs.registry import load_env
from scramjet.errors import WorldError
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.rollout.compiled_steps import MOST_ENVS
from scramjet.training.rollout.player import RolloutPlayer

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_STEPS = 20
STORED = (
    "obs", "mask", "action", "log_prob", "value", "reward", "terminated", "truncated", "final_value",
)  # fmt: skip


class Counting(Env):
    """A counter with two legal actions of four; episodes end above 15 and are cut after four steps."""

    failing_episode: int = 1000
    max_episode_steps = 4

    observation_space = Box(-10, 10, (2,), np.float32)
    action_space = Discrete(4)
    state = {"count": np.int32}
    stat_names = ("count",)

    def reset(self, s):
        s.count = s._index % 3

    def step(self, s, action):
        if s._episode == self.failing_episode:
            raise ValueError("a rule failed")
        s.count += 1 + action
        return float(action) - 0.5 * s.count, s.count > 15

    def observe(self, s, obs):
        obs[0] = s.count / 4
        obs[1] = s.count % 2

    def mask(self, s, mask):
        for action in range(4):
            mask[action] = (action + s.count) % 2 == 0

    def stats(self, s, stats):
        stats.count = s.count


def player_of(env: Env, num_envs: int = 5, **policy) -> RolloutPlayer:
    torch.manual_seed(0)
    config = PolicyConfig(hidden=(16, 16), **policy)
    spaces = env.observation_space, env.action_space
    executor = NumbaExecutor(Policy(default_network(*spaces, config), *spaces, config))
    player = RolloutPlayer(NativePool(env, num_envs, num_threads=1), executor, NUM_STEPS)
    player.pool.reset(3, out=player.buffers.last)
    return player


def step_by_step(env: Env) -> RolloutPlayer:
    player = player_of(env)
    player._compiled = None
    return player


@pytest.mark.parametrize("world", ["counting", "cartpole"])
def test_compiled_steps_give_the_rollouts_episodes_and_states_of_single_steps(world):
    env = Counting() if world == "counting" else load_env(world)
    compiled, single = player_of(env), step_by_step(env)
    assert compiled._compiled is not None
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    for _ in range(3):
        first, second = (
            player.play(random) for player, random in zip((compiled, single), generators, strict=True)
        )  # fmt: skip
        for name in STORED:
            one, other = getattr(first, name), getattr(second, name)
            assert (one is None and other is None) or torch.equal(one, other), name
        ended, expected = compiled.pool.episodes(), single.pool.episodes()
        assert ended.num_ended == expected.num_ended > 0
        assert np.array_equal(ended.returns, expected.returns)
    assert compiled.pool.steps_taken == single.pool.steps_taken == 3 * NUM_STEPS
    assert compiled.pool.states().tobytes() == single.pool.states().tobytes()
    assert world == "cartpole" or bool((first.final_value != 0).any())  # episodes were cut, and more than once
    kept = [path.name.partition("-")[0] for path in single.pool._kernels.step._cache.directory.iterdir()]
    assert "play" in kept
    assert kept.count("step") == 1  # compiled once, for Python and for `play`


def test_an_exception_in_a_rule_is_told_as_for_single_steps_with_the_same_number_of_steps_taken():
    told = []
    for player in (player_of(Counting(failing_episode=1)), step_by_step(Counting(failing_episode=1))):
        with pytest.raises(WorldError, match="a rule failed") as error:
            player.play(torch.Generator().manual_seed(1))
        told.append((str(error.value), player.pool.steps_taken))
    assert told[0] == told[1]
    assert told[0][1] == 5


def test_steps_are_played_one_by_one_while_a_record_of_a_file_is_left():
    player = player_of(Counting())
    assert player._compiled is not None
    player.pool.restore(player.pool.snapshot(), out=player.buffers.last, is_own=False)
    assert not player._compiled.can_play
    player.play(torch.Generator().manual_seed(1))  # every episode ends within it
    player.pool.rollout_step(player.rollout.action[0].numpy(), player.buffers.last)  # looks whether the watch is over
    assert player._compiled.can_play


def test_steps_are_played_one_by_one_with_memory_with_many_envs_and_where_actions_are_bounded():
    assert player_of(Counting(), memory="gru", memory_size=8)._compiled is None
    assert player_of(Counting(), MOST_ENVS + 1)._compiled is None
    assert player_of(load_env("pendulum"))._compiled is None
