"""The presets, examples and docs that come with scramjet: in a checkout beside the package, in a wheel inside it."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder(name: str) -> Path | None:
    """The folder `configs`, `examples` or `docs`, or None where an installation came without it."""
    inside, beside = _PACKAGE / name, _PACKAGE.parent / name
    if inside.is_dir():
        return inside
    is_checkout = (_PACKAGE.parent / "pyproject.toml").is_file()  # else it is a stranger's folder in site-packages
    return beside if is_checkout and beside.is_dir() else None


def shipped_file(path: str) -> Path | None:
    """A file by its path in a checkout, such as docs/pool.md; None where it did not come along."""
    name, _, rest = path.partition("/")
    folder = shipped_folder(name)
    file = folder / rest if folder else None
    return file if file is not None and file.is_file() else None


def shipped_names(folder: str, suffix: str) -> list[str]:
    """The names, without their suffix, of the files in a shipped folder, sorted."""
    found = shipped_folder(folder)
    return sorted(path.stem for path in found.glob(f"*{suffix}")) if found else []


def shown_path(path: Path) -> str:
    """A path as a reader would type it: from the current folder where it is below that, else in full."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
