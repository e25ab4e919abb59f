"""PPO as one XLA program, in the manner of PureJaxRL: envs, rollouts and updates in JAX, jitted as a whole.

The work is that of `scramjet bench`: 4 epochs, 4 minibatches of randomly drawn samples, or of whole sequences where the
network has memory; advantages normalized in each minibatch, Adam, gradients clipped to a norm of 0.5. In a game of two
seats one network plays both, and advantages go from a seat's turn to its next. An episode cut by its limit of steps
counts as terminated, which is less work than to bootstrap it. Products are in JAX's default precision, tf32 on a GPU.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import measuring
from jax_networks import forgotten

EPOCHS, MINIBATCHES, UPDATES_PER_CALL = measuring.EPOCHS, measuring.MINIBATCHES, 10
GAMMA, LAMBDA, CLIP, VALUE_COEF, ENTROPY_COEF, LEARNING_RATE, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.01, 2.5e-4, 0.5
LARGE_ON_CPU = 256
"""Envs from which on a call is one update on a CPU, because ten would take long."""


class Settings(NamedTuple):
    """What may differ between tasks."""

    num_envs: int
    num_steps: int
    gamma: float = GAMMA
    learning_rate: float = LEARNING_RATE
    total_updates: int | None = None
    """Updates over which the learning rate falls to 0; None: it does not."""


class Envs(NamedTuple):
    """What goes from a step to the next."""

    obs: Any
    state: Any
    memory: Any  # () where the network has none
    begins: Any  # [N], whether an episode begins with `obs`
    earned: Any  # [N], rewards of the episode by now; of a game those of its first seat


class State(NamedTuple):
    """What goes from an update to the next."""

    weights: Any
    moments: Any  # Adam's: count, first, second
    envs: Envs
    key: Any


class Ended(NamedTuple):
    """Where episodes ended, and what they earned, both [U, T, N]."""

    done: Any
    earned: Any


def gae(reward, value, done, last, gamma=GAMMA):
    """Generalized advantages as a scan from the last step back; all [T, N], last [N]."""

    def back(carry, step):
        following, next_value = carry
        reward, value, done = step
        goes_on = 1.0 - done
        error = reward + gamma * next_value * goes_on - value
        following = error + gamma * LAMBDA * goes_on * following
        return (following, value), following

    return jax.lax.scan(back, (jnp.zeros_like(last), last), (reward, value, done), reverse=True)[1]


def seat_gae(reward, value, done, last, seat, last_seat, gamma=GAMMA):
    """Advantages for each seat by itself, [T, N], and which of them are known: reward [T, N, 2], seats [T, N] and [N].

    A step of a seat lasts from its turn to its next, and is not known where the rollout ends between the two.
    """

    def back(carry, step):
        earned, next_value, next_gain, is_known = carry  # [N, 2] each: about a seat's next turn
        reward, value, done, seat = step
        ends = done[:, None]
        earned = jnp.where(ends, 0.0, earned) + reward
        next_value, next_gain = jnp.where(ends, 0.0, next_value), jnp.where(ends, 0.0, next_gain)
        is_known = is_known | ends
        is_mover = jnp.arange(2) == seat[:, None]
        gain = jnp.where(is_known, earned + gamma * next_value - value[:, None] + gamma * LAMBDA * next_gain, 0.0)
        found = jnp.where(is_mover, gain, 0.0).sum(1), (is_known & is_mover).any(1)
        carry = (
            jnp.where(is_mover, 0.0, earned),
            jnp.where(is_mover, value[:, None], next_value),
            jnp.where(is_mover, gain, next_gain),
            is_known | is_mover,
        )
        return carry, found

    is_next = jnp.arange(2) == last_seat[:, None]
    zeros = jnp.zeros(is_next.shape)
    begun = (zeros, jnp.where(is_next, last[:, None], 0.0), zeros, is_next)
    return jax.lax.scan(back, begun, (reward, value, done, seat), reverse=True)[1]


def mean(numbers, counts):
    """The mean of those that count; `counts` is None where all do."""
    return numbers.mean() if counts is None else jnp.where(counts, numbers, 0.0).sum() / counts.sum()


def loss(distribution, inputs, value, batch):
    """PPO's loss of a minibatch, for what the network gives now."""
    counts, advantage = batch.get("counts"), batch["advantage"]
    log_prob = distribution.log_prob(inputs, batch["action"])
    centred = advantage - mean(advantage, counts)
    advantage = centred / (jnp.sqrt(mean(jnp.square(centred), counts)) + 1e-8)
    ratio = jnp.exp(log_prob - batch["log_prob"])
    surrogate = mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage), counts)
    value_loss = 0.5 * mean(jnp.square(value - batch["returns"]), counts)
    return -surrogate + VALUE_COEF * value_loss - ENTROPY_COEF * mean(distribution.entropy(inputs), counts)


def adam(weights, gradients, moments, learning_rate):
    count, first, second = moments
    norm = jnp.sqrt(sum(jnp.square(g).sum() for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, MAX_NORM / (norm + 1e-6)), gradients)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)

    def move(p, m, v):
        return p - learning_rate * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-5)

    return jax.tree.map(move, weights, first, second), (count, first, second)


class Program:
    """PPO of a network on a world."""

    def __init__(self, world, network, settings):
        self.world, self.network, self.settings = world, network, settings
        self.has_seats = hasattr(world, "seat")

    def start(self, seed=0):
        """New weights, moments and envs."""
        num_envs = self.settings.num_envs
        weight_key, env_key, key = jax.random.split(jax.random.key(seed), 3)
        weights = self.network.weights(weight_key)
        zeros = jax.tree.map(jnp.zeros_like, weights)
        obs, env_state = self.world.reset(env_key, num_envs)
        memory = self.network.memory(num_envs) if self.network.has_memory else ()
        envs = Envs(obs, env_state, memory, jnp.ones(num_envs, bool), jnp.zeros(num_envs))
        return State(weights, (0.0, zeros, zeros), envs, key)

    def updates(self, num_updates=UPDATES_PER_CALL):
        """A function that makes so many updates as one program: a State to a State and what Ended."""
        return jax.jit(lambda state: jax.lax.scan(self._update, state, None, length=num_updates))

    def _forward(self, weights, memory, obs):
        """A step of all envs: memories after it, inputs of the distribution and values."""
        if self.network.has_memory:
            memory, (inputs, value) = self.network.step(weights, memory, obs)
            return memory, inputs, value
        return memory, *self.network.forward(weights, obs)

    def _play(self, weights, envs, key):
        """One step of all envs; gives what is learned from and what ended."""
        act_key, reset_key = jax.random.split(key)
        distribution = self.network.distribution
        memory, inputs, value = self._forward(weights, envs.memory, envs.obs)
        action = distribution.sample(act_key, inputs)
        obs, env_state, reward, done = self.world.step(reset_key, envs.state, action)
        seen = {"obs": envs.obs, "action": action, "log_prob": distribution.log_prob(inputs, action), "value": value}
        seen |= {"reward": reward, "done": done}
        if self.network.has_memory:
            seen["begins"], memory = envs.begins, forgotten(memory, done)
        if self.has_seats:
            seen["seat"] = self.world.seat(envs.state)
        earned = envs.earned + (reward[:, 0] if self.has_seats else reward)
        after = Envs(obs, env_state, memory, done, jnp.where(done, 0.0, earned))
        return after, (seen, Ended(done, earned))

    def _samples(self, weights, seen, envs):
        """What the loss needs of a rollout, [T, N], with advantages and returns; `envs` are those after it."""
        last = self._forward(weights, envs.memory, envs.obs)[-1]
        reward, value, done, gamma = seen["reward"], seen["value"], seen["done"], self.settings.gamma
        samples = {name: seen[name] for name in ("obs", "action", "log_prob", "begins") if name in seen}
        if self.has_seats:
            last_seat = self.world.seat(envs.state)
            advantage, samples["counts"] = seat_gae(reward, value, done, last, seen["seat"], last_seat, gamma)
        else:
            advantage = gae(reward, value, done, last, gamma)
        return {**samples, "advantage": advantage, "returns": advantage + value}

    def _minibatches(self, samples, memory, key):
        """Minibatches [M, ...] in a random order: of samples, or of sequences [M, T, B] with their first memories."""
        if not self.network.has_memory:
            order = jax.random.permutation(key, self.settings.num_envs * self.settings.num_steps)
            flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
            return jax.tree.map(lambda leaf: leaf[order].reshape(MINIBATCHES, -1, *leaf.shape[1:]), flat)
        order = jax.random.permutation(key, self.settings.num_envs).reshape(MINIBATCHES, -1)
        parts = jax.tree.map(lambda leaf: leaf[:, order].swapaxes(0, 1), samples)
        return {**parts, "memory": jax.tree.map(lambda leaf: leaf[order], memory)}

    def _loss(self, weights, batch):
        if self.network.has_memory:
            found = self.network.sequence(weights, batch["memory"], batch["obs"], batch["begins"])
        else:
            found = self.network.forward(weights, batch["obs"])
        return loss(self.network.distribution, *found, batch)

    def _learn(self, carry, batch):
        """One gradient step."""
        weights, moments = carry
        rate, total = self.settings.learning_rate, self.settings.total_updates
        if total is not None:
            made = moments[0] // (EPOCHS * MINIBATCHES)  # updates before this one
            rate = rate * jnp.maximum(0.0, 1.0 - made / total)
        return adam(weights, jax.grad(self._loss)(weights, batch), moments, rate), None

    def _update(self, state, _):
        weights, moments, before, key = state
        key, play_key, shuffle_key = jax.random.split(key, 3)
        step_keys = jax.random.split(play_key, self.settings.num_steps)
        envs, (seen, ended) = jax.lax.scan(partial(self._play, weights), before, step_keys)
        samples = self._samples(weights, seen, envs)

        def epoch(carry, epoch_key):
            return jax.lax.scan(self._learn, carry, self._minibatches(samples, before.memory, epoch_key))

        epoch_keys = jax.random.split(shuffle_key, EPOCHS)
        (weights, moments), _ = jax.lax.scan(epoch, (weights, moments), epoch_keys)
        return State(weights, moments, envs, key), ended


def measured_training(program, seconds, seed):
    """Steps trained per second after the compilation, and how episodes went at the end."""
    settings = program.settings
    is_long = jax.default_backend() == "cpu" and settings.num_envs >= LARGE_ON_CPU
    num_updates = 1 if is_long else UPDATES_PER_CALL
    state, update = program.start(seed), program.updates(num_updates)
    started = time.perf_counter()
    state, ended = jax.block_until_ready(update(state))
    compile_seconds = time.perf_counter() - started
    steps = num_updates * settings.num_envs * settings.num_steps

    def once():
        nonlocal state, ended
        state, ended = jax.block_until_ready(update(state))

    rate = measuring.median_rate(once, steps, seconds, warm_ups=1)
    num_ended = max(int(ended.done.sum()), 1)
    return {
        "steps_per_second": rate,
        "num_steps": settings.num_steps,
        "mean_length": steps / num_ended,
        "mean_return": float(jnp.where(ended.done, ended.earned, 0.0).sum() / num_ended),
        "updates": int(state.moments[0]) // (EPOCHS * MINIBATCHES),
        "compile_seconds": compile_seconds,
    }
