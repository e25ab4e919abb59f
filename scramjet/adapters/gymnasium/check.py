"""`scramjet check` of Gymnasium envs: Gymnasium's own checker, one seed played twice, saving, speed, the best pool."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.utils.env_checker import check_env

from scramjet.adapters.gymnasium.env_state import is_same, why_inexact
from scramjet.adapters.gymnasium.rows import has_time_limit
from scramjet.adapters.registry import ForeignWorld
from scramjet.adapters.spaces import adapted_action_space, adapted_observation_space
from scramjet.engine.worlds.check import Finding
from scramjet.errors import ENV_FAILURES, ConfigError, ScramjetError, WorldError

NUM_ENVS = 8
"""Envs for which the best pool is looked for: as many as train by default."""
SEED = 12345
MOST_SECONDS = 5.0
"""Maximum number of seconds that a slow env is played at a time."""
NOT_OF_THE_ENV = ("is different from the unwrapped version", "render")
"""Warnings of Gymnasium's checker that say nothing here: every registered env is wrapped, and none is drawn."""


def check_gym_world(world: ForeignWorld, *, steps: int = 500) -> Iterator[Finding]:
    """Look at an env of Gymnasium's from its spaces to its speed; stops at the first thing that makes the rest
    pointless."""
    if not world.makes_single_envs:
        raise ConfigError(
            f"scramjet check takes native worlds and single Gymnasium envs (gym:, mujoco:, factory:), and {world.name} "
            f"makes many at once; `scramjet bench {world.name}` measures it"
        )
    make = world.env_factory()
    looks: tuple[Callable[[ForeignWorld, Callable[[], Any], int], str], ...] = (
        look_at_spaces,
        look_at_interface,
        look_at_play,
        look_at_seeds,
        look_at_saving,
        look_at_pools,
    )
    for look in looks:
        try:
            yield Finding(True, look(world, make, steps))
        except ScramjetError as error:
            yield Finding(False, str(error))
            return
        except ENV_FAILURES as error:
            yield Finding(False, f"{world.name} raised {type(error).__name__}: {error}")
            return


def look_at_spaces(world: ForeignWorld, make: Callable[[], Any], steps: int) -> str:
    """An env can be made, and its spaces are ones that policies take."""
    with closing(make()) as env:
        adapted_observation_space(world.name, env.observation_space)
        adapted_action_space(world.name, env.action_space)
        return f"{world.name}: observes {env.observation_space}, acts in {env.action_space}"


def look_at_interface(world: ForeignWorld, make: Callable[[], Any], steps: int) -> str:
    """What Gymnasium's own checker says: a mistake is refused, warnings come in one list."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with closing(make()) as env:
            try:
                check_env(env, skip_render_check=True, skip_close_check=True)
            except ENV_FAILURES as error:
                raise WorldError(f"Gymnasium's checker: {type(error).__name__}: {error}") from error
    told = dict.fromkeys(_plain_warning(str(each.message)) for each in caught)
    kept = [text for text in told if not any(words in text for words in NOT_OF_THE_ENV)]
    if not kept:
        return "Gymnasium's checker finds nothing wrong"
    listed = "".join(f"\n         - {text}" for text in kept)
    return f"Gymnasium's checker finds no mistake, and warns:{listed}"


def _plain_warning(text: str) -> str:
    """A warning without colours and without the level that Gymnasium puts before it."""
    return re.sub(r"^WARN: ", "", re.sub(r"\x1b\[[0-9;]*m", "", text)).strip()


def look_at_play(world: ForeignWorld, make: Callable[[], Any], steps: int) -> str:
    """Observations inside their space and finite rewards over many random steps."""
    ended = 0
    with closing(make()) as env:
        env.action_space.seed(SEED)
        obs, info = env.reset(seed=SEED)
        _check_observation(world, env, obs, "reset()")
        until, played = time.perf_counter() + MOST_SECONDS, 0
        while played < steps and time.perf_counter() < until:
            obs, reward, terminated, truncated, info = env.step(_random_action(env, info))
            played += 1
            _check_observation(world, env, obs, f"step {played}")
            if not np.isfinite(float(reward)):
                raise WorldError(f"{world.name} gave a reward of {reward} at step {played}; rewards must be finite")
            if terminated or truncated:
                ended += 1
                obs, info = env.reset()
        is_endless = not ended and not has_time_limit(env)
    hint = "; it has no time limit, and --env.max-episode-steps may set one" if is_endless else ""
    found = f"observations inside their space, rewards finite, {ended} episodes ended{hint}"
    return f"{played:,} steps with random actions: {found}"


def _check_observation(world: ForeignWorld, env: Any, obs: Any, where: str) -> None:
    if not env.observation_space.contains(obs):
        raise WorldError(
            f"{world.name} observed {_short(obs)} at {where}, outside its observation_space "
            f"{env.observation_space}: look at bounds, shape and dtype"
        )


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else f"{text[:120]}..."


def _random_action(env: Any, info: Any) -> Any:
    """An action that `info["action_mask"]` allows, where there is one."""
    mask = info.get("action_mask") if isinstance(info, dict) else None
    if mask is None or not isinstance(env.action_space, Discrete | MultiDiscrete):
        return env.action_space.sample()
    if isinstance(env.action_space, Discrete):
        return env.action_space.sample(mask=np.asarray(mask, np.int8))
    return env.action_space.sample(mask=tuple(np.asarray(part, np.int8) for part in mask))


def look_at_seeds(world: ForeignWorld, make: Callable[[], Any], steps: int) -> str:
    """The same seed and actions give the same episodes, in two envs made one after the other."""
    traces = []
    for _ in range(2):
        with closing(make()) as env:
            env.action_space.seed(SEED)
            obs, info = env.reset(seed=SEED)
            trace: list[Any] = [deepcopy(obs)]
            for _ in range(min(steps, 200)):
                obs, reward, terminated, truncated, info = env.step(_random_action(env, info))
                trace.append((deepcopy(obs), float(reward), bool(terminated), bool(truncated)))
                if terminated or truncated:
                    obs, info = env.reset()
                    trace.append(deepcopy(obs))
            traces.append(trace)
    for at, (one, other) in enumerate(zip(*traces, strict=False)):
        if not is_same(one, other):
            raise WorldError(
                f"{world.name} played twice with one seed and the same actions differs at step {at}: draw random "
                f"numbers from self.np_random, which reset(seed=...) seeds"
            )
    return "the same seed gives the same episodes"


def look_at_saving(world: ForeignWorld, make: Callable[[], Any], steps: int) -> str:
    """Whether a resumed run can go on with the very same episodes."""
    with closing(make()) as saved, closing(make()) as other:
        why = why_inexact(saved, other)
    if why is None:
        return "its state can be saved: a resumed run goes on bit for bit"
    return f"its state cannot be saved ({why}): a resumed run goes on with fresh episodes"


def look_at_pools(world: ForeignWorld, make: Callable[[], Any], steps: int) -> str:
    """How fast one env steps, and who would step the envs of a training."""
    seconds = world.seconds_of_a_step
    speed = "" if seconds is None else f"{1 / seconds:,.0f} steps/s in one process; "
    with closing(world.pool(NUM_ENVS, workers=replace(world.workers, in_halves=True))) as pool:
        return f"{speed}{NUM_ENVS} envs train best in {pool.processes or 'this process alone'}"
