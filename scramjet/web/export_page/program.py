"""A world's rules and pictures as one JavaScript program, translated from their Python source."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from scramjet.engine.layout import num_players
from scramjet.engine.worlds.rules import rule_functions
from scramjet.envs.api import Env
from scramjet.web.export_page.errors import UntranslatableError
from scramjet.web.export_page.literals import literal
from scramjet.web.export_page.statements import translated

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
