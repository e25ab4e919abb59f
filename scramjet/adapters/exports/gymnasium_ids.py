"""The ids under which Gymnasium knows native worlds, such as `scramjet/CartPole-v1`."""

from __future__ import annotations

import re

from scramjet.envs.registry import Registration


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
