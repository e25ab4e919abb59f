"""The solver of Connect Four: known values checked, and its speed.

    python benchmarks/connect_four_solver.py --first-moves --threads 4     the seven first moves on 6 x 7; minutes
    python benchmarks/connect_four_solver.py --brute-force                 all positions of small boards; two minutes
    python benchmarks/connect_four_solver.py --speed                       positions and nodes a second, by class

The first moves must score -2, -1, 0, 1, 0, -1, -2: only the centre wins, its neighbours draw (Allen 1988, Allis 1988).
They did (2026-11-17): 3,313 million nodes, about five minutes of one core of an Intel Xeon at 2.5 GHz. So did all
134,289 positions of 4 x 4, and 200,000 drawn from the 3.1 million of 4 rows by 5 columns.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from scramjet.arena.grading import CLASSES, graded_positions
from scramjet.arena.solver.solver import Position, Solver

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.helpers.brute_force import BruteForce

FIRST_MOVES = (-2, -1, 0, 1)  # of the columns to the left, and of the centre; the others mirror them
SMALL_BOARDS = ((4, 4), (5, 4), (4, 5))


def first_moves(threads: int, table_bits: int) -> None:
    """Solve the position after each first move, up to mirror images."""
    solver = Solver(table_bits=table_bits)

    def score(column: int) -> None:
        begun = time.monotonic()
        found = -solver.score(Position().after(column))
        print(f"column {column + 1}: {found}, {time.monotonic() - begun:.0f} s", flush=True)
        assert found == FIRST_MOVES[column], f"expected {FIRST_MOVES[column]}"

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(score, range(len(FIRST_MOVES))))
    print(f"{solver.num_nodes / 1e6:,.0f} million nodes")


def brute_force() -> None:
    """Compare all positions of small boards in which the game goes on with plain minimax."""
    for rows, cols in SMALL_BOARDS:
        brute, solver = BruteForce(rows, cols), Solver(rows, cols)
        games: list[tuple[int, ...]] = []
        brute.every_position(games.append)
        own, taken = np.zeros((2, len(games)), np.uint64)
        for row, moves in enumerate(games):
            position = Position(rows=rows, cols=cols)
            for column in moves:
                position = position.after(column)
            own[row], taken[row] = position.own, position.taken
        expected = np.array([brute.score(moves) for moves in games])
        assert np.array_equal(solver.score_batch(own, taken), expected)
        assert np.array_equal(solver.score_batch(own, taken, weak=True), np.sign(expected))
        print(
            f"{rows} rows, {cols} columns: {len(games):,} positions agree; the start scores {expected[0]}", flush=True
        )


def speed(seconds: float) -> None:
    """Solve positions of each class with an empty table for a while."""
    positions = graded_positions()
    Solver().score(Position.from_moves("4" * 6))  # compiles
    print("| class | positions/s | weak, positions/s | nodes a position | nodes/s |\n|---|---:|---:|---:|---:|")
    for index, each in enumerate(CLASSES):
        rows = np.flatnonzero(positions.class_index == index)
        rates = [_rate(positions.own[rows], positions.taken[rows], seconds, weak) for weak in (False, True)]
        (exact, nodes, nodes_per_second), (weak_rate, _, _) = rates
        print(
            f"| {each.name} | {exact:,.1f} | {weak_rate:,.1f} | {nodes:,.0f} | {nodes_per_second / 1e6:.1f} M |",
            flush=True,
        )


def _rate(own: np.ndarray, taken: np.ndarray, seconds: float, weak: bool) -> tuple[float, float, float]:
    """Positions a second of this thread's time, nodes a position, and nodes a second."""
    solver, used, solved = Solver(table_bits=24), 0.0, 0
    solver.forget()  # takes the memory of the table now
    while used < seconds and solved < len(own):
        part = slice(solved, solved + 16)
        begun = time.thread_time()
        solver.score_batch(own[part], taken[part], weak=weak)
        used, solved = used + time.thread_time() - begun, solved + len(own[part])
    return solved / used, solver.num_nodes / solved, solver.num_nodes / used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-moves", action="store_true")
    parser.add_argument("--brute-force", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--threads", type=int, default=1, help="for the first moves, which share a table")
    parser.add_argument("--table-bits", type=int, default=26, help="2^26 words are half a gigabyte")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each class")
    arguments = parser.parse_args()
    if arguments.speed:
        speed(arguments.seconds)
    if arguments.brute_force:
        brute_force()
    if arguments.first_moves:
        first_moves(arguments.threads, arguments.table_bits)
    if not (arguments.speed or arguments.brute_force or arguments.first_moves):
        parser.error("give --first-moves, --brute-force or --speed")


if __name__ == "__main__":
    main()
