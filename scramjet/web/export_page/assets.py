"""The scripts, style and page that lie beside this module."""

from __future__ import annotations

from importlib.resources import files

RUNTIME = ("numbers", "arrays", "sequences", "numpy", "canvas", "rng", "game")
"""Scripts that translated rules need, in the order in which they are read."""


def asset(name: str) -> str:
    """The text of a file in `runtime/`."""
    return files("scramjet.web.export_page").joinpath("runtime", name).read_text("utf-8")


def scripts(names: tuple[str, ...]) -> str:
    """Several scripts one after the other."""
    return "\n".join(asset(f"{name}.js") for name in names)
