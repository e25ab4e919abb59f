"""Networks and the policy around them: initial weights, shapes, a user's own module, what is refused."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import nn

from scramjet.algorithms.config import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env
from scramjet.errors import ConfigError
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Categorical, Policy, PolicyConfig, SeparateActorCritic, SharedActorCritic
from scramjet.policies.networks import check_network_memory, default_network
from scramjet.policies.observations import without_entries
from scramjet.training.config.files import starting_config
from scramjet.training.learner import Learner, RolloutSize
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.observed import batch_of
from tests.helpers.small_runs import OneLayer

pytestmark = pytest.mark.usefixtures("one_thread")

OBS = Box(-1, 1, (3, 2), np.float32)
ACTIONS = Discrete(5)


def assert_orthogonal(layer, gain):
    weight = layer.weight.detach().double()
    product = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    torch.testing.assert_close(product, gain**2 * torch.eye(len(product), dtype=torch.float64), rtol=1e-4, atol=1e-5)
    assert torch.equal(layer.bias.detach(), torch.zeros(len(layer.bias)))


def test_the_size_of_a_network_is_looked_at_without_drawing_its_weights(monkeypatch):
    def draw(*_):
        raise AssertionError("numbers were drawn for a shape; torch 2.11 loads its compiler for that")

    monkeypatch.setattr(nn.init, "orthogonal_", draw)
    for config in (PolicyConfig(), PolicyConfig(memory="lstm"), PolicyConfig(encoder="grid_cnn")):
        check_network_memory(Box(0, 1, (6, 7, 2), np.float32), Discrete(7), config, bytes_per_weight=16)


def test_weights_start_orthogonal_with_gains_sqrt_2_for_hidden_0_01_for_policy_and_1_for_value():
    for hidden, shared in itertools.product([(16,), (64, 64), (8, 32, 4)], [False, True]):
        network = default_network(OBS, ACTIONS, PolicyConfig(hidden=hidden, shared_trunk=shared))
        for trunk in [network.trunk] if shared else [network.actor, network.critic]:
            layers = [module for module in trunk if isinstance(module, nn.Linear)]
            assert [layer.out_features for layer in layers] == list(hidden)
            for layer in layers:
                assert_orthogonal(layer, math.sqrt(2))
        assert_orthogonal(network.actor_head, 0.01)
        assert_orthogonal(network.critic_head, 1.0)


def test_the_plain_network_for_vectors_and_choices_is_bit_for_bit_two_orthogonal_mlps():
    """Made here by hand, in the order and with the names that checkpoints rely on."""
    torch.manual_seed(7)
    network = default_network(Box(-1, 1, (4,), np.float32), Discrete(2), PolicyConfig())
    torch.manual_seed(7)
    expected = {}
    for trunk, outputs, gain in (("actor", 2, 0.01), ("critic", 1, 1.0)):
        for name, inputs, units, scale in (
            (f"{trunk}.0", 4, 64, math.sqrt(2)),
            (f"{trunk}.2", 64, 64, math.sqrt(2)),
            (f"{trunk}_head", 64, outputs, gain),
        ):
            layer = nn.Linear(inputs, units)
            nn.init.orthogonal_(layer.weight, scale)
            expected |= {f"{name}.weight": layer.weight, f"{name}.bias": torch.zeros(units)}
    found = dict(network.named_parameters())
    assert list(found) == list(expected) == list(network.state_dict())
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


def test_a_network_computes_what_its_weights_say():
    obs, bends = torch.randn(4, 3, 2), {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
    for activation, shared in itertools.product(bends, [False, True]):
        network = default_network(OBS, ACTIONS, PolicyConfig(hidden=(7, 6), activation=activation, shared_trunk=shared))
        weights = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
        output = network(obs)
        assert (output.logits.shape, output.value.shape) == ((4, 5), (4,))
        for trunk, head, found in (
            ("actor", "actor_head", output.logits), ("critic", "critic_head", output.value.unsqueeze(1))
        ):  # fmt: skip
            x = obs.double().numpy().reshape(4, 6)
            for name in ("0", "2"):
                name = f"{'trunk' if shared else trunk}.{name}"
                x = bends[activation](x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])
            x = x @ weights[f"{head}.weight"].T + weights[f"{head}.bias"]
            np.testing.assert_allclose(found.detach(), x, atol=1e-5)


def test_the_value_loss_reaches_the_policy_only_through_a_shared_trunk():
    space, distribution = Box(-1, 1, (6,), np.float32), Categorical(5)
    separate = SeparateActorCritic(space, distribution, PolicyConfig())
    separate(torch.randn(4, 6)).value.sum().backward()
    assert all(parameter.grad is None for parameter in separate.actor.parameters())
    shared = SharedActorCritic(space, distribution, PolicyConfig(shared_trunk=True))
    shared(torch.randn(4, 6)).value.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in shared.trunk.parameters())


# --- entries that are left out -----------------------------------------------------------------------------------

NESTED = Dict(
    {
        "count": Discrete(7),
        "inner": Dict({"count": Discrete(5), "numbers": Box(-1, 1, (3,), np.float32)}),
        "place": MultiDiscrete([4, 4]),
    }
)


def test_an_entry_that_is_ignored_changes_nothing_and_every_other_one_does():
    seen, other = batch_of(NESTED, 6), batch_of(NESTED, 6, seed=50)
    for shared, memory, embedding_size in itertools.product([False, True], [None, "gru"], [None, 3]):
        config = PolicyConfig(
            hidden=(8,), shared_trunk=shared, memory=memory, memory_size=4, embedding_size=embedding_size,
            ignore=("count", "inner.numbers"),
        )  # fmt: skip
        policy = Policy(default_network(NESTED, ACTIONS, config), NESTED, ACTIONS, config)
        state = torch.zeros(6, policy.state_size) if memory else None
        before = policy(seen, state)
        for name, entry, is_ignored in (
            ("count", {"count": other["count"]}, True),
            ("inner.numbers", {"inner": seen["inner"] | {"numbers": other["inner"]["numbers"]}}, True),
            ("inner.count", {"inner": seen["inner"] | {"count": other["inner"]["count"]}}, False),
            ("place", {"place": other["place"]}, False),
        ):
            after = policy(seen | entry, state)
            assert torch.equal(after.logits, before.logits) == is_ignored, (name, config)
            assert torch.equal(after.value, before.value) == is_ignored, (name, config)


def test_a_network_that_ignores_entries_is_that_of_a_space_without_them():
    bare = Dict({"inner": Dict({"count": Discrete(5)}), "place": MultiDiscrete([4, 4])})
    outputs = []
    for space, ignore in ((NESTED, ("count", "inner.numbers")), (bare, ())):
        torch.manual_seed(0)
        network = default_network(space, ACTIONS, PolicyConfig(ignore=ignore))
        outputs.append(network(batch_of(NESTED, 6)))
    assert torch.equal(outputs[0].logits, outputs[1].logits)
    assert torch.equal(outputs[0].value, outputs[1].value)
    assert without_entries(NESTED, ("count", "inner.numbers")) == bare
    assert without_entries(NESTED, ()) is NESTED


def test_an_entry_that_cannot_be_ignored_is_refused_with_those_there_are():
    for space, ignore, message in (
        (NESTED, ("cuont",), r"policy.ignore names 'cuont'.*its entries: count, inner, place"),
        (NESTED, ("count", "count"), r"policy.ignore names 'count'.*its entries: inner, place"),
        (NESTED, ("inner.numbrs",), r"policy.ignore names 'inner.numbrs'.*its entries: count, numbers"),
        (NESTED, ("place.x",), r"policy.ignore names 'place.x'.*its entries: count, inner, place"),
        (OBS, ("count",), r"policy.ignore names 'count', and the observation is Box.*no entries to leave out"),
        (NESTED, ("count", "inner", "place"), r"policy.ignore leaves nothing to see: 'place' is the last entry"),
        (NESTED, ("inner.count", "inner.numbers"), r"leaves nothing to see: 'inner.numbers' is the last"),
    ):
        with pytest.raises(ConfigError, match=message):
            default_network(space, ACTIONS, PolicyConfig(ignore=ignore))


def test_the_preset_of_the_maze_keeps_the_step_count_from_the_planner():
    assert "step_count" in starting_config("maze").policy.ignore
    assert "step_count" in load_env("maze").observation_space.spaces


# --- a user's own module -----------------------------------------------------------------------------------------


class HeadsNamedLogitsAndValue(nn.Module):
    """A natural choice of names for two heads; they take features, not observations."""

    def __init__(self):
        super().__init__()
        self.trunk, self.logits, self.value = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, obs):
        features = torch.tanh(self.trunk(obs))
        return self.logits(features), self.value(features).squeeze(-1)


def test_any_module_from_observations_to_logits_and_value_collects_and_learns():
    env = load_env("cartpole")
    for network in (OneLayer, HeadsNamedLogitsAndValue):
        policy = Policy(network(), env.observation_space, env.action_space)
        pool = NativePool(env, 4, num_threads=1)
        player = RolloutPlayer(pool, TorchExecutor(policy), 16)
        rollout = player.rollout
        pool.reset(0, out=player.buffers.last)
        before = [parameter.detach().clone() for parameter in policy.parameters()]
        learner = Learner(TorchExecutor(policy), PPOConfig(), RolloutSize(4, 64), total_steps=1000, seed=0)
        player.play(torch.Generator().manual_seed(0))
        torch.testing.assert_close(rollout.value.flatten(), policy(rollout.obs.flatten(0, 1)).value.detach())
        learner.update(learner.prepare(rollout), 0)
        for old, new in zip(before, policy.parameters(), strict=True):
            assert (old - new).abs().sum() > 0
        assert policy.act(rollout.obs[0]).shape == (4,)


class Returns(nn.Module):
    """A network that returns whatever it is told to."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, obs):
        return self.make(obs)


class SplitsWrongly(Returns):
    """Its methods do not take what its forward takes."""

    def logits(self, features):
        return features[:, :2] @ torch.ones(7, 2)

    def value(self, features):
        return features[:, 0]


def test_a_network_that_does_not_fit_is_refused_by_name_with_the_shapes_needed():
    env = load_env("cartpole")
    for make, message in (
        (lambda obs: (torch.zeros(2, 3), torch.zeros(2)), "returned logits [2, 3] and value [2]"),
        (lambda obs: (torch.zeros(2, 2), torch.zeros(2, 1)), "value [2, 1]"),
        (lambda obs: torch.zeros(2, 2, 2)[0, 0, 0], "failed on observations of shape [2, 4]"),
        (lambda obs: (torch.zeros(2, 2),), "failed on observations"),
        (lambda obs: torch.zeros(2, 9) @ obs, "failed on observations"),
        (lambda obs: {"logits": torch.zeros(2, 2), "value": torch.zeros(2)}, "Returns"),
        (lambda obs: (torch.zeros(2, 2), None), "Returns"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            Policy(Returns(make), env.observation_space, env.action_space)
        assert "Returns" in str(caught.value)
        assert "logits [" in str(caught.value)
    for actions, needed in ((MultiDiscrete([2, 4]), 6), (Box(-2, 2, (2,), np.float32), 4)):
        with pytest.raises(ConfigError, match=re.escape(f"needs logits [2, {needed}]")):
            Policy(default_network(OBS, ACTIONS, PolicyConfig()), OBS, actions)
    with pytest.raises(ConfigError, match="SplitsWrongly failed on observations"):  # before a rollout relies on them
        Policy(SplitsWrongly(lambda obs: (obs[:, :2], obs[:, 0])), env.observation_space, env.action_space)


def test_a_network_that_fails_on_a_dict_or_on_whole_numbers_is_refused_with_the_tree_of_shapes_or_the_fix():
    with pytest.raises(ConfigError) as caught:
        Policy(Returns(lambda obs: obs["inner"]["number"]), NESTED, ACTIONS)
    for words in ("inner: {count: [2, 1] int64, numbers: [2, 3] float32}", "place: [2, 2] int64", "'number'", "[B, 5]"):
        assert words in str(caught.value)
    space = Box(0, 9, (4,), np.int32)
    Policy(Returns(lambda obs: OneLayer()(obs.float())), space, Discrete(2))
    with pytest.raises(ConfigError, match=re.escape("call .float() on whole numbers")):
        Policy(OneLayer(), space, Discrete(2))


def test_a_policy_gives_what_its_network_makes_of_normalized_observations_logits_and_values_alone_too():
    seen, obs, mask = torch.randn(200, 3, 2) * 4 + 2, torch.randn(20, 3, 2), torch.eye(5, dtype=torch.bool).repeat(4, 1)
    for config in (PolicyConfig(), PolicyConfig(shared_trunk=True)):
        network = default_network(OBS, ACTIONS, config)
        policy = Policy(network, OBS, ACTIONS, normalize_observations=True)
        policy.normalizer.update(seen)
        expected = network((obs - seen.mean(0)) / seen.std(0, unbiased=False))
        assert policy.splits is not config.shared_trunk
        for logits in (policy(obs).logits, *([policy.logits(obs)] if policy.splits else [])):
            torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-5)
        for value in (policy(obs).value, policy.value(obs)):
            torch.testing.assert_close(value, expected.value, rtol=1e-4, atol=1e-5)
        assert policy.act(obs).tolist() == policy(obs).logits.argmax(1).tolist()
        assert policy.act(obs, mask=mask).tolist() == [i % 5 for i in range(20)]
