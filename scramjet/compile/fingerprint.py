"""A hash of all that decides the machine code of a function: its code, constants, helpers and the compiler's versions.

It names the entry of the compile cache: a change in a helper module or in a constant is a different entry.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from scramjet.compile.cache_folder import versions


def function_fingerprint(function: FunctionType, **options: Any) -> str:
    """A hash of one function, all that it uses, the compiler's versions and the options it is given."""
    digest = hashlib.sha256(versions().encode())
    digest.update(repr(sorted(options.items())).encode())
    hash_value(digest, function, {})
    return digest.hexdigest()


def globals_used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names of the function's module that its code loads, with their values now."""
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


@functools.cache  # helpers are used by many, and to disassemble them anew for each takes a tenth of a second at a start
def _global_names(code: CodeType) -> tuple[str, ...]:
    """Names that are no variables of the code itself, nested code included."""
    instructions = (instruction for part in _codes(code) for instruction in dis.get_instructions(part))
    names = [one.argval for one in instructions if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    return tuple(dict.fromkeys(names))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """`code` and the code objects nested in it (comprehensions, inner functions)."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) > 0 and all(is_constant(item) for item in value)
    return isinstance(value, bool | int | float | np.generic | np.ndarray)


_THIS_PROCESS = os.urandom(16)


def hash_value(digest: Any, value: Any, seen: dict[int, int]) -> None:
    """Add a value that compiled code depends on, functions by their code and everything that they use."""
    if isinstance(value, FunctionType) and (value.__module__ or "").startswith("numba."):
        digest.update(f"{value.__module__}.{value.__name__}".encode())  # the version says the rest
    elif isinstance(value, FunctionType):
        if not _is_seen(digest, value, seen):
            _hash_function(digest, value, seen)
    elif _is_numbas(value) and (source := _numba_internals().intrinsic_source(value)) is not None:
        hash_value(digest, source, seen)
    elif _is_numbas(value) and (source := _numba_internals().compiled_source(value)) is not None:
        digest.update(f"{type(value).__name__}{getattr(value, 'targetoptions', '')}".encode())
        hash_value(digest, source, seen)
    elif isinstance(value, ModuleType):
        digest.update(value.__name__.encode())
    elif isinstance(value, type):
        if not _is_seen(digest, value, seen):
            _hash_class(digest, value, seen)
    elif isinstance(value, np.ndarray):
        digest.update(repr((value.dtype, value.shape)).encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, tuple | list):
        digest.update(f"{type(value).__name__}{len(value)}{getattr(value, '_fields', '')}".encode())
        for item in value:
            hash_value(digest, item, seen)
    else:
        text = repr(value)
        digest.update(f"{type(value).__name__}:{text}".encode())
        if " at 0x" in text and not isinstance(value, str):  # where it is, which another process may use for another
            digest.update(_THIS_PROCESS)


def _is_numbas(value: Any) -> bool:
    """Whether a decorator of Numba has made this object or class."""
    return type(value).__module__.partition(".")[0] == "numba"


def _numba_internals() -> Any:
    """Loaded when something of Numba's is met: it loads the compiler, which worlds without it need not wait for."""
    from scramjet.compile import numba_internals

    return numba_internals


def _is_seen(digest: Any, value: Any, seen: dict[int, int]) -> bool:
    """Whether it has been added before; its number says which it is: two names may have changed places."""
    if id(value) in seen:
        digest.update(f"{type(value).__name__} {seen[id(value)]}".encode())
        return True
    seen[id(value)] = len(seen)
    return False


def _hash_function(digest: Any, function: FunctionType, seen: dict[int, int]) -> None:
    for code in _codes(function.__code__):
        plain = tuple(item for item in code.co_consts if not isinstance(item, CodeType))
        digest.update(code.co_code + getattr(code, "co_exceptiontable", b""))
        digest.update(repr((plain, code.co_names, code.co_varnames, code.co_freevars)).encode())
    hash_value(digest, function.__defaults__, seen)
    hash_value(digest, tuple(sorted((function.__kwdefaults__ or {}).items())), seen)
    names = sorted({name for code in _codes(function.__code__) for name in code.co_names})
    for name, used in globals_used(function):
        digest.update(name.encode())
        hash_value(digest, used, seen)
        if isinstance(used, ModuleType):
            _hash_module(digest, used, names, seen)
    for cell in function.__closure__ or ():
        hash_value(digest, cell.cell_contents, seen)


def _hash_module(digest: Any, module: ModuleType, names: Sequence[str], seen: dict[int, int]) -> None:
    """What code that uses these names may read through a module, wherever that has it from."""
    # What `scramjet` itself offers is not for rules: a field of theirs may be called `train`.
    is_known = module.__name__ == "scramjet" or module.__name__.partition(".")[0] in _KNOWN_BY_VERSION
    for name in names:
        value = getattr(module, name, None)
        if is_constant(value) or (value is not None and not is_known and not isinstance(value, ModuleType)):
            digest.update(name.encode())
            hash_value(digest, value, seen)
        elif isinstance(value, ModuleType) and not is_known and not _is_seen(digest, value, seen):
            _hash_module(digest, value, names, seen)


_KNOWN_BY_VERSION = ("numpy", "numba", "math", "cmath", "random", "builtins", "operator")


def _hash_class(digest: Any, cls: type, seen: dict[int, int]) -> None:
    """Enums by their members; other classes by their fields, functions and constants."""
    digest.update(cls.__qualname__.encode())
    if issubclass(cls, enum.Enum):
        digest.update(repr([(member.name, member.value) for member in cls]).encode())
        return
    members = _numba_internals().jitclass_members(cls) if _is_numbas(cls) else None
    if members is not None:
        fields, methods = members
        digest.update(fields.encode())
        for name, method in methods:
            digest.update(name.encode())
            hash_value(digest, method, seen)
        return
    if cls.__module__.partition(".")[0] in _KNOWN_BY_VERSION:
        return
    digest.update(repr(getattr(cls, "_fields", ())).encode())
    for name, value in sorted(vars(cls).items()):
        if isinstance(value, FunctionType) or is_constant(value):
            digest.update(name.encode())
            hash_value(digest, value, seen)
