"""Every test of worker faults leaves no process and no descriptor behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from tests.helpers.fragile_envs import children


@pytest.fixture(autouse=True)
def no_process_or_descriptor_is_left() -> Iterator[None]:
    """Of what a test has begun: what earlier ones left, such as the process that compiles ahead, is not its own."""
    gc.collect()
    processes, descriptors = children(), len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert not children() - processes
    assert len(os.listdir("/proc/self/fd")) <= descriptors
