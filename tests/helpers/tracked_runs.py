"""Runs on their way into a tool: fed from folders written by hand, with a resume that goes back to a checkpoint."""

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scramjet.runtime.runs import Run
from scramjet.telemetry.tracking.background import ProcessFeed
from scramjet.telemetry.tracking.feed import Feed, State
from scramjet.telemetry.tracking.tracker import Tracker, make_tracker, read_state
from tests.helpers.written_runs import append_records, record_at, write_run

STEPS = [1000, 2000, 3000, 4000, 5000]
"""The steps that a tool has of `feed_twice`, each once."""


@contextlib.contextmanager
def fed(name: str, run: Path, goes_on_from: int | None = None, tracker: Tracker | None = None) -> Iterator[Feed]:
    """A feed that has sent all that there is; what the caller does with it comes before its end."""
    feed = Feed(name, Run.open(run), tracker or make_tracker(name))
    try:
        feed.open(goes_on_from)
        while feed.send():
            pass
        yield feed
    finally:
        feed.release()


def send(name: str, run: Path, goes_on_from: int | None = None, state: State = "finished") -> None:
    """Send what is new of a run to a tool and end it there."""
    with fed(name, run, goes_on_from) as feed:
        feed.close(state)


def records(first: int, last: int) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl with a number, a null and an evaluation every second update."""
    made = [record_at(update, return_100=update / 2, value_loss=None) for update in range(first, last + 1)]
    return [{**record, "eval/mean_return": 7.5} if record["update"] % 2 == 0 else record for record in made]


def cut_after(run: Path, update: int) -> None:
    """Cut metrics.jsonl behind an update, as a resume from its checkpoint does."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:update]))


def feed_twice(name: str, runs_dir: Path) -> Path:
    """A run that was killed after update 4 without ending in the tool, then resumed from update 2 up to update 5."""
    run = write_run(runs_dir, "first", records(1, 4), total_timesteps=5000, seed=3)
    _send_and_be_killed(name, run)
    cut_after(run, 2)
    with fed(name, run, goes_on_from=2000) as feed:
        append_records(run, records(3, 5))
        while feed.send():
            pass
        feed.close("finished")
    return run


def _send_and_be_killed(name: str, run: Path) -> None:
    """Send a run in a process that is killed once it has sent everything; W&B's is only left by the training.

    W&B keeps what it writes offline in memory for a while, and does not say what is in its files.
    """
    feed = ProcessFeed(name, Run.open(run))
    feed.open(goes_on_from=0)
    deadline = time.monotonic() + 60
    while read_state(run / "tracking" / name / "state.json").step < 4000:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert feed._process is not None
    if name == "wandb":
        feed.release()
        assert feed._process.wait(60) == 0
        return
    time.sleep(0.7)  # tools have threads of their own
    feed._process.kill()
    assert feed._process.wait() == -signal.SIGKILL
    feed.release()


def fork_of(runs_dir: Path, steps: Sequence[int] = (3,)) -> Path:
    """A run forked from the one of `feed_twice`, at step 2,000."""
    lineage = {"parent_checkpoint": "../first/checkpoints/step_00002000", "parent_step": 2000, "changed": {}}
    return write_run(runs_dir, "second", records(steps[0], steps[-1]), lineage=lineage, seed=4)
