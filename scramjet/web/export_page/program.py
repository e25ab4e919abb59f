"""A world's rules and pictures as one JavaScript program: its functions, translated from their Python source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from scramjet.engine.layout import num_players
from scramjet.engine.worlds.rules import rule_functions
from scramjet.envs.api import Env
from scramjet.web.export_page.expressions import Calls, getting, setting
from scramjet.web.export_page.values import (
    NotALiteralError,
    UntranslatableError,
    Whole,
    bound_names,
    definition,
    is_range,
    literal,
    parameters,
    scalars,
    spelled,
    untranslatable,
)

# --- statements and functions

INDENT = "  "


def translated(program: Whole, function: FunctionType, name: str) -> str:
    """A function of a world as a JavaScript function of the given name."""
    try:
        node = definition(function)
    except (OSError, TypeError, SyntaxError) as error:
        raise untranslatable(program.world, function, None, f"no source that can be read ({error})") from error
    lines = Statements(program, function).function_lines(node, name, function.__defaults__ or ())
    return "\n".join(lines)


class Statements(Calls):
    """Translates the statements of one function, a list of lines each."""

    def __init__(self, program: Whole, function: FunctionType) -> None:
        super().__init__(program, function)
        self.numbers: set[str] = set()  # variables of the function that are plain numbers

    def function_lines(self, node: ast.FunctionDef, name: str, defaults: tuple[object, ...] = ()) -> list[str]:
        """A function with its parameters, variables and body."""
        if node.args.vararg or node.args.kwarg:
            self.refuse(node, "* or ** among its parameters")
        if node.args.kw_defaults or (node.args.defaults and len(defaults) != len(node.args.defaults)):
            self.refuse(node, "parameters with default values that are not plain")
        names = parameters(node)
        own = [one for one in bound_names(node.body) if one not in names]
        self.scopes.append({*names, *own})
        outer_numbers, self.numbers = self.numbers, scalars(node.body)
        before = self.num_temporaries
        body = self._block(node.body)
        self.scopes.pop()
        self.numbers = outer_numbers
        temporaries = [f"${k + 1}" for k in range(before, self.num_temporaries)]
        inner = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        variables = [spelled(one) for one in own if one not in inner] + temporaries
        declared = [f"{INDENT}let {', '.join(variables)};"] if variables else []
        return [f"function {name}({self._parameters(node, names, defaults)}) {{", *declared, *body, "}"]

    def _parameters(self, node: ast.FunctionDef, names: list[str], defaults: tuple[object, ...]) -> str:
        first_default = len(names) - len(defaults)
        try:
            values = ["", *(f" = {literal(value)}" for value in defaults)]
        except NotALiteralError as error:
            self.refuse(node, f"a default value that is {error}")
        return ", ".join(f"{spelled(one)}{values[max(0, k - first_default + 1)]}" for k, one in enumerate(names))

    def _block(self, body: list[ast.stmt]) -> list[str]:
        return [f"{INDENT}{line}" for statement in body for line in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> Iterator[str]:
        translate = getattr(self, f"_do_{type(node).__name__.lower()}", None)
        if translate is None:
            self.refuse(node, f"`{ast.unparse(node).splitlines()[0][:60]}`")
        lines: Iterator[str] = translate(node)
        return lines

    def _do_expr(self, node: ast.Expr) -> Iterator[str]:
        if not isinstance(node.value, ast.Constant):  # a docstring says nothing to the page
            yield f"{self.expression(node.value)};"

    def _do_pass(self, node: ast.Pass) -> Iterator[str]:
        yield from ()

    _do_nonlocal = _do_pass

    def _do_return(self, node: ast.Return) -> Iterator[str]:
        yield "return null;" if node.value is None else f"return {self.expression(node.value)};"

    def _do_break(self, node: ast.Break) -> Iterator[str]:
        yield "break;"

    def _do_continue(self, node: ast.Continue) -> Iterator[str]:
        yield "continue;"

    def _do_functiondef(self, node: ast.FunctionDef) -> Iterator[str]:
        if node.decorator_list or node.args.defaults:
            self.refuse(node, "an inner function with decorators or default values")
        yield from self.function_lines(node, spelled(node.name))

    def _do_assert(self, node: ast.Assert) -> Iterator[str]:
        yield f"if (!{self.test(node.test)}) $.fail({literal(ast.unparse(node.test))});"

    def _do_raise(self, node: ast.Raise) -> Iterator[str]:
        yield f"$.fail({literal(ast.unparse(node))});"

    # --- assignments -----------------------------------------------------------------------------------------

    def _do_assign(self, node: ast.Assign) -> Iterator[str]:
        value = self.expression(node.value)
        if len(node.targets) == 1 and not isinstance(node.targets[0], ast.Tuple | ast.List):
            yield from self._store(node.targets[0], value)
            return
        kept = self.temporary()
        yield f"{kept} = {value};"
        for target in node.targets:
            yield from self._store(target, kept)

    def _do_annassign(self, node: ast.AnnAssign) -> Iterator[str]:
        if node.value is not None:
            yield from self._store(node.target, self.expression(node.value))

    def _store(self, target: ast.expr, value: str) -> Iterator[str]:
        """Write a value to a name, an attribute, an entry, or the parts of a tuple, from left to right."""
        if isinstance(target, ast.Name):
            yield f"{spelled(target.id)} = {value};"
        elif isinstance(target, ast.Attribute):
            yield f"{self.expression(target.value)}.{target.attr} = {value};"
        elif isinstance(target, ast.Subscript):
            yield setting(self.expression(target.value), self.indices(target.slice), value)
        elif isinstance(target, ast.Tuple | ast.List):
            kept = self.temporary()
            yield f"{kept} = {self.unpacked(target, value)};"
            for k, part in enumerate(target.elts):
                yield from self._store(part.value if isinstance(part, ast.Starred) else part, f"{kept}[{k}]")
        else:
            self.refuse(target, f"an assignment to `{ast.unparse(target)}`")

    def _do_augassign(self, node: ast.AugAssign) -> Iterator[str]:
        target, value = node.target, self.expression(node.value)
        if isinstance(target, ast.Name):
            name = spelled(target.id)
            changed = self.operation(node.op, name, value)
            yield f"{name} = {changed};" if target.id in self.numbers else f"{name} = $.into({name}, {changed});"
        elif isinstance(target, ast.Attribute):
            owner = f"{self.expression(target.value)}.{target.attr}"
            yield f"{owner} = {self.operation(node.op, owner, value)};"
        else:
            kept, indices = self.temporary(), [self.temporary() for _ in self.indices(target.slice)]
            yield f"{kept} = {self.expression(target.value)};"
            for name, index in zip(indices, self.indices(target.slice), strict=True):
                yield f"{name} = {index};"
            yield setting(kept, indices, self.operation(node.op, getting(kept, indices), value))

    # --- flow ------------------------------------------------------------------------------------------------

    def _do_if(self, node: ast.If) -> Iterator[str]:
        yield f"if ({self.test(node.test)}) {{"
        yield from self._block(node.body)
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            first, *rest = self._do_if(node.orelse[0])
            yield f"}} else {first}"
            yield from rest
            return
        if node.orelse:
            yield "} else {"
            yield from self._block(node.orelse)
        yield "}"

    def _do_while(self, node: ast.While) -> Iterator[str]:
        if node.orelse:
            self.refuse(node, "a loop with else")
        yield f"while ({self.test(node.test)}) {{"
        yield from self._block(node.body)
        yield "}"

    def _do_for(self, node: ast.For) -> Iterator[str]:
        if node.orelse:
            self.refuse(node, "a loop with else")
        each = self.temporary()
        counted = self._counting(node, each)
        yield counted or f"for ({each} of $.iter({self.expression(node.iter)})) {{"
        yield from (f"{INDENT}{line}" for line in self._store(node.target, each))
        yield from self._block(node.body)
        yield "}"

    def _counting(self, node: ast.For, each: str) -> str | None:
        """The head of a loop over a range whose step is a literal; None for other loops."""
        if not is_range(node.iter) or self.is_local("range"):
            return None
        assert isinstance(node.iter, ast.Call)
        given = node.iter.args
        step = ast.literal_eval(given[2]) if len(given) == 3 and _is_number(given[2]) else 1
        if (len(given) == 3 and not _is_number(given[2])) or any(isinstance(one, ast.Starred) for one in given):
            return None
        bounds = [self.expression(one) for one in given[:2]]
        start, stop = ("0", bounds[0]) if len(bounds) == 1 else bounds
        end = self.temporary()
        sign = "<" if step > 0 else ">"
        return f"for ({each} = {start}, {end} = {stop}; {each} {sign} {end}; {each} += {step}) {{"


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is a literal number, with a sign or without."""
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int) and inner.value != 0


# --- the program

RULES = ("reset", "step", "observe", "observe_critic", "mask", "seat", "alive")
"""What a page needs of a world to play it."""


class Program:
    """Gathers the functions of a world, the helpers they call and the constants they use."""

    def __init__(self, env: Env) -> None:
        self.env, self.world = env, type(env).__name__
        self._names: dict[FunctionType, str] = {}
        self._functions: list[str] = []
        self._constants: dict[str, str] = {}  # name: expression

    def function(self, function: FunctionType) -> str:
        """The name in JavaScript of a function, which is translated when it is first asked for."""
        if function not in self._names:
            name = self._fresh(function.__name__)
            self._names[function] = name
            self._functions.append(translated(self, function, name))
        return self._names[function]

    def constant(self, name: str, value: Any) -> str:
        """The name in JavaScript of a constant; raises NotALiteralError."""
        expression = literal(value)
        for known, other in self._constants.items():
            if other == expression and known.partition("$")[0] == name:
                return known
        fresh = self._fresh(name)
        self._constants[fresh] = expression
        return fresh

    def _fresh(self, name: str) -> str:
        """A name that no local variable and no other function or constant has."""
        taken = {*self._names.values(), *self._constants}
        count = 1
        fresh = f"{name}$"
        while fresh in taken:
            count += 1
            fresh = f"{name}${count}"
        return fresh

    def source(self, roles: dict[str, str]) -> str:
        """Everything gathered so far, and an object with the functions of these roles (role: name)."""
        constants = [f"const {name} = {expression};" for name, expression in self._constants.items()]
        given = ", ".join(f"{role}: {name}" for role, name in roles.items())
        return "\n".join([*constants, *self._functions, f"const rules = {{ {given} }};"])


def world_program(env: Env) -> tuple[str, list[str]]:
    """A world's program, and notes on pictures that it goes without; raises an UntranslatableError for its rules.

    `rules.render` draws the picture; where that has no translation, `rules.ascii` gives the text. Where a world hides
    things from its players, `rules.render_for` or `rules.ascii_for` show what one of them may see.
    """
    program = Program(env)
    functions = rule_functions(env)
    roles = {role: program.function(functions[role]) for role in RULES if role in functions}
    notes: list[str] = []
    hides = bool(env.hidden) and num_players(env) > 1
    for all_of_it, of_player in (("render", "render_for"), ("ascii", "ascii_for")):
        _add_optional(program, roles, all_of_it, notes)
        if hides and "render_for" not in roles:
            _add_optional(program, roles, of_player, notes)
    if "render" in roles:
        roles.pop("ascii", None)
    _add_optional(program, roles, "action_at", notes)
    return program.source(roles), notes


def _add_optional(program: Program, roles: dict[str, str], role: str, notes: list[str]) -> None:
    """Add a function that the world may have and the page can do without."""
    function = getattr(type(program.env), role, None)
    if not isinstance(function, FunctionType) or function is getattr(Env, role, None):
        return
    tried = Program(program.env)  # what it leaves behind half done must not reach the page
    try:
        tried.function(function)
    except UntranslatableError as error:
        notes.append(str(error))
        return
    roles[role] = program.function(function)
