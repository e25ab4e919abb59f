"""Worlds that the user names, on the command line or in Python: they are found, and remembered as trusted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from scramjet.adapters.factories import register_factory
from scramjet.adapters.gymnasium.files import spelled
from scramjet.adapters.world_code import code_of, find_in_current_folder
from scramjet.settings import coerce
from scramjet.training.worlds.trust import check_name, remember


def name_of(env: str | PurePath | Callable[..., Any]) -> str:
    """The name of a world that the caller gives: a name or file, or a function that makes Gymnasium envs.

    The world is remembered, so that files of runs may name it from now on. A module may lie in the current folder; a
    file that defines a Gymnasium env is read to find its class.
    """
    if not isinstance(env, str | PurePath):
        name = register_factory(env)
        remember(name, is_named=True)
        return name
    given: str = coerce("env", env, str)
    check_name(given)
    code = code_of(given)
    if code is not None:
        find_in_current_folder(code)
    remember(given, is_named=True)
    name = spelled(given)
    if name != given:
        remember(name, is_named=True)
    return name
