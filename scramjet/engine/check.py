"""`scramjet check`: a world played interpreted and compiled, every promise of the contract looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.engine.layout import HEADER, check_spaces, state_dtype
from scramjet.engine.native import NativePool
from scramjet.engine.pool import Pool
from scramjet.engine.random_play import random_actions
from scramjet.envs.api import Env
from scramjet.envs.registry import load_env
from scramjet.errors import ScramjetError, WorldError

NUM_ENVS = 4
SEED = 12345


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    is_fine: bool
    text: str


def check_world(name: str, *, steps: int = 500) -> Iterator[Finding]:
    """Look at a world from declaration to compiled speed; stops at the first thing that makes the rest pointless."""
    try:
        env = load_env(name)
        check_spaces(env)
        size = state_dtype(env).itemsize - HEADER.itemsize
        yield Finding(True, f"{env!r}: {env.observation_space}, {env.action_space}, {size} bytes of state")
        actions = legal_actions(env, steps)
        yield Finding(True, f"interpreted: {steps} steps of {NUM_ENVS} envs with random actions")
        looks: tuple[Callable[[Env, np.ndarray], str], ...] = (
            look_at_values,
            look_at_observe,
            look_for_escaped_state,
            look_at_compiled,
        )
        for look in looks:
            yield Finding(True, look(env, actions))
    except ScramjetError as error:
        yield Finding(False, str(error))


def legal_actions(env: Env, steps: int) -> np.ndarray:
    """Random legal actions [steps, NUM_ENVS], found by playing the interpreted world."""
    pool = NativePool(env, NUM_ENVS, backend="interpreted")
    random = np.random.default_rng(SEED)
    actions = np.zeros((steps, NUM_ENVS), np.int64)
    out = pool.reset(SEED)
    for t in range(steps):
        actions[t] = random_actions(pool, out, random)
        out = pool.step(actions[t])
    return actions


def look_at_values(env: Env, actions: np.ndarray) -> str:
    """Observations inside their space, rewards finite, `step` returning what it should."""
    pool = NativePool(env, NUM_ENVS, backend="interpreted")
    out = pool.reset(SEED)
    space, ended = env.observation_space, 0
    for t, row in enumerate(actions):
        for i in range(NUM_ENVS):
            _check_observation(env, out.obs[i], f"env {i} at step {t}")
        out = pool.step(row)
        if not np.isfinite(out.reward).all():
            i = int(np.flatnonzero(~np.isfinite(out.reward))[0])
            raise WorldError(f"{_name(env)}.step gave a reward of {out.reward[i]} in env {i} at step {t}")
        for over in np.flatnonzero(out.terminated | out.truncated):
            _check_observation(env, out.final_obs[over], f"the last observation of env {over} at step {t}")
            ended += 1
    if not ended and env.max_episode_steps is None:
        raise WorldError(
            f"{_name(env)}: no episode ended in {len(actions)} steps, and there is no limit; set max_episode_steps"
        )
    return f"observations inside {space}, rewards finite, {ended} episodes ended"


def _check_observation(env: Env, obs: np.ndarray, where: str) -> None:
    space = env.observation_space
    if space.contains(obs):
        return
    bad = ~np.isfinite(obs) if not np.isfinite(obs).all() else (obs < space.low) | (obs > space.high)
    place = tuple(int(k) for k in np.argwhere(bad)[0])
    index = ", ".join(map(str, place))
    raise WorldError(
        f"{_name(env)}.observe wrote obs[{index}] = {obs[place]} ({where}), outside "
        f"[{space.low[place]}, {space.high[place]}]; widen observation_space or scale the observation"
    )


def look_at_observe(env: Env, actions: np.ndarray) -> str:
    """`observe` writes every entry, loses nothing to the dtype, and changes nothing."""
    pool = NativePool(env, NUM_ENVS, backend="interpreted")
    pool.reset(SEED)
    space = env.observation_space
    for row in actions[:50]:
        state = pool.states()[0]
        before = state.tobytes()
        exact = np.full(space.shape, np.nan)
        env.observe(pool.as_record(state), exact)
        if state.tobytes() != before:
            raise WorldError(f"{_name(env)}.observe changes the state; it may only read it (no random draws either)")
        if np.isnan(exact).any():
            index = ", ".join(str(int(k)) for k in np.argwhere(np.isnan(exact))[0])
            raise WorldError(f"{_name(env)}.observe does not write obs[{index}]; write every entry each time")
        if space.dtype.kind in "iu" and not np.array_equal(exact, exact.astype(space.dtype)):
            place = tuple(np.argwhere(exact != exact.astype(space.dtype))[0])
            raise WorldError(f"{_name(env)}.observe writes {exact[place]}, which {space.dtype} cannot hold")
        pool.step(row)
    return "observe writes every entry and changes nothing"


def look_for_escaped_state(env: Env, actions: np.ndarray) -> str:
    """The same seed gives the same episodes, and a restored snapshot goes on the same: all state is in the record."""
    first = _trace(NativePool(env, NUM_ENVS, backend="interpreted"), actions)
    second = _trace(NativePool(env, NUM_ENVS, backend="interpreted"), actions)
    _same(
        env,
        first,
        second,
        "played twice from one seed",
        "something random or remembered is outside the record",
    )
    half = len(actions) // 2
    pool = NativePool(env, NUM_ENVS, backend="interpreted")
    _trace(pool, actions[:half])
    snapshot = pool.snapshot()
    after = _trace(pool, actions[half:], restart=False)
    out, random = pool.reset(SEED + 1), np.random.default_rng(SEED)
    for _ in range(5):  # something else in between
        out = pool.step(random_actions(pool, out, random))
    pool.restore(snapshot)
    again = _trace(pool, actions[half:], restart=False)
    _same(env, after, again, "restored from a snapshot", "state lives outside the record: move it into `state`")
    return "deterministic; all state is in the record"


def look_at_compiled(env: Env, actions: np.ndarray) -> str:
    """Compiled, the world does what it does interpreted; and how fast."""
    interpreted = _trace(NativePool(env, NUM_ENVS, backend="interpreted"), actions)
    started = time.perf_counter()
    compiled = _trace(NativePool(env, NUM_ENVS, num_threads=1), actions)
    seconds = time.perf_counter() - started
    why = "a number is wider or narrower there; look at integer overflow"
    _same(env, interpreted, compiled, "compiled", why, is_exact=False)
    return f"compiled for the CPU ({seconds:.1f} s) and equal to the interpreted rules; {_speed(env):.1f} M steps/s"


def _speed(env: Env, num_envs: int = 1024) -> float:
    """Million steps a second on one thread."""
    pool = NativePool(env, num_envs, num_threads=1)
    out, random = pool.reset(SEED), np.random.default_rng(SEED)
    pool.prepare()
    seconds, steps = 0.0, 0
    while seconds < 0.1:
        actions = random_actions(pool, out, random)
        started = time.perf_counter()
        out = pool.step(actions)
        seconds += time.perf_counter() - started
        steps += num_envs
    return steps / seconds / 1e6


def _trace(pool: Pool, actions: np.ndarray, *, restart: bool = True) -> list[dict[str, np.ndarray]]:
    """All that the envs give for these actions, step by step."""
    if restart:
        pool.reset(SEED)
    trace = []
    for row in actions:
        out = pool.step(row)
        fields = ("obs", "mask", "reward", "terminated", "truncated")
        trace.append({name: getattr(out, name).copy() for name in fields})
    return trace


def _same(
    env: Env, first: list[dict[str, Any]], second: list[dict[str, Any]], how: str, why: str, *, is_exact: bool = True
) -> None:
    for t, (one, other) in enumerate(zip(first, second, strict=True)):
        for name in one:
            different = one[name] != other[name]
            if not is_exact and one[name].dtype.kind == "f":
                different &= ~np.isclose(one[name], other[name], rtol=1e-5, atol=1e-6, equal_nan=True)
            if different.any():
                place = tuple(int(k) for k in np.argwhere(different)[0])
                raise WorldError(
                    f"{_name(env)}: {how}, {name} of env {place[0]} at step {t} is {other[name][place]} "
                    f"instead of {one[name][place]}; {why}"
                )


def _name(env: Env) -> str:
    return type(env).__name__
