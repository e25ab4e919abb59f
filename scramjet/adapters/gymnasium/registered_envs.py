"""Envs of Gymnasium's registry: whether an id is known, which parameters it takes, how one or many are made; and native
worlds as entries of it."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scramjet.adapters.world_parameters import WorldParameter, made, parameters_of, type_in_words
from scramjet.envs.registry import Registration
from scramjet.errors import WorldError, did_you_mean

if TYPE_CHECKING:
    import gymnasium

    from scramjet.adapters.library import NamedWorld

REGISTERED_BY = {"scramjet/": "scramjet.gym", "ALE/": "ale_py", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""How ids of Gymnasium envs begin, and the module of ours or of an extra that registers them when it is imported."""
_EXTRAS = {"ale_py": "atari"}
"""Of which extra a module is, where that has another name."""


def env_factory(world: NamedWorld) -> Callable[[], gymnasium.Env]:
    """The function that makes one env of a registered id."""
    check_gymnasium_id(world.name, world.id)
    return partial(made, world.name, partial(_by_gymnasium, _with_module(world.id)), world.parameters)


def vector_env_factory(world: NamedWorld) -> Callable[[int], gymnasium.vector.VectorEnv]:
    """The function that makes a vector env of so many envs of a registered id."""
    check_gymnasium_id(world.name, world.id)
    build = partial(_vector_by_gymnasium, _with_module(world.id))
    return lambda num_envs: made(world.name, partial(build, num_envs=num_envs), world.parameters)


def registered_parameters(name: str) -> list[WorldParameter]:
    """Those of a registered env: its constructor's, with the values it is registered with, and its time limit."""
    import gymnasium

    env_id = name.partition(":")[2]
    check_gymnasium_id(name, env_id)
    spec = gymnasium.registry[env_id.rpartition(":")[2]]
    found = {parameter.name: parameter for parameter in _of_entry_point(spec.entry_point)}
    for key, value in spec.kwargs.items():
        kind = found[key].kind if key in found else type_in_words(value)
        found[key] = WorldParameter(key, value, kind)
    limit = WorldParameter("max_episode_steps", spec.max_episode_steps, "int")
    return [*found.values(), *([limit] if limit.name not in found else [])]


def _of_entry_point(entry_point: Any) -> list[WorldParameter]:
    """Those of what a registration names; none where it cannot be loaded, which is told when an env is made."""
    from gymnasium.envs.registration import load_env_creator

    with contextlib.suppress(Exception):  # the module may need a library that is not there
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        return list(parameters_of(creator))
    return []


def check_gymnasium_id(name: str, env_id: str) -> None:
    """Refuse an id that Gymnasium does not know, with the nearest one it does."""
    import gymnasium

    module, colon, plain = _with_module(env_id).rpartition(":")
    if module in REGISTERED_BY.values():
        require_extra(module, _EXTRAS.get(module, module))
    elif colon:
        try:
            importlib.import_module(module)
        except (ImportError, TypeError, ValueError) as error:  # the latter two of names such as '' and '.x'
            raise WorldError(f"cannot import '{module}' for '{name}': {error}") from error
    if plain in gymnasium.registry:
        return
    versions = [known for known in gymnasium.registry if known.partition("-v")[0] == plain.partition("-v")[0]]
    nearest = f" Did you mean '{versions[-1]}'?" if versions else did_you_mean(plain, gymnasium.registry)
    raise WorldError(
        f"Gymnasium knows no '{plain}'.{nearest} An env that a package registers is named with the module: "
        f"gym:my_package:{plain}"
    )


def _with_module(env_id: str) -> str:
    """An id with the module that registers it before a colon, as Gymnasium takes it, where it is one of our extras'."""
    module = next((module for prefix, module in REGISTERED_BY.items() if env_id.startswith(prefix)), None)
    return env_id if module is None else f"{module}:{env_id}"


def _by_gymnasium(env_id: str, **parameters: Any) -> gymnasium.Env:
    import gymnasium

    with _without_deprecations_of_mujoco() if _is_mujoco(env_id) else nullcontext():
        return gymnasium.make(env_id, disable_env_checker=True, **parameters)


def _is_mujoco(env_id: str) -> bool:
    import gymnasium

    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    return spec is not None and str(spec.entry_point).startswith("gymnasium.envs.mujoco")


@contextmanager
def _without_deprecations_of_mujoco() -> Iterator[None]:
    """Gymnasium's model files use attributes that MuJoCo gives up, and it says so for every env; not so here."""
    try:
        import mujoco
    except ImportError:  # Gymnasium says what is missing
        yield
        return

    def tell(text: str) -> None:
        if "deprecated" not in text:
            print(f"WARNING: {text}", file=sys.stderr, flush=True)  # as MuJoCo would

    former = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(tell)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(former)


def _vector_by_gymnasium(env_id: str, num_envs: int, **parameters: Any) -> gymnasium.vector.VectorEnv:
    import gymnasium

    return gymnasium.make_vec(env_id, num_envs=num_envs, **parameters)


def require_extra(module: str, extra: str, package: str = "") -> ModuleType:
    """Import a module of a package (default: its own name), or say which extra of scramjet brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise WorldError(f"{package or module} is not installed ({error}): pip install 'scramjet[{extra}]'") from error


# --- native worlds: their ids and how Gymnasium is told of them


def gym_id(world: Registration) -> str:
    """A world's id in Gymnasium: `scramjet/CartPole-v1` if it has an alias with a version, else its name with `-v0`."""
    versioned = [alias for alias in world.aliases if "-v" in alias]
    camel_case = "".join(part.capitalize() for part in re.split(r"[^a-zA-Z0-9.]+", world.name)) or "World"
    return f"scramjet/{versioned[0] if versioned else camel_case + '-v0'}"


def register_with_gymnasium(world: Registration) -> None:
    """Make a world known to `gymnasium.make` and `gymnasium.make_vec`, unless its id is taken."""
    from gymnasium.envs.registration import register, registry

    if gym_id(world) not in registry:
        register(
            gym_id(world),
            entry_point="scramjet.adapters.exports.gymnasium_env:GymEnv",
            vector_entry_point="scramjet.adapters.exports.gymnasium_env:GymVectorEnv",
            kwargs={"world": world.name},
        )
