"""Wide programs where Triton interprets kernels: its time is that of their number. A GPU runs the real ones."""

import os

import pytest


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    if os.environ.get("TRITON_INTERPRET") == "1":
        from scramjet.policies.encoders.convolutions import blocks, layers

        monkeypatch.setattr(layers, "REDUCE_COLUMNS", 8192)
        for table, rows in ((blocks.CONVOLUTION, 256), (blocks.GRADIENT, 64)):
            for channels, tuned in table.items():
                monkeypatch.setitem(table, channels, tuned._replace(rows=rows))
