"""What a benchmark needs, looked at before it begins: one message and exit code 2 where something is missing."""

from __future__ import annotations

import argparse
import importlib.util

from scramjet.compile.cuda import require_cuda
from scramjet.errors import ConfigError


def require_device(parser: argparse.ArgumentParser, device: str) -> None:
    """End with a message where `device` is cuda and there is none."""
    if device == "cuda":
        try:
            require_cuda()
        except ConfigError as error:
            parser.error(str(error))


def require_packages(parser: argparse.ArgumentParser, *names: str, install: str) -> None:
    """End with a message where one of these modules is not installed; `install` says how to."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(f"{', '.join(missing)} is not installed; {install}")
