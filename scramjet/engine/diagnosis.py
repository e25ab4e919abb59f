"""What went wrong in a world, told in its author's terms: the world, the function, the line."""

from __future__ import annotations

import re
import traceback
from types import FunctionType

from scramjet.engine.compiler import RULE_NAMES
from scramjet.envs.api import Env
from scramjet.errors import ScramjetError, WorldError

_ADVICE = (
    (r"Unknown attribute '(\w+)' of type \w*[Rr]ecord", "declare '{0}' in `state`"),
    (
        r"Unknown attribute '(\w+)' of type (?:Named|Tuple)",
        "self has no number '{0}': helpers are module-level functions",
    ),
    (
        r"Untyped global name '(\w+)'",
        "'{0}' is not something compiled code can use; import functions by name",
    ),
    (r"NameError: name '(\w+)' is not defined", "'{0}' is not defined"),
    (r"Cannot unify", "a variable or the return value has two types; give it one"),
)


def explain(env: Env, error: Exception, backend: str) -> Exception:
    """A WorldError for what happened inside the rules of `env`; other errors as they are."""
    if isinstance(error, ScramjetError):
        return error
    place = _place(env, error)
    first = _first_line(error)
    if not place and not type(error).__module__.startswith("numba"):
        return error
    doing = "cannot be compiled" if type(error).__module__.startswith("numba") else "failed"
    where = place or type(env).__name__
    return WorldError(f"{where} {doing}: {first}{_advice(str(error))}")


def _place(env: Env, error: Exception) -> str:
    """`Corridor.step (corridor.py line 23)` for the deepest line of the world's file that the error names."""
    files = {code_file(env)}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            return _describe(env, frame.filename, frame.lineno or 0)
    matches = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    for filename, line in reversed(matches):
        if any(path.endswith(filename.removeprefix("../").lstrip("./")) for path in files):
            return _describe(env, filename, int(line))
    return ""


def code_file(env: Env) -> str:
    """The file with the world's rules."""
    return type(env).step.__code__.co_filename


def _describe(env: Env, filename: str, line: int) -> str:
    cls = type(env)
    for name in RULE_NAMES:
        function = getattr(cls, name, None)
        if isinstance(function, FunctionType):
            lines = [number for _, _, number in function.__code__.co_lines() if number]
            if lines and min(lines) <= line <= max(lines):
                return f"{cls.__name__}.{name} ({filename} line {line})"
    return f"{cls.__name__} ({filename} line {line})"


def _first_line(error: Exception) -> str:
    """The line of a long compiler message that says what is wrong."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    skipped = ("Failed in", "Traceback", "During:", "File ", "This error may", "During ", "<source")
    useful = [line for line in lines if not line.startswith(skipped)]
    text = useful[0] if useful else type(error).__name__
    prefix = "" if type(error).__module__.startswith("numba") else f"{type(error).__name__}: "
    return prefix + text


def _advice(message: str) -> str:
    for pattern, advice in _ADVICE:
        found = re.search(pattern, message)
        if found:
            return f" ({advice.format(*found.groups())})"
    return ""
