"""Worlds that the user names himself, on the command line or in Python: found, and remembered as his."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from scramjet.engine.foreign_worlds import register_factory
from scramjet.settings import coerce
from scramjet.training.trust import check_name, remember


def name_of(env: str | PurePath | Callable[..., Any]) -> str:
    """The name of a world that the caller gives: a name or file, or a function that makes Gymnasium envs.

    It is remembered, so that his runs may name it from now on.
    """
    name: str = coerce("env", env, str) if isinstance(env, str | PurePath) else register_factory(env)
    check_name(name)
    remember(name, is_named=True)
    return name
