"""What a user sees while training: a live view in a terminal, plain lines elsewhere, or nothing.

A display only reads records and writes to the screen. It hardly slows training (drawing is throttled) and never ends
it: when the terminal goes away, the display stops writing.
"""

from __future__ import annotations

import os
import sys
from typing import Any, get_args

from rich.console import Console

from scramjet.errors import ConfigError
from scramjet.runtime.terminal import is_screen
from scramjet.training.display.interface import Display, Mode, RunInfo, StoppedBy, Summary
from scramjet.training.display.live import LiveDisplay
from scramjet.training.display.plain import PlainDisplay, QuietDisplay

__all__ = ["Display", "LiveDisplay", "Mode", "PlainDisplay", "QuietDisplay", "RunInfo", "StoppedBy", "Summary"]
__all__ += ["make_display"]


def make_display(mode: Mode = "auto", console: Console | None = None) -> Display:
    """The display for `mode`; "auto" is live in a terminal that can show it, plain elsewhere.

    Notebooks get plain lines in place of the live view.
    """
    if mode == "auto":
        mode = "live" if _can_show_live(console.file if console else sys.stdout) else "plain"
    if mode == "live":
        screen = console or Console(force_terminal=True)
        if not screen.is_jupyter:
            return LiveDisplay(screen)
        mode = "plain"  # a notebook's output cannot be drawn over
    if mode == "plain":
        return PlainDisplay(console.file if console else sys.stdout)
    if mode == "quiet":
        return QuietDisplay()
    raise ConfigError(f"display={mode!r} must be one of {', '.join(get_args(Mode))}")


def _can_show_live(file: Any) -> bool:
    # The file is asked, not rich: FORCE_COLOR makes rich call a pipe a terminal.
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return is_screen(file) and not in_ci
