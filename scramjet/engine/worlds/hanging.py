"""Which rule of which native world does not come to an end, found from outside while compiled code runs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.worlds import diagnosis
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Env

RULES = {
    "reset": "reset, or its observe or mask",
    "observe": "observe or mask",
    "views": "observe",
    "scores": "score",
    "simulate": "step, or its observe or mask",
    "step": "step, or its observe or mask, or the reset of the next episode",
}
"""The rules that a kernel calls, in words."""

CALL_SECONDS = 0.5
"""An interpreted call of one env's rules that takes longer does not end."""
PROBE_SECONDS = 2.0
"""Seconds in which envs are tried one after the other."""


def what_hangs() -> str:
    """Which rule keeps a thread of this process busy, as a sentence; else where the main thread is."""
    main = threading.main_thread().ident
    frames = sys._current_frames()
    for thread in sorted(frames, key=lambda ident: ident != main):
        call = _kernel_call(frames[thread])
        if call is not None:
            return _described(call, frames[thread])
    return f"the main thread does not come back from {_place(frames[main])}" if main in frames else ""


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel that a thread is in, or that Numba compiles for it."""

    pool: NativePool
    kernel: str
    is_compiling: bool
    first: int  # env, and the one after the last
    last: int
    actions: np.ndarray | None
    seeds: EpisodeSeed | None = None
    steps_before: int = 0  # of a rollout that is played in one call, those that are done


def _kernel_call(frame: FrameType | None) -> _Call | None:
    """The kernel that a thread with this innermost frame is in."""
    innermost = frame
    while frame is not None:
        pool = frame.f_locals.get("self") if frame.f_code in _CALLERS else None
        if isinstance(pool, NativePool):
            is_compiling = frame is not innermost and pool.backend == "cpu"
            return _CALLERS[frame.f_code](pool, frame.f_locals, is_compiling)
        frame = frame.f_back
    return None


def _stepping(pool: NativePool, values: dict[str, Any], is_compiling: bool) -> _Call:
    return _Call(pool, "step", is_compiling, values["start"], values["stop"], values["actions"])


def _running(pool: NativePool, values: dict[str, Any], is_compiling: bool) -> _Call:
    kernel, arguments = str(values["kernel"]), values["arguments"]
    if kernel == "step_threaded":
        _, first, last, _, _, actions, *_ = arguments
        return _Call(pool, "step", is_compiling, first, last, actions)
    seeds = EpisodeSeed(*arguments[2:4]) if kernel == "reset" else None
    return _Call(pool, kernel, is_compiling, arguments[0], arguments[1], None, seeds)


def _playing(pool: NativePool, values: dict[str, Any], is_compiling: bool) -> _Call:
    step = int(values["progress"][0]) if "progress" in values else int(values["first"])
    actions, done = values["arrays"][0][step], step - int(values["first"])
    return _Call(pool, "step", is_compiling, 0, pool.num_envs, actions, steps_before=done)


_CALLERS: dict[Any, Callable[[NativePool, dict[str, Any], bool], _Call]] = {
    NativePool._step_envs.__code__: _stepping,
    NativePool._run.__code__: _running,
    NativePool.play_steps.__code__: _playing,
}


def _described(call: _Call, innermost: FrameType) -> str:
    name = call.pool.name
    if call.is_compiling:
        return f"Numba was compiling {name}'s {call.kernel}"
    place = _interpreted_place(call) if call.pool.backend == "cpu" else _place_in_rules(call.pool.env, innermost)
    if place:
        return f"{place} does not come to an end: look at the loop there"
    return f"{name}'s {RULES.get(call.kernel, call.kernel)} does not come to an end: look at the loops there"


class _DoesNotEndError(BaseException):
    """Raised into a rule that was played too long; no rule should catch it."""


def _interpreted_place(call: _Call) -> str:
    """The rule and line where an env hangs that is played interpreted from the states there are; empty if none does.

    The states are those in the middle of the call, so this may find nothing.
    """
    if call.kernel not in ("step", "reset", "observe"):
        return ""
    pool = NativePool(call.pool.env, call.pool.num_envs, backend="interpreted")
    pool._state_bytes[:] = call.pool._state_bytes
    until = time.monotonic() + PROBE_SECONDS
    for i in range(call.first, call.last):
        try:
            with _ended_after(CALL_SECONDS):
                if call.actions is not None:
                    pool._kernels.step(
                        i, i + 1, 0, pool._records, call.actions, *pool._own.arrays, True, *pool._logs[0]
                    )
                elif call.kernel == "reset":
                    assert call.seeds is not None
                    key, first_env = call.seeds.key, call.seeds.first_env
                    pool._kernels.reset(i, i + 1, key, first_env, pool._records, *pool._own.arrays[:3])
                else:
                    pool._kernels.observe(i, i + 1, pool._records, *pool._own.arrays[:3])
        except _DoesNotEndError as error:
            return diagnosis.place_of(pool.env, error)
        except Exception:
            continue  # a state in the middle of a step
        if time.monotonic() > until:
            break
    return ""


def _place_in_rules(env: Env, frame: FrameType | None) -> str:
    """The rule and line of a world that is played interpreted right now."""
    while frame is not None and frame.f_code.co_filename != type(env).step.__code__.co_filename:
        frame = frame.f_back
    return "" if frame is None else diagnosis.describe(env, frame.f_code.co_filename, frame.f_lineno)


class CallWatch:
    """While entered, calls `on_hang` with words for what hangs, where one call of a world's rules takes too long."""

    def __init__(self, seconds: float, on_hang: Callable[[str], None]) -> None:
        self._seconds, self._on_hang = seconds, on_hang
        self._thread = threading.main_thread().ident
        self._is_over = threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, name="calls", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        seen, since = None, time.monotonic()
        while not self._is_over.wait(min(0.5, self._seconds / 4)):
            frame = sys._current_frames().get(self._thread or 0)
            call = None if frame is None else _kernel_call(frame)
            # A call is recognized by the step that it makes; compiling, which takes a while, is none.
            now = None
            if call is not None and not call.is_compiling:
                now = (id(call.pool), call.kernel, call.pool.steps_taken + call.steps_before)
            if now is None or now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > self._seconds:
                self._on_hang(what_hangs())
                return


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """A context that ends its body with an error where its Python code runs for longer than this many seconds."""
    deadline = time.monotonic() + seconds

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > deadline:
            raise _DoesNotEndError
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_name} ({os.path.basename(frame.f_code.co_filename)} line {frame.f_lineno})"
