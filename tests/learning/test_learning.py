"""Agents trained to known answers: each world catches one class of mistake in the learner."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import scramjet
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env
from scramjet.envs.registry import load_env
from scramjet.envs.rng import randint
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.config.files import starting_config
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.evaluation.evaluator import Evaluator
from scramjet.training.learner import Learner, RolloutSize
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers import ROOT

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("one_thread")]

CORRIDOR = ROOT / "examples" / "corridor.py"
GAMMA = 0.9


def learn(env, num_updates, *, seed=1, num_envs=16, num_steps=8, network=None, shared_trunk=False, watch=None, **ppo):
    """Train on `env` with the pieces a run is made of; returns the policy."""
    plain = {"num_epochs": 4, "num_minibatches": 2, "normalize_observations": False, "normalize_rewards": False}
    config = PPOConfig(**{"learning_rate": "0.01@0,0@end", "gamma": GAMMA, "entropy_coef": 0.0} | plain | ppo)
    torch.manual_seed(seed)
    if network is None:
        shape = PolicyConfig(hidden=(32, 32), shared_trunk=shared_trunk)
        network = default_network(env.observation_space, env.action_space, shape)
    policy = Policy(
        network, env.observation_space, env.action_space, normalize_observations=config.normalize_observations
    )
    pool = NativePool(env, num_envs, num_threads=1)
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps)
    rollout = player.rollout
    pool.reset(seed + 10_000, out=player.buffers.last)
    batch_size = num_envs * num_steps
    learner = Learner(
        TorchExecutor(policy),
        config,
        RolloutSize(num_envs, batch_size),
        total_steps=num_updates * batch_size,
        seed=seed,
    )
    generator = torch.Generator().manual_seed(seed)
    for update in range(num_updates):
        player.play(generator)
        if watch is not None:
            watch(rollout)
        learner.update(learner.prepare(rollout), update * batch_size)
    return policy


@torch.no_grad()
def values(policy, *observations):
    return policy(torch.tensor(observations, dtype=torch.float32)).value.tolist()


@torch.no_grad()
def probabilities(policy, *observations):
    return torch.softmax(policy(torch.tensor(observations, dtype=torch.float32)).logits, 1).tolist()


# --- the probes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"value_clip": 0.2}], ids=["plain", "value clipping"])
def test_the_value_of_a_constant_reward_is_that_reward(options):
    policy = learn(load_env("probe_constant"), 60, **options)
    assert values(policy, [0.0]) == pytest.approx([1.0], abs=0.02)


def test_the_value_follows_what_is_observed():
    policy = learn(load_env("probe_observation"), 80)
    assert values(policy, [-1.0], [1.0]) == pytest.approx([-1.0, 1.0], abs=0.05)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.95, 1.0])
def test_the_value_k_steps_before_a_reward_is_gamma_to_the_k(gae_lambda):
    policy = learn(load_env("probe_delay"), 150, gae_lambda=gae_lambda)
    before = [[waited / 4] for waited in (3, 2, 1, 0)]
    assert values(policy, *before) == pytest.approx([GAMMA**k for k in range(4)], abs=0.04)


def test_the_action_that_pays_is_always_chosen():
    policy = learn(load_env("probe_action"), 60)
    assert probabilities(policy, [0.0])[0][1] > 0.97


@pytest.mark.parametrize(
    "options",
    [{}, {"shared_trunk": True}, {"normalize_observations": True, "normalize_rewards": True}],
    ids=["separate", "shared", "normalized"],
)
def test_the_action_follows_what_is_observed(options):
    policy = learn(load_env("probe_policy"), 80, **options)
    (at_minus, at_plus) = probabilities(policy, [-1.0], [1.0])
    assert at_minus[0] > 0.97
    assert at_plus[1] > 0.97


# --- truncation --------------------------------------------------------------------------------------------


class CutShort(Env):
    """Pays 1 each step and never ends; the engine cuts it after 5 steps, which must not lower its value."""

    max_episode_steps = 5

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {}

    def reset(self, s):
        pass

    def step(self, s, action):
        return 1.0, False

    def observe(self, s, obs):
        obs[0] = 1.0


class EndsShort(CutShort):
    """The same, but the rules themselves end the episode: now there is no more to come."""

    max_episode_steps = None
    state = {"count": np.int32}

    def step(self, s, action):
        s.count += 1
        return 1.0, s.count == 5


def test_a_truncated_episode_is_worth_its_whole_future_and_a_terminated_one_is_not():
    cut = learn(CutShort(), 250, num_minibatches=1)
    assert values(cut, [1.0]) == pytest.approx([1 / (1 - GAMMA)], abs=0.3)
    ended = learn(EndsShort(), 100, gae_lambda=1.0)
    one_to_five_steps_left = [(1 - GAMMA**k) / (1 - GAMMA) for k in range(1, 6)]
    assert values(ended, [1.0]) == pytest.approx([np.mean(one_to_five_steps_left)], abs=0.3)


# --- choice, masks, users' networks ------------------------------------------------------------------------


def test_the_lucky_arm_of_a_noisy_bandit_is_found():
    env = load_env("bandit", arms=5, lucky_arm=3, noise=0.5)
    policy = learn(env, 80)
    assert probabilities(policy, [1.0])[0][3] > 0.95
    result = Evaluator(NativePool(env, 32), episodes=64)(policy, 0)
    assert result.stats["lucky"] == 1.0
    assert result.mean_return == pytest.approx(1.0, abs=0.2)


class ForbiddenFruit(Env):
    """The number shown is the action that pays most, and is forbidden; the next one pays 1, the third nothing."""

    observation_space = Box(0, 1, (3,), np.float32)
    action_space = Discrete(3)
    state = {"shown": np.int8}
    stat_names = ("forbidden",)

    def reset(self, s):
        s.shown = randint(s, 3)

    def step(self, s, action):
        if action == s.shown:
            s.shown = 9
            return 100.0, True
        return (1.0 if action == (s.shown + 1) % 3 else 0.0), True

    def observe(self, s, obs):
        for i in range(3):
            obs[i] = 1.0 if s.shown == i else 0.0

    def mask(self, s, mask):
        mask[s.shown % 3] = s.shown == 9

    def stats(self, s, stats):
        stats.forbidden = 1.0 if s.shown == 9 else 0.0


def test_a_forbidden_action_is_never_taken_however_well_it_pays_and_the_best_legal_one_is_learned():
    rewards = []
    policy = learn(ForbiddenFruit(), 80, watch=lambda rollout: rewards.append(rollout.reward.max().item()))
    assert max(rewards) == 1.0
    result = Evaluator(NativePool(ForbiddenFruit(), 32), episodes=64)(policy, 0)
    assert result.stats == {"forbidden": 0.0}
    assert result.mean_return == 1.0
    for shown, row in enumerate(np.eye(3).tolist()):
        with torch.no_grad():
            logits = policy(torch.tensor([row])).logits[0]
        assert logits[(shown + 1) % 3] - logits[(shown + 2) % 3] > 3  # at least 20 times as likely


class Bilinear(nn.Module):
    """A network of a user's own, unlike ours in every way the protocol leaves open."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(2, 3))

    def forward(self, obs):
        features = torch.cat([obs, torch.ones_like(obs)], dim=1)
        out = features @ self.table
        return out[:, :2], out[:, 2]


def test_a_users_own_module_learns_in_a_whole_run(tmp_path):
    config = RunConfig(
        env="probe_policy", num_envs=16, num_steps=8, num_threads=1, total_timesteps=128 * 100,
        ppo=PPOConfig(learning_rate=0.03, num_epochs=4, num_minibatches=2, entropy_coef=0.0),
        eval=EvaluationConfig(every=0), checkpoint=CheckpointConfig(every=0),
    )  # fmt: skip
    network = Bilinear()
    result = scramjet.train(config, runs_dir=tmp_path, network=network, display="quiet")
    assert result.policy.network is network
    assert result.evaluation.mean_return == 1.0
    (at_minus, at_plus) = probabilities(result.policy, [-1.0], [1.0])
    assert at_minus[0] > 0.95
    assert at_plus[1] > 0.95


# --- whole runs --------------------------------------------------------------------------------------------


def test_the_corridor_example_is_walked_straight_to_its_end(tmp_path):
    config = RunConfig(
        env=str(CORRIDOR), num_envs=16, num_steps=32, num_threads=1, total_timesteps=40_000,
        ppo=PPOConfig(learning_rate="0.003@0,0@end", num_epochs=4), eval=EvaluationConfig(every=0, final_episodes=64),
    )  # fmt: skip
    result = scramjet.train(config, runs_dir=tmp_path, display="quiet")
    places = torch.arange(8).unsqueeze(1) / 8
    assert result.policy.act(places).tolist() == [1] * 8
    # Walking right from a start of 0 to 3 takes 8 to 5 steps, each but the last at a cost of 0.01.
    assert 5 <= result.evaluation.mean_length <= 8
    assert result.evaluation.mean_return == pytest.approx(1 - 0.01 * (result.evaluation.mean_length - 1))


def test_cartpole_with_its_preset_holds_the_pole_for_475_steps_or_more_over_100_episodes(tmp_path):
    config = replace(starting_config("cartpole"), seed=1, num_threads=1)
    result = scramjet.train(config, runs_dir=tmp_path, display="quiet")
    assert result.evaluation.episodes == 100
    assert result.evaluation.mean_return >= 475
