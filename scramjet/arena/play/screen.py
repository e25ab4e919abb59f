"""The terminal that a game is shown in: text, boards and results, in colours and lines where it has them.

A board is found in a position's text by its rows: cells of one character with a space between them, such as
`| X O . |` or ` 1 X O .`. Text without such rows, as a game of cards may have, is left as it is.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from scramjet.arena.game import Game
from scramjet.arena.play.moves import Result
from scramjet.errors import printable
from scramjet.runtime.terminal import LINES_BESIDE, Colours, in_blocks
from scramjet.training.pictures.stages import has_text

# --- a position's text, drawn

PIECES = {"X": ("●", "bold yellow"), "O": ("○", "bold red")}
"""How the pieces of two sides are drawn: their shapes differ too, for those who do not tell the colours apart."""
EMPTY = ". "
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
    marks = _new_pieces(lines, earlier)
    result = []
    for number, line in enumerate(lines):
        is_top = not any(map(_ROW.fullmatch, lines[:number]))
        cells = _drawn_cells(line, is_top, in_colour, as_lines)
        cells = [
            (shown, f"{style} {MARKED}".strip() if (number, place) in marks else style)
            for place, (shown, style) in enumerate(cells)
        ]
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


def _new_pieces(lines: list[str], earlier: list[str]) -> set[tuple[int, int]]:
    """Lines and places of the cells that have something new: those that were empty, or else those that changed.

    So a piece that was placed is found, and not those that it turned over.
    """
    changed = {
        (number, place)
        for number, (line, was) in enumerate(zip(lines, earlier, strict=False))
        if len(lines) == len(earlier) and _ROW.fullmatch(line)
        for place, character in enumerate(line)
        if character not in EMPTY and was[place : place + 1] != character
    }
    placed = {(number, place) for number, place in changed if earlier[number][place : place + 1] in EMPTY}
    return placed or changed


def _drawn_cells(line: str, is_top: bool, in_colour: bool, as_lines: bool) -> list[tuple[str, str]]:
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


# --- the console

INDENT = "  "
PATIENCE_SECONDS = 1.0


class Screen:
    """A console that shows games."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @property
    def has_lines(self) -> bool:
        """Whether lines, discs and blocks can be printed."""
        return self.console.encoding.lower().startswith("utf")

    def say(self, text: str) -> None:
        """Print text as it is: names in it may be anybody's."""
        self.console.print(Text(printable(text)), highlight=False)

    def show(self, game: Game) -> None:
        """Print the position of a game, its last move marked; as a picture where the world draws no text."""
        console = self.console
        in_colour = console.color_system is not None and not console.no_color
        if not has_text(game.env):
            colours: Colours = "none" if not in_colour else "all"  # the console knows the nearest of those it has
            height, width = console.height - LINES_BESIDE - 1, console.width - len(INDENT)
            blocks = in_blocks(game.picture(), width, height, colours, is_ascii=not self.has_lines)
            console.print(
                *(Text(INDENT) + Text.from_ansi(line) for line in blocks.split("\n")), sep="\n", soft_wrap=True
            )
            return
        before = game.text(1) if game.played else None
        room = console.width - len(INDENT)
        for line in drawn(game.text(), before, in_colour=in_colour, as_lines=self.has_lines, width=room):
            console.print(Text(INDENT) + line, highlight=False, soft_wrap=True)

    @contextmanager
    def waiting_for(self, name: str) -> Iterator[None]:
        """Tell that a player is thinking, if what is done within this takes longer than a moment."""
        timer = threading.Timer(PATIENCE_SECONDS, self.say, [f"{name} is thinking ..."])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def bar(self, name: str, share: float, width: int, note: str = "") -> None:
        """Print a name, a share from 0 to 1 as a bar of at most `width` characters and in percent, and a note."""
        length = round(width * share)
        line = Text(f"{INDENT}{printable(name)}  ")
        line.append(("█" if self.has_lines else "#") * length, "green")
        line.append(" " * (width - length) + f"{100 * share:5.1f} %{'  ' if note else ''}{note}")
        self.console.print(line, highlight=False)


def title_of(game: Game) -> str:
    """The name of a game's world as words: ConnectFour becomes Connect Four."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", game.pool.name)


def outcome(result: Result, names: Sequence[str]) -> str:
    """Who won, in words; `names` are those of the players."""
    if result.forfeited is not None:
        return f"{names[result.forfeited]} chose a move that is not legal, and so loses."
    cut = " The game reached its limit of steps." if result.was_cut else ""
    if len(names) == 1:
        return f"The game is over. Return: {result.returns[0]:g}.{cut}"
    if result.is_draw:
        return f"A draw.{cut}"
    won = " and ".join(names[player] for player in result.winners)
    returns = ", ".join(f"{name} {value:g}" for name, value in zip(names, result.returns, strict=True))
    is_plain = set(result.returns) <= {-1.0, 0.0, 1.0}
    return f"{won} won.{'' if is_plain else f' Returns: {returns}.'}{cut}"
