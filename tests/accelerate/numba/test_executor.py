"""Whole updates by compiled functions beside those by torch's operators."""

import copy

import pytest
import torch

import scramjet
from scramjet.accelerate.numba.executor import NumbaExecutor
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.training import start
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer


def updates(env_name, policy, config, *, native, num_updates=2, horizon=None):
    """A policy that has learned from rollouts of its own, the metrics of the last update, and the last rollout."""
    policy = copy.deepcopy(policy)
    pool = NativePool(load_env(env_name), 16)
    executor = NumbaExecutor(policy) if native else TorchExecutor(policy)
    player = RolloutPlayer(pool, executor, 32, horizon)
    learner = Learner.for_rollout(player.rollout, executor, config, total_steps=10**6, seed=0)
    pool.reset(0, out=player.buffers.last)
    generator = torch.Generator().manual_seed(0)
    metrics = {}
    for _ in range(num_updates):
        metrics = learner.update(learner.prepare(player.play(generator)), 0)
    return policy, metrics, player.rollout


@pytest.mark.parametrize("memory", [None, "lstm", "gru", "mingru"])
@pytest.mark.parametrize(
    ("env_name", "settings"),
    [
        ("cartpole", {}),
        ("connect_four", {"shared_trunk": True}),  # masks, seats, whole numbers
        ("pendulum", {"activation": "relu"}),
        ("snake", {}),  # discrete observations of a grid
        ("maze", {"ignore": ("step_count", "walls")}),  # some of several entries
    ],
)
def test_two_updates_end_where_those_of_torch_do(env_name, settings, memory):
    env = load_env(env_name)
    policy_config = PolicyConfig(hidden=(16,), memory=memory, memory_size=8, encoder="mlp", **settings)
    spaces = env.observation_space, env.action_space
    torch.manual_seed(0)
    policy = Policy(default_network(*spaces, policy_config), *spaces, policy_config)
    config = PPOConfig(num_minibatches=2, num_epochs=2, learning_rate=1e-3, normalize_rewards=True, value_clip=0.2)
    results = [updates(env_name, policy, config, native=native) for native in (True, False)]
    for (name, mine), other in zip(results[0][0].named_parameters(), results[1][0].parameters(), strict=True):
        moved = (other - dict(policy.named_parameters())[name]).detach().abs().max()
        torch.testing.assert_close(mine, other, rtol=0, atol=float(0.02 * moved + 1e-6))
    for name, value in results[1][1].items():
        if value is not None:
            assert results[0][1][name] == pytest.approx(value, rel=1e-2, abs=1e-4), name
    torch.testing.assert_close(results[0][2].action, results[1][2].action, rtol=1e-2, atol=1e-2)


def test_normalized_observations_and_a_bptt_horizon():
    env = load_env("cartpole")
    spaces, policy_config = (env.observation_space, env.action_space), PolicyConfig(memory="lstm", memory_size=8)
    policy = Policy(
        default_network(*spaces, policy_config), *spaces, policy_config, normalize_observations=True
    )  # fmt: skip
    config = PPOConfig(num_minibatches=2, bptt_horizon=8, normalize_observations=True)
    results = [updates("cartpole", policy, config, native=native, horizon=8) for native in (True, False)]
    for mine, other in zip(results[0][0].parameters(), results[1][0].parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-4)


def test_a_run_uses_them_unless_told_not_to(tmp_path):
    for fused in (True, False):
        config = RunConfig(env="cartpole", fused=fused, num_envs=4, num_steps=8, total_timesteps=64)
        session = start.begin(start.StartRequest(config=config, runs_dir=tmp_path))
        assert session.learner.executor is session.player.executor
        assert session.learner.executor.note == ("numba executor" if fused else "torch executor (--no-fused)")


class FreezesAtTheStart(scramjet.Callback):
    def on_start(self, session):
        for weight in session.policy.network.actor[0].parameters():
            weight.requires_grad_(False)


def test_weights_that_a_callback_freezes_stay_as_they_are(tmp_path):
    tiny = {"num_envs": 4, "num_steps": 8, "total_timesteps": 96, "num_threads": 1, "display": "quiet"}
    results = [
        scramjet.train("cartpole", **tiny, fused=fused, runs_dir=tmp_path, callbacks=[FreezesAtTheStart()])
        for fused in (True, False)
    ]
    ours, theirs = (result.policy.state_dict() for result in results)
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-5, msg=name)
