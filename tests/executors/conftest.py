"""Wide programs where Triton interprets kernels: its time is that of their number."""

import os

import pytest


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    if os.environ.get("TRITON_INTERPRET") == "1":
        from scramjet.executors import triton_plan as tuning

        for name in ("REDUCE_COLUMNS", "STEP_COLUMNS"):
            monkeypatch.setattr(tuning, name, 2048)
        monkeypatch.setattr(tuning, "REDUCE_ROWS", 4)
        monkeypatch.setitem(tuning.FORWARD_BLOCKS, "float32", (64,))
