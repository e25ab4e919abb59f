"""Callbacks: a user's functions that are called at fixed moments of a run.

They run on the training thread, between whole updates. If one raises, the run is saved before the error is raised.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from scramjet.errors import CallbackError, ConfigError, did_you_mean, shortened
from scramjet.executors.losses import MAX_NAME_LENGTH
from scramjet.runs.results import Evaluation
from scramjet.telemetry.metrics import Record, is_reserved
from scramjet.telemetry.readable import short_path
from scramjet.telemetry.sinks import BuiltInSink, Sink
from scramjet.training.result import TrainResult
from scramjet.training.session import Session

Metrics = Mapping[str, float] | None
"""Metrics that a callback adds: numbers by name, or None."""


class Callback:
    """Subclass it and write the methods you need; any object that has some of them will do.

    `session` is the run under way: `session.run.path` is its folder, to write into, `session.stop(reason)` ends it
    after this update with a checkpoint, and `session.policy`, `session.config` and `session.pool` may be looked at.
    Where several processes train the run, rank 0 alone calls them; its pool has its share of the envs.
    """

    def on_start(self, session: Session) -> None:
        """Before the first update of this process."""

    def on_update(self, record: dict[str, Any], session: Session) -> Metrics:
        """After each update, with a copy of its line of metrics.jsonl; what it returns is added to the line."""

    def on_evaluation(self, evaluation: Evaluation, session: Session) -> Metrics:
        """After each evaluation, before `on_update` of the same update; what it returns is added to the line."""

    def on_checkpoint(self, path: Path, session: Session) -> None:
        """Once a checkpoint is whole on the disk, which may be an update or more after its own."""

    def on_end(self, result: TrainResult, session: Session) -> None:
        """When the run has ended in order: finished, or stopped by a signal, the time limit or `session.stop`."""


COPIES_STAY = (
    "warning: a callback changed the network beyond its weights; {who} have copies of it, which stay as they were: "
    "give such a change with network=... when the run begins"
)
MOMENTS = ("on_start", "on_update", "on_evaluation", "on_checkpoint", "on_end")
"""The methods of a callback."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error that a callback raised, and the callback's name in messages."""

    where: str
    error: BaseException


class Callbacks:
    """The callbacks of a run, checked and in order; after one has failed, none is called any more."""

    def __init__(self, given: Iterable[Any] = ()) -> None:
        checked = _checked(given)
        self._listeners = {moment: _listeners(checked, moment) for moment in MOMENTS}
        self._metrics = UserMetrics()
        self._failure: _Failure | None = None
        self._has_told_of_copies = False

    def start(self, session: Session) -> None:
        """Call `on_start`; raises at once if one failed, because there is nothing to save yet."""
        self._call("on_start", session)
        self._raise_failure("this was before the first update, and the run goes on", session)

    def update(self, record: Record, evaluation: Evaluation | None, session: Session) -> dict[str, float]:
        """Call `on_checkpoint`, `on_evaluation` and `on_update` where they apply; returns the metrics that they add.

        Raises nothing: a failure ends the run after this update, and is raised by `raise_failure` once that is saved.
        """
        self.saved(session)
        metrics = {} if evaluation is None else self._call("on_evaluation", session, lambda _: evaluation)
        if self._listeners["on_update"]:
            metrics |= self._call("on_update", session, lambda earlier: {**record, **metrics, **earlier})
            self._tell_of_copies(session)
        return metrics

    def _tell_of_copies(self, session: Session) -> None:
        """Say once that a changed network is not that of the copies which opponents and actors play with."""
        config, executor = session.config, session.learner.executor
        who = "opponents" if session.league is not None else "actors" if config.mode == "async" else None
        if who is not None and not self._has_told_of_copies:
            executor.look_again()
            if executor.version:
                session.news.append(COPIES_STAY.format(who=who))
                self._has_told_of_copies = True

    def give(self, sink: Sink, record: dict[str, Any], session: Session) -> None:
        """Give a sink the metrics of an update. What a user's sink raises is kept like what a callback raises."""
        if isinstance(sink, BuiltInSink):
            sink.record(record)
        elif self._failure is None:
            try:
                sink.record(dict(record))  # it may keep it, or change it
            except BaseException as error:
                self._failure = _Failure(where := f"the sink {type(sink).__name__}.record", error)
                session.stop(f"{where} failed")

    def saved(self, session: Session) -> None:
        """Call `on_checkpoint` for each checkpoint written since the last call."""
        while session.saved:  # another thread may add to it
            path = session.saved.popleft()
            self._call("on_checkpoint", session, lambda _, path=path: path)  # type: ignore[misc]

    def end(self, result: TrainResult, session: Session) -> None:
        """Call `on_end`; raises if one failed."""
        self._call("on_end", session, lambda _: result)
        self.raise_failure(session, is_finished=result.stopped_by is None)

    def raise_failure(self, session: Session, *, is_finished: bool) -> None:
        """Raise the error of a callback that failed, if one did; call it once the run is saved.

        `is_finished`: the run has made all its updates.
        """
        if is_finished:
            state = "the run has finished and is saved, and trains further"
            self._raise_failure(state, session, settings="total_timesteps=..., ")
        else:
            self._raise_failure("what was trained is saved, and goes on", session)

    def _raise_failure(self, state: str, session: Session, settings: str = "") -> None:
        """Raise a CallbackError that names the callback; SystemExit and KeyboardInterrupt are raised as they are.

        `state` is what the message says about the run, `settings` are the arguments needed to resume it.
        """
        if self._failure is None:
            return
        error = self._failure.error
        if not isinstance(error, Exception):  # SystemExit, KeyboardInterrupt
            raise error
        raise CallbackError(
            f"{self._failure.where} raised {type(error).__name__}: {_text(error)}; {state} with "
            f"scramjet.train(resume={short_path(session.run.path)!r}, {settings}callbacks=...)"
        ) from error

    def _call(
        self, moment: str, session: Session, argument: Callable[[dict[str, float]], Any] | None = None
    ) -> dict[str, float]:
        """Call one method of all callbacks; returns the metrics that they add.

        `argument` makes the method's first argument from the metrics added so far. The first error is kept, and the
        run asked to stop.
        """
        metrics: dict[str, float] = {}
        for where, method in self._listeners[moment]:
            if self._failure is not None:
                break
            try:
                returned = method(session) if argument is None else method(argument(metrics), session)
                if returned is not None and moment in ("on_update", "on_evaluation"):
                    metrics |= self._metrics.checked(returned, where)
            except BaseException as error:
                self._failure = _Failure(where, error)
                session.stop(f"{where} failed")
        return metrics


def _checked(given: Any) -> list[Any]:
    """The callbacks as a list; refuses one without any method that is called, or with a misspelled one."""
    if not _is_iterable(given) or isinstance(given, str | bytes | Mapping):
        raise ConfigError(f"callbacks={shortened(given)} must be a list of callbacks: callbacks=[{_short(given)}]")
    callbacks = list(given)
    for each in callbacks:
        if isinstance(each, type):
            raise ConfigError(f"the callback {each.__name__} is a class; give an instance: {each.__name__}(...)")
        if not any(callable(getattr(each, moment, None)) for moment in MOMENTS):
            raise ConfigError(
                f"{shortened(each)} is no callback: it has none of the methods {', '.join(MOMENTS)} (see "
                f"scramjet.Callback)"
            )
        for name in dir(type(each)) if isinstance(each, Callback) else ():
            if name.startswith("on_") and name not in MOMENTS:
                raise ConfigError(
                    f"the callback {type(each).__name__} has a method {name}, which nobody calls."
                    f"{did_you_mean(name, MOMENTS)} The methods are {', '.join(MOMENTS)}"
                )
    return callbacks


def _is_iterable(given: Any) -> bool:
    """Whether it can be iterated over; an array without dimensions only looks as if."""
    try:
        iter(given)
    except TypeError:
        return False
    return True


def _listeners(callbacks: list[Any], moment: str) -> list[tuple[str, Callable[..., Any]]]:
    """Each callback's own method for a moment and its name in messages; those that only inherit it are left out."""
    found = []
    for each in callbacks:
        method = getattr(each, moment, None)
        if method is None or getattr(method, "__func__", None) is getattr(Callback, moment):
            continue
        is_one_of_many = sum(type(other) is type(each) for other in callbacks) > 1
        number = f" (number {callbacks.index(each) + 1})" if is_one_of_many else ""
        where = f"the callback {type(each).__name__}.{moment}{number}"
        wanted = [*inspect.signature(getattr(Callback, moment)).parameters][1:]
        if not callable(method) or not _takes(method, len(wanted)):
            raise ConfigError(f"{where} must be a method that takes ({', '.join(wanted)})")
        found.append((where, method))
    return found


def _takes(method: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True


def _short(value: Any) -> str:
    return f"{type(value).__name__}(...)" if isinstance(value, Callback) else "..."


def _text(error: Exception) -> str:
    """The text of an error; a user's error class may raise in `__str__`."""
    try:
        return str(error)
    except Exception:
        return "(it has no text)"


# --- metrics that callbacks add: names that are not taken, numbers that are finite


class UserMetrics:
    """Checks what callbacks return, each name when it is first returned."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # name: who gave it first

    def checked(self, returned: Any, where: str) -> dict[str, float]:
        """The returned numbers as floats; raises a ConfigError for what does not fit. `where` names the callback."""
        if not isinstance(returned, Mapping):
            raise ConfigError(
                f"{where} returned {shortened(returned)}; it may return a dict of numbers by name, or nothing"
            )
        for name in returned:
            owner = self._owners.get(name) if isinstance(name, str) else None
            if owner is None:
                check_name(name, where)
                self._owners[name] = where
            elif owner != where:
                raise ConfigError(f"{where} returned the metric {name!r}, which {owner} returns too; rename one")
        return {str(name): finite(value, f"{where} returned the metric {name!r}") for name, value in returned.items()}


def check_name(name: Any, where: str) -> None:
    """Refuse a metric's name that is not printable text, or that is one of scramjet's own."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.strip()) <= MAX_NAME_LENGTH:
        raise ConfigError(
            f"{where} named a metric {shortened(name)}; a name is text of 1 to {MAX_NAME_LENGTH} printable characters"
        )
    if is_reserved(name):
        raise ConfigError(f"{where} named a metric {name!r}, which is one of scramjet's own; choose another name")


def finite(value: Any, what: str) -> float:
    """A number, or a tensor or array of one number, as a float; `what` begins the message of the ConfigError."""
    try:
        number = float(value) if _is_real(value) else math.nan
    except (TypeError, ValueError, RuntimeError, OverflowError):  # several numbers, or one too large
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{what} as {shortened(value)}; it must be one finite number (leave it out if there is none)")
    return number


def _is_real(value: Any) -> bool:
    """Whether it is a real number, or a tensor or array of such: text and complex numbers can be cast to one, too."""
    if isinstance(value, Tensor):
        return not value.is_complex()
    if isinstance(value, numbers.Real):
        return True
    return hasattr(value, "__array__") and np.asarray(value).dtype.kind not in "cSUOMm"
