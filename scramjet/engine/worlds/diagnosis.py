"""What went wrong in a world, told in its author's terms: the world, the function, the line."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from types import FunctionType

from scramjet.compile import progress as compiling
from scramjet.engine.layout import writes_rewards
from scramjet.engine.worlds import transitions
from scramjet.engine.worlds.rules import RULE_NAMES
from scramjet.envs.api import Env
from scramjet.errors import ScramjetError, WorldError

_ENGINE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def explain(env: Env, error: Exception, try_interpreted: Callable[[], None] | None = None) -> Exception:
    """A WorldError for what happened inside the rules of `env`; an error that is not theirs stays as it is.

    The compiler speaks of types and passes. Where the same mistake shows interpreted, that message is the better
    one: `try_interpreted` plays the world so, and whatever it raises takes precedence.
    """
    compiling.abandon()
    if isinstance(error, ScramjetError):
        return error
    if try_interpreted is not None:
        try:
            try_interpreted()
        except ScramjetError as clearer:
            return clearer
    last_frame = traceback.extract_tb(error.__traceback__)[-1]
    if last_frame.name == "play" and last_frame.filename == transitions.__file__:  # it takes apart what step returned
        wanted = "terminated, a bool" if writes_rewards(env) else "(reward, terminated), a number and a bool"
        code = type(env).step.__code__
        return WorldError(f"{describe(env, code.co_filename, code.co_firstlineno)} must return {wanted}: {error}")
    place = place_of(env, error)
    if not place and not _is_compilation(error):
        return error
    what = "cannot be compiled" if _is_compilation(error) else "failed"
    return WorldError(f"{place or type(env).__name__} {what}: {_first_line(error)}{_advice(env, str(error))}")


def _is_compilation(error: Exception) -> bool:
    if type(error).__module__.startswith("numba"):
        return True
    # Some of Numba's failures are bare Python errors out of its own passes.
    return any(f"numba{os.sep}core" in frame.filename for frame in traceback.extract_tb(error.__traceback__))


def place_of(env: Env, error: BaseException) -> str:
    """`Corridor.step (corridor.py line 23)` for the deepest line of the world's file that the error names.

    Code from the compile cache names the file where it was compiled, which may have lain in another folder.
    """
    file = type(env).step.__code__.co_filename
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_elsewhere = os.path.basename(frame.filename) == os.path.basename(file)
        if frame.filename == file or (is_elsewhere and not frame.filename.startswith(_ENGINE)):
            return describe(env, file, frame.lineno or 0)
    places = re.findall(r'File "([^"]+)", line (\d+)', str(error)) + re.findall(r" at (.+\.py) \((\d+)\)", str(error))
    for name, line in places:  # the compiler names the innermost first
        if os.path.basename(name) == os.path.basename(file):
            return describe(env, file, int(line))
    return ""


def describe(env: Env, file: str, line: int) -> str:
    """`Corridor.step (corridor.py line 23)`."""
    cls = type(env)
    relative = os.path.relpath(file)
    shown = file if relative.startswith("..") else relative
    for name in RULE_NAMES:
        function = getattr(cls, name, None)
        if isinstance(function, FunctionType):
            lines = [number for _, _, number in function.__code__.co_lines() if number]
            if lines and min(lines) <= line <= max(lines):
                return f"{cls.__name__}.{name} ({shown} line {line})"
    return f"{cls.__name__} ({shown} line {line})"


def _first_line(error: Exception) -> str:
    """The line of a long compiler message that says what is wrong."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    skipped = ("Failed in", "Traceback", "During:", "File ", "This error may", "During ", "<source", "- ")
    useful = [line for line in lines if not line.startswith(skipped)]
    text = useful[0] if useful else type(error).__name__
    return text if type(error).__module__.startswith("numba") else f"{type(error).__name__}: {text}"


def _advice(env: Env, message: str) -> str:
    unknown = re.search(rf"Unknown attribute '(\w+)' of type {type(env).__name__}\(", message)
    if unknown and callable(getattr(type(env), unknown[1], None)):
        return f" (self.{unknown[1]} is called only where its source can be read: make it a function beside the class)"
    if unknown:
        return f" (compiled, self has the parameters and the class's plain numbers only, no '{unknown[1]}')"
    missing = re.search(r"Untyped global name '(\w+)'", message)
    if missing:
        return f" ('{missing[1]}' is nothing compiled code can use: numbers, arrays and functions imported by name are)"
    if "Cannot unify" in message or "can't unify" in message.lower():
        return " (a variable or the return value has two types; give it one)"
    return ""
