"""Networks of the same layers and widths as scramjet's, as plain functions of JAX: no library of layers is needed.

A network is a tree of weights: one trunk that policy and value share, or one each, and two linear outputs. A trunk is
convolutions as in `GridCNN` (none for flat observations), then the hidden layers. Initial weights are scramjet's too:
a policy near uniform gives both programs search trees of about the same shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}
RELU_GAIN, POLICY_GAIN, VALUE_GAIN = 2**0.5, 0.01, 1.0


@dataclass(frozen=True)
class Network:
    """The kind of a network, as scramjet's policy settings name it."""

    hidden: tuple[int, ...]
    """Width of each hidden layer."""
    activation: str
    """relu or tanh, after each hidden layer."""
    shared_trunk: bool
    """One trunk for policy and value, instead of one each."""
    channels: int = 0
    """Of a 3x3 convolution before the hidden layers, with relu; 0: observations are laid flat instead."""
    blocks: int = 0
    """Residual blocks of two more 3x3 convolutions each."""
    dtype: str = "float32"
    """Of weights and layers. XLA multiplies float32 in TF32 on NVIDIA's newer GPUs unless told otherwise."""

    def __str__(self) -> str:
        width = "x".join(str(units) for units in self.hidden)
        board = f"{self.channels} channels, {self.blocks} residual blocks, " if self.channels else ""
        trunk = "one trunk" if self.shared_trunk else "two trunks"
        return f"{board}hidden {width} {self.activation}, {trunk}, {self.dtype}"

    def weights(self, key: Any, observation_shape: tuple[int, ...], num_actions: int) -> Any:
        """Initial weights; observations are [B, features] or [B, height, width, planes]."""
        policy_key, value_key, *trunk_keys = jax.random.split(key, 3 if self.shared_trunk else 4)
        trunks = [self._trunk(trunk_key, observation_shape) for trunk_key in trunk_keys]
        made = {
            "trunks": trunks,
            "policy": linear(policy_key, self.hidden[-1], num_actions, POLICY_GAIN),
            "value": linear(value_key, self.hidden[-1], 1, VALUE_GAIN),
        }
        return jax.tree.map(lambda leaf: leaf.astype(self.dtype), made)

    def _trunk(self, key: Any, observation_shape: tuple[int, ...]) -> Any:
        keys = iter(jax.random.split(key, 1 + 2 * self.blocks + len(self.hidden)))
        inputs = math.prod(observation_shape)
        trunk: dict[str, Any] = {"blocks": [], "hidden": []}
        if self.channels:
            *_, planes = observation_shape
            trunk["first"] = convolution(next(keys), planes, self.channels)
            for _ in range(self.blocks):
                first, second = (convolution(next(keys), self.channels, self.channels) for _ in range(2))
                trunk["blocks"].append((first, jax.tree.map(jnp.zeros_like, second)))
            inputs = inputs // planes * self.channels
        for units in self.hidden:
            trunk["hidden"].append(linear(next(keys), inputs, units, RELU_GAIN))
            inputs = units
        return trunk

    def logits(self, weights: Any, obs: Any) -> Any:
        """[B, ...] to [B, num_actions] float32."""
        return apply(weights["policy"], self._features(weights["trunks"][0], obs)).astype(jnp.float32)

    def value(self, weights: Any, obs: Any) -> Any:
        """[B, ...] to [B] float32; beside `logits` of the same observations XLA computes a shared trunk once."""
        return apply(weights["value"], self._features(weights["trunks"][-1], obs))[..., 0].astype(jnp.float32)

    def _features(self, trunk: Any, obs: Any) -> Any:
        features = obs.astype(self.dtype)
        if self.channels:
            features = jax.nn.relu(convolve(trunk["first"], features))
            for first, second in trunk["blocks"]:
                features = jax.nn.relu(features + convolve(second, jax.nn.relu(convolve(first, features))))
        features = features.reshape(features.shape[0], -1)
        for layer in trunk["hidden"]:
            features = ACTIVATIONS[self.activation](apply(layer, features))
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
