"""The policy over every kind of observation and action: what it shows its network, gives back and refuses."""

import copy
import itertools
import pickle
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from scramjet.envs.api import Symmetry
from scramjet.errors import ConfigError, WorldError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.policies.observations import describe_observations, lowest_observations
from scramjet.policies.symmetries import SymmetryTables, tables_of_world, with_symmetries
from tests.helpers.observed import batch_of

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


def policy_of(space, actions, config=None, **options):
    config = PolicyConfig(hidden=(16,)) if config is None else config
    return Policy(default_network(space, actions, config), space, actions, config, **options)


def test_every_observation_space_goes_with_every_action_space():
    for observations, actions, shared, normalize in itertools.product(
        OBSERVATIONS, ACTIONS, [False, True], [False, True]
    ):
        case = observations, actions, shared, normalize
        space, action_space = OBSERVATIONS[observations], ACTIONS[actions]
        config = PolicyConfig(hidden=(16,), shared_trunk=shared)
        policy, obs = policy_of(space, action_space, config, normalize_observations=normalize), batch_of(space, 6)
        if policy.normalizer is not None:
            policy.normalizer.update(obs)
        distribution, output = policy.distribution, policy(obs)
        assert output.logits.shape == (6, distribution.num_inputs), case
        assert output.value.shape == (6,), case
        torch.testing.assert_close(policy.value(obs), output.value)
        action = torch.zeros(6, *distribution.action_shape, dtype=distribution.action_dtype)
        log_prob, noise = torch.zeros(6), distribution.noise(1, 6, torch.Generator().manual_seed(0))[0]
        distribution.sample(output.logits.detach(), None, noise, action, log_prob)
        computed, entropy = distribution.log_prob_and_entropy(output.logits, action, None)
        torch.testing.assert_close(computed, log_prob, rtol=1e-4, atol=1e-5)
        (computed.sum() + 0.1 * entropy.sum() + output.value.square().sum()).backward()
        for name, parameter in policy.named_parameters():
            assert parameter.grad is not None, (case, name)
            assert torch.isfinite(parameter.grad).all(), (case, name)
        for row in policy.act(obs).numpy():
            assert action_space.contains(np.int64(row) if actions == "discrete" else row), case


def shown_to_the_network(space, obs, **options):
    policy, shown = policy_of(space, Discrete(3), PolicyConfig(hidden=(8,), shared_trunk=True), **options), []
    policy.network.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0]))
    policy.act(obs)
    return shown[0]


def test_a_network_is_shown_floats_as_float32_and_all_else_untouched_pixels_as_bytes():
    obs, images = batch_of(MIXED, 5), batch_of(IMAGE, 5)
    for normalize in (False, True):
        seen = shown_to_the_network(MIXED, obs, normalize_observations=normalize)
        assert seen["deep"]["speed"].dtype == torch.float32
        assert all(seen[name] is obs[name] for name in ("agent", "camera", "turn", "walls"))
        assert seen["deep"]["flags"] is obs["deep"]["flags"]
        assert obs["deep"]["speed"].dtype == torch.float64
        assert shown_to_the_network(IMAGE, images, normalize_observations=normalize) is images


# --- continuous actions ------------------------------------------------------------------------------------------


def test_a_deviation_is_one_parameter_or_a_layer_of_the_state_and_starts_where_the_config_says():
    obs = torch.randn(9, 4)
    policy = policy_of(VECTOR, ACTIONS["box"], PolicyConfig(log_std_init=-0.7))
    logits = policy.logits(obs)
    assert torch.equal(logits[:, 2:], torch.full((9, 2), -0.7))
    assert policy.network.actor_head.log_std.shape == (2,)
    assert logits[:, :2].abs().max() < 0.1
    policy = policy_of(VECTOR, ACTIONS["box"], PolicyConfig(log_std_init=-0.7, state_dependent_std=True))
    log_std = policy.logits(obs)[:, 2:]
    torch.testing.assert_close(log_std, torch.full((9, 2), -0.7), rtol=0, atol=0.1)
    assert log_std.std(0).min() > 0


def test_acting_gives_the_env_the_mean_clipped_or_squashed():
    obs = torch.randn(30, 4)
    for bounded, expected in (("clip", lambda mean: mean.clamp(-2, 2)), ("tanh", lambda mean: 2 * torch.tanh(mean))):
        policy = policy_of(VECTOR, ACTIONS["box"], PolicyConfig(bounded_actions=bounded))
        with torch.no_grad():
            policy.network.actor_head.mean.weight *= 500
        mean = policy.logits(obs)[:, :2]
        assert (mean.abs() > 2).any()
        torch.testing.assert_close(policy.act(obs), expected(mean))


# --- settings ----------------------------------------------------------------------------------------------------


def test_settings_that_cannot_be_are_refused_by_name_with_the_fix():
    for change, message in (
        ({"hidden": ()}, "hidden"),
        ({"hidden": (64, 0)}, "[64, 0]"),
        ({"hidden": 64}, "hidden=64 must be a list"),
        ({"activation": "gelu"}, "activation='gelu' must be 'tanh' or 'relu'"),
        ({"shared_trunk": 1}, "shared_trunk=1 must be true or false"),
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
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            PolicyConfig(**change)


def test_networks_can_be_copied_pickled_and_saved_under_names_that_say_the_entry():
    for encoder in ("auto", "grid_cnn", "value_propagation"):
        config = PolicyConfig(hidden=(8,), encoder=encoder)
        policy, obs = policy_of(GRID, Discrete(4), config), batch_of(GRID, 3)
        other = policy_of(GRID, Discrete(4), config)
        assert not torch.equal(other(obs).value, policy(obs).value)
        other.load_state_dict(policy.state_dict())
        for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), other):
            assert torch.equal(twin(obs).logits, policy(obs).logits), encoder
            assert torch.equal(twin(obs).value, policy(obs).value), encoder
    assert any("entry_camera" in name for name in policy_of(MIXED, Discrete(3)).state_dict())


def test_the_lowest_observations_are_in_every_space_and_described_by_shape_and_type():
    for space in (*OBSERVATIONS.values(), MultiDiscrete([3, 3], start=[1, 2])):
        assert "[2, " in describe_observations(lowest_observations(space, 2))
    lowest = lowest_observations(Dict({"a": Discrete(3, start=4), "b": MultiDiscrete([2, 2], start=[5, 6])}), 2)
    assert lowest["a"].tolist() == [[4], [4]]
    assert lowest["b"].tolist() == [[5, 6], [5, 6]]


# --- networks that use the symmetries of a board -----------------------------------------------------------------

BOARD, CHOICES = Box(0, 1, (2, 3, 4), np.int8), Discrete(4)
MIRROR = Symmetry("mirror", lambda board: board[..., ::-1], (3, 2, 1, 0))


def symmetric_network(how: str) -> torch.nn.Module:
    network = default_network(BOARD, CHOICES, PolicyConfig(encoder="grid_cnn", grid_channels=(4,), grid_blocks=1))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return with_symmetries(network, how, SymmetryTables.of((MIRROR,), BOARD, CHOICES))


@pytest.mark.parametrize("how", ["canonical", "average"])
def test_the_mirrored_board_gets_the_mirrored_answer(how: str) -> None:
    network, boards = symmetric_network(how), torch.randint(0, 2, (64, 2, 3, 4), dtype=torch.int8)
    output, mirrored = network(boards), network(boards.flip(-1))
    torch.testing.assert_close(mirrored.logits, output.logits.flip(-1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mirrored.value, output.value, atol=1e-5, rtol=1e-5)
    assert output.logits.std() > 0.1
    assert not torch.allclose(output.logits, output.logits.flip(-1), atol=1e-3)


def test_of_two_mirrored_boards_the_canonical_network_sees_the_same_one() -> None:
    network, boards = symmetric_network("canonical"), torch.randint(0, 2, (64, 2, 3, 4), dtype=torch.int8)
    seen: list[torch.Tensor] = []
    network.network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))  # type: ignore[union-attr]
    network(boards), network(boards.flip(-1))
    assert torch.equal(*seen)
    matches = (seen[0] == boards).flatten(1).all(1)
    assert torch.equal(seen[0][~matches], boards.flip(-1)[~matches])
    assert 0 < int(matches.sum()) < 64


def test_a_symmetry_that_does_more_than_move_things_is_refused_and_a_world_without_any() -> None:
    cut = Symmetry("cut", lambda board: board[..., :2], (3, 2, 1, 0))
    with pytest.raises(WorldError, match=r"'cut'.*exactly once"):
        SymmetryTables.of((cut,), BOARD, CHOICES)
    twice = Symmetry("twice", lambda board: board, (0, 0, 1, 2))
    with pytest.raises(WorldError, match=r"'twice'.*actions"):
        SymmetryTables.of((twice,), BOARD, CHOICES)
    with pytest.raises(ConfigError, match=r"declares no symmetries.*--policy.symmetry none"):
        tables_of_world(object(), BOARD, CHOICES)


def test_what_two_symmetries_make_together_is_added() -> None:
    square = Box(0, 1, (3, 3), np.int8)
    cells = np.arange(9).reshape(3, 3)
    turn = Symmetry("quarter turn", np.rot90, np.rot90(cells, -1).ravel().tolist())
    mirror = Symmetry("mirror", np.fliplr, np.fliplr(cells).ravel().tolist())
    tables = SymmetryTables.of((turn, mirror), square, Discrete(9))
    assert tables.count == 8
    assert len({tuple(row) for row in tables.obs_sources.tolist()}) == 8
    for sources, actions in zip(tables.obs_sources, tables.action_sources, strict=True):
        assert torch.equal(sources[actions], torch.arange(9)), "a move in a cell goes where the cell goes"
