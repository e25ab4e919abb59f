"""Searched moves per second of scramjet beside public JAX programs, with equal networks and searches.

    python benchmarks/search_peers.py alphazero --envs 1024 4096 --simulations 32 --network residual
    python benchmarks/search_peers.py spo --stoix FOLDER --envs 768 4096 --particles 16 --depth 4 --hidden 64 64

`alphazero` is Connect Four beside mctx and pgx; `spo` is CartPole beside Stoix. JAX, mctx, chex and pgx have to be
installed beside scramjet, or in another Python, named by `--jax-python`. Of Stoix only the search is imported, from a
clone of github.com/EdanToledo/Stoix. With `--library` one side is measured alone, and the other need not be installed.

A move is one decision of one env: the network on the root, the search, and the env step after it. A call plays
`--moves` of them in every env. The first calls compile and warm up; the figure is the median over five shares of
`--seconds`. Each figure is a process of its own, one after the other, and prints a JSON object. What each program does
exactly is said in its file under benchmarks/search/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers.measuring import median_rate, versions_of
from search.network import Network

STOIX_SEARCH = Path("stoix", "systems", "spo", "ff_spo.py")
LIBRARIES = ("scramjet", "jax")
Program = tuple[Callable[[], object], tuple[str, ...], str]
"""What plays, the packages whose versions matter, and the device."""


def network_of(arguments: argparse.Namespace) -> Network:
    """The network that the flags describe."""
    board = {"channels": arguments.channels, "blocks": arguments.blocks} if arguments.network == "residual" else {}
    hidden = tuple(arguments.hidden or ([256] if board else [128, 128]))
    return Network(hidden, arguments.activation, not arguments.two_trunks, dtype=arguments.dtype, **board)


def scramjet_program(arguments: argparse.Namespace, **sizes: int) -> Program:
    """Scramjet's search."""
    import torch
    from search import scramjet_moves as ours

    if arguments.work == "alphazero":
        search, world = ours.AlphaZeroConfig(simulations=arguments.simulations), "connect_four"
    else:
        settings = {"particles": arguments.particles, "depth": arguments.depth}
        search, world = ours.SPOConfig(**settings, resample_period=arguments.resampling_period), "cartpole"
    device = torch.cuda.get_device_name() if ours.DEVICE == "cuda" else "cpu"
    return ours.make_play(network_of(arguments), world, search, **sizes), ours.PACKAGES, device


def jax_program(arguments: argparse.Namespace, **sizes: int) -> Program:
    """The search of a public program."""
    import jax

    network, device = network_of(arguments), jax.devices()[0].device_kind
    if arguments.work == "alphazero":
        from search import mctx_connect_four as trees

        return trees.make_play(network, arguments.simulations, **sizes), trees.PACKAGES, device
    from search import stoix_cartpole as particles

    search = particles.Search(arguments.particles, arguments.depth, arguments.resampling_period)
    return particles.make_play(network, search, arguments.stoix, **sizes), particles.PACKAGES, device


def measure(arguments: argparse.Namespace, num_envs: int) -> dict[str, Any]:
    """One figure and what a reader must know of it."""
    make = scramjet_program if arguments.library == "scramjet" else jax_program
    play, packages, device = make(arguments, num_envs=num_envs, num_moves=arguments.moves, seed=arguments.seed)
    started = time.perf_counter()
    play()
    first_seconds = time.perf_counter() - started
    rate = median_rate(play, num_envs * arguments.moves, arguments.seconds)
    names = ("simulations",) if arguments.work == "alphazero" else ("particles", "depth", "resampling_period")
    return {
        "work": arguments.work,
        "library": arguments.library,
        "num_envs": num_envs,
        "moves_per_second": round(rate, 1),
        "first_call_seconds": round(first_seconds, 1),
        **{name: getattr(arguments, name) for name in names},
        "network": str(network_of(arguments)),
        "device": device,
        "versions": versions_of(packages),
    }


def compare(arguments: argparse.Namespace) -> None:
    """Measure both sides, each in processes of its own, and print how many times as fast scramjet is."""
    pythons = {"scramjet": sys.executable, "jax": arguments.jax_python}
    for num_envs in arguments.envs:
        rates: dict[str, float] = {}
        for library in LIBRARIES:
            words = [
                *sys.argv[1:],
                "--library",
                library,
                "--envs",
                str(num_envs),
            ]  # of flags given twice the last counts
            done = subprocess.run([pythons[library], __file__, *words], stdout=subprocess.PIPE, text=True)
            if done.returncode:
                print(f"{num_envs} envs: {library} failed with exit code {done.returncode}", flush=True)
                continue
            print(answer := done.stdout.strip().splitlines()[-1], flush=True)
            rates[library] = json.loads(answer)["moves_per_second"]
        if len(rates) == len(LIBRARIES):
            print(f"{num_envs} envs: scramjet {rates['scramjet'] / rates['jax']:.2f}x", flush=True)


def add_common(parser: argparse.ArgumentParser, *, activation: str, envs: list[int]) -> None:
    """Flags of both works."""
    parser.add_argument("--envs", type=int, nargs="+", default=envs, metavar="N")
    parser.add_argument("--library", choices=LIBRARIES, help="measure one side alone")
    parser.add_argument("--jax-python", default=sys.executable, metavar="PATH", help="a Python that has JAX's packages")
    parser.add_argument("--hidden", type=int, nargs="+", help="width of each hidden layer")
    parser.add_argument("--activation", choices=["relu", "tanh"], default=activation, help="of the hidden layers")
    parser.add_argument("--two-trunks", action="store_true", help="policy and value share no layer")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the network")
    parser.add_argument("--moves", type=int, default=16, help="of each env in one call")
    parser.add_argument("--seconds", type=float, default=5.0, help="to measure for, after the warm-up")
    parser.add_argument("--seed", type=int, default=1)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    works = parser.add_subparsers(dest="work", required=True)
    tree = works.add_parser("alphazero", help="Connect Four; beside mctx and pgx")
    add_common(tree, activation="relu", envs=[1024, 4096])
    tree.add_argument("--simulations", type=int, default=32)
    tree.add_argument("--network", choices=["mlp", "residual"], default="mlp")
    tree.add_argument("--channels", type=int, default=64, help="of a residual network")
    tree.add_argument("--blocks", type=int, default=4, help="of a residual network")
    particles = works.add_parser("spo", help="CartPole; beside Stoix")
    particles.set_defaults(network="mlp")
    add_common(particles, activation="tanh", envs=[768, 4096])
    particles.add_argument("--stoix", type=Path, default=Path("Stoix"), help="a clone of Stoix's repository")
    particles.add_argument("--particles", type=int, default=16)
    particles.add_argument("--depth", type=int, default=4)
    particles.add_argument("--resampling-period", type=int, default=4, help="depths between resamplings")
    arguments = parser.parse_args()
    if min(*arguments.envs, arguments.moves) < 1 or arguments.seconds <= 0:
        parser.error("--envs and --moves must be at least 1, --seconds above 0")
    needs_stoix = arguments.work == "spo" and arguments.library != "scramjet"
    if needs_stoix and not (arguments.stoix / STOIX_SEARCH).is_file():
        parser.error(f"--stoix {arguments.stoix} holds no {STOIX_SEARCH}; clone github.com/EdanToledo/Stoix")
    return arguments


def main() -> None:
    arguments = parse()
    if arguments.library is None:
        return compare(arguments)
    for num_envs in arguments.envs:
        print(json.dumps(measure(arguments, num_envs)), flush=True)


if __name__ == "__main__":
    main()
