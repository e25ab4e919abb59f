"""Compiled encoders of boards: what torch's convolutions, value propagation and symmetries give, forward and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import Tensor, nn

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.minibatches import Minibatches
from scramjet.accelerate.numba.executor import UnsupportedPolicyError, numba_network
from scramjet.accelerate.numba.network import NumbaStep
from scramjet.accelerate.samples import Samples
from scramjet.engine.trees import map_leaves
from scramjet.envs.api import Symmetry
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.policies.symmetries import SymmetryTables, with_symmetries

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
LOSS = LossSettings(
    clip=0.2, entropy_coef=0.01, value_coef=0.5, value_clip=None, max_grad_norm=0.5, normalizes_advantages=True
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


def make_samples(policy: Policy, units: int) -> Samples:
    steps = 3 if policy.state_size else 1
    count = steps * units
    return Samples(
        obs=observations(policy.observation_space, count), mask=torch.rand(count, 5) < 0.8,
        action=torch.randint(0, 5, (count,)), log_prob=-1.6 + 0.1 * torch.randn(count), value=torch.randn(count),
        advantage=torch.randn(count), returns=torch.randn(count), place=torch.arange(count),
        state=torch.randn(units, policy.state_size) if policy.state_size else None,
        begins=torch.rand(steps, units) < 0.2 if policy.state_size else None,
    )  # fmt: skip


def by_autograd(policy: Policy, samples: Samples, units: Tensor) -> dict[str, Tensor]:
    policy.zero_grad(set_to_none=True)
    minibatch_loss(policy, samples.select(units), LOSS, None).total.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    return {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_boards_are_those_of_autograd(name: str) -> None:
    policy = make_policy(name)
    samples = make_samples(policy, 141)  # not whole groups of boards
    units = torch.randperm(141)[:133]
    expected = by_autograd(policy, samples, units)
    network = numba_network(policy)
    network.use_samples(samples)
    network.gradients(units, LOSS)
    # Value propagation divides by values near 0, so that rounding grows.
    off = 2e-3 if CASES[name][1].get("encoder") == "value_propagation" else 1e-5
    for each, parameter in policy.named_parameters():
        largest = float(expected[each].abs().max())
        torch.testing.assert_close(parameter.grad, expected[each], rtol=1e-4, atol=off * (largest + 1e-3))


@pytest.mark.parametrize("name", ["residual", "pool", "rest", "memory", "planning", "symmetric"])
@torch.inference_mode()
def test_boards_are_acted_on_and_valued_as_by_the_network(name: str) -> None:
    policy, rows = make_policy(name), 70
    obs = observations(policy.observation_space, rows)
    state = torch.randn(rows, policy.state_size) if policy.state_size else None
    output = policy(obs, state)
    noise, expected, log_prob = torch.rand(rows), torch.zeros(rows, dtype=torch.int64), torch.zeros(rows)
    policy.distribution.sample(output.logits, None, noise, expected, log_prob)
    network = numba_network(policy)
    network.refresh()
    drawn, own_log_prob, value = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows), torch.zeros(rows)
    step = NumbaStep(network.encode(obs), None, noise, drawn, own_log_prob, value)
    own_state = None if state is None else state.clone()
    network.acts([step], own_state)[0]()
    assert torch.equal(drawn, expected)
    torch.testing.assert_close(own_log_prob, log_prob, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(value, output.value, atol=1e-5, rtol=1e-5)
    network.values(obs, state, value.zero_())
    torch.testing.assert_close(value, output.value, atol=1e-5, rtol=1e-5)


def test_steps_of_adam_move_convolutions_as_those_of_torch_do() -> None:
    policy = make_policy("residual")
    samples, order = make_samples(policy, 128), torch.randperm(128)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for units in order.chunk(4):
        by_autograd(policy, samples, units)
        optimizer.step()
    expected = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    policy.load_state_dict(before)
    network, own = numba_network(policy), torch.optim.Adam(policy.parameters(), lr=1e-3)
    network.use_optimizer(own)
    network.use_samples(samples)
    network.learn(Minibatches.even(order, 4), LOSS)
    for name, tensor in policy.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], atol=2e-4, rtol=1e-3)
        assert not torch.equal(tensor, before[name])
    value = torch.zeros(128)
    with torch.no_grad():
        network.values(samples.obs, None, value)  # sees the weights after the last step
        torch.testing.assert_close(value, policy.value(samples.obs), atol=1e-5, rtol=1e-5)


def test_the_same_boards_give_the_same_bits_whatever_their_number_in_a_group() -> None:
    policy = make_policy("residual")
    network, obs = numba_network(policy), observations(BOARD, 45)
    network.refresh()
    whole, part = torch.zeros(45), torch.zeros(3)
    network.values(obs, None, whole)
    network.values(map_leaves(lambda leaf: leaf[40:43], obs), None, part)
    torch.testing.assert_close(part, whole[40:43], atol=1e-6, rtol=1e-6)
    again = torch.zeros(45)
    network.values(obs, None, again)
    assert torch.equal(whole, again)


@pytest.mark.parametrize(
    ("space", "settings", "reason"),
    [
        (Dict({"board": SQUARE, "kind": Discrete(3)}), {"embedding_size": 4}, "the encoder of these observations"),
        (Box(0, 255, (40, 40, 3), np.uint8), {"encoder": "nature_cnn"}, "NatureCNN"),
    ],
)
def test_encoders_that_are_left_to_torch_are_named(space: Any, settings: dict[str, Any], reason: str) -> None:
    config = PolicyConfig(**({"encoder": "grid_cnn"} | settings))
    policy = Policy(default_network(space, ACTIONS, config), space, ACTIONS, config)
    with pytest.raises(UnsupportedPolicyError, match=reason):
        numba_network(policy)


def test_averages_over_turned_boards_are_left_to_torch() -> None:
    config = PolicyConfig(encoder="grid_cnn", grid_channels=(4,))
    tables = SymmetryTables.of([MIRROR], BOARD, ACTIONS)
    policy = Policy(with_symmetries(default_network(BOARD, ACTIONS, config), "average", tables), BOARD, ACTIONS, config)
    with pytest.raises(UnsupportedPolicyError, match="AveragedNetwork"):
        numba_network(policy)


def changed(change: Callable[[nn.Sequential], None], space: Box = BOARD, **settings: Any) -> Policy:
    config = PolicyConfig(**({"encoder": "grid_cnn", "grid_channels": (4, 4), "shared_trunk": True} | settings))
    network: Any = default_network(space, ACTIONS, config)
    change(network.encoder.layers)
    return Policy(network, space, ACTIONS, config)


@pytest.mark.parametrize(
    "change",
    [
        lambda layers: layers.insert(1, nn.GroupNorm(2, 4)),
        lambda layers: layers.__setitem__(1, nn.Tanh()),
        lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 3, padding=2, dilation=2)),
        lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 1)),
        lambda layers: layers.__setitem__(2, nn.Conv2d(4, 4, 3, padding=1, bias=False)),
        lambda layers: setattr(layers[4], "second", nn.Conv2d(4, 4, 3, padding=1, groups=2)),
    ],
)
def test_a_board_network_that_a_user_has_changed_is_left_to_torch(change: Any) -> None:
    numba_network(changed(lambda layers: None, grid_blocks=1))
    with pytest.raises(UnsupportedPolicyError, match="3x3 convolutions with ReLU, then residual blocks"):
        numba_network(changed(change, grid_blocks=1))


def test_boards_that_do_not_fit_into_a_cache_are_left_to_torch() -> None:
    with pytest.raises(UnsupportedPolicyError, match=r"as fast with boards of so many channels \(\d+ MB"):
        numba_network(changed(lambda layers: None, Box(0, 1, (1, 19, 19), np.float32), grid_channels=(32, 32)))


@pytest.mark.parametrize("name", ["rest", "symmetric"])
def test_many_observations_are_encoded_some_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(name)
    obs, whole, in_parts = observations(policy.observation_space, 50), torch.empty(50), torch.empty(50)
    network = numba_network(policy)
    network.values(obs, None, whole)
    monkeypatch.setattr("scramjet.accelerate.numba.network.ENCODED_AT_ONCE", 7)
    network.values(obs, None, in_parts)
    assert torch.equal(in_parts, whole)
    torch.testing.assert_close(whole, policy.value(obs).detach(), rtol=1e-4, atol=1e-5)
