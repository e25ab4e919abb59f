"""The trackers there are, by name, and whether their packages are installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

from scramjet.errors import ConfigError

if TYPE_CHECKING:
    from scramjet.training.telemetry.tracking.interface import Tracker

TrackerName = Literal["tensorboard", "aim", "wandb", "mlflow", "trackio"]
TRACKERS: tuple[str, ...] = get_args(TrackerName)
"""The names for --track and --to, which are those of the packages and of scramjet's extras too."""


def require_installed(names: Iterable[str]) -> None:
    """Raise a ConfigError with the extra to install if the package of a tracker is missing. Imports nothing."""
    for name in names:
        spec = importlib.util.find_spec(name)
        # A folder of that name is no package: W&B makes one called wandb where it is used.
        if spec is None or spec.origin is None:
            where = " (it has no version for Python 3.13 or later)" if name == "aim" and _is_new_python() else ""
            raise ConfigError(
                f"{name} is not installed{where}: pip install 'scramjet[{name}]', or leave {name} out of the trackers"
            )


def make_tracker(name: str) -> Tracker:
    """A tracker for one run; imports its package, which may take seconds and may raise."""
    module = importlib.import_module(f"scramjet.training.telemetry.tracking.{name}")
    tracker: Tracker = module.make()
    return tracker


def _is_new_python() -> bool:
    return sys.version_info >= (3, 13)
