"""Records of envs that come from a file: looked at before compiled code, which checks no bounds, may use them.

Machine code follows whatever a record says: an index or a length that no episode could have would make it read and
write outside its arrays. So header and declared bounds (`Env.state_bounds`) are checked, and until an env has begun a
fresh episode it is stepped by kernels that check every index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Env
from scramjet.errors import ConfigError, WorldError

MOST = 1 << 30
"""More episodes, draws or steps than any env has had: beyond them 32-bit counters would soon overflow."""


def check_states(env: Env, states: np.ndarray) -> None:
    """Refuse records that no episode of this world could have left."""
    names = states.dtype.names or ()
    counts = {"_episode": MOST, "_draw": MOST, "_steps": (env.max_episode_steps or MOST) - 1, "_index": MOST}
    bounds = {name: (0, most) for name, most in counts.items()}
    bounds |= {"_alive": (0, 1)} if "_alive" in names else {}
    for name, (low, high) in {**bounds, **env.state_bounds}.items():
        values = states[name]
        _require(env, name, values, (values >= low) & (values <= high), f"from {low} to {high}")
    for name in {"_return", "_returns"} & set(names):
        _require(env, name, states[name], np.isfinite(states[name]), "finite")


def _require(env: Env, name: str, values: np.ndarray, are_right: Any, rule: str) -> None:
    wrong = np.argwhere(~np.asarray(are_right))
    if len(wrong):
        i = int(wrong[0][0])
        raise _unfit(env, i, f"{name} is {values[tuple(wrong[0])]}, and must be {rule}")


def _unfit(env: Env, i: int, problem: str) -> ConfigError:
    return ConfigError(f"the saved state of env {i} is none of {type(env).__name__}: {problem}; {FIX}")


def out_of_bounds(env: Env, error: Exception) -> WorldError:
    """What to say where a kernel that checks bounds has found an index outside its array."""
    return WorldError(f"the saved state of an env is none of {type(env).__name__}: {error}; {FIX}")


FIX = "the checkpoint is damaged or forged: begin fresh episodes from its weights with --fork"


class Probation:
    """Envs that go on with an episode from a file, until each of them has begun another."""

    def __init__(self, states: np.ndarray) -> None:
        self._states = states
        self._restored = states["_episode"].copy()

    @property
    def is_over(self) -> bool:
        """Whether nothing of the file is left."""
        return bool((self._states["_episode"] != self._restored).all())
