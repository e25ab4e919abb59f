"""PPO on CartPole as one XLA program, in the manner of PureJaxRL: envs, rollouts and updates in JAX, jitted as a whole.

    PYTHON_WITH_JAX benchmarks/peers/jax_cartpole.py --num-envs 1024 --num-steps 128 --seconds 5

Needs jax and numpy alone. The work is that of `scramjet bench`, as jax_ppo.py says, with separate 64x64 tanh networks.
CartPole's rules are Gymnasium's, with a limit of 500 steps and auto-reset; with `--envs gymnax` they are gymnax's own
program. Ten updates are one call, or, where they would take long on a CPU, one. To solve CartPole it has PureJaxRL's
settings: 4 envs, and a learning rate that falls to 0 over 500 K steps. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json

import jax
import jax_ppo
import measuring
import numpy as np
from jax_networks import Categorical, SeparateMLPs
from jax_ppo import UPDATES_PER_CALL, Program, Settings
from jax_worlds import CartPole, GymnaxCartPole

SOLVE_ENVS, SOLVE_STEPS = 4, 500_000
ENVS = {"own": CartPole, "gymnax": GymnaxCartPole}


def program_on(world, settings):
    """PPO with separate 64x64 tanh networks."""
    return Program(world, SeparateMLPs(4, Categorical(2), measuring.HIDDEN), settings)


def env_steps(arguments, world):
    """Sixteen steps of all envs in a call, with actions drawn beforehand."""
    actions = jax.random.randint(jax.random.key(1), (16, arguments.num_envs), 0, 2)
    keys = jax.random.split(jax.random.key(2), len(actions))

    def play(state, step):
        obs, state, _, done = world.step(step[0], state, step[1])
        return state, (obs, done)

    sweep = jax.jit(lambda state: jax.lax.scan(play, state, (keys, actions)))
    state = world.reset(jax.random.key(arguments.seed), arguments.num_envs)[1]

    def once():
        nonlocal state
        state = jax.block_until_ready(sweep(state))[0]

    return {"steps_per_second": measuring.median_rate(once, actions.size, arguments.seconds)}


def training(arguments, world):
    """Steps trained per second after the compilation, and how it went."""
    program = program_on(world, Settings(arguments.num_envs, arguments.num_steps))
    return jax_ppo.measured_training(program, arguments.seconds, arguments.seed)


def solve(arguments, world):
    """PureJaxRL's settings for CartPole until the last 100 episodes are good enough; looked at every ten updates."""
    num_steps, recent, step = measuring.NUM_STEPS, measuring.RecentReturns(), 0
    total_updates = SOLVE_STEPS // (SOLVE_ENVS * num_steps)
    program = program_on(world, Settings(SOLVE_ENVS, num_steps, total_updates=total_updates))
    state, update = program.start(arguments.seed), program.updates()
    while step < SOLVE_STEPS:
        state, ended = update(state)
        recent.add(np.asarray(ended.earned)[np.asarray(ended.done)])
        step += UPDATES_PER_CALL * SOLVE_ENVS * num_steps
        if recent.are_solved:
            return measuring.solved(step, "PureJaxRL's")
    return measuring.unsolved(step, "PureJaxRL's")


def gae(arguments, world):
    """The scan that training has, jitted by itself."""
    shape = (measuring.GAE_STEPS, measuring.GAE_ENVS)
    keys = jax.random.split(jax.random.key(arguments.seed), 4)
    reward, value = jax.random.uniform(keys[0], shape), jax.random.uniform(keys[1], shape)
    done, last = jax.random.uniform(keys[2], shape) < 0.02, jax.random.uniform(keys[3], shape[1:])

    @jax.jit
    def both(reward, value, done, last):
        advantage = jax_ppo.gae(reward, value, done, last)
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
