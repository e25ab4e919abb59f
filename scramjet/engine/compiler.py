"""From a world's Python functions to compiled ones: helpers found and compiled along, errors in the author's terms.

Rules files do not know Numba: their functions and the helpers they call are ordinary functions. Here each is
rebuilt with its helpers replaced by compiled versions, and everything it depends on goes into one fingerprint,
which names the on-disk cache entry: a change in a helper module or a constant is a different entry.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import os
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from scramjet.engine.cache_folder import versions
from scramjet.engine.layout import (
    PlayedBy,
    action_kind,
    action_sizes,
    clear_function,
    num_players,
    played_by,
    row_function,
    writes_rewards,
)
from scramjet.engine.transitions import (
    NO_LIMIT,
    Rules,
    always_alive,
    first_seat,
    no_mask,
    no_mask_of_player,
    no_stats,
    no_stats_of_player,
)
from scramjet.envs.api import Env
from scramjet.errors import WorldError

RULE_ARGUMENTS = {
    "reset": ("self", "s"),
    "step": ("self", "s", "action"),
    "observe": ("self", "s", "obs"),
    "mask": ("self", "s", "mask"),
    "stats": ("self", "s", "stats"),
}
PLAYERS_RULE_ARGUMENTS = {
    "reset": ("self", "s"),
    "step": ("self", "s", "action", "reward"),
    "observe": ("self", "s", "obs", "player"),
    "mask": ("self", "s", "mask", "player"),
    "stats": ("self", "s", "stats", "player"),
    "alive": ("self", "s", "player"),
    "seat": ("self", "s"),
}
"""What the rules of a world for agents or seats are given; `step` with a fourth argument makes it one."""
RULE_NAMES = tuple(PLAYERS_RULE_ARGUMENTS)


def interpreted_rules(env: Env) -> Rules:
    """The world's functions as they are: breakpoints and prints work."""
    rules = _rules(env, env, {**_stand_ins(env), **rule_functions(env)})
    if rules.played_by is PlayedBy.ONE:
        return rules
    return replace(rules, step=_checked_step(env, rules.step), seat=_checked_seat(env, rules.seat))


def _checked_step(env: Env, step: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any) -> bool:
        terminated = step(*arguments)
        is_bool = isinstance(terminated, bool | np.bool_) or (
            isinstance(terminated, np.ndarray) and terminated.shape == () and terminated.dtype == np.bool_
        )
        if not is_bool:
            raise WorldError(
                f"{type(env).__name__}.step must return terminated, a bool; it returned {terminated!r}. "
                f"Rewards of players are written, reward[player] = ..., not returned"
            )
        return bool(terminated)

    return checked


def _checked_seat(env: Env, seat: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any) -> int:
        number = seat(*arguments)
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < env.num_seats:
            raise WorldError(f"{type(env).__name__}.seat gave {number!r}; seats are 0 to {env.num_seats - 1}")
        return int(number)

    return checked


def rule_functions(env: Env) -> dict[str, FunctionType]:
    """The functions that the world defines, among those its kind of world may."""
    cls = type(env)
    found = {}
    expected = PLAYERS_RULE_ARGUMENTS if writes_rewards(env) else RULE_ARGUMENTS
    for name in expected:
        function = getattr(cls, name, None)
        if function is None or getattr(Env, name, None) is function:
            if name in ("reset", "step", "observe"):
                raise WorldError(f"{cls.__name__} has no {name}(); write `def {name}(self, s...)`")
            continue
        if not isinstance(function, FunctionType):
            raise WorldError(f"{cls.__name__}.{name} must be a plain function; it is {function!r}")
        arguments = expected[name]
        if function.__code__.co_argcount != len(arguments):
            raise WorldError(f"{cls.__name__}.{name} must be written `def {name}({', '.join(arguments)})`")
        found[name] = function
    if ("stats" in found) != bool(env.stat_names):
        raise WorldError(
            f'{cls.__name__} needs both stat_names = ("win", ...) and `def stats(self, s, stats)`, or neither'
        )
    if env.num_seats > 1 and "seat" not in found:
        raise WorldError(f"{cls.__name__} has {env.num_seats} seats; write `def seat(self, s)`: whose turn it is")
    return found


def _stand_ins(env: Env) -> dict[str, Callable[..., Any]]:
    """What is called where the world has no such function."""
    for_players = writes_rewards(env)
    return {
        "mask": no_mask_of_player if for_players else no_mask,
        "stats": no_stats_of_player if for_players else no_stats,
        "alive": always_alive,
        "seat": first_seat,
    }


def _rules(env: Env, parameters: Any, functions: dict[str, Callable[..., Any]]) -> Rules:
    return Rules(
        parameters=parameters,
        reset=functions["reset"],
        step=functions["step"],
        observe=functions["observe"],
        mask=functions["mask"],
        stats=functions["stats"],
        alive=functions["alive"],
        seat=functions["seat"],
        row=row_function(env.observation_space),
        clear=clear_function(env),
        max_episode_steps=env.max_episode_steps or NO_LIMIT,
        played_by=played_by(env),
        num_players=num_players(env),
        action_kind=action_kind(env),
        action_sizes=action_sizes(env),
    )


def constants_tuple(env: Env) -> Any:
    """What compiled rules see as `self`: every parameter and every other attribute that is a plain number."""
    values: dict[str, Any] = {}
    for name in dir(type(env)):
        if name.startswith("_") or name in ("parameters", "observation_space", "action_space", "state"):
            continue
        value = getattr(env, name)
        if _is_constant(value):
            values[name] = value
    return namedtuple(type(env).__name__, values)(**values)


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) > 0 and all(_is_constant(item) for item in value)
    return isinstance(value, bool | int | float | np.generic | np.ndarray)


class RulesCompiler:
    """Rebuilds functions so that the helpers they call are compiled too."""

    def __init__(
        self,
        env: Env,
        jit_rule: Callable[[FunctionType], Any],
        jit_helper: Callable[[FunctionType], Any],
        instead: Mapping[Any, Any] | None = None,
        variant: str = "",
    ) -> None:
        """`instead` has compiled functions that take the place of plain ones; `variant` names options of the compiler
        that make other code of the same source."""
        self.env = env
        self.functions = rule_functions(env)
        self.constants = constants_tuple(env)
        self.fingerprint = _fingerprint(env, self.functions, self.constants, variant)
        self._jit_rule, self._jit_helper = jit_rule, jit_helper
        self._compiled: dict[FunctionType, Any] = dict(instead or {})

    def rules(self) -> Rules:
        """The world's functions, compiled."""
        compiled = {name: self.compile(function) for name, function in self.functions.items()}
        for name, function in _stand_ins(self.env).items():
            compiled.setdefault(name, self.compile(function))  # type: ignore[arg-type]
        return _rules(self.env, self.constants, compiled)

    def compile(self, function: FunctionType) -> Any:
        """`function` with every plain function it names compiled as well."""
        if function in self._compiled:
            return self._compiled[function]
        # The name of a module that is always there: the cache looks it up, and a world's file may have moved.
        scope: dict[str, Any] = {"__builtins__": builtins, "__name__": __name__}
        cells = tuple(CellType() for _ in function.__closure__ or ())
        rebuilt = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells or None)
        rebuilt.__kwdefaults__ = function.__kwdefaults__
        # The fingerprint in the name keeps apart the symbols of worlds loaded into one process from the cache.
        rebuilt.__qualname__ = f"{function.__qualname__}_{self.fingerprint[:16]}"
        jit = self._jit_rule if function in self.functions.values() else self._jit_helper
        self._compiled[function] = jit(rebuilt)  # before its helpers: they may call back
        for name, value in _globals_used(function):
            scope[name] = self.compile(value) if isinstance(value, FunctionType) else value
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            value = original.cell_contents
            cell.cell_contents = self.compile(value) if isinstance(value, FunctionType) else value
        return self._compiled[function]


def _globals_used(function: FunctionType) -> Iterator[tuple[str, Any]]:
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


def _fingerprint(env: Env, functions: dict[str, FunctionType], constants: Any, variant: str) -> str:
    """A hash of all that decides the compiled code of a world."""
    digest = hashlib.sha256(variant.encode())
    digest.update(repr((type(env).__name__, env.observation_space, env.action_space, env.stat_names)).encode())
    digest.update(repr([(name, str(value)) for name, value in env.state.items()]).encode())
    _hash_value(digest, constants, {})
    for name, value in constants._asdict().items():
        digest.update(name.encode())
        _hash_value(digest, value, {})
    seen: dict[int, int] = {}
    for name, function in functions.items():
        digest.update(name.encode())
        _hash_value(digest, function, seen)
    for source in _ENGINE_SOURCES:
        digest.update(source.read_bytes())
    digest.update(versions().encode())
    return digest.hexdigest()


def rules_fingerprint(env: Env) -> str:
    """A hash of a world's rules and parameters alone, whatever compiles them."""
    digest = hashlib.sha256()
    _hash_value(digest, constants_tuple(env), {})
    seen: dict[int, int] = {}
    for function in rule_functions(env).values():
        _hash_value(digest, function, seen)
    return digest.hexdigest()


def function_fingerprint(function: FunctionType, **options: Any) -> str:
    """A hash of one function, all that it uses, the compiler's versions and the options it is given."""
    digest = hashlib.sha256(versions().encode())
    digest.update(repr(sorted(options.items())).encode())
    _hash_value(digest, function, {})
    return digest.hexdigest()


_THIS_PROCESS = os.urandom(16)


def _hash_value(digest: Any, value: Any, seen: dict[int, int]) -> None:
    """Add a value that compiled code depends on, functions by their code and everything that they use."""
    if isinstance(value, FunctionType) and (value.__module__ or "").startswith("numba."):
        digest.update(f"{value.__module__}.{value.__name__}".encode())  # the version says the rest
    elif isinstance(value, FunctionType):
        if not _is_seen(digest, value, seen):
            _hash_function(digest, value, seen)
    elif hasattr(value, "_defn"):  # an intrinsic of Numba: the function that writes its code
        _hash_value(digest, value._defn, seen)
    elif (source := _source_of(value)) is not None:
        digest.update(f"{type(value).__name__}{getattr(value, 'targetoptions', '')}".encode())
        _hash_value(digest, source, seen)
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
            _hash_value(digest, item, seen)
    else:
        text = repr(value)
        digest.update(f"{type(value).__name__}:{text}".encode())
        if " at 0x" in text and not isinstance(value, str):  # where it is, which another process may use for another
            digest.update(_THIS_PROCESS)


def _source_of(value: Any) -> FunctionType | None:
    """The function that the author has compiled with a decorator of Numba."""
    value = getattr(value, "_dispatcher", value)  # of numba.vectorize
    function = getattr(value, "py_func", None) or getattr(value, "_pyfunc", None)
    return function if isinstance(function, FunctionType) else None


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
    _hash_value(digest, function.__defaults__, seen)
    _hash_value(digest, tuple(sorted((function.__kwdefaults__ or {}).items())), seen)
    names = sorted({name for code in _codes(function.__code__) for name in code.co_names})
    for name, used in _globals_used(function):
        digest.update(name.encode())
        _hash_value(digest, used, seen)
        if isinstance(used, ModuleType):
            _hash_module(digest, used, names, seen)
    for cell in function.__closure__ or ():
        _hash_value(digest, cell.cell_contents, seen)


def _hash_module(digest: Any, module: ModuleType, names: Sequence[str], seen: dict[int, int]) -> None:
    """What code that uses these names may read through a module, wherever that has it from."""
    # What `scramjet` itself offers is not for rules: a field of theirs may be called `train`.
    is_known = module.__name__ == "scramjet" or module.__name__.partition(".")[0] in _KNOWN_BY_VERSION
    for name in names:
        value = getattr(module, name, None)
        if _is_constant(value) or (value is not None and not is_known and not isinstance(value, ModuleType)):
            digest.update(name.encode())
            _hash_value(digest, value, seen)
        elif isinstance(value, ModuleType) and not is_known and not _is_seen(digest, value, seen):
            _hash_module(digest, value, names, seen)


_KNOWN_BY_VERSION = ("numpy", "numba", "math", "cmath", "random", "builtins", "operator")


def _hash_class(digest: Any, cls: type, seen: dict[int, int]) -> None:
    """Enums by their members; other classes by their fields, functions and constants."""
    digest.update(cls.__qualname__.encode())
    if issubclass(cls, enum.Enum):
        digest.update(repr([(member.name, member.value) for member in cls]).encode())
        return
    compiled = getattr(cls, "class_type", None)  # of a jitclass
    if compiled is not None:
        digest.update(repr(sorted(compiled.struct.items(), key=str)).encode())
        properties = {f"{name} {kind}": one for name, of in compiled.jit_props.items() for kind, one in of.items()}
        for name, method in sorted({**compiled.jit_methods, **compiled.jit_static_methods, **properties}.items()):
            digest.update(name.encode())
            _hash_value(digest, method, seen)
        return
    if cls.__module__.partition(".")[0] in _KNOWN_BY_VERSION:
        return
    digest.update(repr(getattr(cls, "_fields", ())).encode())
    for name, value in sorted(vars(cls).items()):
        if isinstance(value, FunctionType) or _is_constant(value):
            digest.update(name.encode())
            _hash_value(digest, value, seen)


_ENGINE_SOURCES = [
    Path(__file__).with_name(f"{name}.py")
    for name in ("kernels", "transitions", "layout", "compiler", "cpu", "cuda", "cuda_staging")
]
