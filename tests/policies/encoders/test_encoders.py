"""Encoders: shapes, what each makes of an observation, checked by hand, and what is refused."""

import copy
import itertools
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text
from torch import nn
from torch.nn import functional

from scramjet.engine.trees import leaves
from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig, make_encoder
from scramjet.policies.encoders.grids import GridCNN, GridPlanes
from scramjet.policies.encoders.images import ImageLayout, ImpalaCNN, NatureCNN
from scramjet.policies.encoders.vectors import FlatEncoder, OneHotEncoder
from tests.helpers.observed import batch_of

pytestmark = pytest.mark.usefixtures("one_thread")

ATARI = Box(0, 255, (84, 84, 4), np.uint8)
BOARD = Box(0, 1, (2, 6, 7), np.float32)
MAZE = Dict(
    {
        "agent": MultiDiscrete([5, 6]),
        "target": MultiDiscrete([5, 6]),
        "walls": MultiBinary((5, 6)),
        "heights": Box(-1, 1, (5, 6, 2), np.float32),
        "step_count": Discrete(9),
        "wind": Box(-1, 1, (3,), np.float32),
    }
)
EVERYTHING = Dict({"camera": Box(0, 255, (36, 36, 3), np.uint8), "items": Discrete(4), "inner": Dict({"a.b": BOARD})})


CASES = [
    (Box(-1, 1, (4,), np.float32), "auto", 4),
    (Box(-1, 1, (3, 2), np.float64), "auto", 6),
    (Box(-1, 1, (), np.float32), "auto", 1),
    (Box(0, 255, (3,), np.uint8), "auto", 3),
    (Discrete(5), "auto", 5),
    (MultiDiscrete([[2, 3], [4, 5]]), "auto", 14),
    (MultiBinary((2, 3)), "auto", 6),
    (ATARI, "auto", 64 * 7 * 7),
    (ATARI, "nature_cnn", 64 * 7 * 7),
    (Box(0, 255, (4, 36, 50), np.uint8), "nature_cnn", 64 * 1 * 2),
    (Box(0, 255, (64, 64, 3), np.uint8), "impala_cnn", 32 * 8 * 8),
    (Box(0, 255, (3, 9, 8), np.uint8), "impala_cnn", 32 * 2 * 1),
    (BOARD, "auto", 32 * 6 * 7),
    (BOARD, "mlp", 2 * 6 * 7),
    (Box(0, 1, (6, 7), np.int8), "grid_cnn", 32 * 6 * 7),
    (MultiBinary((6, 7)), "grid_cnn", 32 * 6 * 7),
    (MAZE, "auto", 11 + 11 + 30 + 32 * 5 * 6 + 9 + 3),
    (MAZE, "mlp", 11 + 11 + 30 + 60 + 9 + 3),
    (MAZE, "grid_cnn", 32 * 5 * 6 + 9 + 3),
    (MAZE, "value_propagation", 20 + 9 + 3),
    (EVERYTHING, "auto", 64 + 4 + 32 * 6 * 7),
    (EVERYTHING, "mlp", 36 * 36 * 3 + 4 + 2 * 6 * 7),
]


def test_every_space_is_encoded_to_as_many_finite_floats_as_the_encoder_says_and_gradients_reach_every_parameter():
    for space, encoder, num_features in CASES:
        case = encoder, space
        for embedding_size in (None, 3):
            made = make_encoder(space, PolicyConfig(encoder=encoder, embedding_size=embedding_size))
            obs = batch_of(space, 30 if encoder == "value_propagation" else 3)
            if not isinstance(obs, dict) and obs.dtype == torch.float64:
                obs = obs.float()
            before = copy.deepcopy(obs)
            features = made(obs)
            assert all(map(torch.equal, leaves(before), leaves(obs))), "what was given stays as it was"
            assert features.shape == (len(features), made.num_features), case
            assert embedding_size or made.num_features == num_features, case
            assert features.dtype == torch.float32, case
            assert torch.isfinite(features).all(), case
            assert not torch.equal(features[0], features[2]), case
            if features.requires_grad:
                (features * torch.randn_like(features)).sum().backward()
            for name, parameter in made.named_parameters():
                assert parameter.grad.abs().sum() > 0, (case, name)


# --- numbers and choices -----------------------------------------------------------------------------------------


def test_one_hot_puts_a_single_1_where_the_choice_stands_counted_from_the_spaces_start():
    assert OneHotEncoder(Discrete(4, start=-1))(torch.tensor([[-1], [2]])).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    several = OneHotEncoder(MultiDiscrete([2, 3], start=[0, 5]))
    assert several(torch.tensor([[1, 5], [0, 7]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_an_embedding_is_one_hot_times_its_table_which_has_rows_for_each_choice_of_each_component():
    for space, sizes, obs in (
        (Discrete(6), [6], torch.arange(6).unsqueeze(1)),
        (MultiDiscrete([2, 2]), [2, 2], torch.tensor([[0, 0], [0, 1], [1, 1]])),
    ):
        embedding, one_hot = (make_encoder(space, PolicyConfig(embedding_size=size)) for size in (4, None))
        table = embedding.table.weight
        assert len({tuple(row) for row in table.tolist()}) == one_hot.num_features
        torch.testing.assert_close(embedding(obs), one_hot(obs) @ torch.block_diag(*table.split(sizes)))


def test_flat_numbers_stay_the_same_and_only_pixels_are_divided():
    bytes_vector = FlatEncoder(Box(0, 255, (3,), np.uint8))
    assert bytes_vector(torch.tensor([[0, 128, 255]], dtype=torch.uint8)).tolist() == [[0, 128, 255]]
    image = make_encoder(Box(0, 255, (1, 1, 3), np.uint8), PolicyConfig(encoder="mlp"))
    pixels = torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8)
    torch.testing.assert_close(image(pixels), torch.tensor([[0.0, 0.2, 1.0]]))
    small_numbers = make_encoder(Box(0, 3, (1, 1, 3), np.uint8), PolicyConfig(encoder="mlp"))
    assert small_numbers(torch.ones(1, 1, 1, 3, dtype=torch.uint8)).tolist() == [[1, 1, 1]]


def test_entries_of_a_dict_stand_side_by_side_in_the_spaces_order_whatever_the_observations_order():
    space = Dict({"b": Discrete(2), "a": Box(-9, 9, (2,), np.float32)})
    obs = {"b": torch.tensor([[1]]), "a": torch.tensor([[3.0, 4.0]])}
    expected = {"a": [3, 4], "b": [0, 1]}
    first, second = space.spaces
    assert make_encoder(space, PolicyConfig())(obs).tolist() == [[*expected[first], *expected[second]]]


# --- images ------------------------------------------------------------------------------------------------------


def test_the_nature_network_is_the_published_one_on_pixels_divided_by_255():
    made = make_encoder(ATARI, PolicyConfig())
    assert isinstance(made, NatureCNN)
    pixels = batch_of(ATARI, 2)
    x = pixels.permute(0, 3, 1, 2).float() / 255
    weights = list(made.parameters())
    for i, stride in enumerate((4, 2, 1)):
        x = torch.relu(functional.conv2d(x, weights[2 * i], weights[2 * i + 1], stride=stride))
    torch.testing.assert_close(made(pixels), x.flatten(1))
    assert [tuple(w.shape) for w in weights[::2]] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]


def test_channels_may_come_first_or_last():
    last, first = Box(0, 255, (40, 38, 3), np.uint8), Box(0, 255, (3, 40, 38), np.uint8)
    pixels = batch_of(last, 3)
    for encoder in ("nature_cnn", "impala_cnn", "grid_cnn"):
        made = [make_encoder(space, PolicyConfig(encoder=encoder)) for space in (last, first)]
        made[1].load_state_dict(made[0].state_dict())
        torch.testing.assert_close(made[0](pixels), made[1](pixels.permute(0, 3, 1, 2)), rtol=1e-4, atol=1e-5)


def test_the_impala_network_has_the_published_depth_residual_blocks_and_a_width_that_multiplies_its_channels():
    space = Box(0, 255, (64, 64, 3), np.uint8)
    made = make_encoder(space, PolicyConfig(encoder="impala_cnn"))
    assert isinstance(made, ImpalaCNN)
    convolutions = [w for w in made.parameters() if w.dim() == 4]
    assert len(convolutions) == 15
    wide = make_encoder(space, PolicyConfig(encoder="impala_cnn", impala_width=3))
    assert wide.num_features == 3 * made.num_features
    assert [len(w) for w in wide.parameters()] == [3 * len(w) for w in made.parameters()]
    residual = made.layers[2]  # without weights it passes its input on
    for weight in residual.parameters():
        torch.nn.init.zeros_(weight)
    x = torch.randn(2, 16, 4, 4)
    assert torch.equal(residual(x), x)


# --- grids -------------------------------------------------------------------------------------------------------


def test_planes_are_the_grids_and_a_1_at_each_position():
    obs = batch_of(MAZE, 8)
    planes = GridPlanes(MAZE, PolicyConfig(), "grid_cnn")(obs)
    assert planes.shape == (8, 5, 5, 6)
    expected = {name: torch.zeros(8, 1, 5, 6) for name in ("agent", "target")}
    for name, plane in expected.items():
        for row in range(8):
            plane[row, 0, obs[name][row, 0], obs[name][row, 1]] = 1
    expected["walls"] = obs["walls"].float().unsqueeze(1)
    expected["heights"] = obs["heights"].permute(0, 3, 1, 2)
    in_order = [expected[name] for name in MAZE.spaces if name in expected]
    assert torch.equal(planes, torch.cat(in_order, 1))
    features = make_encoder(MAZE, PolicyConfig(encoder="grid_cnn"))(obs)  # entries that are no planes stand beside
    beside = {"step_count": functional.one_hot(obs["step_count"][:, 0], 9).float(), "wind": obs["wind"]}
    assert torch.equal(features[:, -12:], torch.cat([beside[name] for name in MAZE.spaces if name in beside], 1))


def test_pixels_on_a_grid_are_divided_and_positions_counted_from_their_start():
    space = Dict({"at": MultiDiscrete([2, 2], start=[1, 3]), "map": Box(0, 255, (2, 2), np.uint8)})
    obs = {"at": torch.tensor([[2, 3]]), "map": torch.tensor([[[0, 51], [255, 0]]], dtype=torch.uint8)}
    planes = GridPlanes(space, PolicyConfig(), "grid_cnn")(obs)
    torch.testing.assert_close(planes, torch.tensor([[[[0.0, 0], [1, 0]], [[0, 0.2], [1, 0]]]]))


def test_a_grid_of_symbols_has_a_plane_for_each_value_of_each_symbol() -> None:
    space = MultiDiscrete(np.full((3, 4, 2), (5, 2)), dtype=np.uint8)
    obs = torch.from_numpy(np.stack([space.sample(), space.sample()]))
    planes = GridPlanes(space, PolicyConfig(), "grid_cnn")(obs)
    hot = torch.cat([functional.one_hot(obs[..., k].long(), n) for k, n in enumerate((5, 2))], dim=-1)
    assert obs.dtype == torch.uint8
    torch.testing.assert_close(planes, hot.permute(0, 3, 1, 2).float())


def test_a_grid_network_is_its_convolutions_flattened_or_pooled():
    flat, pooled = (
        make_encoder(BOARD, PolicyConfig(encoder="grid_cnn", grid_channels=(5, 4, 3), grid_readout=readout))
        for readout in ("flatten", "pool")
    )
    obs, weights = batch_of(BOARD, 3), list(flat.parameters())
    x = obs
    assert [len(w) for w in weights[::2]] == [5, 4, 3]
    for i in range(3):
        x = torch.relu(functional.conv2d(x, weights[2 * i], weights[2 * i + 1], padding=1))
    torch.testing.assert_close(flat(obs), x.flatten(1))
    pooled.load_state_dict(flat.state_dict())
    assert pooled.num_features == 6
    torch.testing.assert_close(pooled(obs), torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1))


def test_layers_that_a_user_changed_are_left_to_torch():
    for change in (
        lambda layers: layers.__setitem__(1, nn.GELU()),
        lambda layers: layers[4].first.register_forward_hook(lambda *_: None),
        lambda layers: layers.__setitem__(2, nn.Conv2d(8, 8, 3, padding=1, groups=2)),
        lambda layers: nn.utils.spectral_norm(layers[2]),
        lambda layers: setattr(layers[0], "forward", lambda board: board),
    ):
        network = GridCNN(MAZE, PolicyConfig(grid_channels=(8, 8), grid_blocks=1))
        assert network.has_known_layers
        change(network.layers)
        assert not network.has_known_layers


# --- what is refused ---------------------------------------------------------------------------------------------


def test_a_space_that_an_encoder_cannot_take_is_refused_with_its_size_and_the_fix():
    for space, encoder, message in (
        (Box(0, 255, (35, 84, 3), np.uint8), "nature_cnn", "at least 36x36, and this one is 35x84 with 3 channels"),
        (Box(0, 255, (3, 7, 9), np.uint8), "impala_cnn", "at least 8x8, and this one is 7x9"),
        (Box(-1, 1, (4,), np.float32), "nature_cnn", "needs an image (a Box with three axes)"),
        (Dict({"a": Discrete(2)}), "impala_cnn", "needs an image"),
        (Box(-1, 1, (4,), np.float32), "grid_cnn", "found: none. Use --policy.encoder auto"),
        (Dict({"a": MultiBinary((2, 3)), "b": MultiBinary((3, 3))}), "grid_cnn", "found: a [2, 3], b [3, 3]"),
        (Box(0, 1, (4, 4), np.int8), "value_propagation", "an entry 'agent' of the space MultiDiscrete([4, 4])"),
        (Dict({"agent": MultiDiscrete([3, 4]), "a": MultiBinary((4, 4))}), "value_propagation", "MultiDiscrete([3 4])"),
        (Text(5), "auto", "Text(1, 5"),
        (Dict({"a": Text(5)}), "mlp", "supported: Box, Discrete, MultiDiscrete, MultiBinary and Dict"),
        (BOARD, "entity_attention", "is a whole network"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            make_encoder(space, PolicyConfig(encoder=encoder))


@pytest.mark.gpu
def test_an_image_means_the_same_on_the_gpu_where_its_planes_are_channels_last(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    for encoder, shape in itertools.product(
        ["nature_cnn", "impala_cnn", "grid_cnn"], [(4, 84, 84), (84, 84, 4), (1, 36, 40)]
    ):
        space = Box(0, 255, shape, np.uint8)
        images = batch_of(space, 5)
        on_cpu = make_encoder(space, PolicyConfig(encoder=encoder))
        on_gpu = copy.deepcopy(on_cpu).to("cuda")
        expected, features = on_cpu(images), on_gpu(images.to("cuda"))
        torch.testing.assert_close(features.cpu(), expected, rtol=1e-3, atol=1e-3)
        expected.square().mean().backward()
        features.square().mean().backward()
        for one, other in zip(on_cpu.parameters(), on_gpu.parameters(), strict=True):
            torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-3, atol=1e-3)
            assert other.is_contiguous()  # as checkpoints want them
        if 4 in shape:
            assert ImageLayout.of(space).planes(images.cuda()).is_contiguous(memory_format=torch.channels_last)
