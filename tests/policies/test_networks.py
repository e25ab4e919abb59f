"""Networks and the policy around them: initial weights, shapes, a user's own module, what is refused."""

import math
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import nn

from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env
from scramjet.errors import ConfigError
from scramjet.policies import Categorical, Policy, PolicyConfig, SeparateActorCritic, SharedActorCritic
from scramjet.policies.networks import check_network_memory, count_parameters, default_network
from scramjet.policies.observations import without_entries
from scramjet.training.config.files import starting_config
from scramjet.training.learner import Learner, RolloutSize
from scramjet.training.rollout.player import RolloutPlayer

pytestmark = pytest.mark.usefixtures("one_thread")

OBS = Box(-1, 1, (3, 2), np.float32)
ACTIONS = Discrete(5)


def assert_orthogonal(layer, gain):
    weight = layer.weight.detach().double()
    product = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    torch.testing.assert_close(product, gain**2 * torch.eye(len(product), dtype=torch.float64), rtol=1e-4, atol=1e-5)
    assert torch.equal(layer.bias.detach(), torch.zeros(len(layer.bias)))


def hidden_layers(trunk):
    return [module for module in trunk if isinstance(module, nn.Linear)]


@pytest.mark.parametrize("config", [PolicyConfig(), PolicyConfig(memory="lstm"), PolicyConfig(encoder="grid_cnn")])
def test_the_size_of_a_network_is_looked_at_without_drawing_its_weights(config, monkeypatch):
    def draw(*_):
        raise AssertionError("numbers were drawn for a shape; torch 2.11 loads its compiler for that")

    monkeypatch.setattr(nn.init, "orthogonal_", draw)
    check_network_memory(Box(0, 1, (6, 7, 2), np.float32), Discrete(7), config, bytes_per_weight=16)


@pytest.mark.parametrize("hidden", [(16,), (64, 64), (8, 32, 4)])
@pytest.mark.parametrize("shared", [False, True])
def test_weights_start_orthogonal_with_gains_sqrt_2_for_hidden_0_01_for_policy_and_1_for_value(hidden, shared):
    torch.manual_seed(0)
    network = default_network(OBS, ACTIONS, PolicyConfig(hidden=hidden, shared_trunk=shared))
    trunks = [network.trunk] if shared else [network.actor, network.critic]
    for trunk in trunks:
        layers = hidden_layers(trunk)
        assert [layer.out_features for layer in layers] == list(hidden)
        for layer in layers:
            assert_orthogonal(layer, math.sqrt(2))
    assert_orthogonal(network.actor_head, 0.01)
    assert_orthogonal(network.critic_head, 1.0)


def test_the_first_policy_is_nearly_uniform():
    torch.manual_seed(0)
    network = default_network(OBS, ACTIONS, PolicyConfig())
    probabilities = torch.softmax(network(torch.randn(100, 3, 2)).logits, 1)
    assert (probabilities - 0.2).abs().max() < 0.02


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_network_computes_what_its_weights_say(activation, shared):
    torch.manual_seed(1)
    network = default_network(OBS, ACTIONS, PolicyConfig(hidden=(7, 6), activation=activation, shared_trunk=shared))
    weights = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
    bend = np.tanh if activation == "tanh" else lambda x: np.maximum(x, 0)
    obs = torch.randn(4, 3, 2)

    def through(trunk, head):
        x = obs.double().numpy().reshape(4, 6)
        x = bend(x @ weights[f"{trunk}.0.weight"].T + weights[f"{trunk}.0.bias"])
        x = bend(x @ weights[f"{trunk}.2.weight"].T + weights[f"{trunk}.2.bias"])
        return x @ weights[f"{head}.weight"].T + weights[f"{head}.bias"]

    output = network(obs)
    assert output.logits.shape == (4, 5)
    assert output.value.shape == (4,)
    actor, critic = ("trunk", "trunk") if shared else ("actor", "critic")
    np.testing.assert_allclose(output.logits.detach(), through(actor, "actor_head"), atol=1e-5)
    np.testing.assert_allclose(output.value.detach(), through(critic, "critic_head")[:, 0], atol=1e-5)


def test_the_value_loss_reaches_the_policy_only_through_a_shared_trunk():
    torch.manual_seed(0)
    space, distribution = Box(-1, 1, (6,), np.float32), Categorical(5)
    separate = SeparateActorCritic(space, distribution, PolicyConfig())
    separate(torch.randn(4, 6)).value.sum().backward()
    assert all(parameter.grad is None for parameter in separate.actor.parameters())
    shared = SharedActorCritic(space, distribution, PolicyConfig(shared_trunk=True))
    shared(torch.randn(4, 6)).value.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in shared.trunk.parameters())


def test_separate_trunks_have_the_parameters_of_two_networks():
    one_trunk = 6 * 64 + 64 + 64 * 64 + 64
    assert count_parameters(default_network(OBS, ACTIONS, PolicyConfig())) == 2 * one_trunk + 64 * 5 + 5 + 64 + 1
    shared = default_network(OBS, ACTIONS, PolicyConfig(shared_trunk=True))
    assert count_parameters(shared) == one_trunk + 64 * 5 + 5 + 64 + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": ()}, "hidden"),
        ({"hidden": (64, 0)}, "[64, 0]"),
        ({"hidden": 64}, "hidden=64 must be a list"),
        ({"activation": "gelu"}, "activation='gelu' must be 'tanh' or 'relu'"),
        ({"shared_trunk": 1}, "shared_trunk=1 must be true or false"),
    ],
)
def test_a_policy_config_that_cannot_be_is_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        PolicyConfig(**change)


# --- entries that are left out -----------------------------------------------------------------------------

NESTED = Dict(
    {
        "count": Discrete(7),
        "inner": Dict({"count": Discrete(5), "numbers": Box(-1, 1, (3,), np.float32)}),
        "place": MultiDiscrete([4, 4]),
    }
)


def observed(space, rows=6, seed=0):
    """A batch of random observations of a space, as networks get them."""
    if isinstance(space, Dict):
        return {name: observed(entry, rows, seed + i) for i, (name, entry) in enumerate(space.spaces.items())}
    space.seed(seed)
    drawn = torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(rows)]))
    return drawn.unsqueeze(1) if isinstance(space, Discrete) else drawn


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("embedding_size", [None, 3])
def test_an_entry_that_is_ignored_changes_nothing_and_every_other_one_does(shared, memory, embedding_size):
    config = PolicyConfig(
        hidden=(8,), shared_trunk=shared, memory=memory, memory_size=4, embedding_size=embedding_size,
        ignore=("count", "inner.numbers"),
    )  # fmt: skip
    torch.manual_seed(0)
    policy = Policy(default_network(NESTED, ACTIONS, config), NESTED, ACTIONS, config)
    seen, other = observed(NESTED), observed(NESTED, seed=50)
    state = torch.zeros(6, policy.state_size) if memory else None
    with torch.no_grad():
        before = policy(seen, state)
        for name, entry, is_ignored in (
            ("count", {"count": other["count"]}, True),
            ("inner.numbers", {"inner": seen["inner"] | {"numbers": other["inner"]["numbers"]}}, True),
            ("inner.count", {"inner": seen["inner"] | {"count": other["inner"]["count"]}}, False),
            ("place", {"place": other["place"]}, False),
        ):
            after = policy(seen | entry, state)
            assert torch.equal(after.logits, before.logits) == is_ignored, name
            assert torch.equal(after.value, before.value) == is_ignored, name


def test_a_network_that_ignores_entries_is_that_of_a_space_without_them():
    bare = Dict({"inner": Dict({"count": Discrete(5)}), "place": MultiDiscrete([4, 4])})
    outputs = []
    for space, ignore in ((NESTED, ("count", "inner.numbers")), (bare, ())):
        torch.manual_seed(0)
        network = default_network(space, ACTIONS, PolicyConfig(ignore=ignore))
        outputs.append(network(observed(NESTED)))
    assert torch.equal(outputs[0].logits, outputs[1].logits)
    assert torch.equal(outputs[0].value, outputs[1].value)
    assert without_entries(NESTED, ("count", "inner.numbers")) == bare
    assert without_entries(NESTED, ()) is NESTED


@pytest.mark.parametrize(
    ("space", "ignore", "message"),
    [
        (NESTED, ("cuont",), r"policy.ignore names 'cuont'.*its entries: count, inner, place"),
        (NESTED, ("count", "count"), r"policy.ignore names 'count'.*its entries: inner, place"),
        (NESTED, ("inner.numbrs",), r"policy.ignore names 'inner.numbrs'.*its entries: count, numbers"),
        (NESTED, ("place.x",), r"policy.ignore names 'place.x'.*its entries: count, inner, place"),
        (OBS, ("count",), r"policy.ignore names 'count', and the observation is Box.*no entries to leave out"),
        (NESTED, ("count", "inner", "place"), r"policy.ignore leaves nothing to see: 'place' is the last entry"),
        (NESTED, ("inner.count", "inner.numbers"), r"policy.ignore leaves nothing to see: 'inner.numbers' is the last"),
    ],
    ids=[
        "unknown",
        "twice",
        "unknown within",
        "no dict there",
        "no dict at all",
        "nothing left",
        "nothing left within",
    ],
)
def test_an_entry_that_cannot_be_ignored_is_refused_with_those_there_are(space, ignore, message):
    with pytest.raises(ConfigError, match=message):
        default_network(space, ACTIONS, PolicyConfig(ignore=ignore))


def test_the_preset_of_the_maze_keeps_the_step_count_from_the_planner():
    config, env = starting_config("maze"), load_env("maze")
    policy = Policy(
        default_network(env.observation_space, env.action_space, config.policy),
        env.observation_space,
        env.action_space,
        config.policy,
    )
    seen = observed(env.observation_space)
    with torch.no_grad():
        first, last = (policy(seen | {"step_count": torch.full((6, 1), count)}) for count in (0, 100))
    assert torch.equal(first.value, last.value)
    assert torch.equal(first.logits, last.logits)


# --- a user's own module -----------------------------------------------------------------------------------


class OneLayer(nn.Module):
    """The least a user must bring."""

    def __init__(self, num_actions=2, value_shape=(-1,)):
        super().__init__()
        self.layer = nn.Linear(4, num_actions + 1)
        self.value_shape = value_shape

    def forward(self, obs):
        out = self.layer(obs.flatten(1))
        return out[:, :-1], out[:, -1].reshape(self.value_shape)


class HeadsNamedLogitsAndValue(nn.Module):
    """A natural choice of names for two heads; they take features, not observations."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 8)
        self.logits = nn.Linear(8, 2)
        self.value = nn.Linear(8, 1)

    def forward(self, obs):
        features = torch.tanh(self.trunk(obs))
        return self.logits(features), self.value(features).squeeze(-1)


@pytest.mark.parametrize("network", [OneLayer, HeadsNamedLogitsAndValue])
def test_any_module_from_observations_to_logits_and_value_collects_and_learns(network):
    torch.manual_seed(0)
    env = load_env("cartpole")
    policy = Policy(network(), env.observation_space, env.action_space)
    pool = NativePool(env, 4, num_threads=1)
    player = RolloutPlayer(pool, TorchExecutor(policy), 16)
    rollout = player.rollout
    pool.reset(0, out=player.buffers.last)
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    learner = Learner(TorchExecutor(policy), PPOConfig(), RolloutSize(4, 64), total_steps=1000, seed=0)
    player.play(torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(rollout.value.flatten(), policy(rollout.obs.flatten(0, 1)).value)
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda obs: (torch.zeros(2, 3), torch.zeros(2)), "returned logits [2, 3] and value [2]"),
        (lambda obs: (torch.zeros(2, 2), torch.zeros(2, 1)), "value [2, 1]"),
        (lambda obs: torch.zeros(2, 2, 2)[0, 0, 0], "failed on observations of shape [2, 4]"),
        (lambda obs: (torch.zeros(2, 2),), "failed on observations"),
        (lambda obs: torch.zeros(2, 9) @ obs, "failed on observations"),
        (lambda obs: {"logits": torch.zeros(2, 2), "value": torch.zeros(2)}, "Returns"),
        (lambda obs: (torch.zeros(2, 2), None), "Returns"),
    ],
    ids=["wide logits", "value with a column", "a scalar", "no value", "a crash inside", "a dict", "value is None"],
)
def test_a_network_that_does_not_fit_is_refused_by_name_with_the_shapes_needed(make, message):
    env = load_env("cartpole")
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        Policy(Returns(make), env.observation_space, env.action_space)
    assert "Returns" in str(caught.value)
    assert "logits [" in str(caught.value)


def test_values_and_logits_asked_for_alone_are_those_of_the_whole_network():
    torch.manual_seed(2)
    obs = torch.randn(10, 3, 2)
    for config in (PolicyConfig(), PolicyConfig(shared_trunk=True)):
        policy = Policy(default_network(OBS, ACTIONS, config), OBS, ACTIONS, normalize_observations=True)
        policy.normalizer.update(torch.randn(50, 3, 2) * 3 + 1)
        whole = policy(obs)
        torch.testing.assert_close(policy.value(obs), whole.value)
        assert policy.splits is not config.shared_trunk
        if policy.splits:
            torch.testing.assert_close(policy.logits(obs), whole.logits)
        assert policy.act(obs).tolist() == whole.logits.argmax(1).tolist()


def test_a_normalizing_policy_shows_its_network_normalized_observations():
    torch.manual_seed(0)
    network = default_network(OBS, ACTIONS, PolicyConfig())
    policy = Policy(network, OBS, ACTIONS, normalize_observations=True)
    seen = torch.randn(200, 3, 2) * 4 + 2
    policy.normalizer.update(seen)
    obs = torch.randn(5, 3, 2)
    normal = (obs - seen.mean(0)) / seen.std(0, unbiased=False)
    torch.testing.assert_close(policy(obs).logits, network(normal).logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy.value(obs), network(normal).value, rtol=1e-4, atol=1e-5)


def test_integer_observations_are_taken_as_numbers():
    space = Box(0, 255, (3,), np.uint8)
    torch.manual_seed(0)
    policy = Policy(default_network(space, ACTIONS, PolicyConfig()), space, ACTIONS)
    obs = torch.tensor([[0, 128, 255]], dtype=torch.uint8)
    torch.testing.assert_close(policy(obs).logits, policy(obs.float()).logits)


def test_acting_obeys_the_mask():
    torch.manual_seed(0)
    policy = Policy(default_network(OBS, ACTIONS, PolicyConfig()), OBS, ACTIONS)
    mask = torch.zeros(20, 5, dtype=torch.bool)
    mask[torch.arange(20), torch.arange(20) % 5] = True
    assert policy.act(torch.randn(20, 3, 2), mask=mask).tolist() == [i % 5 for i in range(20)]
