"""A run that is killed while it writes, again and again, beside the same run left alone."""

import importlib
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.forked_commands import finish, start
from tests.helpers.run_files import last_checkpoint


@dataclass
class AtWrite:
    """For `first` of a command: sends its process a signal within its n-th large write, half of the bytes written."""

    left: int
    sent: int = signal.SIGKILL
    module: str = "scramjet.runtime.files"
    larger_than: int = 4096  # bytes: the tensors of a checkpoint, not its metadata

    def __call__(self) -> None:
        writer = importlib.import_module(self.module)
        whole = writer.write_all

        def write_half_and_signal(descriptor: int, data: bytes) -> None:
            self.left -= len(data) > self.larger_than
            if self.left == 0:
                half = len(data) // 2
                os.write(descriptor, bytes(data)[:half])
                self.left, data = -1, bytes(data)[half:]
                os.kill(os.getpid(), self.sent)
            whole(descriptor, data)

        writer.write_all = write_half_and_signal  # type: ignore[attr-defined]


def ended_by(sent: int, write: int, *words: str | Path, output: Path) -> str:
    """Run a command that is sent a signal within its n-th large write, and must end by it; returns what it printed."""
    process = start(*words, output=output, first=AtWrite(write, sent))
    process.join(300)
    told = output.read_text()
    assert process.exitcode == (-sent if sent == signal.SIGKILL else 128 + sent), told
    return told


def assert_same_end(run: Path, reference: Path) -> None:
    """The last checkpoint of two runs is the same step and state, and so are their metrics but for the times."""
    ends = [(each / "checkpoints" / "latest").resolve().name for each in (run, reference)]
    assert ends[0] == ends[1]
    assert last_checkpoint(run) == last_checkpoint(reference)
    metrics = [
        [json.loads(line) for line in (each / "metrics.jsonl").read_text().splitlines()] for each in (run, reference)
    ]
    assert all(record.pop("time") for records in metrics for record in records)
    assert metrics[0] == metrics[1]
    assert not list((run / "checkpoints").glob(".tmp-*"))


def assert_same_end_after_deaths(settings: Sequence[str], runs: Path, deaths: Sequence[int]) -> None:
    """Train the run `whole`, and the run `parts` killed within each of these writes: they end byte for byte the same.

    Each number counts the files of checkpoints written since the start or the last resume.
    """
    output = runs / "output"
    finish("train", *settings, "--runs-dir", runs, "--run-name", "whole", output=output)
    words: list[str | Path] = [*settings, "--runs-dir", runs, "--run-name", "parts"]
    for write in deaths:
        ended_by(signal.SIGKILL, write, "train", *words, output=output)
        words = ["--resume", runs / "parts"]
    finish("train", *words, output=output)
    assert_same_end(runs / "parts", runs / "whole")
