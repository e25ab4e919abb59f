"""Checks the names that a world gives to its actions."""

from __future__ import annotations

from collections.abc import Sequence

from scramjet.envs.api import Discrete, Env
from scramjet.errors import WorldError, shortened


def check_action_names(name: str, env: Env) -> None:
    """Refuse names that do not tell the actions apart: people type them."""
    names = env.action_names
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise WorldError(f'{name}.action_names is {shortened(names)}; give a tuple of names, such as ("left", "right")')
    if not names:
        return
    if not isinstance(env.action_space, Discrete):
        raise WorldError(f"{name}.action_names are for a Discrete action space, not for {env.action_space}; drop them")
    if len(names) != env.action_space.n:
        raise WorldError(
            f"{name}.action_names has {len(names)} names for {env.action_space.n} actions; name each of them"
        )
    for number, each in enumerate(names):
        if not isinstance(each, str) or not each.strip() or not each.isprintable() or each != " ".join(each.split()):
            raise WorldError(
                f"{name}.action_names[{number}] is {shortened(each)}; use printable text, without spaces around it"
            )
        if each in names[:number]:
            raise WorldError(
                f"{name}.action_names has {shortened(each)} twice, for actions {names.index(each)} and {number}; "
                f"names must differ"
            )
