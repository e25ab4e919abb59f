"""Compiled encoders of boards: what torch's convolutions, value propagation and symmetries give, forward and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import nn

from scramjet.accelerate.numba.executor import UnsupportedPolicyError, numba_network
from scramjet.engine.trees import map_leaves
from scramjet.envs.api import Symmetry
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.policies.symmetries import SymmetryTables, with_symmetries
from tests.helpers.numba_cases import NUM_STEPS, Case, assert_close, check_acting, check_adam_steps, check_gradients

ACTIONS = Discrete(5)
BOARD = Box(0, 1, (2, 3, 5), np.float32)
SQUARE = Box(0, 1, (3, 4, 4), np.float32)  # of 16 cells, which are laid out with one more
PLACES = Dict(
    {
        "walls": Box(0, 1, (4, 3), np.int8),
        "agent": MultiDiscrete([4, 3]),
        "goal": MultiDiscrete([4, 3]),
        "speed": Box(-1, 1, (2,), np.float32),
    }
)
MIRROR = Symmetry("mirror", lambda board: board[..., ::-1], [4, 3, 2, 1, 0])
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one layer": (BOARD, {"grid_channels": (8,), "shared_trunk": True}),
    "odd channels": (SQUARE, {"grid_channels": (5, 11)}),
    "residual": (BOARD, {"grid_channels": (9,), "grid_blocks": 2, "shared_trunk": True}),
    "pool": (SQUARE, {"grid_channels": (6,), "grid_readout": "pool", "grid_blocks": 1}),
    "rest": (PLACES, {"grid_channels": (4, 4), "shared_trunk": True, "activation": "relu"}),
    "memory": (BOARD, {"grid_channels": (8,), "memory": "gru", "memory_size": 6}),
    "planning": (PLACES, {"encoder": "value_propagation", "grid_channels": (7,)}),
    "few sweeps": (PLACES, {"encoder": "value_propagation", "grid_channels": (4,), "planning_steps": 2}),
    "symmetric": (BOARD, {"grid_channels": (8,), "symmetry": "canonical", "shared_trunk": True}),
    "symmetric without convolutions": (BOARD, {"encoder": "mlp", "symmetry": "canonical"}),
}


def make_policy(name: str) -> Policy:
    """A policy whose every weight is random: zero biases and new residual blocks hide mistakes.

    Weights are multiples of 1/256, so that sums over boards of zeros and ones are exact: no ReLU stands so close to 0
    that the order of a sum decides whether it lets a gradient through.
    """
    space, settings = CASES[name]
    config = PolicyConfig(**({"encoder": "grid_cnn", "hidden": (24, 16)} | settings))
    network = default_network(space, ACTIONS, config)
    if config.symmetry != "none":
        network = with_symmetries(network, config.symmetry, SymmetryTables.of([MIRROR], space, ACTIONS))
    policy = Policy(network, space, ACTIONS, config)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape)).mul_(256).round_().div_(256)
    return policy


def observations(space: Any, count: int) -> Any:
    if space is not PLACES:
        return (torch.rand(count, *space.shape) < 0.4).float()
    places = {name: torch.stack([torch.randint(0, n, (count,)) for n in (4, 3)], 1) for name in ("agent", "goal")}
    return {**places, "walls": (torch.rand(count, 4, 3) < 0.3).to(torch.int8), "speed": torch.rand(count, 2)}


def case_of(name: str, units: int = 141) -> Case:  # not whole groups of boards
    policy = make_policy(name)
    steps = NUM_STEPS if policy.state_size else 1
    return Case(policy, observations(policy.observation_space, steps * units), units, masked=True)


@pytest.mark.parametrize("encoder", ["grid_cnn", "value_propagation", "mlp"])
def test_gradients_actions_and_values_of_boards_are_those_of_torch(encoder: str) -> None:
    off = 2e-3 if encoder == "value_propagation" else 1e-5  # it divides by values near 0, so that rounding grows
    for name, (_, settings) in CASES.items():
        if settings.get("encoder", "grid_cnn") == encoder:
            check_gradients(case_of(name), name, off=off)
            check_acting(case_of(name), name)


def test_steps_of_adam_move_convolutions_as_those_of_torch_do() -> None:
    check_adam_steps(case_of("residual"), "residual")


def test_the_same_boards_give_the_same_bits_whatever_their_number_in_a_group() -> None:
    network, obs = numba_network(make_policy("residual")), observations(BOARD, 45)
    network.refresh()
    whole, again, part = torch.zeros(45), torch.zeros(45), torch.zeros(3)
    network.values(obs, None, whole)
    network.values(map_leaves(lambda leaf: leaf[40:43], obs), None, part)
    torch.testing.assert_close(part, whole[40:43], atol=1e-6, rtol=1e-6)
    network.values(obs, None, again)
    assert torch.equal(whole, again)


def test_many_observations_are_encoded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rest", "symmetric"):
        with monkeypatch.context() as patch:
            policy = make_policy(name)
            obs, whole, in_parts = observations(policy.observation_space, 50), torch.empty(50), torch.empty(50)
            network = numba_network(policy)
            network.values(obs, None, whole)
            patch.setattr("scramjet.accelerate.numba.network.ENCODED_AT_ONCE", 7)
            network.values(obs, None, in_parts)
            assert torch.equal(in_parts, whole), name
            assert_close(whole, policy.value(obs).detach(), name)


def changed(change: Callable[[Any], None], space: Any = BOARD, **settings: Any) -> Policy:
    config = PolicyConfig(**({"encoder": "grid_cnn", "grid_channels": (4, 4), "shared_trunk": True} | settings))
    network: Any = default_network(space, ACTIONS, config)
    change(network)
    return Policy(network, space, ACTIONS, config)


def averaged() -> Policy:
    config = PolicyConfig(encoder="grid_cnn", grid_channels=(4,))
    tables = SymmetryTables.of([MIRROR], BOARD, ACTIONS)
    return Policy(with_symmetries(default_network(BOARD, ACTIONS, config), "average", tables), BOARD, ACTIONS, config)


PLAIN = "3x3 convolutions with ReLU, then residual blocks"
CHANGES: list[Callable[[Any], Any]] = [
    lambda layers: layers.insert(1, nn.GroupNorm(2, 4)),
    lambda layers: layers.__setitem__(1, nn.Tanh()),
    lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 3, padding=2, dilation=2)),
    lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 1)),
    lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 3, padding=1, bias=False)),
    lambda layers: setattr(layers[4], "second", nn.Conv2d(4, 4, 3, padding=1, groups=2)),
]


def test_encoders_that_are_left_to_torch_are_named() -> None:
    def as_is(network: Any) -> None:
        pass

    kinds, pictures = Dict({"board": SQUARE, "kind": Discrete(3)}), Box(0, 255, (40, 40, 3), np.uint8)
    numba_network(changed(as_is, grid_blocks=1))
    for policy, reason in (
        (changed(as_is, kinds, embedding_size=4), "the encoder of these observations"),
        (changed(as_is, pictures, encoder="nature_cnn"), "NatureCNN"),
        (averaged(), "AveragedNetwork"),
        (
            changed(as_is, Box(0, 1, (1, 19, 19), np.float32), grid_channels=(32, 32)),
            r"as fast with boards of so many channels \(\d+ MB",  # does not fit into a cache
        ),
        *((changed(lambda network, c=change: c(network.encoder.layers), grid_blocks=1), PLAIN) for change in CHANGES),
    ):
        with pytest.raises(UnsupportedPolicyError, match=reason):
            numba_network(policy)
