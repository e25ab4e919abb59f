"""One env played by calling its rules, on a record that is a plain object: no pool, no engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from scramjet.envs import Env


def record(env: Env, seed: int = 0, **fields: Any) -> SimpleNamespace:
    """A record as before `reset`, all zeros but for `fields`."""
    s = SimpleNamespace(_seed=seed, _index=0, _episode=0, _draw=0)
    for name, declared in env.state.items():
        dtype, shape = declared if isinstance(declared, tuple) else (declared, ())
        setattr(s, name, np.zeros(shape, dtype) if shape != () else np.dtype(dtype).type(0).item())
    vars(s).update(fields)
    return s


def begun(env: Env, seed: int = 0) -> SimpleNamespace:
    """A record at the start of an episode."""
    s = record(env, seed)
    env.reset(s)
    return s


def observation(env: Env, s: Any) -> np.ndarray:
    """What `observe` writes; entries that it leaves out are nan."""
    obs = np.full(env.observation_space.shape, np.nan, env.observation_space.dtype)
    env.observe(s, obs)
    return obs


def episode_stats(env: Env, s: Any) -> dict[str, float]:
    """What `stats` gives for an episode that ended in `s`."""
    stats = SimpleNamespace()
    env.stats(s, stats)
    return vars(stats)


def fields(env: Env, s: Any) -> dict[str, Any]:
    """The author's part of a record."""
    return {name: getattr(s, name) for name in env.state}


def assert_is_picture(env: Env, s: Any, *, other: Any) -> None:
    """`render` gives an RGB image that `ascii` and the image of another state differ from."""
    image = env.render(s)
    assert image.dtype == np.uint8
    assert image.ndim == 3
    assert image.shape[2] == 3
    assert image.std() > 1
    assert not np.array_equal(image, env.render(other))
    assert env.ascii(s) != env.ascii(other)
