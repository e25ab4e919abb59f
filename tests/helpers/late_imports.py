"""Optional packages that take seconds to load: a process that collects tests of them, and runs none, does without."""

from importlib.util import find_spec

import pytest


def skip_without(package: str, reason: str | None = None) -> None:
    """`pytest.importorskip` at the top of a test file, without the import."""
    if find_spec(package) is None:
        pytest.skip(reason or f"needs {package}", allow_module_level=True)
