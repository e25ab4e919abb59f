"""The best moves of early positions of Connect Four on 6 x 7, which take the solver seconds to minutes each.

A file that comes with the package has a line for each position: the columns played, counted from 1, `-` before the first
move, and the columns of the best moves. `benchmarks/connect_four_book.py` made it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from scramjet.arena.solver.position import Position

FILE = Path(__file__).parent / "positions" / "opening_book.txt"
START = "-"

Key = tuple[int, int]
Book = dict[Key, tuple[int, ...]]


def canonical(position: Position) -> tuple[Key, bool]:
    """The same key for a position and its mirror image, and whether it is that of the image."""
    mirrored = position.mirrored()
    own, image = (position.own, position.taken), (mirrored.own, mirrored.taken)
    return min(own, image), image < own


def read_book(file: Path) -> Book:
    """The best moves, columns counted from 0, by canonical key, for the position or image whose key that is."""
    book: Book = {}
    for line in file.read_text().splitlines():
        moves, columns = line.split()
        add(book, Position.from_moves("" if moves == START else moves), [int(column) - 1 for column in columns])
    return book


def add(book: Book, position: Position, columns: list[int]) -> None:
    """Put the best moves of a position into a book."""
    key, is_image = canonical(position)
    book[key] = tuple(sorted(position.cols - 1 - column for column in columns) if is_image else columns)


def best_moves_in(book: Book, position: Position) -> list[int] | None:
    """The best moves of a position, columns counted from 0; None if the book does not have it."""
    key, is_image = canonical(position)
    columns = book.get(key)
    if columns is None:
        return None
    return sorted(position.cols - 1 - column for column in columns) if is_image else list(columns)


@cache
def opening_book() -> Book:
    """The book that comes with the package."""
    return read_book(FILE)
