"""Colours of plots, light and dark, that people with any colour vision can tell apart.

After Okabe and Ito, "Color Universal Design" (2008); those too faint on white or black are darker or lighter here.
Beyond seven curves the colours come again with another dash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ThemeName = Literal["light", "dark"]
DASHES = ("solid", "dash", "dot")


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a plot."""

    background: str
    text: str
    grid: str
    curves: tuple[str, ...]

    def colour(self, number: int) -> str:
        """The colour of a curve by its number."""
        return self.curves[number % len(self.curves)]

    def dash(self, number: int) -> str:
        """The dash of a curve by its number, one of DASHES."""
        return DASHES[number // len(self.curves) % len(DASHES)]


THEMES: dict[ThemeName, Theme] = {
    "light": Theme(
        background="#ffffff",
        text="#24292f",
        grid="#e3e6ea",
        curves=("#0072b2", "#d55e00", "#008a64", "#b3528c", "#3f98d3", "#a97400", "#000000"),
    ),
    "dark": Theme(
        background="#14171c",
        text="#d7dce2",
        grid="#2b313a",
        curves=("#56b4e9", "#f08a3c", "#1fbf93", "#de9cc0", "#f0e442", "#8f9bff", "#ffffff"),
    ),
}
