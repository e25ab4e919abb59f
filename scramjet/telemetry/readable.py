"""Numbers, times and paths as a person reads them, short enough for columns."""

from __future__ import annotations

import math
from pathlib import Path


def human_count(count: float) -> str:
    """A count in at most five characters: 999, 1.2K, 142K, 1.2M."""
    if not math.isfinite(count):
        return str(count)
    if abs(count) < 999.5:
        return f"{count:.0f}"
    for unit in "KMBT":
        count /= 1000
        if abs(count) < 99.95:
            return f"{count:.1f}{unit}"
        if abs(count) < 999.5:
            return f"{count:.0f}{unit}"
    return f"{count:,.0f}T"


def human_bytes(count: float) -> str:
    """A size of memory in at most six characters: 512M, 1.2G, 139G."""
    for unit in "KMG":
        count /= 1024
        if count < 1000 and unit != "G":
            return f"{count:.0f}{unit}"
    return f"{count:.1f}G" if count < 99.95 else f"{count:.0f}G"


def human_duration(seconds: float | None) -> str:
    """Whole seconds as 1:15, 1:01:15 or 2d 1:01:15; -:-- when unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "-:--"
    minutes, second = divmod(int(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if not hours:
        return f"{minute}:{second:02d}"
    return f"{f'{days}d ' if days else ''}{hour}:{minute:02d}:{second:02d}"


def duration_in_tenths(seconds: float) -> str:
    """A time that is compared with others: 0:04.2, 1:15.0; whole seconds from an hour on."""
    if not 0 <= seconds < 3599.95:
        return human_duration(seconds)
    minutes, tenths = divmod(round(10 * seconds), 600)
    return f"{minutes}:{tenths / 10:04.1f}"


def human_number(value: float | None) -> str:
    """A measured value in at most eight characters, about four digits of it; "-" when there is none."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1e5:
        return human_count(value)
    if isinstance(value, int) or math.isnan(value):
        return str(value)
    if 0 < size < 0.001:
        return f"{value:.1e}".replace("e-0", "e-")
    decimals = 1 if size >= 100 or size == 0 else 2 if size >= 1 else 4
    return f"{value:.{decimals}f}"


def short_path(path: str | Path) -> str:
    """The path as one would type it here: relative when it lies inside the working directory."""
    path = Path(path)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return str(path)
