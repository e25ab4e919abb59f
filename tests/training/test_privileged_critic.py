"""A critic that sees more than its policy: what it learns, what the policy is given, and that all else goes on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import scramjet
from scramjet.adapters.exports.gymnasium_env import GymEnv, GymVectorEnv
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.privileged import CRITIC, POLICY, policy_space, shown_space
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from scramjet.errors import ConfigError, PredictError
from scramjet.policies import PolicyConfig
from scramjet.training.config.run_config import RunConfig
from tests.helpers import HELPERS
from tests.helpers.small_runs import TINY

pytestmark = pytest.mark.usefixtures("one_thread")

WORLDS = HELPERS / "worlds" / "privileged.py"


def trained(tmp_path: Path, world: str, name: str = "run", **changes: Any) -> Any:
    config = RunConfig(env=f"{WORLDS}:{world}", **{**TINY, **changes})
    return scramjet.train(config, runs_dir=tmp_path, run_name=name, display="quiet")


@pytest.mark.parametrize("fused", [True, False], ids=["numba", "torch"])
@pytest.mark.parametrize(("world", "least", "most"), [("HiddenBit", 0.0, 0.01), ("UnseenBit", 0.45, 0.55)])
def test_a_critic_that_sees_the_bit_knows_the_return_and_one_that_does_not_is_off_by_its_variance(
    world: str, least: float, most: float, fused: bool, tmp_path: Path
) -> None:
    """The value loss is half the mean square: of a bit of -1 or 1 that nobody sees, 0.5."""
    ppo = PPOConfig(learning_rate=0.01, normalize_rewards=False, normalize_observations=False)
    result = trained(tmp_path, world, num_envs=16, total_timesteps=16 * 16 * 20, ppo=ppo, fused=fused)
    assert least <= result.metrics["value_loss"] <= most


def test_the_policy_does_not_depend_on_what_only_its_critic_sees(tmp_path: Path) -> None:
    policy = trained(tmp_path, "HiddenBit").policy
    seen = torch.tensor([[1.0, 0.5], [1.0, 0.5]])
    obs = {POLICY: seen, CRITIC: torch.tensor([[-1.0], [1.0]])}
    logits, value = policy(obs)[:2]
    assert torch.equal(logits[0], logits[1])
    assert value[0] != value[1]


def test_predict_and_act_take_the_worlds_own_observation(tmp_path: Path) -> None:
    result = trained(tmp_path, "HiddenBit")
    env = GymEnv(f"{WORLDS}:HiddenBit")
    obs, _ = env.reset(seed=1)
    assert env.observation_space == gymnasium.spaces.Box(0, 1, (2,), np.float32)
    assert obs in env.observation_space
    for policy in (result.policy, scramjet.load_policy(result.run_path)):
        assert policy.env_spaces.observation_space == env.observation_space
        action, state = policy.predict(obs)
        assert action in env.action_space
        assert state is None
        assert policy.act(np.stack([obs, obs])).tolist() == [action, action]
        with pytest.raises(PredictError, match=r"observation is .*a dict"):
            policy.predict({POLICY: obs, CRITIC: np.zeros(1, np.float32)})


def test_the_exports_show_the_policys_part_of_what_a_pool_shows() -> None:
    world = f"{WORLDS}:HiddenBit"
    pool = NativePool(load_env(world), 3, backend="interpreted")
    vector = GymVectorEnv(world, 3)
    assert vector.single_observation_space == pool.env.observation_space
    seen, _ = vector.reset(seed=5)
    shown = pool.reset(5).obs
    np.testing.assert_array_equal(seen, shown[POLICY])
    assert [int(bit) for bit in shown[CRITIC][:, 0]] == [pool.record(i).bit for i in range(3)]


def test_a_critic_of_agents_sees_what_the_rules_say_of_all_of_them() -> None:
    pool = NativePool(load_env(f"{WORLDS}:Cards"), 2, backend="interpreted")
    out = pool.reset(3)
    for env in range(2):
        cards = pool.record(env).cards.tolist()
        for agent in range(3):
            row = 3 * env + agent
            assert out.obs[POLICY]["own"]["card"][row].tolist() == [cards[agent]]
            assert out.obs[CRITIC]["all"][row].tolist() == cards[agent:] + cards[:agent]


@pytest.mark.parametrize(
    ("world", "shape"),
    [
        ("HiddenBit", {}),
        ("Cards", {"memory": "lstm", "memory_size": 6}),
        ("Nim", {"memory": "gru", "memory_size": 6, "memory_layers": 2}),
    ],
    ids=["plain", "agents, masks, memory", "seats, memory"],
)
def test_a_run_resumed_ends_bit_for_bit_as_if_it_had_never_stopped(world: str, shape: Any, tmp_path: Path) -> None:
    policy = PolicyConfig(hidden=(8,), **shape)
    whole = trained(tmp_path, world, "whole", policy=policy)
    trained(tmp_path, world, "cut", policy=policy, total_timesteps=128)
    resumed = scramjet.train(resume=tmp_path / "cut", total_timesteps=256, display="quiet")
    for name, tensor in whole.policy.state_dict().items():
        assert torch.equal(tensor, resumed.policy.state_dict()[name]), name
    metrics = [{key: value for key, value in result.metrics.items() if key != "time"} for result in (whole, resumed)]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize("world", ["HiddenBit", "Cards"])
@pytest.mark.parametrize("memory", [None, "mingru"])
def test_the_compiled_network_learns_what_torchs_operators_learn(world: str, memory: Any, tmp_path: Path) -> None:
    shape = PolicyConfig(hidden=(32, 8), memory=memory, memory_size=6)
    runs = [trained(tmp_path, world, f"run{fused}", policy=shape, fused=fused) for fused in (True, False)]
    for name, tensor in runs[0].policy.state_dict().items():
        torch.testing.assert_close(tensor, runs[1].policy.state_dict()[name], rtol=1e-3, atol=1e-5)


def test_frames_are_stacked_for_both_and_predict_stacks_those_it_gets(tmp_path: Path) -> None:
    policy = trained(tmp_path, "HiddenBit", frame_stack=3).policy
    assert {name: part.shape for name, part in policy.observation_space.spaces.items()} == {POLICY: (6,), CRITIC: (3,)}
    obs = np.array([1, 0.5], np.float32)
    _, state = policy.predict(obs)
    _, state = policy.predict(obs, state)
    assert state.frames.tolist() == [[0, 0, 1, 0.5, 1, 0.5]]


@pytest.mark.parametrize("algorithm", ["spo", "alphazero"])
def test_a_search_values_positions_with_what_the_critic_sees(algorithm: str, tmp_path: Path) -> None:
    result = trained(tmp_path, "OpenBit", algorithm=algorithm, total_timesteps=64)
    assert np.isfinite(result.metrics["value_loss"])


@pytest.mark.parametrize(("value_scale", "value_of_one"), [("popart", 1.0), ("symlog", math.log(2))])
def test_a_critic_with_scaled_values_learns_the_bit(value_scale: Any, value_of_one: float, tmp_path: Path) -> None:
    ppo = PPOConfig(learning_rate=0.01, normalize_rewards=False, value_scale=value_scale)
    policy = trained(tmp_path, "HiddenBit", num_envs=16, total_timesteps=16 * 16 * 20, ppo=ppo).policy
    obs = {POLICY: torch.tensor([[1.0, 0.5], [1.0, 0.5]]), CRITIC: torch.tensor([[-1.0], [1.0]])}
    torch.testing.assert_close(policy.value(obs), torch.tensor([-value_of_one, value_of_one]), atol=0.1, rtol=0)


@pytest.mark.parametrize("curiosity", ["rnd", "icm", "noveld", "counts"])
def test_curiosity_goes_by_what_the_policy_sees(curiosity: Any, tmp_path: Path) -> None:
    ppo = PPOConfig(normalize_observations=True)
    result = trained(tmp_path, "HiddenBit", curiosity=curiosity, ppo=ppo)
    assert np.isfinite(result.metrics["value_loss"])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"shared_trunk": True}, r"shared_trunk .*observe_critic.*--policy.no-shared-trunk"),
        ({"encoder": "entity_attention"}, r"entity_attention.*observe_critic.*--policy.encoder auto"),
        ({"ignore": ("lid",)}, r"policy.ignore names 'lid'.*no entries to leave out"),
    ],
)
def test_a_network_that_cannot_keep_them_apart_is_refused_with_the_fix(shape: Any, message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        trained(tmp_path, "HiddenBit", policy=PolicyConfig(hidden=(8,), **shape))


class BothParts(nn.Module):
    """A network of the user's: it gets both parts by name."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(2, 2), nn.Linear(3, 1)

    def forward(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.cat([obs[POLICY], obs[CRITIC]], dim=1)
        return self.actor(obs[POLICY]), self.critic(both).squeeze(-1)


def test_a_network_of_the_users_gets_both_parts_and_is_told_what_does_not_fit(tmp_path: Path) -> None:
    config = RunConfig(env=f"{WORLDS}:HiddenBit", **TINY)
    result = scramjet.train(config, runs_dir=tmp_path, display="quiet", network=BothParts())
    assert result.policy.predict(np.array([1, 0.5], np.float32))[0] in (0, 1)
    with pytest.raises(ConfigError, match=r"_policy: \[2, 2\] float32, _critic: \[2, 1\] float32"):
        scramjet.train(config, runs_dir=tmp_path, display="quiet", network=nn.Linear(2, 2))


def test_both_parts_are_normalized_as_whole_observations(tmp_path: Path) -> None:
    ppo = PPOConfig(normalize_observations=True)
    normalizer: Any = trained(tmp_path, "HiddenBit", ppo=ppo).policy.normalizer
    assert normalizer.names == [POLICY, CRITIC]
    assert normalizer.entries[0].moments.mean.tolist() == [1, 0.5]
    assert abs(float(normalizer.entries[1].moments.variance) - 1) < 0.2


def test_the_shown_space_of_a_world_without_a_critics_part_is_its_own() -> None:
    env = load_env("cartpole")
    assert shown_space(env) is policy_space(env.observation_space) is env.observation_space
