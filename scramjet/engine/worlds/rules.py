"""From a world's Python functions to compiled ones: helpers found and compiled along, errors in the author's terms.

Rules files do not know Numba: their functions and the helpers they call are ordinary functions. Here each is
rebuilt with its helpers replaced by compiled versions, and everything it depends on goes into one fingerprint,
which names the on-disk cache entry: a change in a helper module or a constant is a different entry.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import hashlib
import inspect
import textwrap
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, cast

from scramjet.compile import fingerprint
from scramjet.compile.cache_folder import versions
from scramjet.compile.fingerprint import globals_used, hash_value, is_constant
from scramjet.engine import layout, privileged, transition
from scramjet.engine.layout import (
    action_kind,
    action_sizes,
    clear_function,
    num_players,
    played_by,
    row_function,
    writes_rewards,
)
from scramjet.engine.privileged import observe_both, shown_space
from scramjet.engine.worlds.transitions import (
    NO_LIMIT,
    Rules,
    always_alive,
    first_seat,
    no_mask,
    no_mask_of_player,
    no_score,
    no_stats,
    no_stats_of_player,
)
from scramjet.envs.api import Env
from scramjet.errors import WorldError

RULE_ARGUMENTS = {
    "reset": ("self", "s"),
    "step": ("self", "s", "action"),
    "observe": ("self", "s", "obs"),
    "observe_critic": ("self", "s", "obs"),
    "mask": ("self", "s", "mask"),
    "stats": ("self", "s", "stats"),
}
PLAYERS_RULE_ARGUMENTS = {
    "reset": ("self", "s"),
    "step": ("self", "s", "action", "reward"),
    "observe": ("self", "s", "obs", "player"),
    "observe_critic": ("self", "s", "obs", "player"),
    "mask": ("self", "s", "mask", "player"),
    "stats": ("self", "s", "stats", "player"),
    "alive": ("self", "s", "player"),
    "seat": ("self", "s"),
    "score": ("self", "s", "player"),
}
"""What the rules of a world for agents or seats are given; `step` with a fourth argument makes it one."""
RULE_NAMES = tuple(PLAYERS_RULE_ARGUMENTS)


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


def engine_functions(env: Env, functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The functions that the world defines as the engine calls them: one `observe` for policy and critic."""
    functions = dict(functions)
    observe_critic = functions.pop("observe_critic", None)
    if observe_critic is not None:
        functions["observe"] = observe_both(functions["observe"], observe_critic, for_players=writes_rewards(env))
    return functions


def stand_ins(env: Env) -> dict[str, Callable[..., Any]]:
    """What is called where the world has no such function."""
    for_players = writes_rewards(env)
    return {
        "mask": no_mask_of_player if for_players else no_mask,
        "stats": no_stats_of_player if for_players else no_stats,
        "alive": always_alive,
        "seat": first_seat,
        "score": no_score,
    }


def rules_of(env: Env, parameters: Any, functions: dict[str, Callable[..., Any]]) -> Rules:
    """The record of a world's functions, those of the engine among them, as kernels take it."""
    return Rules(
        parameters=parameters,
        reset=functions["reset"],
        step=functions["step"],
        observe=functions["observe"],
        mask=functions["mask"],
        stats=functions["stats"],
        alive=functions["alive"],
        seat=functions["seat"],
        score=functions["score"],
        row=row_function(shown_space(env)),
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
        if name.startswith("_") or name in (
            "parameters",
            "observation_space",
            "critic_space",
            "action_space",
            "state",
            "hidden",
        ):
            continue  # `hidden` is for searches: no rule may depend on it
        value = getattr(env, name)
        if is_constant(value):
            values[name] = value
    return namedtuple(type(env).__name__, values)(**values)


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
        own = with_methods(type(env), rule_functions(env))
        self.functions = cast(dict[str, FunctionType], engine_functions(env, own))
        self._inlined = {*self.functions.values(), *own.values()}
        self.constants = constants_tuple(env)
        self.fingerprint = _fingerprint(env, self.functions, self.constants, variant)
        self._jit_rule, self._jit_helper = jit_rule, jit_helper
        self._compiled: dict[FunctionType, Any] = dict(instead or {})

    def rules(self) -> Rules:
        """The world's functions, compiled."""
        compiled = {name: self.compile(function) for name, function in self.functions.items()}
        for name, function in stand_ins(self.env).items():
            compiled.setdefault(name, self.compile(function))  # type: ignore[arg-type]
        return rules_of(self.env, self.constants, compiled)

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
        jit = self._jit_rule if function in self._inlined else self._jit_helper
        self._compiled[function] = jit(rebuilt)  # before its helpers: they may call back
        for name, value in globals_used(function):
            scope[name] = self.compile(value) if isinstance(value, FunctionType) else value
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            value = original.cell_contents
            cell.cell_contents = self.compile(value) if isinstance(value, FunctionType) else value
        return self._compiled[function]


def _fingerprint(env: Env, functions: dict[str, FunctionType], constants: Any, variant: str) -> str:
    """A hash of all that decides the compiled code of a world."""
    digest = hashlib.sha256(variant.encode())
    digest.update(repr((type(env).__name__, shown_space(env), env.action_space, env.stat_names)).encode())
    digest.update(repr([(name, str(value)) for name, value in env.state.items()]).encode())
    hash_value(digest, constants, {})
    for name, value in constants._asdict().items():
        digest.update(name.encode())
        hash_value(digest, value, {})
    seen: dict[int, int] = {}
    for name, function in functions.items():
        digest.update(name.encode())
        hash_value(digest, function, seen)
    for source in _ENGINE_SOURCES:
        digest.update(source.read_bytes())
    digest.update(versions().encode())
    return digest.hexdigest()


def rules_fingerprint(env: Env) -> str:
    """A hash of a world's rules and parameters alone, whatever compiles them."""
    digest = hashlib.sha256()
    hash_value(digest, constants_tuple(env), {})
    seen: dict[int, int] = {}
    for function in with_methods(type(env), rule_functions(env)).values():
        hash_value(digest, function, seen)
    return digest.hexdigest()


_ENGINE_SOURCES = [
    Path(layout.__file__),
    Path(transition.__file__),
    Path(privileged.__file__),
    Path(fingerprint.__file__),
    *(Path(__file__).with_name(f"{name}.py") for name in ("kernels", "transitions", "rules", "cpu", "cuda")),
]


# --- Methods that rules call on `self`: `self.distance(s)` becomes a call of a plain function, which is compiled along
#
# Compiled, `self` is a tuple of numbers. So a rule that calls a method of its world is made anew from its source, with
# `self.distance(s)` written as `distance_of_self(self, s)`. Rules that call none stay the very functions they are.


SUFFIX = "_of_self"
"""How a method is called as a function."""


def with_methods(cls: type, functions: dict[str, FunctionType]) -> dict[str, FunctionType]:
    """A world's rules by name, those that call methods of `cls` with these as functions; interpreted they are equal."""
    rewritten: dict[FunctionType, FunctionType] = {}
    return {name: _rewritten(function, cls, rewritten) for name, function in functions.items()}


def _rewritten(function: FunctionType, cls: type, done: dict[FunctionType, FunctionType]) -> FunctionType:
    """`function`, or one that calls the methods it needs as functions; `done` has those of before."""
    if function in done:
        return done[function]
    methods = {name: method for name in _attributes(function.__code__) if (method := _method(cls, name)) is not None}
    code = _code_without(function, cls, set(methods)) if methods else None
    if code is None:
        return function
    scope = dict(function.__globals__)
    new = FunctionType(code, scope, function.__name__, function.__defaults__, function.__closure__)
    new.__kwdefaults__, new.__qualname__ = function.__kwdefaults__, function.__qualname__
    done[function] = new  # before its methods: they may call each other
    for name, method in methods.items():
        scope[f"{name}{SUFFIX}"] = _rewritten(method, cls, done)
    return new


def _method(cls: type, name: str) -> FunctionType | None:
    """The method of the author's that `self.name` means; None for anything else."""
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, staticmethod):
        found = found.__func__
    return found if isinstance(found, FunctionType) and inspect.getattr_static(Env, name, None) is not found else None


def _attributes(code: CodeType) -> Iterator[str]:
    """Names of attributes and methods that code looks up."""
    for part in dis.get_instructions(code):
        if part.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            yield str(part.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attributes(constant)


class _Calls(ast.NodeTransformer):
    """Writes `self.name(...)` as `name_of_self(self, ...)`, for methods of `cls`; static ones without self."""

    def __init__(self, receiver: str, cls: type, methods: set[str]) -> None:
        self.receiver, self.cls, self.methods = receiver, cls, methods

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call, and those in its arguments."""
        self.generic_visit(node)
        called = node.func
        if not (isinstance(called, ast.Attribute) and called.attr in self.methods):
            return node
        if not (isinstance(called.value, ast.Name) and called.value.id == self.receiver):
            return node
        is_static = isinstance(inspect.getattr_static(self.cls, called.attr), staticmethod)
        function = ast.copy_location(ast.Name(f"{called.attr}{SUFFIX}", ast.Load()), called)
        return ast.copy_location(
            ast.Call(function, [*([] if is_static else [called.value]), *node.args], node.keywords), node
        )


def _code_without(function: FunctionType, cls: type, methods: set[str]) -> CodeType | None:
    """The function's code with calls of these methods as calls of functions; None where its source is not there, or is
    another by now."""
    try:
        lines, first = inspect.getsourcelines(function)
        definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(definition, ast.FunctionDef) or not definition.args.args:
        return None
    definition.decorator_list = []  # a staticmethod's
    ast.increment_lineno(definition, first - 1)
    if not _is_same(_compiled(definition, function), function.__code__):
        return None
    return _compiled(_Calls(definition.args.args[0].arg, cls, methods).visit(definition), function)


def _compiled(definition: ast.FunctionDef, function: FunctionType) -> CodeType:
    """The code of a function from its syntax, with the variables around it that `function` has."""
    around = ast.arguments([], [ast.arg(name) for name in function.__code__.co_freevars], None, [], [], None, [])
    outer = ast.FunctionDef("outer", around, [definition], [])
    module = ast.fix_missing_locations(ast.Module([outer], []))
    features = function.__code__.co_flags & __future__.annotations.compiler_flag
    code = compile(module, function.__code__.co_filename, "exec", flags=features, dont_inherit=True)
    return _inner(_inner(code, "outer"), function.__name__)


def _inner(code: CodeType, name: str) -> CodeType:
    return next(part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == name)


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects do the same, wherever they stand."""
    if (one.co_code, one.co_names, one.co_varnames) != (other.co_code, other.co_names, other.co_varnames):
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=False)
    return len(one.co_consts) == len(other.co_consts) and all(
        _is_same(mine, theirs) if isinstance(mine, CodeType) and isinstance(theirs, CodeType) else mine == theirs
        for mine, theirs in pairs
    )
