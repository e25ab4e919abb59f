"""What the study and the process that has Ray tell each other. Does not load Ray."""

from __future__ import annotations

import contextlib
import json
import os
import queue
from typing import Any

REQUESTS: queue.Queue[dict[str, Any]] = queue.Queue()
"""What the study wants to run."""


def tell(answers: int, message: dict[str, Any]) -> None:
    """Write a message for the study, if it is still there."""
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, json.dumps(message).encode() + b"\n")
