"""A position's text drawn for a terminal: pieces in colour, frames as lines, the last move marked."""

from __future__ import annotations

import re

from rich.text import Text

from scramjet.errors import printable

PIECES = {"X": ("●", "bold yellow"), "O": ("○", "bold red")}
"""How the pieces of two sides are drawn: their shapes differ too, for those who do not tell the colours apart."""
MARKED = "reverse"
FRAMES = str.maketrans({"|": "│", "-": "─", ".": "·"})
PLAIN_CORNERS, CORNERS = "+", "╰╯"
_ROW = re.compile(r"^\s*\|?\s*\S( \S)+\s*\|?\s*$")
"""A row of cells of one character each, between two bars or none."""

_ALONE = re.compile(r"(?<!\S)[XO](?!\S)")
"""A piece that is a word of its own, as in "X to move"."""


def drawn(text: str, before: str | None = None, *, in_colour: bool = True, as_lines: bool = True) -> Text:
    """The text of a position, ready to print; cells that differ from the text `before` are marked.

    Rows of cells such as `| X O . |` are drawn with discs in two colours, or as they are where there is no colour.
    `as_lines`: the terminal has characters for lines and discs.
    """
    lines = printable(text, keep="\n").split("\n")
    earlier = [] if before is None else printable(before, keep="\n").split("\n")
    earlier = earlier if len(earlier) == len(lines) else []
    rows = {number for number, line in enumerate(lines) if _is_row(line)}
    result = Text()
    for number, line in enumerate(lines):
        was = earlier[number] if earlier else line
        result.append_text(_drawn_line(line, was, number in rows, in_colour, as_lines))
        if number < len(lines) - 1:
            result.append("\n")
    return result


def _is_row(line: str) -> bool:
    """Whether a line is a row of a board: single characters, none a digit or a frame."""
    cells = line.strip().strip("|").split()
    return bool(_ROW.match(line)) and not any(cell.isdigit() or cell in "+-|" for cell in cells)


def _drawn_line(line: str, before: str, is_row: bool, in_colour: bool, as_lines: bool) -> Text:
    result = Text()
    alone = {found.start() for found in _ALONE.finditer(line)}
    is_edge = bool(re.fullmatch(r"\s*\+-+\+\s*", line))
    for place, character in enumerate(line):
        shown, style = character, ""
        if character in PIECES and in_colour and (is_row or place in alone):
            disc, style = PIECES[character]
            shown = disc if as_lines else character
        elif (is_row and character in "|.") or is_edge:
            style = "dim"
            if as_lines:
                is_first = not line[:place].strip()
                shown = CORNERS[0 if is_first else 1] if character == PLAIN_CORNERS else character.translate(FRAMES)
        if is_row and len(before) == len(line) and before[place] != character and not character.isspace():
            style = f"{style} {MARKED}".strip()
        result.append(shown, style)
    return result
