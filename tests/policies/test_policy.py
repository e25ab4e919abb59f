"""The policy over every kind of observation and action: what it shows its network, gives back and refuses."""

import copy
import math
import pickle
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import nn

from scramjet.errors import ConfigError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.policies.networks import GaussianHead
from scramjet.policies.observations import describe_observations, lowest_observations

pytestmark = pytest.mark.usefixtures("one_thread")

VECTOR = Box(-1, 1, (4,), np.float32)
IMAGE = Box(0, 255, (3, 12, 12), np.uint8)
MIXED = Dict(
    {
        "agent": MultiDiscrete([4, 4]),
        "camera": IMAGE,
        "deep": Dict({"flags": MultiBinary(3), "speed": Box(-9, 9, (2,), np.float64)}),
        "turn": Discrete(3, start=1),
        "walls": Box(0, 1, (4, 4), np.int8),
    }
)
GRID = Dict({"agent": MultiDiscrete([4, 4]), "turn": Discrete(3), "walls": Box(0, 1, (4, 4), np.int8)})
OBSERVATIONS = {"vector": VECTOR, "image": IMAGE, "dict": MIXED, "choice": Discrete(5), "flags": MultiBinary(6)}
ACTIONS = {"discrete": Discrete(3), "multi": MultiDiscrete([2, 4]), "box": Box(-2, 2, (2,), np.float32)}


def batch_of(space, rows, seed=0):
    """Random observations as a pool lays them out."""
    if isinstance(space, Dict):
        return {name: batch_of(entry, rows, seed + i) for i, (name, entry) in enumerate(space.spaces.items())}
    space.seed(seed)
    stacked = np.stack([np.asarray(space.sample()) for _ in range(rows)])
    if isinstance(space, Discrete):
        return torch.from_numpy(stacked.astype(np.int64)).unsqueeze(1)
    return torch.from_numpy(stacked)


def policy_of(space, actions, config=None, **options):
    config = PolicyConfig(hidden=(16,)) if config is None else config
    return Policy(default_network(space, actions, config), space, actions, config, **options)


@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
@pytest.mark.parametrize("shared", [False, True], ids=["separate", "shared"])
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("observations", OBSERVATIONS)
def test_every_observation_space_goes_with_every_action_space(observations, actions, shared, normalize):
    space, action_space = OBSERVATIONS[observations], ACTIONS[actions]
    config = PolicyConfig(hidden=(16,), shared_trunk=shared)
    policy = policy_of(space, action_space, config, normalize_observations=normalize)
    obs = batch_of(space, 6)
    if policy.normalizer is not None:
        policy.normalizer.update(obs)
    distribution, output = policy.distribution, policy(obs)
    assert output.logits.shape == (6, distribution.num_inputs)
    assert output.value.shape == (6,)
    torch.testing.assert_close(policy.value(obs), output.value)
    action = torch.zeros(6, *distribution.action_shape, dtype=distribution.action_dtype)
    log_prob, noise = torch.zeros(6), distribution.noise(1, 6, torch.Generator().manual_seed(0))[0]
    distribution.sample(output.logits.detach(), None, noise, action, log_prob)
    computed, entropy = distribution.log_prob_and_entropy(output.logits, action, None)
    torch.testing.assert_close(computed, log_prob, rtol=1e-4, atol=1e-5)
    (computed.sum() + 0.1 * entropy.sum() + output.value.square().sum()).backward()
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    for row in policy.act(obs).numpy():
        assert action_space.contains(np.int64(row) if actions == "discrete" else row)


def test_the_plain_network_for_vectors_and_choices_is_bit_for_bit_two_orthogonal_mlps():
    """Made here by hand, in the order and with the names that checkpoints rely on."""
    torch.manual_seed(7)
    network = default_network(VECTOR, Discrete(2), PolicyConfig())
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


class Spy(nn.Module):
    """Remembers what it was shown."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, obs):
        self.seen = obs
        rows = len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)
        return self.weight.expand(rows, 3), self.weight[0].expand(rows)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_network_is_shown_floats_as_float32_and_all_else_untouched(normalize):
    spy = Spy()
    policy = Policy(spy, MIXED, Discrete(3), normalize_observations=normalize)
    obs = batch_of(MIXED, 5)
    policy(obs)
    assert spy.seen["deep"]["speed"].dtype == torch.float32
    for name in ("agent", "camera", "turn", "walls"):
        assert spy.seen[name] is obs[name], name
    assert spy.seen["deep"]["flags"] is obs["deep"]["flags"]
    assert obs["deep"]["speed"].dtype == torch.float64


@pytest.mark.parametrize("normalize", [False, True])
def test_pixels_reach_the_network_as_bytes(normalize):
    spy = Spy()
    policy = Policy(spy, IMAGE, Discrete(3), normalize_observations=normalize)
    obs = batch_of(IMAGE, 5)
    policy.act(obs)
    assert spy.seen is obs


# --- continuous actions --------------------------------------------------------------------------------------


def test_a_deviation_for_all_states_is_one_parameter_and_starts_where_the_config_says():
    config = PolicyConfig(log_std_init=-0.7)
    policy = policy_of(VECTOR, ACTIONS["box"], config)
    logits = policy.logits(torch.randn(9, 4))
    assert torch.equal(logits[:, 2:], torch.full((9, 2), -0.7))
    assert policy.network.actor_head.log_std.shape == (2,)
    assert logits[:, :2].abs().max() < 0.1


def test_a_deviation_of_the_state_is_a_layer_and_starts_near_what_the_config_says():
    config = PolicyConfig(log_std_init=-0.7, state_dependent_std=True)
    policy = policy_of(VECTOR, ACTIONS["box"], config)
    log_std = policy.logits(torch.randn(9, 4))[:, 2:]
    torch.testing.assert_close(log_std, torch.full((9, 2), -0.7), rtol=0, atol=0.1)
    assert log_std.std(0).min() > 0
    head = policy.network.actor_head
    assert isinstance(head, GaussianHead)
    assert isinstance(head.log_std, nn.Linear)


def test_acting_gives_the_env_the_mean_clipped_or_squashed():
    obs = torch.randn(30, 4)
    received = {}
    for bounded in ("clip", "tanh"):
        config = PolicyConfig(bounded_actions=bounded)
        torch.manual_seed(0)
        policy = policy_of(VECTOR, ACTIONS["box"], config)
        with torch.no_grad():
            policy.network.actor_head.mean.weight *= 500
        mean = policy.logits(obs)[:, :2]
        received[bounded] = policy.act(obs)
        expected = mean.clamp(-2, 2) if bounded == "clip" else 2 * torch.tanh(mean)
        torch.testing.assert_close(received[bounded], expected)
    assert (received["clip"].abs() == 2).any()


# --- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": "cnn"}, "policy.encoder='cnn' must be 'auto' or 'mlp'"),
        ({"embedding_size": 0}, "policy.embedding_size=0 must be at least 1 (or 'none'); the default is none"),
        ({"planning_steps": 0}, "policy.planning_steps=0 must be from 1 to 10000 (or 'none')"),
        ({"impala_width": 0}, "policy.impala_width=0 must be at least 1; the default is 1"),
        ({"grid_channels": ()}, "policy.grid_channels=[] needs at least one layer"),
        ({"grid_channels": (8, 0)}, "try --policy.grid-channels 64 64"),
        ({"grid_readout": "max"}, "policy.grid_readout='max' must be 'flatten' or 'pool'"),
        ({"log_std_init": 3.0}, "policy.log_std_init=3.0 must be from -10.0 to 2.0"),
        ({"bounded_actions": "sigmoid"}, "'clip' or 'tanh'"),
        ({"state_dependent_std": "yes"}, "must be true or false"),
        ({"attention_blocks": 0}, "policy.attention_blocks=0 must be from 1 to 64"),
        ({"attention_blocks": 10**9}, "policy.attention_blocks=1000000000 must be from 1 to 64"),
        ({"planning_steps": 10**9}, "policy.planning_steps=1000000000 must be from 1 to 10000 (or 'none')"),
        ({"hidden": (1,) * 65}, "policy.hidden has 65 layers; 64 are the most"),
        ({"attention_heads": 0}, "policy.attention_heads=0 must be at least 1"),
        ({"attention_width": 66}, "does not split into attention_heads=4; try --policy.attention-width 68"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name_with_the_fix(change, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        PolicyConfig(**change)


def test_learned_numbers_for_choices_replace_one_hot_ones():
    inputs = {size: PolicyConfig(embedding_size=size) for size in (None, 7)}
    widths = {}
    for size, config in inputs.items():
        widths[size] = policy_of(Discrete(50), Discrete(2), config).network.actor[0].in_features
    assert widths == {None: 50, 7: 7}


@pytest.mark.parametrize("encoder", ["auto", "grid_cnn", "value_propagation"])
def test_networks_can_be_copied_and_pickled(encoder):
    config = PolicyConfig(hidden=(8,), encoder=encoder)
    policy, obs = policy_of(GRID, Discrete(4), config), batch_of(GRID, 3)
    for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert torch.equal(twin(obs).logits, policy(obs).logits)


def test_weights_are_saved_and_put_back_under_names_that_say_the_entry():
    first, second = (policy_of(MIXED, Discrete(3)) for _ in range(2))
    obs = batch_of(MIXED, 4)
    assert not torch.equal(first(obs).value, second(obs).value)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(obs).value, second(obs).value)
    assert any("entry_camera" in name for name in first.state_dict())


# --- what is refused -----------------------------------------------------------------------------------------


class Reads(nn.Module):
    """A network that makes of an observation what it is told to."""

    def __init__(self, read):
        super().__init__()
        self.read = read

    def forward(self, obs):
        numbers = self.read(obs)
        return numbers[:, :3] @ torch.ones(3, 3), numbers[:, 0]


def test_a_network_that_fails_on_a_dict_is_refused_with_the_tree_of_shapes():
    with pytest.raises(ConfigError) as caught:
        Policy(Reads(lambda obs: obs["deep"]["speeds"]), MIXED, Discrete(3))
    message = str(caught.value)
    assert "deep: {flags: [2, 3] int8, speed: [2, 2] float32}" in message
    assert "camera: [2, 3, 12, 12] uint8" in message
    assert "'speeds'" in message
    assert "logits [B, 3]" in message


def test_whole_numbers_given_to_a_layer_are_refused_with_the_fix():
    Policy(Reads(lambda obs: obs.float()), Box(0, 9, (3,), np.int32), Discrete(3))
    with pytest.raises(ConfigError, match=re.escape("call .float() on whole numbers")):
        Policy(Reads(lambda obs: obs), Box(0, 9, (3,), np.int32), Discrete(3))


def test_logits_for_another_action_space_are_refused_with_how_many_it_needs():
    network = default_network(VECTOR, Discrete(3), PolicyConfig())
    for actions, needed in ((MultiDiscrete([2, 4]), 6), (ACTIONS["box"], 4)):
        with pytest.raises(ConfigError, match=re.escape(f"needs logits [2, {needed}]")):
            Policy(network, VECTOR, actions)


class SplitsWrongly(Reads):
    """Its methods do not take what its forward takes."""

    def logits(self, features):
        return features[:, :3] @ torch.ones(7, 3)

    def value(self, features):
        return features[:, 0]


def test_methods_named_logits_and_value_are_tried_before_a_rollout_relies_on_them():
    with pytest.raises(ConfigError, match="SplitsWrongly failed on observations"):
        Policy(SplitsWrongly(lambda obs: obs), VECTOR, Discrete(3))


def test_the_lowest_observations_are_in_every_space_and_described_by_shape_and_type():
    for space in (*OBSERVATIONS.values(), MultiDiscrete([3, 3], start=[1, 2])):
        described = describe_observations(lowest_observations(space, 2))
        assert "[2, " in described
    lowest = lowest_observations(Dict({"a": Discrete(3, start=4), "b": MultiDiscrete([2, 2], start=[5, 6])}), 2)
    assert lowest["a"].tolist() == [[4], [4]]
    assert lowest["b"].tolist() == [[5, 6], [5, 6]]
