"""Numbers of steps and durations as a config writes them: 500K, 1M, 1h30m."""

from __future__ import annotations

import math
import re
from typing import Annotated

from scramjet.algorithms.schedules import parse_count
from scramjet.errors import ConfigError, shortened
from scramjet.settings import Spelling

Count = Annotated[int, Spelling(parse_count, "a number of steps such as 500000, 500K or 1M", "STEPS")]
"""A number of env steps; text may say 500K or 1M."""

_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds in `30s`, `5m`, `2h` or `1h30m`."""
    parts = re.findall(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)([smhd])", text)  # bounded: thousands of digits take seconds
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not 0 < seconds < math.inf:
        if re.fullmatch(r"[0-9]{1,20}(?:\.[0-9]{1,20})?", text):
            raise ConfigError(
                f"time_limit={shortened(text)} has no unit; write {text}s for seconds, {text}m or {text}h"
            )
        raise ConfigError(f"time_limit={shortened(text)} is no duration; write 30s, 5m, 2h or 1h30m")
    return seconds
