"""The space of a study on the command line: flags whose value is a dimension, and --space FILE."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scramjet.errors import ConfigError, shortened
from scramjet.training.config.reading import read_file
from scramjet.tuning.space import is_dimension


def split_dimensions(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words without the flags whose value is a dimension, and these dimensions by setting."""
    rest: list[str] = []
    dimensions: dict[str, str] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        spelled, equals, text = word.partition("=")
        if not equals and position < len(words):
            text = words[position]
        if not (word.startswith("--") and is_dimension(text)):
            rest.append(word)
            continue
        position += 0 if equals else 1
        name = spelled.removeprefix("--").replace("-", "_")
        if name in dimensions:
            raise ConfigError(f"{spelled} is given twice, as {dimensions[name]} and {text}; give it once")
        dimensions[name] = text
    return rest, dimensions


def read_space(path: Path) -> dict[str, Any]:
    """The dimensions in the table [space] of a TOML or YAML file, tables in it with a dot: `policy.hidden`."""
    data = read_file(path)
    table = data.get("space")
    if not isinstance(table, Mapping):
        raise ConfigError(f'{path} has no table [space]; write one, such as learning_rate = "log:1e-4..1e-2" in it')
    for key in data:
        if key != "space":
            raise ConfigError(
                f"{path}: unknown key {shortened(key)}; a file for --space has the table [space] alone, and settings "
                f"that do not vary are for --config FILE or flags"
            )
    dimensions: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            dimensions.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            dimensions[str(name)] = value
    return dimensions
