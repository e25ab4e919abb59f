"""Finds the presets that come with scramjet, by world or by name."""

from __future__ import annotations

from pathlib import Path

from scramjet.adapters.registry import canonical_name, library_of
from scramjet.algorithms.algorithm import algorithm_named
from scramjet.envs.registry import is_registered
from scramjet.errors import ConfigError, did_you_mean, shortened
from scramjet.runtime.shipped import shipped_file, shipped_names


def preset_path(env: str, algorithm: str = "ppo") -> Path | None:
    """The tuned preset of a world for an algorithm, if there is one."""
    library = library_of(env)
    name = canonical_name(env) if library is None else library.preset or _preset_name(canonical_name(env))
    if not name.isidentifier() or len(name) > 100:  # a file of the user's, not one of our names
        return None
    tuned_as = algorithm_named(algorithm).is_tuned_as or algorithm
    suffix = "" if tuned_as == "ppo" else f"_{tuned_as}"
    return shipped_file(f"configs/{name}{suffix}.toml")


def named_preset(name: str) -> Path:
    """The preset called `name`, by the name of its file or of its world; raises a ConfigError where there is none."""
    path = shipped_file(f"configs/{name}.toml") if name.isidentifier() and len(name) <= 100 else None
    path = path or (preset_path(name) if name else None)
    if path is None:
        names = shipped_names("configs", ".toml")
        file = "; a file of your own is given with --config" if name.endswith((".toml", ".yaml", ".yml")) else ""
        raise ConfigError(
            f"no preset {shortened(name)}.{did_you_mean(Path(name).stem, names)} Presets: {', '.join(names)}{file}"
        )
    return path


def refuse_preset_name(env: str) -> None:
    """Refuse the name of a preset where a world is to be named."""
    if env.isidentifier() and not is_registered(env) and env in shipped_names("configs", ".toml"):
        raise ConfigError(f"'{env}' is a preset, not a world: scramjet train --preset {env}")


def _preset_name(env: str) -> str:
    """The preset's name for another library's env: mujoco_halfcheetah for mujoco:HalfCheetah-v5."""
    library, _, rest = env.partition(":")
    return f"{library}_{rest.rpartition('-v')[0] or rest}".lower().replace("-", "_")
