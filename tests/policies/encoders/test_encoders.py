"""Encoders: shapes, what each makes of an observation, checked by hand, and what is refused."""

import copy
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text
from torch.nn import functional

from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig, make_encoder
from scramjet.policies.encoders.grids import GridCNN, GridPlanes
from scramjet.policies.encoders.images import ImageLayout, ImpalaCNN, NatureCNN
from scramjet.policies.encoders.vectors import EmbeddingEncoder, FlatEncoder, OneHotEncoder

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


def batch_of(space, rows=3, seed=0):
    """Random observations as a pool lays them out."""
    if isinstance(space, Dict):
        return {name: batch_of(entry, rows, seed + i) for i, (name, entry) in enumerate(space.spaces.items())}
    space.seed(seed)
    stacked = np.stack([np.asarray(space.sample()) for _ in range(rows)])
    if isinstance(space, Discrete):
        return torch.from_numpy(stacked.astype(np.int64)).unsqueeze(1)
    return torch.from_numpy(stacked)


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


@pytest.mark.parametrize(("space", "encoder", "num_features"), CASES, ids=lambda case: str(case)[:40])
def test_every_space_is_encoded_to_as_many_finite_floats_as_the_encoder_says(space, encoder, num_features):
    made = make_encoder(space, PolicyConfig(encoder=encoder))
    obs = batch_of(space)
    if not isinstance(obs, dict) and obs.dtype == torch.float64:
        obs = obs.float()
    features = made(obs)
    assert features.shape == (3, made.num_features) == (3, num_features)
    assert features.dtype == torch.float32
    assert torch.isfinite(features).all()
    assert not torch.equal(features[0], features[2])


@pytest.mark.parametrize(("space", "encoder", "_"), CASES, ids=lambda case: str(case)[:40])
def test_the_gradient_of_features_reaches_every_parameter(space, encoder, _):
    made = make_encoder(space, PolicyConfig(encoder=encoder, embedding_size=3))
    obs = batch_of(space, rows=30 if encoder == "value_propagation" else 3)
    if not isinstance(obs, dict) and obs.dtype == torch.float64:
        obs = obs.float()
    features = made(obs)
    if features.requires_grad:
        (features * torch.randn_like(features)).sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


# --- numbers and choices -------------------------------------------------------------------------------------


def test_one_hot_puts_a_single_1_where_the_choice_stands_counted_from_the_spaces_start():
    assert OneHotEncoder(Discrete(4, start=-1))(torch.tensor([[-1], [2]])).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    several = OneHotEncoder(MultiDiscrete([2, 3], start=[0, 5]))
    assert several(torch.tensor([[1, 5], [0, 7]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_an_embedding_gives_each_choice_of_each_component_numbers_of_its_own():
    made = make_encoder(MultiDiscrete([2, 2]), PolicyConfig(embedding_size=3))
    assert isinstance(made, EmbeddingEncoder)
    features = made(torch.tensor([[0, 0], [0, 1], [1, 1]])).unflatten(1, (2, 3))
    assert torch.equal(features[0, 0], features[1, 0])
    assert torch.equal(features[1, 1], features[2, 1])
    rows = {tuple(row) for row in features.flatten(0, 1).tolist()}
    assert len(rows) == 4
    assert {tuple(row) for row in made.table.weight.tolist()} == rows


def test_an_embedding_is_one_hot_times_its_table():
    space, obs = Discrete(6), torch.arange(6).unsqueeze(1)
    embedding, one_hot = (make_encoder(space, PolicyConfig(embedding_size=size)) for size in (4, None))
    torch.testing.assert_close(embedding(obs), one_hot(obs) @ embedding.table.weight)


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


# --- images --------------------------------------------------------------------------------------------------


def test_the_nature_network_is_the_published_one_on_pixels_divided_by_255():
    made = make_encoder(ATARI, PolicyConfig())
    assert isinstance(made, NatureCNN)
    pixels = batch_of(ATARI, rows=2)
    x = pixels.permute(0, 3, 1, 2).float() / 255
    weights = list(made.parameters())
    for i, stride in enumerate((4, 2, 1)):
        x = torch.relu(functional.conv2d(x, weights[2 * i], weights[2 * i + 1], stride=stride))
    torch.testing.assert_close(made(pixels), x.flatten(1))
    assert [tuple(w.shape) for w in weights[::2]] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]


@pytest.mark.parametrize("encoder", ["nature_cnn", "impala_cnn", "grid_cnn"])
def test_channels_may_come_first_or_last(encoder):
    last, first = Box(0, 255, (40, 38, 3), np.uint8), Box(0, 255, (3, 40, 38), np.uint8)
    config = PolicyConfig(encoder=encoder)
    made = [make_encoder(space, config) for space in (last, first)]
    made[1].load_state_dict(made[0].state_dict())
    pixels = batch_of(last)
    torch.testing.assert_close(made[0](pixels), made[1](pixels.permute(0, 3, 1, 2)), rtol=1e-4, atol=1e-5)


def test_the_impala_network_has_the_published_depth_and_its_width_multiplies_its_channels():
    space = Box(0, 255, (64, 64, 3), np.uint8)
    made = make_encoder(space, PolicyConfig(encoder="impala_cnn"))
    assert isinstance(made, ImpalaCNN)
    convolutions = [w for w in made.parameters() if w.dim() == 4]
    assert len(convolutions) == 15
    wide = make_encoder(space, PolicyConfig(encoder="impala_cnn", impala_width=3))
    assert wide.num_features == 3 * made.num_features
    assert [len(w) for w in wide.parameters()] == [3 * len(w) for w in made.parameters()]


def test_a_residual_block_without_weights_passes_its_input_on():
    residual = make_encoder(Box(0, 1, (1, 8, 8), np.float32), PolicyConfig(encoder="impala_cnn")).layers[2]
    for weight in residual.parameters():
        torch.nn.init.zeros_(weight)
    x = torch.randn(2, 16, 4, 4)
    assert torch.equal(residual(x), x)


def test_images_given_to_an_encoder_are_left_as_they_were():
    for space in (Box(0, 255, (3, 40, 40), np.uint8), Box(0, 1, (3, 40, 40), np.float32), BOARD):
        made, obs = make_encoder(space, PolicyConfig()), batch_of(space)
        before = obs.clone()
        made(obs)
        assert torch.equal(obs, before)


# --- grids ---------------------------------------------------------------------------------------------------


def test_planes_are_the_grids_and_a_1_at_each_position():
    obs = batch_of(MAZE, rows=8)
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


def test_pixels_on_a_grid_are_divided_and_positions_counted_from_their_start():
    space = Dict({"at": MultiDiscrete([2, 2], start=[1, 3]), "map": Box(0, 255, (2, 2), np.uint8)})
    obs = {"at": torch.tensor([[2, 3]]), "map": torch.tensor([[[0, 51], [255, 0]]], dtype=torch.uint8)}
    planes = GridPlanes(space, PolicyConfig(), "grid_cnn")(obs)
    torch.testing.assert_close(planes, torch.tensor([[[[0.0, 0], [1, 0]], [[0, 0.2], [1, 0]]]]))


def test_a_grid_of_symbols_has_a_plane_for_each_value_of_each_symbol() -> None:
    space = MultiDiscrete(np.full((3, 4, 2), (5, 2)), dtype=np.uint8)
    obs = torch.from_numpy(np.stack([space.sample(), space.sample()]))
    planes = GridPlanes(space, PolicyConfig(), "grid_cnn")(obs)
    hot = torch.cat([torch.nn.functional.one_hot(obs[..., k].long(), n) for k, n in enumerate((5, 2))], dim=-1)
    assert obs.dtype == torch.uint8
    torch.testing.assert_close(planes, hot.permute(0, 3, 1, 2).float())


def test_a_grid_network_is_its_convolutions_flattened_or_pooled():
    config = PolicyConfig(encoder="grid_cnn", grid_channels=(5, 4, 3))
    flat = make_encoder(BOARD, config)
    assert isinstance(flat, GridCNN)
    obs = batch_of(BOARD)
    x, weights = obs, list(flat.parameters())
    assert [len(w) for w in weights[::2]] == [5, 4, 3]
    for i in range(3):
        x = torch.relu(functional.conv2d(x, weights[2 * i], weights[2 * i + 1], padding=1))
    torch.testing.assert_close(flat(obs), x.flatten(1))
    pooled = make_encoder(BOARD, PolicyConfig(encoder="grid_cnn", grid_channels=(5, 4, 3), grid_readout="pool"))
    pooled.load_state_dict(flat.state_dict())
    assert pooled.num_features == 6
    torch.testing.assert_close(pooled(obs), torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1))


def test_entries_that_are_no_planes_stand_beside_the_features():
    made = make_encoder(MAZE, PolicyConfig(encoder="grid_cnn"))
    obs = batch_of(MAZE)
    features = made(obs)
    beside = {"step_count": functional.one_hot(obs["step_count"][:, 0], 9).float(), "wind": obs["wind"]}
    assert torch.equal(features[:, -12:], torch.cat([beside[name] for name in MAZE.spaces if name in beside], 1))


# --- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "encoder", "message"),
    [
        (Box(0, 255, (35, 84, 3), np.uint8), "nature_cnn", "at least 36x36, and this one is 35x84 with 3 channels"),
        (Box(0, 255, (3, 7, 9), np.uint8), "impala_cnn", "at least 8x8, and this one is 7x9"),
        (Box(-1, 1, (4,), np.float32), "nature_cnn", "needs an image (a Box with three axes)"),
        (Dict({"a": Discrete(2)}), "impala_cnn", "needs an image"),
        (Box(-1, 1, (4,), np.float32), "grid_cnn", "found: none. Use --policy.encoder auto"),
        (Dict({"a": MultiBinary((2, 3)), "b": MultiBinary((3, 3))}), "grid_cnn", "found: a [2, 3], b [3, 3]"),
        (Box(0, 1, (4, 4), np.int8), "value_propagation", "an entry 'agent' of the space MultiDiscrete([4, 4])"),
        (
            Dict({"agent": MultiDiscrete([3, 4]), "walls": MultiBinary((4, 4))}),
            "value_propagation",
            "and it is MultiDiscrete([3 4])",
        ),
        (Text(5), "auto", "Text(1, 5"),
        (Dict({"a": Text(5)}), "mlp", "supported: Box, Discrete, MultiDiscrete, MultiBinary and Dict"),
        (BOARD, "entity_attention", "is a whole network"),
    ],
)
def test_a_space_that_an_encoder_cannot_take_is_refused_with_its_size_and_the_fix(space, encoder, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_encoder(space, PolicyConfig(encoder=encoder))


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ["nature_cnn", "impala_cnn", "grid_cnn"])
@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 4), (1, 36, 40)])
def test_an_image_means_the_same_on_the_gpu(encoder, shape, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    space = Box(0, 255, shape, np.uint8)
    images = batch_of(space, rows=5)
    on_cpu = make_encoder(space, PolicyConfig(encoder=encoder))
    on_gpu = copy.deepcopy(on_cpu).to("cuda")
    expected, features = on_cpu(images), on_gpu(images.to("cuda"))
    torch.testing.assert_close(features.cpu(), expected, rtol=1e-3, atol=1e-3)
    expected.square().mean().backward()
    features.square().mean().backward()
    for one, other in zip(on_cpu.parameters(), on_gpu.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-3, atol=1e-3)
        assert other.is_contiguous()  # as checkpoints want them


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 4)])
def test_planes_of_an_image_are_channels_last_in_the_memory_of_the_gpu(shape):
    layout = ImageLayout.of(Box(0, 255, shape, np.uint8))
    planes = layout.planes(torch.zeros(5, *shape, dtype=torch.uint8, device="cuda"))
    assert planes.is_contiguous(memory_format=torch.channels_last)
