"""Where compiled kernels are kept, and what decides that; without loading the compiler, which takes long."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def cache_directory() -> Path:
    """Where all of them live: $SCRAMJET_CACHE_DIR, or `scramjet` in the user's cache folder."""
    chosen = os.environ.get("SCRAMJET_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scramjet"


def entry_directory(fingerprint: str) -> Path:
    """Where those of one fingerprint do."""
    return cache_directory() / fingerprint[:32]


@cache
def versions() -> str:
    """All that compiles, by its version; our part in that, by its source."""
    ours = hashlib.sha256(Path(__file__).with_name("linked.py").read_bytes()).hexdigest()
    return repr((sys.version_info[:3], *(version(name) for name in ("numba", "llvmlite", "numpy")), ours))


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold an entry: of several processes that want one kernel, one compiles it and the others wait."""
    descriptor = None
    with contextlib.suppress(OSError):  # where files cannot be written or locked, each compiles for itself
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
