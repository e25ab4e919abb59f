"""PPO on CartPole as one XLA program, in the manner of PureJaxRL: envs, rollouts and updates in JAX, jitted as a whole.

    PYTHON_WITH_JAX benchmarks/peers/jax_cartpole.py --num-envs 1024 --num-steps 128 --seconds 5

Needs jax and numpy alone. The work is that of `scramjet bench`: separate 64x64 tanh networks, 4 epochs, 4 minibatches
of randomly drawn samples, advantages normalized in each minibatch, Adam, gradients clipped to a norm of 0.5. CartPole's
rules are Gymnasium's, with a limit of 500 steps and auto-reset; with `--envs gymnax` they are gymnax's own program. A
truncated episode counts as terminated, which is less work than to bootstrap it. Ten updates are one call, or, where
they would take long on a CPU, one. To solve CartPole it has PureJaxRL's settings: 4 envs, and a learning rate that
falls to 0 over 500 K steps. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time

import jax
import jax.numpy as jnp
import measuring
import numpy as np

HIDDEN, EPOCHS, MINIBATCHES, UPDATES_PER_CALL = 64, 4, 4, 10
GAMMA, LAMBDA, CLIP, VALUE_COEF, ENTROPY_COEF, LEARNING_RATE, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.01, 2.5e-4, 0.5
LARGE_ON_CPU = 256
SOLVE_ENVS, SOLVE_STEPS = 4, 500_000


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


class OwnEnvs:
    """CartPole here, all envs at once; the state is the observation and the age."""

    def reset(self, key, num_envs):
        obs = fresh(key, num_envs)
        return obs, (obs, jnp.zeros(num_envs, jnp.int32))

    def step(self, key, state, action):
        """Ended episodes begin anew in the same step."""
        obs, age = state
        x, speed, angle, spin = obs.T
        force = jnp.where(action == 1, 10.0, -10.0)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        push = (force + 0.05 * spin**2 * sine) / 1.1
        angular = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        linear_ = push - 0.05 * angular * cosine / 1.1
        after = [x + 0.02 * speed, speed + 0.02 * linear_, angle + 0.02 * spin, spin + 0.02 * angular]
        after = jnp.stack(after, axis=1)
        age = age + 1
        fell = (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 12 * 2 * jnp.pi / 360)
        done = fell | (age >= 500)
        after = jnp.where(done[:, None], fresh(key, len(obs)), after)
        return after, (after, jnp.where(done, 0, age)), done


class GymnaxEnvs:
    """gymnax's CartPole-v1, mapped over envs."""

    def __init__(self):
        import gymnax

        self.env, self.parameters = gymnax.make("CartPole-v1")

    def reset(self, key, num_envs):
        return jax.vmap(self.env.reset, (0, None))(jax.random.split(key, num_envs), self.parameters)

    def step(self, key, state, action):
        keys = jax.random.split(key, len(action))
        obs, state, _, *ends, _ = jax.vmap(self.env.step, (0, 0, 0, None))(keys, state, action, self.parameters)
        return obs, state, jnp.stack(ends).any(0)  # one flag in older releases, terminated and truncated in newer


ENVS = {"own": OwnEnvs, "gymnax": GymnaxEnvs}


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


def adam(parameters, gradients, moments, learning_rate):
    count, first, second = moments
    norm = jnp.sqrt(sum(jnp.square(g).sum() for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, MAX_NORM / (norm + 1e-6)), gradients)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)

    def move(p, m, v):
        return p - learning_rate * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-5)

    return jax.tree.map(move, parameters, first, second), (count, first, second)


def advantages(reward, value, done, last):
    """GAE as a scan from the last step back; all [T, N], last [N]."""

    def back(carry, step):
        following, next_value = carry
        reward, value, done = step
        goes_on = 1.0 - done
        error = reward + GAMMA * next_value * goes_on - value
        following = error + GAMMA * LAMBDA * goes_on * following
        return (following, value), following

    return jax.lax.scan(back, (jnp.zeros_like(last), last), (reward, value, done), reverse=True)[1]


def start(envs, num_envs, seed=0):
    """Networks, Adam's moments, envs, how long their episodes are by now, and a key."""
    keys = jax.random.split(jax.random.key(seed), 4)
    parameters = {"actor": make_network(keys[0], 2, 0.01), "critic": make_network(keys[1], 1, 1.0)}
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    obs, env_state = envs.reset(keys[2], num_envs)
    return parameters, (0.0, zeros, zeros), obs, env_state, jnp.zeros(num_envs, jnp.int32), keys[3]


def make_update(envs, num_envs, num_steps, num_updates=UPDATES_PER_CALL, total_updates=None):
    """So many updates as one program; with `total_updates` the learning rate falls to 0 over so many.

    Beside the state it gives, [U, T, N]: how long the episode was at each step, 0 where it did not end there.
    """

    def play(carry, key):
        parameters, obs, env_state, length = carry
        act_key, reset_key = jax.random.split(key)
        logits, value = forward(parameters, obs)
        action = jax.random.categorical(act_key, logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0]
        after, env_state, done = envs.step(reset_key, env_state, action)
        length = length + 1
        seen = {"obs": obs, "action": action, "log_prob": log_prob, "value": value, "done": done}
        carry = (parameters, after, env_state, jnp.where(done, 0, length))
        return carry, (seen, jnp.where(done, length, 0))

    def learn(carry, batch):
        parameters, moments = carry
        made = moments[0] // (EPOCHS * MINIBATCHES)  # updates before this one
        rate = LEARNING_RATE * (1.0 if total_updates is None else jnp.maximum(0.0, 1.0 - made / total_updates))
        return adam(parameters, jax.grad(loss)(parameters, batch), moments, rate), None

    def update(state, _):
        parameters, moments, obs, env_state, length, key = state
        key, play_key, shuffle_key = jax.random.split(key, 3)
        carry = (parameters, obs, env_state, length)
        (_, obs, env_state, length), (seen, ended) = jax.lax.scan(play, carry, jax.random.split(play_key, num_steps))
        last = apply(parameters["critic"], obs)[..., 0]
        advantage = advantages(jnp.ones_like(seen["value"]), seen["value"], seen["done"], last)
        seen = {**seen, "advantage": advantage, "returns": advantage + seen["value"]}
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), seen)

        def epoch(carry, epoch_key):
            order = jax.random.permutation(epoch_key, num_envs * num_steps)
            parts = jax.tree.map(lambda leaf: leaf[order].reshape(MINIBATCHES, -1, *leaf.shape[1:]), flat)
            return jax.lax.scan(learn, carry, parts)

        (parameters, moments), _ = jax.lax.scan(epoch, (parameters, moments), jax.random.split(shuffle_key, EPOCHS))
        return (parameters, moments, obs, env_state, length, key), ended

    return jax.jit(lambda state: jax.lax.scan(update, state, None, length=num_updates))


def env_steps(arguments, envs):
    """Sixteen steps of all envs in a call, with actions drawn beforehand."""
    actions = jax.random.randint(jax.random.key(1), (16, arguments.num_envs), 0, 2)
    keys = jax.random.split(jax.random.key(2), len(actions))

    def play(state, step):
        obs, state, done = envs.step(step[0], state, step[1])
        return state, (obs, done)

    sweep = jax.jit(lambda state: jax.lax.scan(play, state, (keys, actions)))
    state = envs.reset(jax.random.key(arguments.seed), arguments.num_envs)[1]

    def once():
        nonlocal state
        state = jax.block_until_ready(sweep(state))[0]

    return {"steps_per_second": measuring.median_rate(once, actions.size, arguments.seconds)}


def training(arguments, envs):
    """Updates per second after the compilation, and how it went."""
    is_long = jax.default_backend() == "cpu" and arguments.num_envs >= LARGE_ON_CPU
    num_updates = 1 if is_long else UPDATES_PER_CALL
    state = start(envs, arguments.num_envs, arguments.seed)
    update = make_update(envs, arguments.num_envs, arguments.num_steps, num_updates)
    started = time.perf_counter()
    state, ended = jax.block_until_ready(update(state))
    compile_seconds = time.perf_counter() - started
    steps = num_updates * arguments.num_envs * arguments.num_steps

    def once():
        nonlocal state, ended
        state, ended = jax.block_until_ready(update(state))

    return {
        "steps_per_second": measuring.median_rate(once, steps, arguments.seconds, warm_ups=1),
        "num_steps": arguments.num_steps,
        "mean_length": float(steps / max((ended > 0).sum(), 1)),
        "compile_seconds": compile_seconds,
    }


def solve(arguments, envs):
    """PureJaxRL's settings for CartPole until the last 100 episodes are good enough; looked at every ten updates."""
    num_steps, recent, step = measuring.NUM_STEPS, measuring.RecentReturns(), 0
    total_updates = SOLVE_STEPS // (SOLVE_ENVS * num_steps)
    update = make_update(envs, SOLVE_ENVS, num_steps, total_updates=total_updates)
    state = start(envs, SOLVE_ENVS, arguments.seed)
    while step < SOLVE_STEPS:
        state, ended = update(state)
        lengths = np.asarray(ended)
        recent.add(lengths[lengths > 0])
        step += UPDATES_PER_CALL * SOLVE_ENVS * num_steps
        if recent.are_solved:
            return measuring.solved(step, "PureJaxRL's")
    return measuring.unsolved(step, "PureJaxRL's")


def gae(arguments, envs):
    """The scan that training has, jitted by itself."""
    shape = (measuring.GAE_STEPS, measuring.GAE_ENVS)
    keys = jax.random.split(jax.random.key(arguments.seed), 4)
    reward, value = jax.random.uniform(keys[0], shape), jax.random.uniform(keys[1], shape)
    done, last = jax.random.uniform(keys[2], shape) < 0.02, jax.random.uniform(keys[3], shape[1:])

    @jax.jit
    def both(reward, value, done, last):
        advantage = advantages(reward, value, done, last)
        return advantage, advantage + value

    def once():
        jax.block_until_ready(both(reward, value, done, last))

    return {
        "steps_per_second": measuring.median_rate(once, reward.size, arguments.seconds),
        "settings": "a jitted scan",
    }


WORKS = {"env": env_steps, "training": training, "solve": solve, "gae": gae}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=list(WORKS), default="training")
    parser.add_argument("--envs", choices=list(ENVS), default="own", help="the program of CartPole's rules")
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--num-steps", type=int, default=measuring.NUM_STEPS)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    facts = {
        "num_envs": arguments.num_envs,
        "jax": jax.__version__,
        "device": str(jax.devices()[0]),
        "settings": f"one jitted program, PureJaxRL's manner, CartPole: {arguments.envs}",
        "versions": measuring.versions_of(["jax", "gymnax", "numpy"]),
    }
    print(json.dumps(facts | WORKS[arguments.work](arguments, ENVS[arguments.envs]())))


if __name__ == "__main__":
    main()
