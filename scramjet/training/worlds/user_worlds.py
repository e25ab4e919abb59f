"""Worlds that the user names, on the command line or in Python: they are found, and remembered as trusted."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from scramjet.adapters.objects import NamedWorld, named, spelled
from scramjet.adapters.world_code import code_of, find_in_current_folder
from scramjet.training.worlds.trust import check_name, remember

if TYPE_CHECKING:
    from scramjet.adapters.objects import World


def name_of(env: World) -> str:
    """The name of a world that the caller gives: see `world_of`."""
    return world_of(env).name


def world_of(env: World) -> NamedWorld:
    """The name, and of an instance the parameters, of a world that the caller gives as a name, a file or an object.

    The world is remembered, so that files of runs may name it from now on. A module may lie in the current folder; a
    file that defines a Gymnasium env is read to find its class.
    """
    world = named(env)
    if isinstance(env, str | PurePath):
        return NamedWorld(_found(world.name))
    remember(world.name, world.parameters, is_named=True)
    return world


def _found(given: str) -> str:
    """The name by which a world that was named loads."""
    check_name(given)
    code = code_of(given)
    if code is not None:
        find_in_current_folder(code)
    remember(given, is_named=True)
    name = spelled(given)
    if name != given:
        remember(name, is_named=True)
    return name
