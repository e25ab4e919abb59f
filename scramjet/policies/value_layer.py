"""Finds the layer of a network that gives its values, which PopArt rescales."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from scramjet.engine.trees import map_leaves
from scramjet.errors import ConfigError
from scramjet.policies.encoders.attention import PooledValueHead
from scramjet.policies.observations import lowest_observations
from scramjet.policies.policy import Policy
from scramjet.policies.symmetries import AveragedNetwork, CanonicalNetwork


def value_layer(policy: Policy) -> nn.Linear:
    """The linear layer whose one output is the value; a ConfigError says what a network without one must name."""
    network: Any = policy.network
    while isinstance(network, CanonicalNetwork | AveragedNetwork):
        network = network.network
    layer = getattr(network, "critic_head", None)
    layer = layer.output if isinstance(layer, PooledValueHead) else layer
    name = type(network).__name__
    if not isinstance(layer, nn.Linear) or layer.out_features != 1 or layer.bias is None:
        given = "no such layer" if layer is None else f"{layer} there"
        raise ConfigError(
            f"value_scale='popart' rescales the layer that gives the values, and the network {name} has {given}; name "
            f"it self.critic_head = nn.Linear(..., 1), or use --value-scale symlog"
        )
    return layer


_PROBES = ((2.0, 1.0), (0.5, -3.0))
"""Factors and offsets by which the layer is rescaled to see whether values follow. A network that gives a * output + c
follows one of them wherever c * (1 - factor) = offset * (1 - a), and both only with a = 1 and c = 0."""


@torch.no_grad()
def check_value_layer(policy: Policy, observation_space: Any) -> None:
    """Refuse a network that returns something else than the output of its value layer as the value."""
    layer, was_training = value_layer(policy), policy.training
    kept = layer.weight.clone(), layer.bias.clone()
    obs = map_leaves(lambda leaf: leaf.to(policy.device), lowest_observations(observation_space, 2))
    state = policy.initial_state(2) if policy.state_size else None
    policy.eval()
    before = policy.value(obs, state)
    follows = True
    for factor, offset in _PROBES:
        layer.weight.copy_(factor * kept[0])
        layer.bias.copy_(factor * kept[1] + offset)
        after = policy.value(obs, state)
        follows &= torch.allclose(after, factor * before + offset, rtol=1e-2, atol=1e-2)
    for parameter, numbers in zip((layer.weight, layer.bias), kept, strict=True):
        parameter.copy_(numbers)
    policy.train(was_training)
    if not follows:
        raise ConfigError(
            f"value_scale='popart' rescales critic_head, and the network {type(policy.network).__name__} returns "
            f"something else than its output as the value; return it as it is, or use --value-scale symlog"
        )
