"""Networks of the same layers and widths as scramjet's, as plain functions of JAX: no library of layers is needed.

A network is a tree of weights: one trunk that policy and value share, or one each, and two linear outputs. A trunk is
convolutions as in `GridCNN` (none for flat observations), then the hidden layers. Initial weights are scramjet's too:
a policy near uniform gives both programs search trees of about the same shape.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from search.network import Network

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}
RELU_GAIN, POLICY_GAIN, VALUE_GAIN = 2**0.5, 0.01, 1.0


class JaxNetwork:
    """The functions of a network; its weights are handed to them."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def weights(self, key: Any, observation_shape: tuple[int, ...], num_actions: int) -> Any:
        """Initial weights; observations are [B, features] or [B, height, width, planes]."""
        network = self.network
        policy_key, value_key, *trunk_keys = jax.random.split(key, 3 if network.shared_trunk else 4)
        made = {
            "trunks": [self._trunk(trunk_key, observation_shape) for trunk_key in trunk_keys],
            "policy": linear(policy_key, network.hidden[-1], num_actions, POLICY_GAIN),
            "value": linear(value_key, network.hidden[-1], 1, VALUE_GAIN),
        }
        return jax.tree.map(lambda leaf: leaf.astype(network.dtype), made)

    def _trunk(self, key: Any, observation_shape: tuple[int, ...]) -> dict[str, Any]:
        network, inputs = self.network, math.prod(observation_shape)
        keys = iter(jax.random.split(key, 1 + 2 * network.blocks + len(network.hidden)))
        trunk: dict[str, Any] = {"blocks": [], "hidden": []}
        if network.channels:
            *_, planes = observation_shape
            trunk["first"] = convolution(next(keys), planes, network.channels)
            for _ in range(network.blocks):
                first, second = (convolution(next(keys), network.channels, network.channels) for _ in range(2))
                trunk["blocks"].append((first, jax.tree.map(jnp.zeros_like, second)))
            inputs = inputs // planes * network.channels
        for units in network.hidden:
            trunk["hidden"].append(linear(next(keys), inputs, units, RELU_GAIN))
            inputs = units
        return trunk

    def logits(self, weights: Any, obs: Any) -> Any:
        """[B, ...] to [B, num_actions] float32."""
        return apply(weights["policy"], self._features(weights["trunks"][0], obs)).astype(jnp.float32)

    def value(self, weights: Any, obs: Any) -> Any:
        """[B, ...] to [B] float32; beside `logits` of the same observations XLA computes a shared trunk once."""
        return apply(weights["value"], self._features(weights["trunks"][-1], obs))[..., 0].astype(jnp.float32)

    def _features(self, trunk: dict[str, Any], obs: Any) -> Any:
        features = obs.astype(self.network.dtype)
        if self.network.channels:
            features = jax.nn.relu(convolve(trunk["first"], features))
            for first, second in trunk["blocks"]:
                features = jax.nn.relu(features + convolve(second, jax.nn.relu(convolve(first, features))))
        features = features.reshape(features.shape[0], -1)
        for layer in trunk["hidden"]:
            features = ACTIVATIONS[self.network.activation](apply(layer, features))
        return features


def linear(key: Any, inputs: int, outputs: int, gain: float) -> tuple[Any, Any]:
    """Orthogonal weights [inputs, outputs] and zero biases."""
    return jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs)), jnp.zeros(outputs)


def convolution(key: Any, inputs: int, outputs: int) -> tuple[Any, Any]:
    """Orthogonal weights [3, 3, inputs, outputs] and zero biases."""
    return jax.nn.initializers.orthogonal(RELU_GAIN)(key, (3, 3, inputs, outputs)), jnp.zeros(outputs)


def apply(layer: tuple[Any, Any], features: Any) -> Any:
    """A linear layer, [B, inputs] to [B, outputs]."""
    weight, bias = layer
    return features @ weight + bias


def convolve(layer: tuple[Any, Any], board: Any) -> Any:
    """A 3x3 convolution with padding, [B, height, width, inputs] to [B, height, width, outputs]."""
    weight, bias = layer
    return (
        jax.lax.conv_general_dilated(board, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias
    )
