"""The pool of native worlds on the GPU: records and results stay there, and no step waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.cuda import bytes_of, cuda_arrays, launch, require_cuda
from scramjet.engine.episode_reader import MAX_EPISODES_READ, EpisodeReader
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy, allocate_obs, episode_dtype, state_dtype
from scramjet.engine.pool import Episodes
from scramjet.engine.transition import Transition, kernel_obs
from scramjet.engine.trees import map_fields, map_leaves
from scramjet.engine.worlds import diagnosis
from scramjet.engine.worlds.cuda import compile_kernels
from scramjet.engine.worlds.cuda_staging import plan
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
