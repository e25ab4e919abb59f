"""Compares two configs, and opens choices again that depend on a setting which was changed."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from scramjet.algorithms.config import PPOConfig


def reopened(before: PPOConfig, after: PPOConfig, given: Container[str]) -> PPOConfig:
    """`after`, with `auto` again for settings that depend on one that was changed.

    `before` are the settings before the change, `given` the names of those that were changed.
    """
    if after.loss != before.loss and "num_epochs" not in given:
        after = replace(after, num_epochs="auto")
    if "num_minibatches" in given and "minibatch_size" not in given:
        after = replace(after, minibatch_size="auto")
    if "minibatch_size" in given and "num_minibatches" not in given:
        after = replace(after, num_minibatches=None)
    return after


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Keys whose values differ between two nested dicts, as `policy.hidden: [before, after]`."""
    found: dict[str, list[Any]] = {}
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found.update({f"{key}.{inner}": pair for inner, pair in changes(old, new).items()})
        elif (list(old) if isinstance(old, tuple) else old) != (list(new) if isinstance(new, tuple) else new):
            found[key] = [old, new]
    return found
