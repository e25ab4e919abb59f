"""Pools around pools: one that stacks frames, and one that joins several pools of one world.

With frame stacking a policy sees the last few observations, the newest last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy, allocate_obs, obs_bytes
from scramjet.engine.pool import Episodes, Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves, map_leaves, named_leaves, space_tree
from scramjet.envs.api import Box, Dict
from scramjet.errors import ConfigError
from scramjet.runtime.machine import require_memory


def stacked_space(space: Any, num_frames: int) -> Any:
    """The space of `num_frames` observations joined along their first axis: [4] becomes [num_frames * 4]."""
    if isinstance(space, Dict):
        # Pairs stay in their order, a dict would be sorted by its keys.
        return Dict([(name, stacked_space(part, num_frames)) for name, part in space.spaces.items()])
    if not isinstance(space, Box):
        return space
    repeats = (num_frames, *(1,) * (len(space.shape) - 1))
    return Box(np.tile(space.low, repeats), np.tile(space.high, repeats), dtype=space.dtype.type)


def unstacked_space(space: Any, num_frames: int) -> Any:
    """The space of one of the observations that `stacked_space` joined; ValueError where `num_frames` do not fit."""
    if isinstance(space, Dict):
        return Dict([(name, unstacked_space(part, num_frames)) for name, part in space.spaces.items()])
    if not isinstance(space, Box):
        return space
    if not space.shape or space.shape[0] % num_frames:
        raise ValueError(f"{space} does not hold {num_frames} frames")
    size = space.shape[0] // num_frames
    return Box(space.low[:size], space.high[:size], dtype=space.dtype.type)


def check_stackable(name: str, space: Any, num_frames: int) -> None:
    """Refuse what cannot be stacked, naming the way out."""
    if num_frames < 1:
        raise ConfigError(f"frame_stack={num_frames} must be at least 1")
    parts = list(named_leaves(space_tree(space), "observation_space"))
    boxes = [(where, part) for where, part in parts if isinstance(part, Box)]
    if not boxes:
        raise ConfigError(f"frame_stack={num_frames}, but {name} has no Box observation to stack; use --frame-stack 1")
    for where, part in boxes:
        if len(part.shape) == 3 and part.shape[-1] < part.shape[0]:
            raise ConfigError(
                f"frame_stack={num_frames} joins frames along the first axis, and {name}.{where} {list(part.shape)} "
                f"has its channels last; write its observations channels first, or use --frame-stack 1"
            )


class FrameStackPool(Pool):
    """A pool whose observations are the last `num_frames` of each episode; before its start there are zeros.

    Only Box observations are stacked; entries of a Dict that are choices or flags stay as they are.
    """

    def __init__(self, pool: Pool, num_frames: int) -> None:
        check_stackable(pool.name, pool.observation_space, num_frames)
        if pool.played_by is PlayedBy.SEATS:
            raise ConfigError(
                f"frame_stack={num_frames}, but in {pool.name} seats take turns: what one saw is not the other's; "
                f"use --frame-stack 1"
            )
        num_bytes = 4 * pool.num_rows * num_frames * obs_bytes(pool.observation_space)
        what = f"frame_stack={num_frames} of num_envs={pool.num_envs} of {pool.name}"
        require_memory(num_bytes, what, "lower --frame-stack or --num-envs")
        self.pool: Any = pool
        self.env, self.name = pool.env, pool.name
        self.num_envs, self.num_rows = pool.num_envs, pool.num_rows
        self.played_by, self.num_players = pool.played_by, pool.num_players
        self.observation_space = stacked_space(pool.observation_space, num_frames)
        self.action_space, self.mask_size = pool.action_space, pool.mask_size
        self.is_guarded, self.has_time_limit = pool.is_guarded, pool.has_time_limit
        self.draws_every_step, self.processes = pool.draws_every_step, pool.processes
        self.render_modes = pool.render_modes
        self.num_frames = num_frames
        self._new = pool.allocate()  # what the envs write
        self._frames = allocate_obs(self.observation_space, self.num_rows)
        self._own = self.allocate()
        self._is_stacked = map_leaves(lambda part: isinstance(part, Box), space_tree(pool.observation_space))

    @property
    def restarts(self) -> int:  # type: ignore[override]
        return int(self.pool.restarts)

    def tell(self, say: Callable[[str], None]) -> None:
        self.pool.tell(say)

    @property
    def steps_taken(self) -> int:
        return self.pool.steps_taken

    def prepare(self) -> None:
        """Compile what steps need."""
        self.pool.prepare()

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        out = self._fitting(out)
        self.pool.reset(seed, out=self._new)
        self._actions_sent = None
        for frames in leaves(self._frames):
            frames[:] = 0
        return self._show(out)

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        out = self._fitting(out)
        self._refuse_while_sent("step()")
        new = self.pool.step(actions, out=self._new)
        ended = new.terminated | new.truncated
        is_over = self._episodes_over(ended)
        if ended.any():
            rows = np.flatnonzero(ended)
            for stacks, frames, last, final in self._parts(out.final_obs, new.final_obs):
                final[rows] = pushed(frames[rows], last[rows]) if stacks else last[rows]
            for stacks, frames, _, _ in self._parts(out.obs, new.obs):
                if stacks:
                    frames[is_over] = 0
        out.reward[:], out.terminated[:], out.truncated[:] = new.reward, new.terminated, new.truncated
        return self._show(out)

    def _episodes_over(self, ended: np.ndarray) -> np.ndarray:
        """Rows whose observations now begin an episode: of agents, all of an env once it has been reset."""
        if self.played_by is PlayedBy.ONE or not ended.any():
            return ended
        begins: np.ndarray = self.pool.unfinished()[1] == 0
        return begins

    def _show(self, out: Transition) -> Transition:
        """Push what the envs wrote onto the frames, and show them."""
        for stacks, frames, newest, shown in self._parts(out.obs, self._new.obs):
            if stacks:
                frames[:] = pushed(frames, newest)
                shown[:] = frames
            else:
                shown[:] = newest
        out.mask[:], out.turn[:] = self._new.mask, self._new.turn
        return out

    def _parts(self, out_obs: Any, new_obs: Any) -> list[tuple[Any, ...]]:
        trees = (self._is_stacked, self._frames, new_obs, out_obs)
        return list(zip(*(leaves(tree) for tree in trees), strict=True))

    def snapshot(self) -> dict[str, np.ndarray]:
        frames = {f"frames/{i}": leaf.copy() for i, leaf in enumerate(leaves(self._frames))}
        return {**self.pool.snapshot(), **frames}

    @property
    def has_records_of_others(self) -> bool:
        return self.pool.has_records_of_others

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        out = self._fitting(out)
        self.pool.restore(snapshot, out=self._new, is_own=is_own)
        self.resume_note = self.pool.resume_note
        self._actions_sent = None
        if self.pool.resume_note is not None:  # its episodes are fresh: no frames came before
            for frames in leaves(self._frames):
                frames[:] = 0
            return self._show(out)
        for i, leaf in enumerate(leaves(self._frames)):
            leaf[:] = snapshot[f"frames/{i}"]
        for stacks, frames, newest, shown in self._parts(out.obs, self._new.obs):
            shown[:] = frames if stacks else newest
        out.mask[:], out.turn[:] = self._new.mask, self._new.turn
        return out

    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        """Step single states; their observations are not stacked, because the frames before them are not known."""
        return self.pool.simulate(states, actions)

    def views(self) -> Any:
        def seen(stacks: bool, frames: np.ndarray, newest: np.ndarray) -> np.ndarray:
            return (frames if stacks else newest).copy()

        return map_leaves(seen, self._is_stacked, self._frames, self._new.obs)

    def episodes(self) -> Episodes:
        ended: Episodes = self.pool.episodes()
        return ended

    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        counts: tuple[np.ndarray, np.ndarray] = self.pool.unfinished()
        return counts

    def close(self) -> None:
        self.pool.close()

    def states(self) -> np.ndarray:
        """A copy of every env's record."""
        return self.pool.states()

    def record(self, index: int) -> Any:
        """Env `index`'s record with its fields as attributes."""
        return self.pool.record(index)

    def as_record(self, state: np.void) -> Any:
        """One of `states()` with its fields as attributes."""
        return self.pool.as_record(state)


def pushed(frames: np.ndarray, newest: np.ndarray) -> np.ndarray:
    """Frames [R, K * n, ...] with the oldest out and `newest` [R, n, ...] in."""
    return np.concatenate([frames[:, newest.shape[1] :], newest], axis=1)


# --- Several pools of one world as one pool, for actors that step independently of each other


class ConcatenatedPool(Pool):
    """Pools of one size whose rows follow each other. `step` steps all; actors step each pool by itself."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        first = pools[0]
        self.pools = list(pools)
        self.name, self.env = first.name, first.env
        self.num_envs = sum(pool.num_envs for pool in pools)
        self.num_rows = sum(pool.num_rows for pool in pools)
        self.played_by, self.num_players, self.mask_size = first.played_by, first.num_players, first.mask_size
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.is_guarded, self.has_time_limit = first.is_guarded, first.has_time_limit
        self.draws_every_step, self.render_modes = first.draws_every_step, first.render_modes
        self._seeds = EpisodeSeed(0)
        self.shown = self.allocate()
        """What all envs showed after the last reset."""

    @property
    def restarts(self) -> int:  # type: ignore[override]
        return sum(pool.restarts for pool in self.pools)

    @property
    def steps_taken(self) -> int:
        """Steps of each env in the pool that took most."""
        return max(pool.steps_taken for pool in self.pools)

    def rows_of(self, i: int) -> slice:
        """The rows of pool i."""
        size = self.pools[i].num_rows
        return slice(i * size, (i + 1) * size)

    def tell(self, say: Callable[[str], None]) -> None:
        for i, pool in enumerate(self.pools):
            pool.tell(lambda text, i=i: say(f"actor {i}: {text}"))  # type: ignore[misc]

    def prepare(self) -> None:
        for pool in self.pools:
            pool.prepare()

    def close(self) -> None:
        with ThreadPoolExecutor(len(self.pools)) as closers:  # an env may take its time
            list(closers.map(lambda pool: pool.close(), self.pools))

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        """Begin the episodes that one pool of all these envs would play."""
        self._seeds, self._actions_sent = EpisodeSeed.of(seed), None
        for i, pool in enumerate(self.pools):
            pool.reset(self._seeds.part(i * pool.num_envs), out=self.shown.part(self.rows_of(i)))
        return self.shown

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        self._refuse_while_sent("step()")
        out = self.allocate() if out is None else out
        for i, pool in enumerate(self.pools):
            rows = self.rows_of(i)
            pool.step(actions[rows], out=out.part(rows))
        return out

    def episodes(self) -> Episodes:
        return concatenate_episodes([pool.episodes() for pool in self.pools], self.pools[0].num_envs)

    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        returns, lengths = zip(*(pool.unfinished() for pool in self.pools), strict=True)
        return np.concatenate(returns), np.concatenate(lengths)

    def snapshot(self) -> dict[str, np.ndarray]:
        """What `restore` needs to begin fresh episodes; without the envs' states, as some are always being stepped."""
        return {"seed": np.array([self._seeds.key]), "ticks": np.array([pool.steps_taken for pool in self.pools])}

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        """Begin episodes that were not played before; writes them to `shown`."""
        before = EpisodeSeed(int(snapshot["seed"][0]), self._seeds.first_env)
        self.resume_note = "asynchronous: resumed with fresh episodes"
        return self.reset(before.after("resumed at", *snapshot["ticks"].tolist()), out)

    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        raise ConfigError("pools that are joined cannot simulate: ask one of them")

    def views(self) -> Any:
        raise ConfigError("pools that are joined have no views: ask one of them")


def concatenate_episodes(parts: Sequence[Episodes], num_envs: int, pools: Sequence[int] | None = None) -> Episodes:
    """The episodes of several pools of `num_envs` envs as those of one; `pools` says which each part is from."""
    numbers = range(len(parts)) if pools is None else pools
    names = list(dict.fromkeys(name for part in parts for name in part.stats))
    return Episodes(
        num_ended=sum(part.num_ended for part in parts),
        returns=np.concatenate([part.returns for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        env_ids=np.concatenate([part.env_ids + i * num_envs for i, part in zip(numbers, parts, strict=True)]),
        players=np.concatenate([part.players for part in parts]),
        stats={
            name: np.concatenate([part.stats.get(name, np.full(len(part), np.nan)) for part in parts]) for name in names
        },
    )
