"""The interface of all displays, and the records that they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from scramjet.telemetry.metrics import Record

Mode = Literal["auto", "live", "plain", "quiet"]
StoppedBy = Literal["ctrl-c", "sigterm", "sighup", "time limit", "callback"]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts of a run that are known before its first update."""

    run_name: str
    run_path: str | Path
    env: str
    num_envs: int
    num_steps: int
    num_threads: int
    first_step: int
    """Steps already taken when this process began: not 0 after a resume or a fork."""
    total_steps: int
    num_parameters: int
    note: str = ""
    """Remarks, such as "resumed at step 1,024"."""
    device: str = "cpu"
    """The device of the network: with "cuda" the load of the GPU is shown."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What was found in a run, and the setting that another run should have for it."""

    finding: str
    """Such as "no reward yet"."""
    setting: Literal["curiosity", "bonus.episodic", "eval.samples"]
    value: str = ""
    """"" for a setting that is switched on."""


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended."""

    run_path: str | Path
    run_name: str
    step: int
    trained: int
    """Steps trained by this process; a resumed run has more."""
    seconds: float
    steps_per_second: float
    return_100: float | None
    recent_episodes: int
    """Episodes that `return_100` is the mean of, at most 100."""
    best_return: float | None
    """The mean return of the best checkpoint, or its rating where there is a pool of opponents."""
    evaluation: dict[str, Any] | None
    """mean_return, std_return, mean_length, episodes of the last evaluation; None if there was none."""
    stopped_by: StoppedBy | None
    env: str
    stop_reason: str = ""
    """The reason that a callback gave for stopping the run."""
    is_own_network: bool = False
    """A user's own network: commands cannot build it, Python can."""
    is_replay: bool = False
    """The run replays a schedule, and cannot be resumed."""
    num_restarts: int = 0
    """How many times an env failed and was made anew."""
    statistics: Mapping[str, float] = field(default_factory=dict)
    """The world's statistics by name: means over the last evaluation's episodes, or over recent ones if none."""
    search: Mapping[str, float] = field(default_factory=dict)
    """What the searches of the last update found, by name; empty where none played."""
    can_be_watched: bool = True
    """`scramjet eval --render` can draw its world."""
    is_game: bool = False
    """Its seats play against each other, so that their returns say nothing."""
    versus: Record | None = None
    """The win rates against random moves and the first self, by their keys; None where there are none."""
    rating: float | None = None
    """The rating against the pool of opponents; None where there is none."""
    hints: tuple[Hint, ...] = ()
    """The hints that were given and still hold."""


class Display(Protocol):
    """Shows a run to the user. Of its methods only `event` may be called from a signal handler."""

    def start(self, info: RunInfo) -> None:
        """Training is about to begin."""

    def record(self, record: Record) -> None:
        """An update is done. Cheap: may be called hundreds of times a second."""

    def event(self, text: str) -> None:
        """Something worth a line happened: a checkpoint, a new best, an evaluation, a stop."""

    def progress(self, text: str) -> None:
        """Show how far some long work other than updates is; "" when it is over. Any thread may call it."""

    def finish(self, summary: Summary) -> None:
        """Training ended in order: show the result and what to type next."""

    def close(self) -> None:
        """Give the terminal back as it was; safe to call twice, and after an error."""
