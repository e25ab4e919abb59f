"""Run folders written to break the page: one of them must not take the list of the others with it."""

from __future__ import annotations

import json
from pathlib import Path

from scramjet.web.runs.facts import read_spark


def test_a_number_beyond_all_floats_is_left_out_of_the_small_curve(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"return_100":1e999}\n')
    assert json.dumps(read_spark(path), allow_nan=False) == "[]"
