"""PPO of networks with memory, of a board and of continuous actions, each as one XLA program: see jax_ppo.py.

    PYTHON_WITH_JAX benchmarks/peers/jax_training.py --work lstm --num-envs 4096 --num-steps 64 --seconds 5
    PYTHON_WITH_JAX benchmarks/peers/jax_training.py --work connect_four --envs pgx --num-envs 4096 --num-steps 32

    lstm, gru     CartPole; a tanh layer of 128, then flax's cell of 128 under `lax.scan`, with memory forgotten where
                  an episode ends; minibatches of whole sequences
    mingru        the same with a minimal gated unit, by an associative scan
    pendulum      a normal distribution of one action, separate 64x64 tanh networks
    squared       eight actions, 49 inputs, separate 64x64 tanh networks
    connect_four  both seats played by one network: a 3x3 convolution of 32 channels, 128 units, illegal columns masked

Worlds have scramjet's rules (jax_worlds.py); Connect Four may be pgx's. Only lstm and gru need more than jax and numpy:
flax. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json

import jax
import measuring
from jax_networks import BoardCNN, Categorical, FlaxCore, MinGRUCore, Normal, RecurrentNetwork, SeparateMLPs
from jax_ppo import LEARNING_RATE, Program, Settings, measured_training
from jax_worlds import CartPole, ConnectFour, Pendulum, PgxConnectFour, Squared

MEMORY_SIZE = 128
BOARDS = {"own": ConnectFour, "pgx": PgxConnectFour}


def with_memory(core):
    """CartPole and a network with a recurrent core."""
    return CartPole(), RecurrentNetwork(4, Categorical(2), core)


WORKS = {
    "lstm": lambda envs: with_memory(FlaxCore("lstm", MEMORY_SIZE)),
    "gru": lambda envs: with_memory(FlaxCore("gru", MEMORY_SIZE)),
    "mingru": lambda envs: with_memory(MinGRUCore(MEMORY_SIZE)),
    "pendulum": lambda envs: (Pendulum(), SeparateMLPs(3, Normal(1))),
    "squared": lambda envs: (Squared(), SeparateMLPs(49, Categorical(8))),
    "connect_four": lambda envs: (BOARDS[envs](), BoardCNN(6, 7, 2, Categorical(7))),
}
"""Each makes a world and a network; `envs` is whose rules."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=list(WORKS), required=True)
    parser.add_argument("--envs", choices=list(BOARDS), default="own", help="whose Connect Four")
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--num-steps", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    world, network = WORKS[arguments.work](arguments.envs)
    sizes = arguments.num_envs, arguments.num_steps
    program = Program(world, network, Settings(*sizes, arguments.gamma, arguments.learning_rate))
    facts = {
        "work": arguments.work,
        "num_envs": arguments.num_envs,
        "device": str(jax.devices()[0]),
        "settings": f"one jitted program, {type(world).__name__}",
        "versions": measuring.versions_of(["jax", "flax", "pgx", "numpy"]),
    }
    print(json.dumps(facts | measured_training(program, arguments.seconds, arguments.seed)))


if __name__ == "__main__":
    main()
