"""PPO on CartPole as one XLA program, in the manner of PureJaxRL: envs, rollouts and updates in JAX, jitted as a whole.

    PYTHON_WITH_JAX benchmarks/peers/jax_cartpole.py --num-envs 1024 --num-steps 128 --seconds 5

Needs jax and numpy alone. The work is that of `scramjet bench`: separate 64x64 tanh networks, 4 epochs, 4 minibatches
of randomly drawn samples, advantages normalized in each minibatch, Adam, gradients clipped to a norm of 0.5. CartPole's
rules are Gymnasium's, with a limit of 500 steps and auto-reset. A truncated episode counts as terminated, which is less
work than to bootstrap it. Ten updates are one call. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time

import jax
import jax.numpy as jnp

HIDDEN, EPOCHS, MINIBATCHES, UPDATES_PER_CALL = 64, 4, 4, 10
GAMMA, LAMBDA, CLIP, VALUE_COEF, ENTROPY_COEF, LEARNING_RATE, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.01, 2.5e-4, 0.5


def linear(key, inputs, outputs, gain):
    weight = jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs), jnp.float32)
    return weight, jnp.zeros(outputs)


def make_network(key, outputs, gain):
    keys = jax.random.split(key, 3)
    return [
        linear(keys[0], 4, HIDDEN, 2**0.5),
        linear(keys[1], HIDDEN, HIDDEN, 2**0.5),
        linear(keys[2], HIDDEN, outputs, gain),
    ]


def apply(network, x):
    for weight, bias in network[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = network[-1]
    return x @ weight + bias


def forward(parameters, obs):
    return apply(parameters["actor"], obs), apply(parameters["critic"], obs)[..., 0]


def fresh(key, num_envs):
    return jax.random.uniform(key, (num_envs, 4), minval=-0.05, maxval=0.05)


def step_envs(key, obs, age, action):
    """All envs at once; ended episodes begin anew in the same step."""
    x, speed, angle, spin = obs.T
    force = jnp.where(action == 1, 10.0, -10.0)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    push = (force + 0.05 * spin**2 * sine) / 1.1
    angular = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    linear_ = push - 0.05 * angular * cosine / 1.1
    after = jnp.stack([x + 0.02 * speed, speed + 0.02 * linear_, angle + 0.02 * spin, spin + 0.02 * angular], axis=1)
    age = age + 1
    fell = (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 12 * 2 * jnp.pi / 360)
    done = fell | (age >= 500)
    after = jnp.where(done[:, None], fresh(key, len(obs)), after)
    return after, jnp.where(done, 0, age), done


def loss(parameters, batch):
    logits, value = forward(parameters, batch["obs"])
    log_probs = jax.nn.log_softmax(logits)
    log_prob = jnp.take_along_axis(log_probs, batch["action"][:, None], axis=1)[:, 0]
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = jnp.exp(log_prob - batch["log_prob"])
    surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
    value_loss = 0.5 * jnp.square(value - batch["returns"]).mean()
    return -surrogate + VALUE_COEF * value_loss - ENTROPY_COEF * entropy


def adam(parameters, gradients, moments):
    count, first, second = moments
    norm = jnp.sqrt(sum(jnp.square(g).sum() for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, MAX_NORM / (norm + 1e-6)), gradients)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)

    def move(p, m, v):
        return p - LEARNING_RATE * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-5)

    return jax.tree.map(move, parameters, first, second), (count, first, second)


def make_update(num_envs, num_steps):
    def play(carry, key):
        parameters, obs, age = carry
        act_key, reset_key = jax.random.split(key)
        logits, value = forward(parameters, obs)
        action = jax.random.categorical(act_key, logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0]
        after, age, done = step_envs(reset_key, obs, age, action)
        seen = {"obs": obs, "action": action, "log_prob": log_prob, "value": value, "done": done}
        return (parameters, after, age), seen

    def learn(carry, batch):
        parameters, moments = carry
        return adam(parameters, jax.grad(loss)(parameters, batch), moments), None

    def update(state, _):
        parameters, moments, obs, age, key = state
        key, play_key, shuffle_key = jax.random.split(key, 3)
        (_, obs, age), seen = jax.lax.scan(play, (parameters, obs, age), jax.random.split(play_key, num_steps))
        last = apply(parameters["critic"], obs)[..., 0]

        def back(carry, step):
            following, next_value = carry
            goes_on = 1.0 - step["done"]
            error = 1.0 + GAMMA * next_value * goes_on - step["value"]
            following = error + GAMMA * LAMBDA * goes_on * following
            return (following, step["value"]), following

        _, advantage = jax.lax.scan(back, (jnp.zeros(num_envs), last), seen, reverse=True)
        seen = {**seen, "advantage": advantage, "returns": advantage + seen["value"]}
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), seen)

        def epoch(carry, epoch_key):
            order = jax.random.permutation(epoch_key, num_envs * num_steps)
            parts = jax.tree.map(lambda leaf: leaf[order].reshape(MINIBATCHES, -1, *leaf.shape[1:]), flat)
            return jax.lax.scan(learn, carry, parts)

        (parameters, moments), _ = jax.lax.scan(epoch, (parameters, moments), jax.random.split(shuffle_key, EPOCHS))
        return (parameters, moments, obs, age, key), seen["done"].sum()

    return jax.jit(lambda state: jax.lax.scan(update, state, None, length=UPDATES_PER_CALL))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    keys = jax.random.split(jax.random.key(0), 4)
    parameters = {"actor": make_network(keys[0], 2, 0.01), "critic": make_network(keys[1], 1, 1.0)}
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    age = jnp.zeros(arguments.num_envs, jnp.int32)
    state = (parameters, (0.0, zeros, zeros), fresh(keys[2], arguments.num_envs), age, keys[3])
    update = make_update(arguments.num_envs, arguments.num_steps)
    started = time.perf_counter()
    state, ended = jax.block_until_ready(update(state))
    compile_seconds = time.perf_counter() - started
    steps, rates, lengths = UPDATES_PER_CALL * arguments.num_envs * arguments.num_steps, [], []
    begun = time.perf_counter()
    while time.perf_counter() - begun < arguments.seconds or len(rates) < 3:
        started = time.perf_counter()
        state, ended = jax.block_until_ready(update(state))
        rates.append(steps / (time.perf_counter() - started))
        lengths.append(float(steps / jnp.maximum(ended.sum(), 1)))
    print(
        json.dumps(
            {
                "steps_per_second": sorted(rates)[len(rates) // 2],
                "num_envs": arguments.num_envs,
                "num_steps": arguments.num_steps,
                "mean_length": lengths[-1],
                "compile_seconds": compile_seconds,
                "jax": jax.__version__,
                "device": str(jax.devices()[0]),
            }
        )
    )


if __name__ == "__main__":
    main()
