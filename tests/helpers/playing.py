"""Worlds played by hand: by calling their rules on a record that is a plain object, or in an interpreted pool."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from scramjet.engine import NativePool, Transition
from scramjet.engine.layout import allocate_obs
from scramjet.engine.worlds.cpu import PlainArray
from scramjet.envs import Dict, Env

UNWRITTEN = 99


def record(env: Env, seed: int = 0, **fields: Any) -> SimpleNamespace:
    """A record as before `reset`, all zeros but for `fields`."""
    s = SimpleNamespace(_seed=seed, _index=0, _episode=0, _draw=0)
    for name, declared in env.state.items():
        dtype, shape = declared if isinstance(declared, tuple) else (declared, ())
        value = np.zeros(shape, dtype)
        setattr(s, name, value.view(PlainArray) if shape != () else value.item())
    return changed(s, **fields)


def begun(env: Env, seed: int = 0, **fields: Any) -> SimpleNamespace:
    """A record at the start of an episode, but for `fields`."""
    s = record(env, seed)
    env.reset(s)
    return changed(s, **fields)


def changed(s: Any, **fields: Any) -> Any:
    """The same record with other values."""
    for name, value in fields.items():
        if isinstance(getattr(s, name), np.ndarray):
            getattr(s, name)[...] = value
        else:
            setattr(s, name, value)
    return s


def fields(env: Env, s: Any) -> dict[str, Any]:
    """The author's part of a record."""
    return {name: getattr(s, name) for name in env.state}


def play(env: Env, s: Any, actions: Iterable[int]) -> tuple[list[float], bool]:
    """Take turns in a world of seats; the rewards and the end of the last one."""
    reward, over = np.zeros(env.num_seats), False
    for action in actions:
        assert not over, "the game had ended"
        reward[:] = 0
        over = env.step(s, int(action), reward)
    return reward.tolist(), over


def observation(env: Env, s: Any, *player: int) -> Any:
    """What `observe` writes over arrays of other numbers: an array, or a dict of them."""
    if not isinstance(env.observation_space, Dict):
        obs = np.full(env.observation_space.shape, UNWRITTEN, env.observation_space.dtype)
        env.observe(s, obs, *player)
        return obs
    parts = allocate_obs(env.observation_space)
    for part in parts.values():
        part[:] = UNWRITTEN
    env.observe(s, SimpleNamespace(**parts), *player)
    return parts


def legal(env: Env, s: Any, *player: int) -> list[int]:
    """The actions that the mask allows."""
    mask = np.ones(env.action_space.n, np.bool_)
    env.mask(s, mask, *player)
    return np.flatnonzero(mask).tolist()


def episode_stats(env: Env, s: Any, *player: int) -> dict[str, float]:
    """What `stats` gives for an episode that ended in `s`."""
    stats = SimpleNamespace()
    env.stats(s, stats, *player)
    assert set(vars(stats)) == set(env.stat_names)
    return vars(stats)


def interpreted(env: Env, num_envs: int = 1, seed: int = 0) -> tuple[NativePool, Transition]:
    """A pool of interpreted rules and its first observations."""
    pool = NativePool(env, num_envs, backend="interpreted")
    return pool, pool.reset(seed)


def compiled(env: Env, num_envs: int = 1, seed: int = 0) -> tuple[NativePool, Transition]:
    """The same with compiled rules, on one thread."""
    pool = NativePool(env, num_envs, num_threads=1)
    return pool, pool.reset(seed)


def restored(pool: NativePool, states: np.ndarray) -> Transition:
    """The pool's envs put into these states."""
    return pool.restore({"states": states.view(np.uint8).reshape(len(states), -1), "tick": np.zeros(1, int)})


def assert_as_likely(counts: Any) -> None:
    """Counts of outcomes that are equally likely lie within five standard deviations."""
    counts, mean = np.asarray(counts), np.mean(counts)
    assert np.abs(counts - mean).max() < 5 * np.sqrt(mean), counts


def largest_gap(first: np.ndarray, second: np.ndarray) -> float:
    """Kolmogorov and Smirnov's: how far the two samples' distribution functions lie apart."""
    points = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def assert_is_picture(env: Env, s: Any, *, other: Any) -> None:
    """`render` gives an RGB image that `ascii` and the image of another state differ from."""
    image = env.render(s)
    assert image.dtype == np.uint8
    assert image.shape[2:] == (3,)
    assert image.std() > 1
    assert not np.array_equal(image, env.render(other))
    assert env.ascii(s) != env.ascii(other)
