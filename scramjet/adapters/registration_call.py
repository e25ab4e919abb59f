"""Worlds that only this program knows by their names, since it registered them itself."""

from __future__ import annotations

from importlib.metadata import entry_points

import gymnasium

from scramjet.adapters.gymnasium.registered_envs import REGISTERED_BY
from scramjet.adapters.registry import library_of
from scramjet.envs.registry import is_registered_here


def registration(name: str) -> str | None:
    """The call that another program has to make before it finds this world by its name; None where it need not."""
    if is_registered_here(name):
        return f"scramjet.register({name!r}, ...)"
    library, env_id = library_of(name), name.partition(":")[2]
    if library is None or not library.has_gymnasium_ids or ":" in env_id:  # a module in the name is imported by itself
        return None
    spec = gymnasium.registry.get(env_id)
    if spec is None or _registers_itself(spec) or env_id.startswith(tuple(REGISTERED_BY)):
        return None
    return f"gymnasium.register({env_id!r}, ...)"


def _registers_itself(spec: gymnasium.envs.registration.EnvSpec) -> bool:
    """Whether an env comes with Gymnasium, or with a package that tells Gymnasium of it wherever it is installed."""
    target = spec.entry_point or spec.vector_entry_point
    if not isinstance(target, str):
        return False
    plugins = {point.module.partition(".")[0] for point in entry_points(group="gymnasium.envs")}
    return target.partition(":")[0].partition(".")[0] in {"gymnasium", "scramjet", *plugins}
