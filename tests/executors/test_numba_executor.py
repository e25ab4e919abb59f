"""Whole updates by compiled functions beside those by torch's operators."""

import copy

import pytest
import torch

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env
from scramjet.executors.numba_executor import NumbaExecutor
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training import start
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer


def updates(env, policy, config, *, native):
    """A policy that has learned from two rollouts of its own, the metrics of the last update, and the last rollout."""
    policy = copy.deepcopy(policy)
    pool = NativePool(env, 16)
    executor = NumbaExecutor(policy) if native else TorchExecutor(policy)
    player = RolloutPlayer(pool, executor, 32, config.bptt_horizon)
    learner = Learner.for_rollout(player.rollout, executor, config, total_steps=10**6, seed=0)
    pool.reset(0, out=player.buffers.last)
    generator, metrics = torch.Generator().manual_seed(0), {}
    for _ in range(2):
        metrics = learner.update(learner.prepare(player.play(generator)), 0)
    return policy, metrics, player.rollout


WORLDS = {
    "cartpole": {},
    "connect_four": {"shared_trunk": True},  # masks, seats, whole numbers
    "pendulum": {"activation": "relu"},
    "snake": {},  # discrete observations of a grid
    "maze": {"ignore": ("step_count", "walls")},  # some of several entries
}
CORE = {("cartpole", "lstm"), ("connect_four", None)}
PAIRS = [(name, memory) for name in WORLDS for memory in (None, "lstm", "gru", "mingru")]


@pytest.mark.parametrize(
    ("name", "memory"), [pytest.param(*pair, marks=[] if pair in CORE else pytest.mark.rest) for pair in PAIRS]
)
def test_two_updates_end_where_those_of_torch_do(name, memory):
    env = load_env(name)
    spaces = env.observation_space, env.action_space
    settings = PolicyConfig(hidden=(16,), memory=memory, memory_size=8, encoder="mlp", **WORLDS[name])
    torch.manual_seed(0)
    seen = memory == "lstm" and name == "cartpole"  # in parts of sequences, and with normalized observations
    policy = Policy(default_network(*spaces, settings), *spaces, settings, normalize_observations=seen)
    config = PPOConfig(
        num_minibatches=2, num_epochs=2, learning_rate=1e-3, normalize_rewards=True, value_clip=0.2,
        normalize_observations=seen, bptt_horizon=8 if seen else None,
    )  # fmt: skip
    (ours, our_metrics, our_rollout), (theirs, their_metrics, their_rollout) = (
        updates(env, policy, config, native=native) for native in (True, False)
    )
    for (each, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        moved = (other - dict(policy.named_parameters())[each]).detach().abs().max()
        torch.testing.assert_close(mine, other, rtol=0, atol=float(0.02 * moved + 1e-6))
    for each, value in their_metrics.items():
        assert value is None or our_metrics[each] == pytest.approx(value, rel=1e-2, abs=1e-4), each
    torch.testing.assert_close(our_rollout.action, their_rollout.action, rtol=1e-2, atol=1e-2)


class FreezesAtTheStart(scramjet.Callback):
    def on_start(self, session):
        for weight in session.policy.network.actor[0].parameters():
            weight.requires_grad_(False)


def test_a_run_uses_them_unless_told_not_to_and_leaves_weights_that_a_callback_freezes(tmp_path):
    tiny = {"env": "cartpole", "num_envs": 4, "num_steps": 8, "total_timesteps": 96, "num_threads": 1}
    quiet = {"runs_dir": tmp_path, "callbacks": [FreezesAtTheStart()], "display": "quiet"}
    weights = []
    for fused, note in ((True, "numba executor"), (False, "torch executor (--no-fused)")):
        session = start.begin(start.StartRequest(config=RunConfig(**tiny, fused=fused), runs_dir=tmp_path))
        assert session.learner.executor is session.player.executor
        assert session.learner.executor.note == note
        weights.append(scramjet.train(**tiny, **quiet, fused=fused).policy.state_dict())
    for name, weight in weights[1].items():
        torch.testing.assert_close(weights[0][name], weight, rtol=0, atol=1e-5, msg=name)
