"""Searched moves per second of public JAX programs, to stand beside scramjet's in the same run.

    PYTHON benchmarks/search_peers.py alphazero --envs 1024 4096 --simulations 32 --network residual
    PYTHON benchmarks/search_peers.py spo --stoix FOLDER --envs 768 4096 --particles 16 --depth 4 --hidden 64 64

`alphazero` needs jax, mctx and pgx; `spo` needs jax, mctx, chex and a clone of github.com/EdanToledo/Stoix, of which
only the search is imported. Neither needs scramjet. A move is one decision of one env: the network on the root, the
search, and the env step after it. A call plays `--moves` of them in every env as one compiled program. The first two
calls compile and warm up; the figure is the median over five shares of `--seconds`. One JSON object is printed for
each number of envs. What each program does exactly is said in its file under benchmarks/search/.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from peers.measuring import median_rate, versions_of
from search.jax_networks import ACTIVATIONS, Network
from search.stoix_source import SEARCH_FILE


def network_of(arguments: argparse.Namespace) -> Network:
    """The network that the flags describe."""
    board = {"channels": arguments.channels, "blocks": arguments.blocks} if arguments.network == "residual" else {}
    hidden = tuple(arguments.hidden or ([256] if board else [128, 128]))
    return Network(hidden, arguments.activation, not arguments.two_trunks, dtype=arguments.dtype, **board)


def alphazero(arguments: argparse.Namespace, num_envs: int) -> tuple[Callable[[], object], dict[str, Any]]:
    """mctx over pgx's Connect Four."""
    from search import mctx_connect_four as peer

    network = network_of(arguments)
    play = peer.make_play(network, num_envs, arguments.moves, arguments.simulations, arguments.seed)
    facts = {"peer": "mctx + pgx", "world": "connect_four", "simulations": arguments.simulations}
    return play, facts | {"network": str(network), "versions": versions_of(peer.PACKAGES)}


def spo(arguments: argparse.Namespace, num_envs: int) -> tuple[Callable[[], object], dict[str, Any]]:
    """Stoix's search over CartPole."""
    from search import stoix_cartpole as peer

    network = network_of(arguments)
    search = peer.Search(arguments.particles, arguments.depth, arguments.resampling_period)
    play = peer.make_play(
        network, search, arguments.stoix, num_envs=num_envs, num_moves=arguments.moves, seed=arguments.seed
    )
    facts = {"peer": "Stoix", "world": "cartpole", "particles": arguments.particles, "depth": arguments.depth}
    return play, facts | {"network": str(network), "versions": versions_of(peer.PACKAGES)}


def measure(arguments: argparse.Namespace, num_envs: int) -> dict[str, Any]:
    """One figure and what a reader must know of it."""
    play, facts = arguments.program(arguments, num_envs)
    started = time.perf_counter()
    play()
    compile_seconds = time.perf_counter() - started
    rate = median_rate(play, num_envs * arguments.moves, arguments.seconds, warm_ups=1)
    device = f"{jax.devices()[0].device_kind} ({jax.default_backend()})"
    figures = {"num_envs": num_envs, "moves_per_second": round(rate, 1), "compile_seconds": round(compile_seconds, 1)}
    return {"work": arguments.work, **figures, **facts, "device": device}


def add_common(parser: argparse.ArgumentParser, *, activation: str, envs: list[int]) -> None:
    """Flags of both programs."""
    parser.add_argument("--envs", type=int, nargs="+", default=envs, metavar="N")
    parser.add_argument("--hidden", type=int, nargs="+", help="width of each hidden layer")
    parser.add_argument("--activation", choices=list(ACTIVATIONS), default=activation, help="of the hidden layers")
    parser.add_argument("--two-trunks", action="store_true", help="policy and value share no layer")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the network")
    parser.add_argument("--moves", type=int, default=16, help="of each env in one call of the compiled program")
    parser.add_argument("--seconds", type=float, default=5.0, help="to measure for, after the warm-up")
    parser.add_argument("--seed", type=int, default=1)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    works = parser.add_subparsers(dest="work", required=True)
    tree = works.add_parser("alphazero", help="mctx over pgx's Connect Four")
    tree.set_defaults(program=alphazero)
    add_common(tree, activation="relu", envs=[1024, 4096])
    tree.add_argument("--simulations", type=int, default=32)
    tree.add_argument("--network", choices=["mlp", "residual"], default="mlp")
    tree.add_argument("--channels", type=int, default=64, help="of a residual network")
    tree.add_argument("--blocks", type=int, default=4, help="of a residual network")
    particles = works.add_parser("spo", help="Stoix's SPO over CartPole")
    particles.set_defaults(program=spo, network="mlp")
    add_common(particles, activation="tanh", envs=[768, 4096])
    particles.add_argument("--stoix", type=Path, required=True, help="a clone of Stoix's repository")
    particles.add_argument("--particles", type=int, default=16)
    particles.add_argument("--depth", type=int, default=4)
    particles.add_argument("--resampling-period", type=int, default=4, help="depths between resamplings")
    arguments = parser.parse_args()
    if min(*arguments.envs, arguments.moves) < 1 or arguments.seconds <= 0:
        parser.error("--envs and --moves must be at least 1, --seconds above 0")
    if arguments.work == "spo" and not (arguments.stoix / SEARCH_FILE).is_file():
        parser.error(f"--stoix {arguments.stoix} holds no {SEARCH_FILE}; clone github.com/EdanToledo/Stoix")
    return arguments


def main() -> None:
    arguments = parse()
    for num_envs in arguments.envs:
        print(json.dumps(measure(arguments, num_envs)), flush=True)


if __name__ == "__main__":
    main()
