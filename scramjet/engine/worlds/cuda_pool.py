"""The pool of native worlds on the GPU: records and results stay there, and no step waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any, cast

import numpy as np
import torch
from numba import int32
from torch import Tensor

from scramjet.compile.cuda import bytes_of, cuda_arrays, launch, numba_cuda, require_cuda
from scramjet.compile.fingerprint import function_fingerprint
from scramjet.compile.numba_internals import keep_cuda_on_disk
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy, allocate_obs, episode_dtype, state_dtype
from scramjet.engine.pool import Episodes
from scramjet.engine.transition import Transition, kernel_obs
from scramjet.engine.trees import map_fields, map_leaves
from scramjet.engine.worlds import diagnosis
from scramjet.engine.worlds.cuda import compile_kernels, plan
from scramjet.engine.worlds.native_pool import NativePool, play_interpreted
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.envs.api import Box, Discrete, Env
from scramjet.errors import ConfigError, WorldError


class CudaPool(WorldPool):
    """Many copies of one world on the GPU, with the episodes that the same seed gives on the CPU.

    Transitions hold CUDA tensors. Steps run on torch's current stream and can be recorded by a CUDA graph; tell the
    pool of each replay with `before_replay`.
    """

    def __init__(self, env: Env, num_envs: int) -> None:
        super().__init__(env, num_envs)
        cuda = require_cuda()
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.backend = "cuda"
        self.num_threads = 1  # on the CPU's side
        self._records = cuda.to_device(np.zeros(num_envs, state_dtype(env)))
        self._state_bytes = bytes_of(self._records)  # [N, record size]
        self._words = cuda.as_cuda_array(self._state_bytes.view(torch.int64).flatten())
        staging = plan(env)
        self._step_launch = staging.launch(num_envs)
        self._kernels = compile_kernels(env, staging)
        # Within one step every player's episode may end: with a row for each, no two write to the same.
        num_places = num_envs * self.num_players
        self._log = cuda.to_device(np.zeros(num_places + MAX_EPISODES_READ + 1, episode_dtype(env)))
        self._num_logged = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._ticks_before = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._views = {name: cuda.as_cuda_array(getattr(self, name)) for name in ("_num_logged", "_ticks_before")}
        self._reader = EpisodeReader(bytes_of(self._log), self._num_logged, num_places, self.num_players)
        self._tick = 0
        self._tick_on_device = 0  # what _ticks_before holds
        self._action_type = torch.from_numpy(np.zeros(0, self._action_dtype)).dtype
        self._own = self.allocate()
        num_views = num_envs * self.num_players if self.played_by is PlayedBy.SEATS else self.num_rows
        self._seen = map_leaves(
            lambda array: torch.from_numpy(array).to(self.device), allocate_obs(self.observation_space, num_views)
        )
        self._was_reset = False
        self._is_of_others = False  # records that came from a file

    @property
    def steps_taken(self) -> int:
        return self._tick

    def _allocate_for(self, num_envs: int) -> Transition:
        """CUDA tensors, unlike other pools."""
        return map_fields(super()._allocate_for(num_envs), lambda array: torch.from_numpy(array).to(self.device))

    def prepare(self) -> None:
        """Play a little interpreted and compile what steps need: a mistake shows before anything else begins."""
        play_interpreted(self.env)
        self.reset(0)
        self.step(torch.zeros(self._action_shape, dtype=self._action_type, device=self.device))
        torch.cuda.synchronize()

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        seeds = EpisodeSeed.of(seed)
        out = self._fitting(out)
        self._run("reset", self.num_envs, seeds.key, seeds.first_env, self._records, *out.arrays[:3])
        self._is_of_others = False
        self._begin_at(0)
        return out

    def step(self, actions: Any, out: Transition | None = None, *, of_terminated: bool = True) -> Transition:
        """Step every env; `final_obs` of terminated episodes is written only if asked for."""
        out = self._fitting(out)
        actions = self._checked_actions(actions, self._action_shape)
        self._tick += 1
        self._run(
            "step", self.num_envs, self._views["_ticks_before"], self._tick - self._tick_on_device, self._records,
            self._words, actions, *out.arrays, of_terminated, self._log, self._views["_num_logged"],
            **self._step_launch,
        )  # fmt: skip
        return out

    def rollout_step(self, actions: Any, out: Transition) -> None:
        self.step(actions, out=out, of_terminated=False)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A context for recording steps in a CUDA graph: they are counted at each replay, not now."""
        tick = self._tick
        self._ticks_before.fill_(tick)
        self._tick_on_device = tick
        try:
            yield
        finally:
            self._tick = tick

    def before_replay(self, num_steps: int) -> None:
        """Count the steps of a graph; call this before each replay."""
        self._ticks_before.fill_(self._tick)
        self._tick_on_device = self._tick
        self._tick += num_steps

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"states": self._state_bytes.cpu().numpy(), "tick": np.array([self._tick])}

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        """Go back to a snapshot. One that is not our own is first checked on the CPU: its fields, and one step with
        bounds checked. One that still misleads could spoil only this process's memory on the GPU."""
        self._check_snapshot(snapshot, self._state_bytes.shape[1])
        if not is_own:
            on_cpu = NativePool(self.env, self.num_envs, num_threads=1)
            on_cpu.restore(snapshot, is_own=False)
            on_cpu.step(np.zeros(self._action_shape, self._action_dtype))
        self._is_of_others = not is_own
        self._state_bytes.copy_(torch.from_numpy(np.ascontiguousarray(snapshot["states"])))
        out = self._fitting(out)
        self._run("observe", self.num_envs, self._records, *out.arrays[:3])
        self._begin_at(int(snapshot["tick"][0]))
        return out

    @property
    def has_records_of_others(self) -> bool:
        return self._is_of_others  # the GPU is not asked how many of them are left

    def _begin_at(self, tick: int) -> None:
        self._tick = self._tick_on_device = tick
        self._ticks_before.fill_(tick)
        self._num_logged.zero_()
        self._reader.forget()
        self._actions_sent = None
        self._was_reset = True

    def states(self) -> np.ndarray:
        return self._state_bytes.cpu().numpy().view(self._records.dtype).ravel()

    def copied_states(self) -> Tensor:
        """A copy of every env's record on the GPU, as bytes."""
        return self._state_bytes.clone()

    def put_states(self, states: Tensor) -> None:
        """Put back what `copied_states` gave; observations are not written."""
        self._state_bytes.copy_(states)

    def simulate(self, states: np.ndarray, actions: Any) -> tuple[np.ndarray, Transition]:
        after = require_cuda().to_device(np.ascontiguousarray(states))
        actions = self._checked_actions(actions, (len(states) * self._rows_per_env, *self._action_shape[1:]))
        out = self._allocate_for(len(states))
        self._run("simulate", len(states), after, actions, *out.arrays)
        return bytes_of(after).cpu().numpy().view(after.dtype).ravel(), out

    def state_bytes(self) -> Tensor:
        return self._state_bytes

    def allocate_branches(self, num_branches: int) -> tuple[Any, Any, Transition]:
        records = require_cuda().to_device(np.zeros(num_branches, self._records.dtype))
        return records, bytes_of(records), self._allocate_for(num_branches)

    def step_branches(self, records: Any, live: Any, actions: Any, key: Any, depth: int, out: Transition) -> None:
        key, live, actions = cuda_arrays((key, live, actions))
        self._run("branch", len(live), key, depth, live, records, actions, *out.arrays)

    def views(self) -> Any:
        """What each player sees now; written over by the next call."""
        if self.played_by is PlayedBy.SEATS:
            self._run("views", self.num_envs, self._records, kernel_obs(self._seen))
        else:
            self._run("observe", self.num_envs, self._records, kernel_obs(self._seen), *self._own.arrays[1:3])
        return self._seen

    def scores(self, states: np.ndarray) -> Any:
        self._require_scores()
        scores = torch.zeros(len(states), self.num_players, device=self.device)
        cuda = require_cuda()
        self._run("scores", len(states), cuda.to_device(np.ascontiguousarray(states)), cuda.as_cuda_array(scores))
        return scores

    def begin_reading_episodes(self) -> None:
        self._reader.begin()

    def episodes(self) -> Episodes:
        num_ended, rows = self._reader.finish()
        return self._listed(rows.view(self._log.dtype).ravel(), num_ended)

    def _run(self, kernel: str, *arguments: Any, **settings: Any) -> None:
        """Launch a kernel; what does not compile is told in the author's terms."""
        try:
            launch(getattr(self._kernels, kernel), *arguments, **settings)
        except Exception as error:
            explained = diagnosis.explain(self.env, error, partial(play_interpreted, self.env))
            if isinstance(explained, WorldError) and "cannot be compiled" in str(explained):
                explained = WorldError(f"{explained}, for the GPU; meanwhile, train it with --device cpu")
            raise explained from error

    def _checked_actions(self, actions: Any, shape: tuple[int, ...]) -> Any:
        """Actions as kernels take them; from the CPU they are copied."""
        if not self._was_reset:
            raise RuntimeError("reset the pool before the first step: pool.reset(seed)")
        if isinstance(actions, np.ndarray):
            actions = torch.from_numpy(actions)
        if not isinstance(actions, Tensor) or tuple(actions.shape) != shape or actions.dtype != self._action_type:
            given = f"{actions.dtype} {list(actions.shape)}" if isinstance(actions, Tensor) else repr(actions)[:60]
            raise ConfigError(f"actions are {given}; this pool takes {self._action_type} {list(shape)} as a tensor")
        return require_cuda().as_cuda_array(actions.detach().to(self.device).contiguous())


def random_actions_on_gpu(pool: CudaPool, out: Transition, random: torch.Generator) -> Tensor:
    """One legal action for each row, drawn evenly on the GPU without waiting for it."""
    space, rows = pool.action_space, pool.num_rows
    if isinstance(space, Box):
        low = torch.as_tensor(np.maximum(space.low, -10.0), device=pool.device)
        high = torch.as_tensor(np.minimum(space.high, 10.0), device=pool.device)
        return low + (high - low) * torch.rand(rows, *space.shape, device=pool.device, generator=random)
    sizes = [int(space.n)] if isinstance(space, Discrete) else [int(n) for n in space.nvec]
    scores = torch.rand(rows, sum(sizes), device=pool.device, generator=random)
    if pool.mask_size:
        scores = scores + torch.as_tensor(out.mask)
    chosen = torch.stack([part.argmax(1) for part in scores.split(sizes, dim=1)], dim=1)
    return chosen[:, 0].contiguous() if isinstance(space, Discrete) else chosen


# --- Reading the log of finished episodes from the GPU: one kernel picks the newest, one copy brings them to the CPU
#
# Envs log at the same time, so which row an episode gets is chance among those of one step; rows of different steps are
# in the order of steps. So only for the oldest step that is still read it must be decided which episodes count: those
# of the last envs.


MAX_EPISODES_READ = 1024
"""Where more episodes have ended than this, only the newest ones are read, and all are counted."""
THREADS = 1024
DIGIT_BITS = 8
"""Bits that a pass over the episodes of one step decides of the lowest place that is read."""
NUM_DIGITS = 1 << DIGIT_BITS


class EpisodeReader:
    """Reads the newest episodes of a log on the GPU; `begin` does not wait for it, and `finish` does."""

    def __init__(self, log: Tensor, num_logged: Tensor, num_places: int, num_players: int) -> None:
        """`log` uint8 [C + 1, row size], rows as `episode_dtype` says, of which C are written in turn; `num_logged`
        int64 [1] counts the episodes, and is set back to 0 by each reading. In one step at most `num_places` episodes
        end, one of each player of each env. C must be at least MAX_EPISODES_READ more: then no row that may be read
        has been written over."""
        capacity, row_bytes = len(log) - 1, log.shape[1]
        assert capacity >= num_places + MAX_EPISODES_READ
        cuda = numba_cuda()
        self._row_words = row_bytes // 8
        self._picked = torch.zeros(1 + MAX_EPISODES_READ * self._row_words, dtype=torch.int64, device=log.device)
        self._here = torch.zeros_like(self._picked, device="cpu", pin_memory=True)
        self._is_here = torch.cuda.Event()
        self._has_begun = False
        words = log.view(torch.int64).flatten()
        arrays = [cuda.as_cuda_array(each) for each in (num_logged, words, self._picked)]
        self._arguments = (*arrays, capacity, self._row_words, num_players, num_places)
        self._kernel = cuda.jit(build_pick(cuda, cuda.jit(device=True)))
        keep_cuda_on_disk(self._kernel, _fingerprint, "pick")

    def begin(self) -> None:
        """Begin to read what is logged by now, on torch's current stream; does nothing if `finish` is due."""
        if self._has_begun:
            return
        launch(self._kernel, THREADS, *self._arguments, block=THREADS)
        self._here.copy_(self._picked, non_blocking=True)
        self._is_here.record()
        self._has_begun = True

    def forget(self) -> None:
        """Forget what `begin` read."""
        self._has_begun = False

    def finish(self) -> tuple[int, np.ndarray]:
        """How many episodes had ended, and the newest of them in any order, int64 [E, words of a row]: a copy."""
        self.begin()
        self._is_here.synchronize()
        self._has_begun = False
        here = self._here.numpy()
        num_ended = int(here[0])
        num_read = min(num_ended, MAX_EPISODES_READ)
        return num_ended, here[1 : 1 + num_read * self._row_words].reshape(num_read, self._row_words).copy()


def _fingerprint() -> str:
    return function_fingerprint(cast(FunctionType, build_pick))


def _first_since(words: Any, capacity: int, row_words: int, low: int, high: int, tick: int) -> int:
    """The first of episodes `low` to `high` that ended at `tick` or later; `high` if none did."""
    while low < high:
        middle = (low + high) // 2
        if words[middle % capacity * row_words] < tick:
            low = middle + 1
        else:
            high = middle
    return low


def build_pick(cuda: Any, compile_helper: Callable[..., Any]) -> Callable[..., None]:
    """The kernel that picks the newest episodes. Episode k, counted from 0, is in row k % capacity of the log."""
    first_since = compile_helper(_first_since)

    def pick(num_threads, num_logged, words, picked, capacity, row_words, num_players, num_places):  # type: ignore[no-untyped-def]
        """One block of threads: write how many episodes there are, then the rows of the newest; count anew."""
        me = cuda.threadIdx.x
        counts = cuda.shared.array(NUM_DIGITS, int32)  # of episodes, by the digit of their place
        num_chosen = cuda.shared.array(1, int32)  # of the oldest step that is read
        num_ended = num_logged[0]
        num_read = min(num_ended, MAX_EPISODES_READ)
        start = stop = num_ended - num_read  # episodes of the oldest step that is read only in part
        lowest = 0  # of their places: this one and those above are read
        if stop > 0:
            tick = words[stop % capacity * row_words]
            start = first_since(words, capacity, row_words, max(0, num_ended - capacity), stop, tick)
            stop = first_since(words, capacity, row_words, stop, num_ended, tick + 1)
            num_wanted = num_read - (num_ended - stop)
            shift = 0
            while (num_places - 1) >> (shift + DIGIT_BITS) > 0:
                shift += DIGIT_BITS
            while shift >= 0:
                cuda.syncthreads()
                for digit in range(me, NUM_DIGITS, num_threads):
                    counts[digit] = 0
                cuda.syncthreads()
                for k in range(start + me, stop, num_threads):
                    at = k % capacity * row_words
                    place = words[at + 1] * num_players + words[at + 2]
                    if place >> (shift + DIGIT_BITS) == lowest >> (shift + DIGIT_BITS):
                        cuda.atomic.add(counts, (place >> shift) & (NUM_DIGITS - 1), 1)
                cuda.syncthreads()
                digit = NUM_DIGITS - 1
                while digit > 0 and counts[digit] < num_wanted:
                    num_wanted -= counts[digit]
                    digit -= 1
                lowest |= digit << shift
                shift -= DIGIT_BITS
        if me == 0:
            num_chosen[0] = 0
        cuda.syncthreads()
        for k in range(start + me, num_ended, num_threads):
            at, target = k % capacity * row_words, k - stop
            if k < stop:
                if words[at + 1] * num_players + words[at + 2] < lowest:
                    continue
                target = num_ended - stop + cuda.atomic.add(num_chosen, 0, 1)
            for word in range(row_words):
                picked[1 + target * row_words + word] = words[at + word]
        if me == 0:
            picked[0] = num_ended
            num_logged[0] = 0

    return pick
