"""A position's text drawn for a terminal: pieces in colour, frames as lines, the last move marked.

A board is found by its rows: cells of one character with a space between them, such as `| X O . |` or ` 1 X O .`.
Text without such rows, as a game of cards may have, is left as it is.
"""

from __future__ import annotations

import re

from rich.text import Text

from scramjet.errors import printable

PIECES = {"X": ("●", "bold yellow"), "O": ("○", "bold red")}
"""How the pieces of two sides are drawn: their shapes differ too, for those who do not tell the colours apart."""
MARKED = "reverse"
FRAMES = str.maketrans({"|": "│", "-": "─", ".": "·"})

_ROW = re.compile(r"\s*(?:\d+ |\| )?(?P<cells>[^\s|+\-\d](?: [^\s|+\-\d])+)(?: \|)?\s*")
_EDGE = re.compile(r"\s*\+-+\+\s*")
_ALONE = re.compile(r"(?<!\S)[XO](?![^\s;,])")
"""A piece that is a word of its own, as in "X to move"."""


def drawn(
    text: str, before: str | None = None, *, in_colour: bool = True, as_lines: bool = True, width: int = 80
) -> list[Text]:
    """The lines of a position's text, ready to print; cells that differ from those in the text `before` are marked.

    Pieces X and O are drawn as discs in two colours, or as they are where there is no colour. `as_lines`: the terminal
    has characters for lines and discs. Cells are spread apart where `width` allows.
    """
    lines = printable(text, keep="\n").split("\n")
    earlier = lines if before is None else printable(before, keep="\n").split("\n")
    first = _first_cell(lines)
    spreads = first is not None and max(map(len, lines)) * 3 // 2 <= width
    result = []
    for number, line in enumerate(lines):
        was = earlier[number] if len(earlier) == len(lines) else line
        is_top = not any(map(_ROW.fullmatch, lines[:number]))
        cells = _drawn_cells(line, was, is_top, in_colour, as_lines)
        if spreads and first is not None and _belongs_to_board(line, first):
            cells = _spread(cells, first)
        result.append(Text.assemble(*cells))
    return result


def _first_cell(lines: list[str]) -> int | None:
    """The column in which the rows of a board have their first cell; None where there is no board."""
    starts = {found.start("cells") for line in lines if (found := _ROW.fullmatch(line))}
    return starts.pop() if len(starts) == 1 else None


def _belongs_to_board(line: str, first: int) -> bool:
    """Whether a line is a row, an edge, or the names of columns, which stand under cells only."""
    if _ROW.fullmatch(line) or _EDGE.fullmatch(line):
        return True
    places = [place for place, character in enumerate(line) if character != " "]
    return len(places) > 1 and all(place >= first and (place - first) % 2 == 0 for place in places)


def _drawn_cells(line: str, before: str, is_top: bool, in_colour: bool, as_lines: bool) -> list[tuple[str, str]]:
    """Each character of a line as it is shown, and its style; `is_top`: no row of the board stands above."""
    is_row, is_edge = bool(_ROW.fullmatch(line)), bool(_EDGE.fullmatch(line))
    alone = {found.start() for found in _ALONE.finditer(line)}
    cells = []
    for place, character in enumerate(line):
        shown, style = character, ""
        if character in PIECES and in_colour and (is_row or place in alone):
            disc, style = PIECES[character]
            shown = disc if as_lines else character
        elif (is_row and character in "|.") or is_edge:
            style = "dim"
            if as_lines and character == "+":
                shown = ("╭╮" if is_top else "╰╯")[bool(line[:place].strip())]
            elif as_lines:
                shown = character.translate(FRAMES)
        if is_row and before[place : place + 1] != character:
            style = f"{style} {MARKED}".strip()
        cells.append((shown, style))
    return cells


def _spread(cells: list[tuple[str, str]], first: int) -> list[tuple[str, str]]:
    """The characters of a line with one more between cells; a marked cell stands in brackets instead."""
    wide: list[tuple[str, str]] = []
    for place, (character, style) in enumerate(cells):
        is_between = place >= first - 1 and (place - first) % 2 == 1 and place + 1 < len(cells)
        if not is_between:
            wide.append((character, style.removesuffix(MARKED).strip()))
            continue
        closes = place > first and cells[place - 1][1].endswith(MARKED)
        opens = cells[place + 1][1].endswith(MARKED)
        wide += [("]", "bold") if closes else (character, style), ("[", "bold") if opens else (character, style)]
    if cells and cells[-1][1].endswith(MARKED):
        wide.append(("]", "bold"))
    return wide
