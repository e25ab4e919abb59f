"""What EnvPool takes and tells of an env: its options, and the numbers in its info."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scramjet.engine.pool import check_count
from scramjet.errors import ConfigError, WorldError, did_you_mean

ATARI_TRAINING = {"episodic_life": True, "reward_clip": True}
"""Options of games with lives, in training."""
RESERVED = ("num_envs", "batch_size", "seed", "env_seed", "env_type", "gym_reset_return_info", "max_num_players")
"""Options that are no parameters of a world."""


def import_envpool() -> Any:
    """The package; a WorldError that says how to install it where it is missing."""
    try:
        import envpool
    except ImportError as error:
        raise WorldError(f"envpool is not installed ({error}): pip install 'scramjet[envpool]'") from error
    return envpool


def has_lives(state_keys: Sequence[str]) -> bool:
    """Whether an env is an Atari game: `info` then has its lives and its own score beside the clipped reward."""
    return {"info:lives", "info:reward", "info:terminated"} <= set(state_keys)


def check_batch_size(batch_size: Any, num_envs: int) -> None:
    """Refuse batches that do not divide the envs."""
    if batch_size is None:
        return
    check_count("batch_size", batch_size)
    if num_envs % batch_size:
        raise ConfigError(
            f"batch_size={batch_size} does not divide num_envs={num_envs}: a reset would wait for ever; "
            f"try batch_size={np.gcd(batch_size, num_envs)}"
        )


def checked_options(task_id: str, options: dict[str, Any], *, training: bool) -> dict[str, Any]:
    """The options for `envpool.make`: refuses unknown names, and in training adds those of `ATARI_TRAINING`."""
    envpool = import_envpool()
    known = envpool.list_all_envs()
    if task_id not in known:
        raise WorldError(f"EnvPool has no env '{task_id}'.{did_you_mean(task_id, known)}")
    takes = [name for name in envpool.make_spec(task_id).config._fields if name not in RESERVED]
    for name in options:
        if name not in takes:
            raise ConfigError(
                f"envpool:{task_id} has no parameter '{name}'.{did_you_mean(name, takes)} It has {', '.join(takes)}"
            )
    lives = {name: value for name, value in ATARI_TRAINING.items() if name in takes and training}
    return {**lives, **options}


def numbers_of_info(envs: Any) -> dict[str, int]:
    """Entries of `info` that are one number for each env: name -> place in EnvPool's state, without those of Atari."""
    skipped = ("env_id", "players.env_id", "lives", "reward", "terminated", "ram")
    found = {}
    for place, (name, spec) in enumerate(zip(envs._state_keys, envs._spec._state_spec, strict=True)):
        short = name.removeprefix("info:")
        if name != short and short not in skipped and list(spec[1]) in ([], [-1]):
            found[short] = place
    return found
