"""A function that makes envs, as worker processes receive it."""

from __future__ import annotations

from typing import Any

from scramjet.adapters.gymnasium.env_results import MakeEnv
from scramjet.errors import ConfigError


def can_be_sent(make_env: MakeEnv) -> bool:
    """Whether other processes can make these envs."""
    try:
        pickled("", make_env)
    except ConfigError:
        return False
    return True


def pickled(name: str, make_env: MakeEnv) -> bytes:
    """A factory as worker processes receive it; by value where it stands in a script or a notebook."""
    import cloudpickle

    if not callable(make_env):
        raise ConfigError(f"make_env={make_env!r} must be a function that makes a gymnasium.Env")
    try:
        factory: bytes = cloudpickle.dumps(make_env)
    except Exception as error:
        raise ConfigError(
            f"{name}: the factory {_name_of(make_env)!r} cannot be sent to worker processes "
            f"({type(error).__name__}: {error}); make it a function at the top of a module that opens files, locks, "
            f"sockets and the env itself when it is called, or step all envs in this process: --num-workers 0 (with "
            f"--mode async there is no such way)"
        ) from error
    return factory


def _name_of(make_env: Any) -> str:
    """The name of a function, also of one inside a `partial`."""
    inner = next((word for word in getattr(make_env, "args", ()) if callable(word)), make_env)
    return str(getattr(inner, "__name__", inner))
