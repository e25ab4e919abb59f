"""The terminal that a game is shown in: text, boards and results, in colours and lines where it has them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from scramjet.arena.game import Game
from scramjet.arena.play.board_text import drawn
from scramjet.arena.play.results import Result
from scramjet.errors import printable

INDENT = "  "


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
        """Print the position of a game, its last move marked."""
        console = self.console
        in_colour = console.color_system is not None and not console.no_color
        before = game.text(1) if game.played else None
        room = console.width - len(INDENT)
        for line in drawn(game.text(), before, in_colour=in_colour, as_lines=self.has_lines, width=room):
            console.print(Text(INDENT) + line, highlight=False, soft_wrap=True)

    def bar(self, name: str, share: float, width: int) -> None:
        """Print a name and a share from 0 to 1 as a bar of at most `width` characters, and in percent."""
        length = round(width * share)
        line = Text(f"{INDENT}{printable(name)}  ")
        line.append(("█" if self.has_lines else "#") * length, "green")
        line.append(" " * (width - length) + f"{100 * share:5.1f} %")
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
