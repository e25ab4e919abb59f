"""Learning values in another scale than that of returns: probe worlds, kernels beside torch, resume and fork."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scramjet
from scramjet.accelerate.numba.executor import NumbaExecutor
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.algorithms.target_entropy import EntropyTuner
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.rng import randint
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies import Policy, PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint, step_name
from scramjet.training.components import policy_for
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learner import Learner, RolloutSize
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.memory_training import run_config
from tests.helpers.shared_updates import Case

pytestmark = pytest.mark.usefixtures("one_thread")

SCALES = ("popart", "symlog")


class LargeReward(Env):
    """Shows -1 or 1 and pays 30,000 or 50,000: the value must become that."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"shown": np.int8}

    def reset(self, s: Any) -> None:
        s.shown = 2 * randint(s, 2) - 1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        return 40_000.0 + 10_000.0 * s.shown, True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.shown


def values_learned(value_scale: str, num_updates: int = 30, bins: int | None = None, **ppo: Any) -> list[float]:
    """The returns that a critic expects after -1 and 1 are shown."""
    env = LargeReward()
    given = {"num_minibatches": 4, "learning_rate": 0.003, "normalize_rewards": False, "normalize_observations": False}
    shape = PolicyConfig(hidden=(16,), value_bins=bins)
    config = RunConfig(policy=shape, ppo=PPOConfig(value_scale=value_scale, **given | ppo))
    policy = policy_for(env.observation_space, env.action_space, config)
    pool = NativePool(env, 16, num_threads=1, backend="interpreted")
    player = RolloutPlayer(pool, TorchExecutor(policy) if bins else NumbaExecutor(policy), 8)
    pool.reset(0, out=player.buffers.last)
    learner = Learner.for_rollout(player.rollout, player.executor, config.ppo, total_steps=10_000, seed=0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_updates):
        learner.update(learner.prepare(player.play(generator)), 0)
    outputs = policy.value(torch.tensor([[-1.0], [1.0]])).detach()
    return (outputs if learner.value_scale is None else learner.value_scale.to_returns(outputs)).tolist()


@pytest.mark.parametrize("value_scale", SCALES)
def test_returns_of_tens_of_thousands_are_valued_within_a_few_percent(value_scale):
    assert values_learned(value_scale) == pytest.approx([30_000, 50_000], rel=0.05)


def test_two_hot_values_of_tens_of_thousands_are_within_a_few_percent():
    assert values_learned("none", bins=101) == pytest.approx([30_000, 50_000], rel=0.05)


def test_without_a_scale_the_same_updates_do_not_come_near_them():
    assert max(values_learned("none")) < 10_000


def test_popart_learns_by_vtrace_as_well():
    assert values_learned("popart", advantage="vtrace") == pytest.approx([30_000, 50_000], rel=0.05)


@pytest.mark.parametrize("value_scale", SCALES)
def test_kernels_learn_what_torchs_operators_learn(value_scale):
    learned = []
    for is_fused in (True, False):
        case = Case(is_fused=is_fused, ppo={"value_scale": value_scale, "value_clip": 0.2})
        (result,) = case.learned_together(1)
        learned.append(result.tensors)
    assert learned[0].keys() == learned[1].keys()
    for name, tensor in learned[0].items():
        torch.testing.assert_close(tensor, learned[1][name], rtol=1e-3, atol=1e-5)


def test_learning_without_a_scale_has_no_statistics():
    (result,) = Case().learned_together(1)
    assert not any(name.startswith("value_scale") for name in result.tensors)


CASES = [("cartpole", s, {}) for s in SCALES] + [
    ("pendulum", "none", {"target_entropy": 0.5}),
    ("snake", "popart", {}),
    ("connect_four", "two_hot", {}),
    ("connect_four", "popart", {"target_entropy": 0.5}),
]


@pytest.mark.parametrize(("world", "value_scale", "ppo"), CASES)
def test_a_resumed_run_ends_bit_for_bit_as_if_it_had_never_stopped(world, value_scale, ppo, tmp_path):
    color = 0.5 if world == "pendulum" else 0.0
    bins = 11 if value_scale == "two_hot" else None
    policy = PolicyConfig(hidden=(8,), memory="gru", memory_size=5, noise_color=color, value_bins=bins)
    value_scale = "none" if bins else value_scale
    config = run_config(world, policy=policy, ppo=PPOConfig(value_scale=value_scale, **ppo))
    length = config.total_timesteps
    whole = scramjet.train(config, runs_dir=tmp_path, run_name="whole", display="quiet")
    half = replace(config, total_timesteps=length // 2)
    scramjet.train(half, runs_dir=tmp_path, run_name="cut", display="quiet")
    resumed = scramjet.train(resume=tmp_path / "cut", total_timesteps=length, runs_dir=tmp_path, display="quiet")
    first, second = (load_checkpoint(run.run_path / "checkpoints" / "latest") for run in (whole, resumed))
    for kind in ("model", "trainer"):
        tensors = getattr(first, kind)
        assert tensors.keys() == getattr(second, kind).keys()
        assert all(torch.equal(tensor, getattr(second, kind)[name]) for name, tensor in tensors.items())


def trained(tmp_path: Any, value_scale: str) -> Any:
    config = run_config("cartpole", policy=PolicyConfig(hidden=(8,)), ppo=PPOConfig(value_scale=value_scale))
    return scramjet.train(config, runs_dir=tmp_path, run_name=value_scale, display="quiet"), config


@pytest.mark.parametrize("value_scale", SCALES)
def test_a_loaded_policy_gives_values_in_the_scale_of_returns(value_scale, tmp_path):
    result, config = trained(tmp_path, value_scale)
    obs = torch.randn(6, 4)
    with torch.no_grad():
        expected = _scale_of(result, config).to_returns(result.policy.value(obs))
        loaded = scramjet.load_policy(result.run_path)
        torch.testing.assert_close(loaded.value(obs), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(loaded(obs).value, expected, rtol=1e-4, atol=1e-5)


def test_a_fork_that_leaves_popart_keeps_its_values(tmp_path):
    result, config = trained(tmp_path, "popart")
    changed = replace(config, ppo=PPOConfig(learning_rate=1e-30), total_timesteps=2 * config.total_timesteps)
    fork = scramjet.train(changed, fork=result.run_path, runs_dir=tmp_path, run_name="fork", display="quiet")
    beginning = load_checkpoint(fork.run_path / "checkpoints" / step_name(config.total_timesteps))
    obs = torch.randn(6, 4)
    policy = copy.deepcopy(fork.policy)
    policy.load_state_dict(beginning.model)
    with torch.no_grad():
        torch.testing.assert_close(policy.value(obs), scramjet.load_policy(result.run_path).value(obs))


def test_a_fork_that_leaves_symlog_is_refused(tmp_path):
    result, config = trained(tmp_path, "symlog")
    changed = replace(config, ppo=PPOConfig(), total_timesteps=2 * config.total_timesteps)
    with pytest.raises(CheckpointError, match=r"value_scale='symlog'.*add --value-scale symlog"):
        scramjet.train(changed, fork=result.run_path, runs_dir=tmp_path, display="quiet")


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, None), ({"target_entropy": 0.5}, None), ({"entropy_coef": 0.5}, 0.5)]
)
def test_a_fork_goes_on_with_the_weight_found_for_a_target_entropy_unless_it_names_another(
    settings, expected, tmp_path
):
    config = run_config("cartpole", policy=PolicyConfig(hidden=(8,)), ppo=PPOConfig(target_entropy=0.3))
    parent = scramjet.train(config, runs_dir=tmp_path, display="quiet").run_path
    found = math.exp(load_checkpoint(parent / "checkpoints" / "latest").trainer[EntropyTuner.LOG_COEF])
    assert found != pytest.approx(config.ppo.entropy_coef, rel=1e-3)
    given = {"fork": parent, "total_timesteps": 2 * config.total_timesteps, "runs_dir": tmp_path, "display": "quiet"}
    fork = scramjet.train(**given, **settings).run_path
    first = json.loads((fork / "metrics.jsonl").read_text().splitlines()[0])
    assert first["entropy_coef"] == pytest.approx(found if expected is None else expected)


def _scale_of(result: Any, config: RunConfig) -> Any:
    learner = Learner(TorchExecutor(result.policy), config.ppo, RolloutSize(1, 64), total_steps=1, seed=0)
    learner.value_scale.restore(load_checkpoint(result.run_path / "checkpoints" / "latest").trainer)
    return learner.value_scale


class OwnNetwork(nn.Module):
    """A network of a user, whose value is the output of the layer `name`, or what `change` makes of it."""

    def __init__(self, name: str = "critic_head", change: Callable[[Tensor], Tensor] = lambda value: value) -> None:
        super().__init__()
        self.actor, self.change, self.name = nn.Linear(4, 2), change, name
        setattr(self, name, nn.Linear(4, 1))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs), self.change(getattr(self, self.name)(obs).squeeze(-1))


def policy_with(network: nn.Module) -> Policy:
    spaces = Box(-1, 1, (4,), np.float32), Discrete(2)
    return policy_for(*spaces, RunConfig(ppo=PPOConfig(value_scale="popart")), network)


def test_a_network_of_ones_own_keeps_its_weights_when_it_is_checked():
    network = OwnNetwork()
    before = copy.deepcopy(network.state_dict())
    policy_with(network)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (OwnNetwork("value_out"), r"OwnNetwork has no such layer; name it self.critic_head = nn.Linear\(..., 1\)"),
        (OwnNetwork(change=torch.tanh), "returns something else than its output as the value"),
        (OwnNetwork(change=torch.relu), "returns something else than its output as the value"),
        (OwnNetwork(change=lambda value: 2 * value), "returns something else than its output as the value"),
        (OwnNetwork(change=lambda value: 2 * value + 1), "returns something else than its output as the value"),
        (OwnNetwork(change=lambda value: -3 * value - 4), "returns something else than its output as the value"),
        (OwnNetwork(change=lambda value: 7 * value + 36), "returns something else than its output as the value"),
    ],
)
def test_a_network_without_a_layer_to_rescale_is_refused_by_name(network, message):
    with pytest.raises(ConfigError, match=message):
        policy_with(network)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ppo": PPOConfig(value_scale="symlog")}, "value_scale=symlog is for values that are one number"),
        ({"ppo": PPOConfig(value_clip=0.2)}, "value_clip=0.2 is for values that are one number"),
        ({"algorithm": "spo"}, "is learned by PPO's loss"),
    ],
)
def test_two_hot_values_refuse_what_they_cannot_be_combined_with(changes, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(env="connect_four", policy=PolicyConfig(value_bins=11), **changes)


def test_a_network_of_ones_own_has_no_bins():
    config = RunConfig(policy=PolicyConfig(value_bins=11))
    with pytest.raises(ConfigError, match="is for the default network"):
        policy_for(Box(-1, 1, (4,), np.float32), Discrete(2), config, OwnNetwork())


@pytest.mark.parametrize("algorithm", ["spo", "alphazero"])
def test_search_algorithms_refuse_a_scale_of_values(algorithm):
    with pytest.raises(ConfigError, match="value_scale=popart is PPO's"):
        RunConfig(env="connect_four", algorithm=algorithm, ppo=PPOConfig(value_scale="popart"))
