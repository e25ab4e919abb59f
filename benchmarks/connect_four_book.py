"""Makes the opening book of the perfect player of Connect Four.

    python benchmarks/connect_four_book.py WORK_FILE --plies 7 --threads 16 --seconds 540
    python benchmarks/connect_four_book.py WORK_FILE --export          write what is there into the package

The book has the positions that a perfect player can meet in its first moves, from either seat: it makes any of the best
moves, the other side any move. It grows ply by ply. The work can be ended at any time; the same command goes on where
it ended. Threads share one table: 2^26 words are half a gigabyte.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scramjet.arena.solver.perfect_player import FILE, START, add, best_moves_in, canonical, read_book
from scramjet.arena.solver.solver import Position, Solver

Games = dict[tuple[int, int], str]


def replies(games: Games, columns_of: dict[str, list[int]] | None = None) -> Games:
    """The positions after each move, or after those in `columns_of`, one game to each up to mirror images."""
    after: Games = {}
    for moves in games.values():
        position = Position.from_moves(moves)
        for column in position.legal if columns_of is None else columns_of[moves]:
            following = position.after(column)
            if not following.is_over:
                after.setdefault(canonical(following)[0], f"{moves}{column + 1}")
    return after


class BookMaker:
    """Solves what a book lacks, several positions at a time, and writes each down as soon as it is solved."""

    def __init__(self, file: Path, threads: int, table_bits: int) -> None:
        file.touch()
        self.file, self.book = file, read_book(file)
        self.solver = Solver(table_bits=table_bits)
        self.threads = ThreadPoolExecutor(threads)
        self.writing = threading.Lock()

    def grow(self, plies: int) -> None:
        """Go on up to a number of plies, the positions of both seats side by side."""
        start = {canonical(Position())[0]: ""}
        games = {0: start, 1: replies(start)}  # by plies, those in which the perfect player is to move
        for ply in range(0, plies + 1, 2):
            wanted = [moves for each in (ply, ply + 1) if each <= plies for moves in games[each].values()]
            print(f"plies {ply} and {ply + 1}: {len(wanted)} positions", flush=True)
            best = dict(zip(wanted, self.threads.map(self.best_moves, wanted), strict=True))
            for each in (ply, ply + 1):
                if each <= plies:
                    games[each + 2] = replies(replies(games[each], best))

    def best_moves(self, moves: str) -> list[int]:
        """The best moves after a game, from the book or else solved and written into it."""
        position = Position.from_moves(moves)
        found = best_moves_in(self.book, position)
        if found is None:
            begun = time.monotonic()
            found = self.solver.best_moves(position)
            with self.writing, self.file.open("a") as lines:
                add(self.book, position, found)
                lines.write(f"{moves or START} {''.join(str(1 + column) for column in found)}\n")
            print(f"{moves or START}: {found}, {time.monotonic() - begun:.1f} s", flush=True)
        return found


def export(book_file: Path) -> None:
    """Write the file that comes with the package, short games first."""
    lines = book_file.read_text().splitlines()
    FILE.write_text("".join(f"{line}\n" for line in sorted(lines, key=lambda line: (len(line.split()[0]), line))))
    print(f"{len(lines)} positions, {FILE.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="keeps what was solved so far")
    parser.add_argument("--plies", type=int, default=7, help="the last ply in the book")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table-bits", type=int, default=26)
    parser.add_argument("--seconds", type=float, default=540.0, help="end after so long; what is solved is kept")
    parser.add_argument("--export", action="store_true", help="write the file of the package")
    arguments = parser.parse_args()
    if arguments.export:
        export(arguments.file)
        return
    ending = threading.Timer(arguments.seconds, lambda: os._exit(0))  # searches cannot be interrupted otherwise
    ending.daemon = True
    ending.start()
    BookMaker(arguments.file, arguments.threads, arguments.table_bits).grow(arguments.plies)
    print("the book is complete")


if __name__ == "__main__":
    main()
