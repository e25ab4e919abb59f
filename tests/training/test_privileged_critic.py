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


LEARNS = {"num_envs": 16, "total_timesteps": 16 * 16 * 20}


@pytest.mark.parametrize("fused", [True, pytest.param(False, marks=pytest.mark.rest)], ids=["numba", "torch"])
def test_a_critic_that_sees_the_bit_knows_the_return_and_one_that_does_not_is_off_by_its_variance(fused, tmp_path):
    """The value loss is half the mean square: of a bit of -1 or 1 that nobody sees, 0.5."""
    ppo = PPOConfig(learning_rate=0.01, normalize_rewards=False, normalize_observations=False)
    for world, least, most in (("HiddenBit", 0.0, 0.01), ("UnseenBit", 0.45, 0.55)):
        result = trained(tmp_path, world, world, ppo=ppo, fused=fused, **LEARNS)
        assert least <= result.metrics["value_loss"] <= most


@pytest.fixture(scope="module")
def hidden_bit(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What training a world leaves whose policy does not see the bit that its critic sees."""
    ppo = PPOConfig(normalize_observations=True)
    return trained(tmp_path_factory.mktemp("runs"), "HiddenBit", ppo=ppo)


def test_the_policy_does_not_depend_on_what_only_its_critic_sees(hidden_bit: Any) -> None:
    seen = torch.tensor([[1.0, 0.5], [1.0, 0.5]])
    logits, value = hidden_bit.policy({POLICY: seen, CRITIC: torch.tensor([[-1.0], [1.0]])})[:2]
    assert torch.equal(logits[0], logits[1])
    assert value[0] != value[1]


def test_predict_and_act_take_the_worlds_own_observation(hidden_bit: Any) -> None:
    env = GymEnv(f"{WORLDS}:HiddenBit")
    obs, _ = env.reset(seed=1)
    assert env.observation_space == gymnasium.spaces.Box(0, 1, (2,), np.float32)
    assert obs in env.observation_space
    for policy in (hidden_bit.policy, scramjet.load_policy(hidden_bit.run_path)):
        assert policy.env_spaces.observation_space == env.observation_space
        action, state = policy.predict(obs)
        assert action in env.action_space
        assert state is None
        assert policy.act(np.stack([obs, obs])).tolist() == [action, action]
        with pytest.raises(PredictError, match=r"observation is .*a dict"):
            policy.predict({POLICY: obs, CRITIC: np.zeros(1, np.float32)})


def test_both_parts_are_normalized_as_whole_observations(hidden_bit: Any) -> None:
    normalizer = hidden_bit.policy.normalizer
    assert normalizer.names == [POLICY, CRITIC]
    assert normalizer.entries[0].moments.mean.tolist() == [1, 0.5]
    assert abs(float(normalizer.entries[1].moments.variance) - 1) < 0.2


def test_the_exports_show_the_policys_part_of_what_a_pool_shows() -> None:
    world = f"{WORLDS}:HiddenBit"
    pool, vector = NativePool(load_env(world), 3, backend="interpreted"), GymVectorEnv(world, 3)
    assert vector.single_observation_space == pool.env.observation_space
    seen, _ = vector.reset(seed=5)
    shown = pool.reset(5).obs
    np.testing.assert_array_equal(seen, shown[POLICY])
    assert [int(bit) for bit in shown[CRITIC][:, 0]] == [pool.record(i).bit for i in range(3)]
    plain = load_env("cartpole")  # whose critic has no part of its own
    assert shown_space(plain) is policy_space(plain.observation_space) is plain.observation_space


def test_a_critic_of_agents_sees_what_the_rules_say_of_all_of_them() -> None:
    pool = NativePool(load_env(f"{WORLDS}:Cards"), 2, backend="interpreted")
    out = pool.reset(3)
    for env in range(2):
        cards = pool.record(env).cards.tolist()
        for agent in range(3):
            row = 3 * env + agent
            assert out.obs[POLICY]["own"]["card"][row].tolist() == [cards[agent]]
            assert out.obs[CRITIC]["all"][row].tolist() == cards[agent:] + cards[:agent]


@pytest.mark.rest
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


@pytest.mark.rest
@pytest.mark.parametrize("algorithm", ["spo", "alphazero"])
def test_a_search_values_positions_with_what_the_critic_sees(algorithm: str, tmp_path: Path) -> None:
    result = trained(tmp_path, "OpenBit", algorithm=algorithm, total_timesteps=64)
    assert np.isfinite(result.metrics["value_loss"])


@pytest.mark.rest
@pytest.mark.parametrize(("value_scale", "value_of_one"), [("popart", 1.0), ("symlog", math.log(2))])
def test_a_critic_with_scaled_values_learns_the_bit(value_scale: Any, value_of_one: float, tmp_path: Path) -> None:
    ppo = PPOConfig(learning_rate=0.01, normalize_rewards=False, value_scale=value_scale)
    policy = trained(tmp_path, "HiddenBit", ppo=ppo, **LEARNS).policy
    obs = {POLICY: torch.tensor([[1.0, 0.5], [1.0, 0.5]]), CRITIC: torch.tensor([[-1.0], [1.0]])}
    torch.testing.assert_close(policy.value(obs), torch.tensor([-value_of_one, value_of_one]), atol=0.1, rtol=0)


@pytest.mark.rest
@pytest.mark.parametrize("curiosity", ["rnd", "icm", "noveld", "counts"])
def test_curiosity_goes_by_what_the_policy_sees(curiosity: Any, tmp_path: Path) -> None:
    result = trained(tmp_path, "HiddenBit", curiosity=curiosity, ppo=PPOConfig(normalize_observations=True))
    assert np.isfinite(result.metrics["value_loss"])


def test_a_network_that_cannot_keep_them_apart_is_refused_with_the_fix(tmp_path: Path):
    shapes: list[tuple[dict[str, Any], str]] = [
        ({"shared_trunk": True}, r"shared_trunk .*observe_critic.*--policy.no-shared-trunk"),
        ({"encoder": "entity_attention"}, r"entity_attention.*observe_critic.*--policy.encoder auto"),
        ({"ignore": ("lid",)}, r"policy.ignore names 'lid'.*no entries to leave out"),
    ]
    for shape, message in shapes:
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
