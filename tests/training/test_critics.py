"""Critics: values in another scale than that of returns; and a critic that sees more than its policy."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scramjet
from scramjet.adapters.exports.gymnasium_env import GymEnv, GymVectorEnv
from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.target_entropy import EntropyTuner
from scramjet.engine.privileged import CRITIC, POLICY, policy_space, shown_space
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, load_env, randint
from scramjet.errors import CheckpointError, ConfigError, PredictError
from scramjet.executors.numba_executor import NumbaExecutor
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint, step_name
from scramjet.training.components import policy_for
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learner import Learner, RolloutSize
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers import HELPERS
from tests.helpers.memory_training import run_config
from tests.helpers.run_files import lines_of
from tests.helpers.shared_updates import Case
from tests.helpers.small_runs import TINY

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


# --- a critic that sees more than its policy -------------------------------------------------------------------------


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
