"""Makes the positions by which `scramjet grade` grades players of Connect Four, and scores every move in them.

    python benchmarks/connect_four_positions.py WORK_FOLDER                    until all classes are full; an hour
    python benchmarks/connect_four_positions.py WORK_FOLDER --export           write what is there into the package

Each position comes from a game of random legal moves that is not over after a number of plies drawn at random: 8 to 14
for the Begin classes (earlier ones take the solver too long), 15 to 28 for Middle, 29 to 40 for End. Positions with
fewer than two legal moves are left out, and those that were drawn before, mirrored or not. Nothing else is: in some
positions every move keeps the value, which is why grades stand beside those of random moves.

The work can be ended at any time; the same command goes on where it ended. Candidate i of a phase is drawn from a
generator of its own, so the positions do not depend on that.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import numpy as np

from scramjet.arena.grading import CLASSES, COLS, FOLDER, ROWS, class_of
from scramjet.arena.solver.solver import Position, Solver

SEED = 4
GAMES_AT_ONCE = 256
GAMES = np.arange(GAMES_AT_ONCE)
PHASES = {"end": (29, 40), "middle": (15, 28), "begin": (8, 14)}


def random_game(generator: np.random.Generator, plies: int) -> str:
    """The moves of a game of random legal moves that is not over after so many plies; many are played to find one."""
    while True:
        own, other = np.zeros((2, GAMES_AT_ONCE), np.uint64)
        heights = np.zeros((GAMES_AT_ONCE, COLS), np.uint64)
        goes_on = np.ones(GAMES_AT_ONCE, np.bool_)
        moves = np.zeros((GAMES_AT_ONCE, plies), np.int64)
        for ply in range(plies):
            draws = np.where(heights < ROWS, generator.random(heights.shape), -1.0)
            columns = moves[:, ply] = draws.argmax(1)
            bits = np.uint64(ROWS + 1) * columns.astype(np.uint64) + heights[GAMES, columns]
            own, other = other, own | np.uint64(1) << bits
            heights[GAMES, columns] += np.uint64(1)
            goes_on &= ~has_line(other)
        if goes_on.any():
            return "".join(str(1 + column) for column in moves[goes_on.argmax()])


def has_line(pieces: np.ndarray) -> np.ndarray:
    """Which of these boards have four in a line, [G] bool."""
    found = np.zeros(len(pieces), np.bool_)
    for step in (1, ROWS, ROWS + 1, ROWS + 2):
        pairs = pieces & pieces >> np.uint64(step)
        found |= pairs & pairs >> np.uint64(2 * step) != 0
    return found


class Phase:
    """One phase's stream of candidates, and the file of those that were taken: `candidate class moves scores...`."""

    def __init__(self, name: str, folder: Path, per_class: int) -> None:
        self.number = list(PHASES).index(name)
        self.first, self.last = PHASES[name]
        self.file = folder / f"{name}.txt"
        self.per_class = per_class
        self.wanted = [each.name for each in CLASSES if each.name.lower().startswith(name)]
        lines = [line.split() for line in self.file.read_text().splitlines()] if self.file.exists() else []
        self.candidate = 1 + max((int(line[0]) for line in lines), default=-1)
        self.counts = Counter(line[1] for line in lines)
        self.seen = {key(Position.from_moves(line[2])) for line in lines}

    @property
    def is_full(self) -> bool:
        return all(self.counts[name] >= self.per_class for name in self.wanted)

    def work(self, solver: Solver) -> None:
        """Draw one candidate, and label it if its class has room."""
        generator = np.random.default_rng([SEED, self.number, self.candidate])
        number, self.candidate = self.candidate, self.candidate + 1
        moves = random_game(generator, int(generator.integers(self.first, self.last + 1)))
        position = Position.from_moves(moves)
        if len(position.legal) < 2 or key(position) in self.seen:
            return
        name = class_of(solver.score(position), position.plies).name
        if self.counts[name] >= self.per_class:
            return
        scores = " ".join("." if score is None else str(score) for score in solver.scores_of_moves(position))
        with self.file.open("a") as file:
            file.write(f"{number} {name} {moves} {scores}\n")
        self.counts[name] += 1
        self.seen.add(key(position))


def key(position: Position) -> tuple[int, int]:
    """The same for a position and its mirror image, and for no other."""
    mirrored = position.mirrored()
    return min((position.own, position.taken), (mirrored.own, mirrored.taken))


def make(folder: Path, per_class: int) -> None:
    """Label until every class is full."""
    folder.mkdir(parents=True, exist_ok=True)
    solver = Solver(table_bits=24)
    started = shown = time.monotonic()
    for name in PHASES:
        phase = Phase(name, folder, per_class)
        while not phase.is_full:
            phase.work(solver)
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(
                    f"{shown - started:.0f} s, candidate {phase.candidate} of {name}: {dict(phase.counts)}", flush=True
                )
    print("all classes are full")


def export(folder: Path) -> None:
    """Write the files that come with the package."""
    FOLDER.mkdir(exist_ok=True)
    lines = [line.split(maxsplit=2) for name in PHASES for line in (folder / f"{name}.txt").read_text().splitlines()]
    for each in CLASSES:
        kept = [rest for _, name, rest in lines if name == each.name]
        each.path.write_text("".join(f"{line}\n" for line in kept))
        print(f"{each.path.name}: {len(kept)} positions, {each.path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="keeps what was labelled so far")
    parser.add_argument("--per-class", type=int, default=1000)
    parser.add_argument("--export", action="store_true", help="write the files of the package")
    arguments = parser.parse_args()
    if arguments.export:
        export(arguments.folder)
    else:
        make(arguments.folder, arguments.per_class)


if __name__ == "__main__":
    main()
