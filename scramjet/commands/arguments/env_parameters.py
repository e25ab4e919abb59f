"""Parameters of a world on the command line, `--env.NAME VALUE`, and the help on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scramjet.adapters.registry import parameter_defaults, world_parameters
from scramjet.adapters.world_parameters import NEEDED
from scramjet.errors import ConfigError, did_you_mean, printable

BARE = ""


def split_env_parameters(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words without the `--env.NAME VALUE` pairs, and the pairs by name: the world decides which are allowed.

    A flag without a value, which turns a boolean on, gets BARE.
    """
    rest: list[str] = []
    values: dict[str, str] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("--env."):
            rest.append(word)
            continue
        name, equals, value = word.removeprefix("--env.").partition("=")
        if not equals and (position == len(words) or words[position].startswith("--")):
            value = BARE
        elif not equals:
            value = words[position]
            position += 1
        values[name.replace("-", "_")] = value
    return rest, values


def typed_parameters(env: str, values: dict[str, str]) -> dict[str, Any]:
    """Values of `--env.NAME` flags as numbers, truth values or text; the world's constructor checks the rest."""
    known = parameter_defaults(env)
    if known is None:
        return {name: _typed_freely(text) for name, text in values.items()}
    typed: dict[str, Any] = {}
    for name, text in values.items():
        switch = name if name in known else name.removeprefix("no_")
        if text == BARE and isinstance(known.get(switch), bool):
            typed[switch] = switch == name
            continue
        if name not in known:
            raise ConfigError(
                f"{env} has no parameter '{name}'.{did_you_mean(name, known)} Parameters: {', '.join(known)}"
            )
        if text == BARE:
            flag = f"--env.{name.replace('_', '-')}"
            raise ConfigError(f"{flag} needs a value: {flag} {known[name]}")
        typed[name] = _typed_freely(text)
        if isinstance(typed[name], str):
            raise ConfigError(f"--env.{name.replace('_', '-')} {text} is not a number, true or false")
    return typed


def _typed_freely(text: str) -> Any:
    """A flag's value as a number, true, false or none where it reads like one; a bare flag is true."""
    words = {"true": True, "false": False, "none": None, BARE: True}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text


def parameter_help(env: str, given: Mapping[str, Any]) -> str:
    """The flags of a world's parameters, one a line: name, value now and type."""
    found = {parameter.name: parameter for parameter in world_parameters(env)}
    lines = []
    for name in dict.fromkeys([*found, *given]):
        parameter = found.get(name)
        default = None if parameter is None else parameter.default
        value = given.get(name, default)
        shown = "VALUE" if value is NEEDED else value
        kind = (
            "" if parameter is None or not parameter.kind else f"  ({parameter.kind}{', needed' * (value is NEEDED)})"
        )
        lines.append(f"\n  --env.{name.replace('_', '-')} {shown}{kind}")
    if not lines:
        return f"\n{env} tells of no parameters; --env.NAME VALUE goes to what makes its envs.\n"
    return printable(f"\nParameters of {env}:\n{''.join(lines)}\n", keep="\n")
