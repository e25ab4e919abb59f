"""Networks of the same layers and widths as scramjet's, as functions of JAX over trees of weights.

A network has `weights(key)` and gives the inputs of its action distribution and values: `forward(weights, obs)` for
observations of any number of leading axes. One with memory has `step(weights, memory, obs)` for a step of all envs and
`sequence(weights, memory, obs, begins)` for [T, N], with memory forgotten where an episode begins. Recurrent cells are
flax's; all else needs jax alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

GAIN, POLICY_GAIN, VALUE_GAIN = 2**0.5, 0.01, 1.0


def linear(key, inputs, outputs, gain):
    weight = jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs), jnp.float32)
    return weight, jnp.zeros(outputs)


def apply(layer, x):
    weight, bias = layer
    return x @ weight + bias


class Categorical:
    """One of some actions; of `num_inputs` logits, those of illegal actions are put out of reach."""

    def __init__(self, num_actions):
        self.num_inputs = num_actions

    def inputs(self, weights, logits, obs):
        mask = obs.get("mask") if isinstance(obs, dict) else None
        return logits if mask is None else jnp.where(mask, logits, -1e9)

    def weights(self):
        return ()

    def sample(self, key, logits):
        return jax.random.categorical(key, logits)

    def log_prob(self, logits, action):
        return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]

    def entropy(self, logits):
        log_probs = jax.nn.log_softmax(logits)
        return -(jnp.exp(log_probs) * log_probs).sum(-1)


class Normal:
    """`num_inputs` numbers, each by itself; the deviations are learned and the same in all states."""

    def __init__(self, size):
        self.num_inputs = size

    def weights(self):
        return jnp.zeros(self.num_inputs)  # logarithms of the deviations

    def inputs(self, weights, means, obs):
        return means, jnp.broadcast_to(weights, means.shape)

    def sample(self, key, inputs):
        mean, log_std = inputs
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)

    def log_prob(self, inputs, action):
        mean, log_std = inputs
        return (-0.5 * jnp.square((action - mean) * jnp.exp(-log_std)) - log_std - 0.5 * jnp.log(2 * jnp.pi)).sum(-1)

    def entropy(self, inputs):
        return (inputs[1] + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum(-1)


class SeparateMLPs:
    """An actor and a critic of two tanh layers each."""

    has_memory = False

    def __init__(self, num_features, distribution, hidden=64):
        self.num_features, self.distribution, self.hidden = num_features, distribution, hidden

    def weights(self, key):
        actor_key, critic_key = jax.random.split(key)
        return {
            "actor": self._tower(actor_key, self.distribution.num_inputs, POLICY_GAIN),
            "critic": self._tower(critic_key, 1, VALUE_GAIN),
            "distribution": self.distribution.weights(),
        }

    def _tower(self, key, outputs, gain):
        keys = jax.random.split(key, 3)
        return [
            linear(keys[0], self.num_features, self.hidden, GAIN),
            linear(keys[1], self.hidden, self.hidden, GAIN),
            linear(keys[2], self.hidden, outputs, gain),
        ]

    def forward(self, weights, obs):
        inputs = self.distribution.inputs(weights["distribution"], self._run(weights["actor"], obs), obs)
        return inputs, self._run(weights["critic"], obs)[..., 0]

    def _run(self, tower, x):
        for layer in tower[:-1]:
            x = jnp.tanh(apply(layer, x))
        return apply(tower[-1], x)


class BoardCNN:
    """A 3x3 convolution of a board and a layer of units, both with ReLU, for policy and value together."""

    has_memory = False

    def __init__(self, rows, columns, planes, distribution, channels=32, hidden=128):
        self.cells, self.planes, self.distribution = rows * columns, planes, distribution
        self.channels, self.hidden = channels, hidden

    def weights(self, key):
        keys = jax.random.split(key, 4)
        kernel, bias = linear(keys[0], 9 * self.planes, self.channels, GAIN)
        return {
            "convolution": (kernel.reshape(3, 3, self.planes, self.channels), bias),
            "hidden": linear(keys[1], self.cells * self.channels, self.hidden, GAIN),
            "policy": linear(keys[2], self.hidden, self.distribution.num_inputs, POLICY_GAIN),
            "value": linear(keys[3], self.hidden, 1, VALUE_GAIN),
            "distribution": self.distribution.weights(),
        }

    def forward(self, weights, obs):
        kernel, bias = weights["convolution"]
        board = obs["board"].astype(jnp.float32)
        x = jax.lax.conv_general_dilated(board, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + bias).reshape(len(board), -1)
        x = jax.nn.relu(apply(weights["hidden"], x))
        inputs = self.distribution.inputs(weights["distribution"], apply(weights["policy"], x), obs)
        return inputs, apply(weights["value"], x)[..., 0]


def forgotten(memory, begins):
    """Memories [N, H] with zeros where an episode begins."""
    return jax.tree.map(lambda part: jnp.where(begins[:, None], 0.0, part), memory)


class FlaxCore:
    """An LSTM or a GRU by flax's cell, step by step under `lax.scan`."""

    def __init__(self, name, size):
        import flax.linen as nn

        self.cell = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}[name](features=size)
        self.size = size

    def weights(self, key):
        features = jnp.zeros((1, self.size))
        return self.cell.init(key, self.memory(1), features)

    def memory(self, num_envs):
        return self.cell.initialize_carry(jax.random.key(0), (num_envs, self.size))

    def step(self, weights, memory, features):
        return self.cell.apply(weights, memory, features)

    def sequence(self, weights, memory, features, begins):
        def one(memory, now):
            features, begins = now
            return self.cell.apply(weights, forgotten(memory, begins), features)

        return jax.lax.scan(one, memory, (features, begins))[1]


class MinGRUCore:
    """A minimal gated recurrent unit (Feng et al. 2024), all steps at once by an associative scan."""

    def __init__(self, size):
        self.size = size

    def weights(self, key):
        weight, bias = linear(key, self.size, 2 * self.size, 1.0)
        return weight, bias.at[: self.size].set(-1.0)

    def memory(self, num_envs):
        return jnp.zeros((num_envs, self.size))

    def _gates(self, weights, features):
        gate, candidate = jnp.split(apply(weights, features), 2, axis=-1)
        gate = jax.nn.sigmoid(gate)
        return 1 - gate, gate * candidate

    def step(self, weights, memory, features):
        kept, added = self._gates(weights, features)
        memory = kept * memory + added
        return memory, memory

    def sequence(self, weights, memory, features, begins):
        kept, added = self._gates(weights, features)
        kept = jnp.where(begins[..., None], 0.0, kept)
        added = added.at[0].add(kept[0] * memory)

        def joined(first, second):
            return first[0] * second[0], first[1] * second[0] + second[1]

        return jax.lax.associative_scan(joined, (kept, added))[1]


class RecurrentNetwork:
    """A tanh layer, then a recurrent core as wide, for policy and value together."""

    has_memory = True

    def __init__(self, num_features, distribution, core):
        self.num_features, self.distribution, self.core = num_features, distribution, core

    def weights(self, key):
        keys = jax.random.split(key, 4)
        return {
            "trunk": linear(keys[0], self.num_features, self.core.size, GAIN),
            "core": self.core.weights(keys[1]),
            "policy": linear(keys[2], self.core.size, self.distribution.num_inputs, POLICY_GAIN),
            "value": linear(keys[3], self.core.size, 1, VALUE_GAIN),
            "distribution": self.distribution.weights(),
        }

    def memory(self, num_envs):
        return self.core.memory(num_envs)

    def step(self, weights, memory, obs):
        memory, features = self.core.step(weights["core"], memory, self._trunk(weights, obs))
        return memory, self._heads(weights, features, obs)

    def sequence(self, weights, memory, obs, begins):
        features = self.core.sequence(weights["core"], memory, self._trunk(weights, obs), begins)
        return self._heads(weights, features, obs)

    def _trunk(self, weights, obs):
        return jnp.tanh(apply(weights["trunk"], obs))

    def _heads(self, weights, features, obs):
        inputs = self.distribution.inputs(weights["distribution"], apply(weights["policy"], features), obs)
        return inputs, apply(weights["value"], features)[..., 0]
