"""Learning values in another scale than that of returns: probe worlds, kernels beside torch, resume and fork."""

from __future__ import annotations

import copy
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
from scramjet.envs import Box, Discrete, Env, randint
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies import PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint, step_name
from scramjet.training.components import policy_for
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learner import Learner, RolloutSize
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.memory_training import run_config
from tests.helpers.run_files import lines_of
from tests.helpers.shared_updates import Case

pytestmark = pytest.mark.usefixtures("one_thread")

SCALES = ("popart", "symlog")
PLAIN = PolicyConfig(hidden=(8,))
SPACES = Box(-1, 1, (4,), np.float32), Discrete(2)


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


@pytest.mark.parametrize(
    "settings",
    [
        {"value_scale": "popart"},
        {"value_scale": "symlog"},
        {"value_scale": "none", "bins": 101},
        pytest.param({"value_scale": "popart", "advantage": "vtrace"}, marks=pytest.mark.rest),
    ],
    ids=["popart", "symlog", "two-hot", "popart by vtrace"],
)
def test_returns_of_tens_of_thousands_are_valued_within_a_few_percent(settings):
    assert values_learned(**settings) == pytest.approx([30_000, 50_000], rel=0.05)


def test_without_a_scale_the_same_updates_do_not_come_near_them():
    assert max(values_learned("none")) < 10_000


@pytest.mark.parametrize("value_scale", SCALES)
def test_kernels_learn_what_torchs_operators_learn(value_scale):
    ppo = {"value_scale": value_scale, "value_clip": 0.2}
    (kernels,), (operators,) = (Case(is_fused=is_fused, ppo=ppo).learned_together(1) for is_fused in (True, False))
    assert kernels.tensors.keys() == operators.tensors.keys()
    for name, tensor in kernels.tensors.items():
        torch.testing.assert_close(tensor, operators.tensors[name], rtol=1e-3, atol=1e-5)


def test_learning_without_a_scale_has_no_statistics():
    (result,) = Case().learned_together(1)
    assert not any(name.startswith("value_scale") for name in result.tensors)


# --- what a run leaves, and forks


@pytest.fixture(scope="module")
def parents(tmp_path_factory):
    """A trained run and its config by the name of its scale."""
    folder = tmp_path_factory.mktemp("parents")
    configs = {name: run_config("cartpole", policy=PLAIN, ppo=PPOConfig(value_scale=name)) for name in SCALES}
    given = {"runs_dir": folder, "display": "quiet"}
    return {name: (scramjet.train(config, run_name=name, **given), config) for name, config in configs.items()}


@pytest.mark.parametrize("value_scale", SCALES)
def test_a_loaded_policy_gives_values_in_the_scale_of_returns(value_scale, parents):
    result, config = parents[value_scale]
    learner = Learner(TorchExecutor(result.policy), config.ppo, RolloutSize(1, 64), total_steps=1, seed=0)
    learner.value_scale.restore(load_checkpoint(result.run_path / "checkpoints" / "latest").trainer)
    obs, loaded = torch.randn(6, 4), scramjet.load_policy(result.run_path)
    with torch.no_grad():
        expected = learner.value_scale.to_returns(result.policy.value(obs))
        for found in (loaded.value(obs), loaded(obs).value):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_fork_that_leaves_popart_keeps_its_values_and_one_that_leaves_symlog_is_refused(parents, tmp_path):
    result, config = parents["popart"]
    changed = replace(config, ppo=PPOConfig(learning_rate=1e-30), total_timesteps=2 * config.total_timesteps)
    fork = scramjet.train(changed, fork=result.run_path, runs_dir=tmp_path, display="quiet")
    beginning = load_checkpoint(fork.run_path / "checkpoints" / step_name(config.total_timesteps))
    obs, policy = torch.randn(6, 4), copy.deepcopy(fork.policy)
    policy.load_state_dict(beginning.model)
    with torch.no_grad():
        torch.testing.assert_close(policy.value(obs), scramjet.load_policy(result.run_path).value(obs))
    with pytest.raises(CheckpointError, match=r"value_scale='symlog'.*add --value-scale symlog"):
        scramjet.train(changed, fork=parents["symlog"][0].run_path, runs_dir=tmp_path, display="quiet")


def test_a_fork_goes_on_with_the_weight_found_for_a_target_entropy_unless_it_names_another(tmp_path):
    config = run_config("cartpole", policy=PLAIN, ppo=PPOConfig(target_entropy=0.3))
    parent = scramjet.train(config, runs_dir=tmp_path, display="quiet").run_path
    found = math.exp(load_checkpoint(parent / "checkpoints" / "latest").trainer[EntropyTuner.LOG_COEF])
    assert found != pytest.approx(config.ppo.entropy_coef, rel=1e-3)
    given = {"fork": parent, "total_timesteps": 2 * config.total_timesteps, "runs_dir": tmp_path, "display": "quiet"}
    for settings, expected in [({}, found), ({"target_entropy": 0.5}, found), ({"entropy_coef": 0.5}, 0.5)]:
        first, *_ = lines_of(scramjet.train(**given, **settings).run_path)
        assert first["entropy_coef"] == pytest.approx(expected), settings


# --- refusals


class OwnNetwork(nn.Module):
    """A network of a user, whose value is the output of the layer `name`, or what `change` makes of it."""

    def __init__(self, name: str = "critic_head", change: Callable[[Tensor], Tensor] = lambda value: value) -> None:
        super().__init__()
        self.actor, self.change, self.name = nn.Linear(4, 2), change, name
        setattr(self, name, nn.Linear(4, 1))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs), self.change(getattr(self, self.name)(obs).squeeze(-1))


def test_a_network_of_ones_own_keeps_its_weights_or_is_refused_by_name_without_a_layer_to_rescale():
    config, network = RunConfig(ppo=PPOConfig(value_scale="popart")), OwnNetwork()
    before = copy.deepcopy(network.state_dict())
    policy_for(*SPACES, config, network)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    with pytest.raises(ConfigError, match=r"has no such layer; name it self.critic_head = nn.Linear\(..., 1\)"):
        policy_for(*SPACES, config, OwnNetwork("value_out"))
    for change in (
        torch.tanh, torch.relu, lambda value: 2 * value, lambda value: 2 * value + 1, lambda value: -3 * value - 4,
        lambda value: 7 * value + 36,
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="returns something else than its output as the value"):
            policy_for(*SPACES, config, OwnNetwork(change=change))


def test_scales_and_two_hot_values_refuse_what_they_cannot_be_combined_with():
    bins, popart = {"policy": PolicyConfig(value_bins=11)}, {"ppo": PPOConfig(value_scale="popart")}
    for changes, message in [
        ({**bins, "ppo": PPOConfig(value_scale="symlog")}, "value_scale=symlog is for values that are one number"),
        ({**bins, "ppo": PPOConfig(value_clip=0.2)}, "value_clip=0.2 is for values that are one number"),
        ({**bins, "algorithm": "spo"}, "is learned by PPO's loss"),
        ({**popart, "algorithm": "spo"}, "value_scale=popart is PPO's"),
        ({**popart, "algorithm": "alphazero"}, "value_scale=popart is PPO's"),
    ]:
        with pytest.raises(ConfigError, match=message):
            RunConfig(env="connect_four", **changes)
    with pytest.raises(ConfigError, match="is for the default network"):
        policy_for(*SPACES, RunConfig(**bins), OwnNetwork())
