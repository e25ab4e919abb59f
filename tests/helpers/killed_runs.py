"""A run that is killed while it writes, again and again, beside the same run left alone."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from tests.helpers.forked_commands import DiesInWriting, finish, start

FILES = ("model.safetensors", "trainer.safetensors")


def assert_same_end_after_deaths(settings: Sequence[str], runs: Path, deaths: Sequence[int]) -> None:
    """Train the run `whole`, and the run `parts` killed within each of these writes: their last checkpoints are equal.

    Each number counts the files of checkpoints written since the start or the last resume.
    """
    output = runs / "output"
    finish("train", *settings, "--runs-dir", runs, "--run-name", "whole", output=output)
    words: list[str | Path] = [*settings, "--runs-dir", runs, "--run-name", "parts"]
    for writes_before_death in deaths:
        process = start("train", *words, output=output, first=DiesInWriting(writes_before_death))
        process.join(300)
        assert process.exitcode == -signal.SIGKILL, output.read_text()
        words = ["--resume", runs / "parts"]
    finish("train", "--resume", runs / "parts", output=output)
    ends = [(runs / name / "checkpoints" / "latest").resolve() for name in ("whole", "parts")]
    assert ends[0].name == ends[1].name
    for name in FILES:
        assert (ends[0] / name).read_bytes() == (ends[1] / name).read_bytes(), name
