"""The terminal that a game is shown in: text, boards and results, in colours and lines where it has them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from scramjet.arena.game import Game
from scramjet.arena.play.board_text import drawn
from scramjet.arena.play.results import Result
from scramjet.errors import printable
from scramjet.runtime.terminal import LINES_BESIDE, Colours, in_blocks
from scramjet.training.pictures.stages import has_text

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
