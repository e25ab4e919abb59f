"""Brings tables of settings to the form that configs are read from: PPO's settings at the top, tables for others.

A file may group PPO's settings in a table `ppo`, and Python may write a table's entry with a dot, as flags do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scramjet.errors import ConfigError, shortened
from scramjet.training.config.names_of_other_libraries import suggestion


def flattened_ppo(data: Mapping[str, Any], ppo_fields: tuple[str, ...], source: str) -> dict[str, Any]:
    """`data` with the entries of its table `ppo`, if it has one, at the top; `source` is for messages.

    Raises a ConfigError for an entry that is none of `ppo_fields`, or that stands at the top as well.
    """
    flat = {key: value for key, value in data.items() if key != "ppo"}
    table = data.get("ppo", {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{source}: [ppo] must be a table of values, not {shortened(table)}")
    for key, value in table.items():
        if key not in ppo_fields:
            meant = suggestion(str(key)[:100], ppo_fields)
            raise ConfigError(f"{source}: unknown key {shortened(key)} in [ppo].{meant}")
        if key in flat:
            raise ConfigError(f"{source}: {key} is given twice, at the top and in [ppo]; leave one out")
        flat[key] = value
    return flat


def nested(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """`settings` with each key such as "policy.hidden" as the entry `hidden` of a table `policy`.

    Raises a ConfigError for an entry that is given both ways.
    """
    data: dict[str, Any] = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in settings.items() if "." not in key
    }
    for key, value in settings.items():
        table, dot, name = key.partition(".")
        if not dot:
            continue
        entries = data.setdefault(table, {})
        if not isinstance(entries, dict):
            raise ConfigError(f"{source}: {key} is an entry of a table, and {table}={shortened(entries)} is none")
        if name in entries:
            raise ConfigError(f"{source}: {key} is given twice, with a dot and in {table}; leave one out")
        entries[name] = value
    return data
