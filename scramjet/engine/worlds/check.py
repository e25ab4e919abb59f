"""`scramjet check`: plays a world interpreted, compiled and on the GPU, and checks all that a world must keep to."""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from scramjet.compile import numba_versions, progress
from scramjet.compile.cuda import require_cuda
from scramjet.engine.actions import action_at, random_actions, says_where_actions_lie
from scramjet.engine.layout import (
    HEADER,
    PlayedBy,
    check_spaces,
    leaf_layout,
    mask_size,
    num_players,
    played_by,
    row_function,
    rows_per_env,
    state_dtype,
)
from scramjet.engine.privileged import Observer, observers, shown_space
from scramjet.engine.transition import Transition, kernel_obs
from scramjet.engine.trees import leaves, map_leaves, named_leaves, space_tree
from scramjet.engine.worlds.cpu import only_reads
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.envs.api import Discrete, Env
from scramjet.envs.registry import load_env
from scramjet.errors import ScramjetError, WorldError

NUM_ENVS = 4
SEED = 12345
FEWEST_STEPS = 50
INTERPRETED_SECONDS = 3.0
"""Seconds after which a slow interpreted play is cut short; FEWEST_STEPS are played in any case."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    is_fine: bool
    text: str


def check_world(
    name: str, *, steps: int = 500, parameters: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Finding]:
    """Yield the results of all checks, from declaration to speed; ends at a failure that makes the rest pointless."""
    try:
        env = load_env(name, **parameters)
        check_spaces(env)
        size = state_dtype(env).itemsize - HEADER.itemsize
        seen = f"{env.observation_space}" + (f", critic {env.critic_space}" if env.critic_space is not None else "")
        yield Finding(True, f"{env!r}: {seen}, {env.action_space}, {size} bytes of state")
        actions = legal_actions(env, steps)
        yield Finding(True, f"interpreted: {len(actions)} steps of {NUM_ENVS} envs with random actions")
        looks: tuple[Callable[[Env, np.ndarray], str], ...] = (
            look_at_values,
            look_for_choices_seen_last_only,
            look_at_observe,
            look_for_escaped_state,
            *((_look_at_clicks,) if says_where_actions_lie(env) else ()),
            look_at_compiled,  # the first that compiles: it says how long that took
            *((look_at_illegal_actions,) if mask_size(env) else ()),
            *((look_at_gpu,) if has_gpu() else ()),
        )
        for look in looks:
            yield Finding(True, look(env, actions))
    except ScramjetError as error:
        yield Finding(False, str(error))


def legal_actions(env: Env, steps: int) -> np.ndarray:
    """Random legal actions [steps or fewer, rows, ...], found by playing the interpreted world."""
    pool = NativePool(env, NUM_ENVS, backend="interpreted")
    random = np.random.default_rng(SEED)
    actions = []
    out = pool.reset(SEED)
    started = time.perf_counter()
    for t in range(steps):
        if t >= FEWEST_STEPS and time.perf_counter() - started > INTERPRETED_SECONDS:
            break
        actions.append(random_actions(pool, out, random))
        out = pool.step(actions[-1])
    return np.stack(actions)


def look_at_values(env: Env, actions: np.ndarray) -> str:
    """Observations inside their space, rewards finite, `step` returning what it should."""
    pool = NativePool(env, NUM_ENVS, backend="interpreted")
    out = pool.reset(SEED)
    ended = 0
    for t, row in enumerate(actions):
        for i in range(pool.num_rows):
            _check_observation(env, out.obs, i, f"{_who(env, i)} at step {t}")
        out = pool.step(row)
        if not np.isfinite(out.reward).all():
            i = int(np.argwhere(~np.isfinite(out.reward))[0][0])
            raise WorldError(
                f"{_name(env)}.step gave a reward of {out.reward[i]} in {_who(env, i)} at step {t}; "
                f"rewards must be finite"
            )
        for over in np.flatnonzero(out.terminated | out.truncated):
            per_row = pool.num_players if pool.played_by is PlayedBy.SEATS else 1  # last observations
            where = f"the last observation of {_who(env, int(over))} at step {t}"
            for view in range(per_row):
                _check_observation(env, out.final_obs, int(over) * per_row + view, where)
            ended += 1
    if not ended and env.max_episode_steps is None:
        raise WorldError(
            f"{_name(env)}: no episode ended in {len(actions)} steps, and there is no limit; set max_episode_steps"
        )
    space = str(env.observation_space)
    where = space if "\n" not in space else f"their {type(env.observation_space).__name__}"  # a table of sizes
    return f"observations inside {where}, rewards finite, {ended} episodes ended"


def look_for_choices_seen_last_only(env: Env, actions: np.ndarray) -> str:
    """Whether a choice is only ever shown when time is up: one-hot, networks never learn it and yet value it."""
    spaces = leaves(space_tree(shown_space(env)))
    names = [
        name.removeprefix("obs.") for observer in observers(env) for name, _ in named_leaves(space_tree(observer.space))
    ]
    pool = NativePool(env, NUM_ENVS, backend="interpreted")
    shown: list[set[int]] = [set() for _ in spaces]
    shown_last: list[set[int]] = [set() for _ in spaces]
    out = pool.reset(SEED)
    for row in actions:
        out = pool.step(row)
        cut = np.flatnonzero(out.truncated & (pool.played_by is not PlayedBy.SEATS))
        for seen, last, leaf, final in zip(shown, shown_last, leaves(out.obs), leaves(out.final_obs), strict=True):
            seen.update(leaf.ravel().tolist())
            last.update(final[cut].ravel().tolist())
    for name, space, seen, last in zip(names, spaces, shown, shown_last, strict=True):
        if isinstance(space, Discrete) and last - seen:
            return (
                f"{name} is {max(last - seen)} only when time is up: a network sees choices one-hot and never learns "
                f"that one; show a count as a number (Box), or train with --policy.ignore {name}"
            )
    return "no choice is shown only when time is up"


def _who(env: Env, row: int) -> str:
    """Which env and player a row belongs to, in words."""
    per_env = rows_per_env(env)
    return f"env {row // per_env}" + (f", agent {row % per_env}" if per_env > 1 else "")


def _check_observation(env: Env, obs: Any, i: int, where: str) -> None:
    for observer in observers(env):
        _check_observed(env, observer, observer.part(obs), i, where)


def _check_observed(env: Env, observer: Observer, obs: Any, i: int, where: str) -> None:
    """Refuse row `i` of what one of the world's functions wrote where it is outside its space."""
    for (name, leaf), space in zip(named_leaves(obs), leaves(space_tree(observer.space)), strict=True):
        value = leaf[i]
        low, high = _bounds(space, value.shape)
        bad = ~np.isfinite(value) if not np.isfinite(value).all() else (value < low) | (value > high)
        if bad.any():
            place = tuple(int(k) for k in np.argwhere(bad)[0])
            index = ", ".join(map(str, place))
            raise WorldError(
                f"{_name(env)}.{observer.rule} wrote {name}[{index}] = {value[place]} ({where}), outside "
                f"[{low[place]}, {high[place]}]; widen {observer.attribute} or scale the observation"
            )


def _bounds(space: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The least and greatest value of each entry."""
    if hasattr(space, "low"):
        return space.low.reshape(shape), space.high.reshape(shape)
    sizes = getattr(space, "nvec", getattr(space, "n", 2))
    if not hasattr(space, "nvec") and space.dtype == np.int8:
        sizes = 2  # MultiBinary, whose n is its shape
    return np.zeros(shape, np.int64), np.broadcast_to(np.asarray(sizes) - 1, shape)


def look_at_observe(env: Env, actions: np.ndarray) -> str:
    """`observe` writes every entry, loses nothing to the dtype, and changes nothing, whichever player it is for."""
    pool = NativePool(env, NUM_ENVS, backend="interpreted")
    pool.reset(SEED)
    for row in actions[:50]:
        for player in range(num_players(env)):
            for observer in observers(env):
                _look_at_observe_once(env, observer, pool, player)
        pool.step(row)
    if env.critic_space is not None:
        return "observe and observe_critic write every entry and change nothing"
    return "observe writes every entry and changes nothing"


def _look_at_observe_once(env: Env, observer: Observer, pool: NativePool, player: int) -> None:
    state, space, rule = pool.states()[0], observer.space, f"{_name(env)}.{observer.rule}"
    exact = map_leaves(lambda part: np.full((1, *leaf_layout(part)[0]), np.nan), space_tree(space))
    whose = () if played_by(env) is PlayedBy.ONE else (player,)
    observe = only_reads(env, observer.rule, getattr(type(env), observer.rule))
    observe(env, pool.as_record(state), row_function(space)(kernel_obs(exact), 0), *whose)
    for (name, written), part in zip(named_leaves(exact), leaves(space_tree(space)), strict=True):
        values, dtype = written[0], leaf_layout(part)[1]
        if np.isnan(values).any():
            index = ", ".join(str(int(k)) for k in np.argwhere(np.isnan(values))[0])
            raise WorldError(f"{rule} does not write {name}[{index}]; write every entry each time")
        if dtype.kind in "iu" and not np.array_equal(values, values.astype(dtype)):
            place = tuple(np.argwhere(values != values.astype(dtype))[0])
            raise WorldError(f"{rule} writes {values[place]} to {name}, which {dtype} cannot hold")


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
    """Check that the compiled world does what the interpreted one does, and measure its speed."""
    interpreted = _trace(NativePool(env, NUM_ENVS, backend="interpreted"), actions)
    compiling = _Compiling(is_told=numba_versions.IS_TESTED)
    compiled = _trace(NativePool(env, NUM_ENVS, num_threads=1), actions)
    how = compiling.in_words()
    why = "a number is wider or narrower there; look at integer overflow"
    _same(env, interpreted, compiled, "compiled", why, tolerance=1e-5)
    return f"compiled for the CPU ({how}) and equal to the interpreted rules; {_speed(env):.1f} M steps/s"


def look_at_gpu(env: Env, actions: np.ndarray) -> str:
    """Check that the world does on the GPU what it does on the CPU."""
    from scramjet.engine.worlds.cuda_pool import CudaPool

    few = actions[:FEWEST_STEPS]  # few steps: differences in rounding grow with each
    on_cpu = _trace(NativePool(env, NUM_ENVS, num_threads=1), few)
    compiling = _Compiling(is_told=numba_versions.IS_CUDA_TESTED)
    on_gpu = _trace(CudaPool(env, NUM_ENVS), few)
    how = compiling.in_words()
    _same(env, on_cpu, on_gpu, "on the GPU", "its arithmetic must not depend on the last digits", tolerance=1e-3)
    return f"compiled for the GPU ({how}) and equal to the CPU's for {len(few)} steps"


class _Compiling:
    """Measures what is compiled from now on; `is_told`: whether the compile cache is used, which tells of it."""

    def __init__(self, *, is_told: bool) -> None:
        self._is_told = is_told
        self._before = self._seconds()

    def _seconds(self) -> float:
        return progress.seconds() if self._is_told else time.perf_counter()

    def in_words(self) -> str:
        """How long it has taken, or where all came from."""
        seconds = self._seconds() - self._before
        return f"{seconds:.1f} s" if seconds else "from the compile cache"


def has_gpu() -> bool:
    """Whether there is a GPU to check the world on."""
    if importlib.util.find_spec("numba_cuda") is None:
        return False
    try:
        require_cuda()
    except ScramjetError:
        return False
    return True


def look_at_illegal_actions(env: Env, actions: np.ndarray) -> str:
    """Compiled, an action that the mask forbids has an effect the world defines, and breaks nothing."""
    pool = NativePool(env, NUM_ENVS, num_threads=1)
    random, out = np.random.default_rng(SEED), pool.reset(SEED)
    for t in range(len(actions)):
        out = pool.step(random_actions(pool, allow_all(out), random))
        for i in range(pool.num_rows):
            _check_observation(env, out.obs, i, f"{_who(env, i)} at step {t}, after actions that the mask forbids")
        if not np.isfinite(out.reward).all():
            raise WorldError(f"{_name(env)}.step gives a reward that is no number for an action that the mask forbids")
    return "actions that the mask forbids break nothing"


def allow_all(out: Transition) -> Transition:
    """The transition with every action marked as legal."""
    return replace(out, mask=np.ones_like(out.mask))


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


def _trace(pool: WorldPool, actions: np.ndarray, *, restart: bool = True) -> list[dict[str, np.ndarray]]:
    """All that the envs give for these actions, step by step."""
    if restart:
        pool.reset(SEED)
    trace = []
    for row in actions:
        out = pool.step(row)
        fields = {name: getattr(out, name) for name in ("mask", "turn", "reward", "terminated", "truncated")}
        if pool.has_scores:
            fields["score"] = pool.scores(pool.states()).reshape(pool.num_rows, -1)
        trace.append({name: _copied(array) for name, array in [*named_leaves(out.obs), *fields.items()]})
    return trace


def _copied(array: Any) -> np.ndarray:
    copied: np.ndarray = array.copy() if isinstance(array, np.ndarray) else array.cpu().numpy()
    return copied


def _same(
    env: Env, first: list[dict[str, Any]], second: list[dict[str, Any]], how: str, why: str, *, tolerance: float = 0.0
) -> None:
    """Refuse two traces that differ; `tolerance` is relative, for floats."""
    for t, (one, other) in enumerate(zip(first, second, strict=True)):
        for name in one:
            different = one[name] != other[name]
            if tolerance and one[name].dtype.kind == "f":
                different &= ~np.isclose(one[name], other[name], rtol=tolerance, atol=0.1 * tolerance, equal_nan=True)
            if different.any():
                place = tuple(int(k) for k in np.argwhere(different)[0])
                raise WorldError(
                    f"{_name(env)}: {how}, {name} of {_who(env, place[0])} at step {t} is {other[name][place]} "
                    f"instead of {one[name][place]}; {why}"
                )


def _name(env: Env) -> str:
    return type(env).__name__


CLICKED_POINTS = 12
"""Points along each side of a picture at which the check clicks."""
CLICKED_POSITIONS = 10


def _look_at_clicks(env: Env, _actions: np.ndarray) -> str:
    """`action_at` gives an action or none at points of the picture in some positions, and changes nothing."""
    pool = NativePool(env, 1, backend="interpreted")
    out, random = pool.reset(0), np.random.default_rng(0)
    ticks = ((np.arange(CLICKED_POINTS) + 0.5) / CLICKED_POINTS).tolist()
    found: set[int | None] = set()
    for _step in range(CLICKED_POSITIONS):
        state = pool.states()[0]
        before = state.tobytes()
        for x, y in itertools.product(ticks, ticks):
            found.add(action_at(env, pool.as_record(state), x, y))
            if state.tobytes() != before:
                raise WorldError(f"{type(env).__name__}.action_at changes the state; it may only read it")
        out = pool.step(random_actions(pool, out, random))
    num_places = len(found - {None})
    if num_places == 0:
        raise WorldError(
            f"{type(env).__name__}.action_at gave no action at any point of the first {CLICKED_POSITIONS} pictures; "
            f"x and y are shares of the picture's width and height, from 0 to 1"
        )
    return f"clicks on the picture mean {num_places} of {env.action_space.n} actions"
