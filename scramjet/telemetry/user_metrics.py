"""Checks the metrics that a user's callbacks add to a run: names that are not taken, numbers that are finite."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from scramjet.errors import ConfigError, shortened
from scramjet.executors.losses import MAX_NAME_LENGTH
from scramjet.telemetry.metrics import is_reserved


class UserMetrics:
    """Checks what callbacks return, each name when it is first returned."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # name: who gave it first

    def checked(self, returned: Any, where: str) -> dict[str, float]:
        """The returned numbers as floats; raises a ConfigError for what does not fit. `where` names the callback."""
        if not isinstance(returned, Mapping):
            raise ConfigError(
                f"{where} returned {shortened(returned)}; it may return a dict of numbers by name, or nothing"
            )
        for name in returned:
            owner = self._owners.get(name) if isinstance(name, str) else None
            if owner is None:
                check_name(name, where)
                self._owners[name] = where
            elif owner != where:
                raise ConfigError(f"{where} returned the metric {name!r}, which {owner} returns too; rename one")
        return {str(name): finite(value, f"{where} returned the metric {name!r}") for name, value in returned.items()}


def check_name(name: Any, where: str) -> None:
    """Refuse a metric's name that is not printable text, or that is one of scramjet's own."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.strip()) <= MAX_NAME_LENGTH:
        raise ConfigError(
            f"{where} named a metric {shortened(name)}; a name is text of 1 to {MAX_NAME_LENGTH} printable characters"
        )
    if is_reserved(name):
        raise ConfigError(f"{where} named a metric {name!r}, which is one of scramjet's own; choose another name")


def finite(value: Any, what: str) -> float:
    """A number, or a tensor or array of one number, as a float; `what` begins the message of the ConfigError."""
    try:
        number = float(value) if _is_real(value) else math.nan
    except (TypeError, ValueError, RuntimeError, OverflowError):  # several numbers, or one too large
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{what} as {shortened(value)}; it must be one finite number (leave it out if there is none)")
    return number


def _is_real(value: Any) -> bool:
    """Whether it is a real number, or a tensor or array of such: text and complex numbers can be cast to one, too."""
    if isinstance(value, Tensor):
        return not value.is_complex()
    if isinstance(value, numbers.Real):
        return True
    return hasattr(value, "__array__") and np.asarray(value).dtype.kind not in "cSUOMm"
