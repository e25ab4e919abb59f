"""Rollouts: what is stored is what happened, and what the policy then thought of it."""

import numpy as np
import pytest
import torch

from scramjet.accelerate import torch_executor
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env
from scramjet.envs.registry import load_env
from scramjet.errors import TrainingError
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.rollout.player import RolloutPlayer

pytestmark = pytest.mark.usefixtures("one_thread")

RESET_SEED = 100


class Masked(Env):
    """A counter; the action legal next depends on it. Two actions of four are legal, and rewards tell them apart."""

    max_episode_steps = 7

    observation_space = Box(-10, 10, (2,), np.float32)
    action_space = Discrete(4)
    state = {"count": np.int32}

    def reset(self, s):
        s.count = s._index % 3

    def step(self, s, action):
        s.count += 1 + action
        return float(action) - 0.5 * s.count, s.count > 15

    def observe(self, s, obs):
        obs[0] = s.count / 4
        obs[1] = s.count % 2

    def mask(self, s, mask):
        for action in range(4):
            mask[action] = (action + s.count) % 2 == 0


class Poisoned(Env):
    """Gives a number that is none in env `env_index`, in the step that makes its count `at`."""

    env_index: int = 3
    at: int = 5
    in_reward: bool = True
    infinite: bool = False
    max_episode_steps = 1000

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(2)
    state = {"count": np.int32}

    def reset(self, s):
        s.count = 0

    def step(self, s, action):
        s.count += 1
        hit = self.in_reward and s.count == self.at and s._index == self.env_index
        bad = np.inf if self.infinite else np.nan
        return (bad if hit else 1.0), False

    def observe(self, s, obs):
        hit = not self.in_reward and s.count == self.at and s._index == self.env_index
        obs[0] = 0.0
        obs[1] = np.nan if hit else 0.5


def start(env, num_envs, num_steps, *, backend="interpreted", policy_config=None, normalize=False):
    """What plays rollouts of a pool with a small policy, and a generator."""
    pool = NativePool(env, num_envs, num_threads=1, backend=backend)
    torch.manual_seed(0)
    network = default_network(env.observation_space, env.action_space, policy_config or PolicyConfig(hidden=(8,)))
    policy = Policy(network, env.observation_space, env.action_space, normalize_observations=normalize)
    with torch.no_grad():
        network.actor_head.weight.mul_(100)
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps)
    pool.reset(RESET_SEED, out=player.buffers.last)
    return player, torch.Generator().manual_seed(5)


WORLDS = {
    "cartpole": lambda **options: start(load_env("cartpole", max_episode_steps=12), 6, 40, backend="cpu", **options),
    "masked": lambda **options: start(Masked(), 5, 30, **options),
}
NETWORKS = {
    "separate": {},
    "shared": {"policy_config": PolicyConfig(hidden=(8,), shared_trunk=True)},
    "normalized": {"normalize": True},
}


@pytest.fixture(params=WORLDS)
def world(request):
    return WORLDS[request.param]


@pytest.mark.parametrize("network", NETWORKS)
def test_stored_log_probs_and_values_are_those_the_policy_computes_on_the_stored_observations(world, network):
    player, generator = world(**NETWORKS[network])
    pool, policy, rollout = player.pool, player.executor.policy, player.rollout
    if policy.normalizer is not None:
        policy.normalizer.update(torch.randn(50, *pool.observation_space.shape) * 2 + 1)
    for _ in range(2):
        player.play(generator)
        with torch.no_grad():
            logits, value, _ = policy(rollout.obs.flatten(0, 1))
        logits = logits.reshape(*rollout.value.shape, -1)[:-1]
        if rollout.mask is not None:
            logits = torch.where(rollout.mask[:-1], logits, -torch.inf)
        expected = torch.distributions.Categorical(logits=logits, validate_args=False).log_prob(rollout.action)
        torch.testing.assert_close(rollout.log_prob, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rollout.value, value.reshape(rollout.value.shape), rtol=1e-5, atol=1e-5)


def test_rewards_flags_observations_and_masks_are_those_of_a_replay_with_the_stored_actions(world):
    player, generator = world()
    pool, rollout = player.pool, player.rollout
    replay = NativePool(pool.env, pool.num_envs, num_threads=1, backend=pool.backend)
    out = replay.reset(RESET_SEED)
    ended = cut = 0
    for _ in range(3):
        player.play(generator)
        for t in range(rollout.num_steps):
            np.testing.assert_array_equal(rollout.obs[t], out.obs)
            if rollout.mask is not None:
                np.testing.assert_array_equal(rollout.mask[t], out.mask)
                assert out.mask[np.arange(pool.num_envs), rollout.action[t]].all()
            out = replay.step(rollout.action[t].numpy().copy())
            np.testing.assert_array_equal(rollout.reward[t], out.reward)
            np.testing.assert_array_equal(rollout.terminated[t], out.terminated)
            np.testing.assert_array_equal(rollout.truncated[t], out.truncated)
        np.testing.assert_array_equal(rollout.obs[-1], out.obs)
        ended += rollout.terminated.sum().item()
        cut += rollout.truncated.sum().item()
    assert ended > 0
    assert cut > 0


@pytest.mark.parametrize("chunk", [1, 4096])
def test_final_values_stand_only_where_episodes_were_cut_and_value_their_true_last_observation(
    world, chunk, monkeypatch
):
    monkeypatch.setattr(torch_executor, "VALUE_CHUNK", chunk)  # 1: valued as soon as they come
    player, generator = world()
    pool, policy, rollout = player.pool, player.executor.policy, player.rollout
    replay = NativePool(pool.env, pool.num_envs, num_threads=1, backend=pool.backend)
    replay.reset(RESET_SEED)
    found = 0
    for _ in range(2):
        player.play(generator)
        expected = torch.zeros_like(rollout.final_value)
        for t in range(rollout.num_steps):
            out = replay.step(rollout.action[t].numpy().copy())
            for n in np.flatnonzero(out.truncated):
                with torch.no_grad():
                    expected[t, n] = policy.value(torch.from_numpy(out.final_obs[n : n + 1]))[0]
                next_value = rollout.value[t + 1, n]
                assert abs(expected[t, n] - next_value) > 1e-4  # the next episode's first is another
                found += 1
        torch.testing.assert_close(rollout.final_value, expected, rtol=1e-5, atol=1e-5)
    assert found > 5


def test_a_rollout_begins_with_the_observation_and_mask_the_last_one_ended_with(world):
    player, generator = world()
    pool, rollout = player.pool, player.rollout
    first = torch.from_numpy(pool.allocate().obs)
    first.copy_(rollout.obs[-1])
    player.play(generator)
    assert torch.equal(rollout.obs[0], first)
    last, last_mask = rollout.obs[-1].clone(), None if rollout.mask is None else rollout.mask[-1].clone()
    player.play(generator)
    assert torch.equal(rollout.obs[0], last)
    assert last_mask is None or torch.equal(rollout.mask[0], last_mask)


def test_two_short_rollouts_are_one_long_one_cut_in_two():
    def steps(num_steps, times):
        player, generator = start(Masked(), 4, num_steps)
        rollout = player.rollout
        parts = []
        for _ in range(times):
            player.play(generator)
            parts.append([x.clone() for x in (rollout.obs[:-1], rollout.action, rollout.reward, rollout.final_value)])
        return [torch.cat(column) for column in zip(*parts, strict=True)]

    for long, short in zip(steps(24, 1), steps(12, 2), strict=True):
        torch.testing.assert_close(long, short)


def test_the_same_generator_seed_gives_the_same_actions_and_another_one_others():
    def actions(seed):
        player, _ = start(Masked(), 4, 20)
        return player.play(torch.Generator().manual_seed(seed)).action.clone()

    assert torch.equal(actions(1), actions(1))
    assert not torch.equal(actions(1), actions(2))


def test_collecting_draws_nothing_from_torchs_global_generator():
    player, generator = start(Masked(), 4, 20)
    before = torch.get_rng_state()
    player.play(generator)
    assert torch.equal(before, torch.get_rng_state())


def test_actions_come_out_as_often_as_the_policy_says():
    player, generator = start(load_env("bandit"), 200, 50, backend="cpu")
    policy, rollout = player.executor.policy, player.rollout
    with torch.no_grad():
        policy.network.actor_head.weight.zero_()
        policy.network.actor_head.bias.copy_(torch.tensor([0.0, 1.0, -1.0, 0.5]))
    player.play(generator)
    expected = torch.softmax(torch.tensor([0.0, 1.0, -1.0, 0.5], dtype=torch.float64), 0) * 10_000
    counts = torch.bincount(rollout.action.flatten(), minlength=4)
    assert ((counts - expected) ** 2 / expected).sum() < 16.27  # the 0.999 quantile with 3 degrees of freedom


# --- worlds that give numbers which are none ---------------------------------------------------------------


@pytest.mark.parametrize(("infinite", "word"), [(False, "nan"), (True, "inf")])
def test_a_reward_that_is_no_number_is_named_with_its_env_and_step(infinite, word):
    player, generator = start(Poisoned(infinite=infinite), 6, 8)
    with pytest.raises(TrainingError, match=rf"reward of {word} in env 3 at step 5\b"):
        player.play(generator)


def test_an_observation_that_is_no_number_is_named_with_its_env_and_the_step_that_gave_it():
    player, generator = start(Poisoned(in_reward=False), 6, 8)
    with pytest.raises(TrainingError, match=r"observation of nan in env 3 at step 5\b"):
        player.play(generator)


def test_an_observation_that_is_no_number_is_named_when_an_episode_was_cut_there():
    """It is not in the rollout, since the next episode's first observation took its place; yet it would be valued."""
    player, generator = start(Poisoned(in_reward=False, max_episode_steps=5), 6, 8)
    with pytest.raises(TrainingError, match=r"observation of nan in env 3 at step 5\b"):
        player.play(generator)


def test_a_bad_number_in_a_later_rollout_is_found_too():
    player, generator = start(Poisoned(at=13, env_index=0), 6, 8)
    player.play(generator)
    with pytest.raises(TrainingError, match=r"reward of nan in env 0 at step 13\b"):
        player.play(generator)


@pytest.mark.parametrize("limit", [1000, 5])
def test_an_observation_that_only_float64_holds_is_named_as_too_large_for_networks(limit):
    class Large(Poisoned):
        observation_space = Box(-np.inf, np.inf, (2,), np.float64)

        def observe(self, s, obs):
            obs[0] = obs[1] = 1e39 if s.count == 5 and s._index == 3 else 0.5

    player, generator = start(Large(in_reward=False, max_episode_steps=limit), 6, 8)
    with pytest.raises(TrainingError, match=r"observation of 1e\+39, too large for .* in env 3 at step 5\b"):
        player.play(generator)


def test_large_finite_numbers_whose_sum_overflows_are_no_error():
    class Large(Poisoned):
        def step(self, s, action):
            return 3e38, False

    player, generator = start(Large(at=-1), 6, 8)
    rollout = player.rollout
    player.play(generator)
    assert torch.isinf(rollout.reward.sum())
