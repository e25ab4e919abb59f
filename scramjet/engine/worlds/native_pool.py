"""The pool of native worlds: records in one array, kernels over them, interpreted or compiled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from scramjet.compile.addresses import StepCalls
from scramjet.compile.jit import PARALLEL_REGION, AdaptiveThreading, launch_threads
from scramjet.engine.actions import random_actions, unfit_action
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy, allocate_obs, episode_dtype, state_dtype
from scramjet.engine.pool import Batch, Episodes, Rows, RowsUnderWay, check_actions_fit, check_count, neighbours
from scramjet.engine.transition import Transition, kernel_obs
from scramjet.engine.worlds import diagnosis
from scramjet.engine.worlds.kernels import Kernels
from scramjet.engine.worlds.world_pool import Probation, WorldPool, check_states, out_of_bounds
from scramjet.envs.api import Env
from scramjet.errors import ConfigError, WorldError

Backend = Literal["cpu", "interpreted"]

ENVS_PER_THREAD = 256
"""Below this many envs a thread costs more to wake than it saves."""

CACHE_LINES = 128
"""Bytes between what two threads write: a cache line, and the next one, which processors fetch with it."""


class NativePool(WorldPool):
    """Many copies of one world. Steps allocate nothing; results do not depend on the number of threads."""

    can_step_rows = True
    episodes_kept_per_env = 16

    def __init__(self, env: Env, num_envs: int, *, num_threads: int | None = None, backend: Backend = "cpu") -> None:
        super().__init__(env, num_envs)
        check_count("num_threads", 1 if num_threads is None else num_threads)
        if backend not in get_args(Backend):
            raise ConfigError(f"backend={backend!r} must be one of {', '.join(get_args(Backend))}")
        self.backend = backend
        self._states = np.zeros(num_envs, state_dtype(env))
        self._state_bytes = self._states.view(np.uint8).reshape(num_envs, -1)  # [N, record size]
        self._records = self._wrap(self._states)
        self._kernels, self.num_threads = self._start(backend, num_threads)
        capacity = max(4096, self.episodes_kept_per_env * num_envs * self.num_players // self.num_threads)
        self._log = np.zeros((self.num_threads, capacity + 1), episode_dtype(env))
        # For each thread: episodes since the last look, next row; cache lines apart, as all write theirs at once.
        self._log_size = np.zeros((self.num_threads, CACHE_LINES // 8), np.int64)
        self._logs = [(self._wrap(self._log[i]), self._log_size[i]) for i in range(self.num_threads)]
        self._tick = 0
        self._own = self.allocate()
        self._under_way = RowsUnderWay(self.num_rows)
        self._sent_actions = np.zeros(self._action_shape, self._action_dtype)
        self._legal = np.ones_like(self._own.mask)
        self._was_reset = False
        self._threading = AdaptiveThreading()
        self._unchecked = self._kernels
        self._probation: Probation | None = None  # of records that came from a file

    def _start(self, backend: Backend, num_threads: int | None) -> tuple[Kernels, int]:
        """Kernels and the number of threads they run on."""
        if backend == "interpreted":
            from scramjet.engine.worlds.cpu import interpreted_kernels

            return interpreted_kernels(self.env), 1
        from scramjet.engine.worlds.cpu import available_threads, compile_kernels

        launch_threads()
        wanted = num_threads or max(1, self.num_envs // ENVS_PER_THREAD)
        return compile_kernels(self.env), min(wanted, available_threads(), self.num_envs)

    @property
    def steps_taken(self) -> int:
        return self._tick

    def prepare(self) -> None:
        """Play a little interpreted and compile what steps need: a mistake shows before anything else begins."""
        if self.backend == "cpu":
            play_interpreted(self.env)
        self._step_envs(0, 0, self._sent_actions, self._own)
        self._tick = 0

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        seeds = EpisodeSeed.of(seed)
        out = self._fitting(out)
        self._kernels, self._probation = self._unchecked, None
        self._run("reset", 0, self.num_envs, seeds.key, seeds.first_env, self._records, *out.arrays[:3])
        self._begin_at(0, out)
        return out

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        out = self._fitting(out)
        self._check_actions(actions, self._action_shape)
        self._under_way.refuse("step()")
        self.rollout_step(actions, out)
        return out

    def rollout_step(self, actions: np.ndarray, out: Transition) -> None:
        """`step` without checks, for arrays known to fit: with few envs the checks take longer than the step."""
        self._tick += 1
        if self._probation is not None:
            self._end_probation_if_over()
        if self.num_threads == 1:
            self._step_envs(0, self.num_envs, actions, out)
        else:
            self._step_threaded(0, self.num_envs, actions, out)
        self._remember_mask(out)

    @property
    def can_play_steps(self) -> bool:
        """Whether `play_steps` can be called now: compiled, on one thread, with no record from a file."""
        return self._kernels.play is not None and self.num_threads == 1 and self._probation is None

    def play_steps(self, first: int, stop: int, draw: StepCalls, arrays: Sequence[Any], *, until_cut: bool) -> int:
        """Play steps `first` to `stop` in one compiled function; `draw` writes the actions before each of them.

        `arrays`: the actions [T, R, ...], then what a Transition has, stacked: [T + 1, ...] for what is shown, [T, ...]
        for results, and one `final_obs` for all steps. With `until_cut` it stops after a step that truncates an
        episode, whose last observation the next step may write over. Returns the step that comes next.
        """
        assert self._kernels.play is not None
        progress, before = np.array([first]), self._tick
        try:
            following = self._kernels.play(
                first, stop, until_cut, before + 1, *draw, progress, self._records, *arrays, *self._logs[0]
            )
        except Exception as error:
            self._tick = before + int(progress[0]) - first + 1
            raise self._explained(error) from error
        self._tick = before + following - first
        return following

    def send(self, actions: np.ndarray, rows: Rows | None = None) -> None:
        """Check and copy the actions of these rows; `recv` steps them."""
        rows = neighbours(rows, self.num_rows, self._rows_per_env)
        check_actions_fit(actions, self._action_shape, self._action_dtype)
        self._check_actions(actions[rows], (rows.stop - rows.start, *self._action_shape[1:]), rows.start)
        self._under_way.add(rows)
        self._sent_actions[rows] = actions[rows]

    def recv(self, rows: Rows | None = None, out: Transition | None = None) -> Batch:
        """Step the envs of these rows, or of those sent first."""
        out = self._fitting(out)
        rows = self._under_way.take(None if rows is None else neighbours(rows, self.num_rows, self._rows_per_env))
        assert isinstance(rows, slice)
        self._tick += rows.start == 0  # all parts of a step are at the same time
        self._end_probation_if_over()
        first, last = rows.start // self._rows_per_env, rows.stop // self._rows_per_env
        self._step_threaded(first, last, self._sent_actions, out)
        self._legal[rows] = out.mask[rows]
        return Batch(rows, out)

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"states": self._state_bytes.copy(), "tick": np.array([self._tick])}

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        self._check_snapshot(snapshot, self._states.itemsize)
        out = self._fitting(out)
        self._state_bytes[:] = snapshot["states"]
        if not is_own:
            check_states(self.env, self._states)
            self._go_on_probation()
        self._run("observe", 0, self.num_envs, self._records, *out.arrays[:3])
        self._begin_at(int(snapshot["tick"][0]), out)
        return out

    @property
    def has_records_of_others(self) -> bool:
        return self._probation is not None and not self._probation.is_over

    def _go_on_probation(self) -> None:
        """Step with kernels that check bounds until no record is left of those in the file."""
        if self.backend == "cpu" and self._probation is None:
            from scramjet.engine.worlds.cpu import compile_kernels

            self._unchecked, self._kernels = self._kernels, compile_kernels(self.env, checks_bounds=True)
        self._probation = Probation(self._states)

    def _end_probation_if_over(self) -> None:
        if self._probation is not None and self._probation.is_over:
            self._probation = None
            self._kernels = self._unchecked

    def _begin_at(self, tick: int, out: Transition) -> None:
        """Start counting at `tick`, and forget logs and what was sent; `out` is what the players see."""
        self._tick = tick
        self._log_size[:] = 0
        self._under_way.clear()
        self._was_reset = True
        self._remember_mask(out)

    def _remember_mask(self, out: Transition) -> None:
        """Keep the mask that the next actions are checked against, where the world is interpreted."""
        if self.backend == "interpreted":
            self._legal[:] = out.mask

    def states(self) -> np.ndarray:
        """A copy of every env's record, to branch from with `simulate`."""
        return self._states.copy()

    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        after = states.copy()
        self._check_actions(actions, (len(after) * self._rows_per_env, *self._action_shape[1:]), None)
        out = self._allocate_for(len(after))
        actions = np.ascontiguousarray(actions)  # those of `np.nonzero` are not, and the kernel would be compiled anew
        self._run("simulate", 0, len(after), self._wrap(after), actions, *out.arrays)
        return after, out

    def state_bytes(self) -> Any:
        import torch

        return torch.from_numpy(self._state_bytes)

    def allocate_branches(self, num_branches: int) -> tuple[Any, Any, Transition]:
        import torch

        states = np.zeros(num_branches, self._states.dtype)
        as_bytes = torch.from_numpy(states.view(np.uint8).reshape(num_branches, -1))
        return self._wrap(states), as_bytes, self._allocate_for(num_branches)

    def step_branches(self, records: Any, live: Any, actions: Any, key: Any, depth: int, out: Transition) -> None:
        arguments = key.numpy(), depth, live.numpy(), records, actions.numpy(), *out.arrays
        num_branches = len(live)
        chunks = min(self.num_threads, -(-num_branches // ENVS_PER_THREAD))
        if chunks == 1:
            self._run("branch", 0, num_branches, *arguments)
            return
        with PARALLEL_REGION:
            try:
                is_whole = self._run("branch_threaded", chunks, np.zeros(chunks, np.bool_), num_branches, *arguments)
            except SystemError:
                is_whole = False
        if not is_whole:
            raise WorldError(f"a rule of {self.name} raised an exception in a search; find it with --num-threads 1")

    def views(self) -> Any:
        if self.played_by is not PlayedBy.SEATS:
            out = self.allocate()
            self._run("observe", 0, self.num_envs, self._records, *out.arrays[:3])
            return out.obs
        obs = allocate_obs(self.observation_space, self.num_envs * self.num_players)
        self._run("views", 0, self.num_envs, self._records, kernel_obs(obs))
        return obs

    def scores(self, states: np.ndarray) -> np.ndarray:
        self._require_scores()
        scores = np.zeros((len(states), self.num_players), np.float32)
        self._run("scores", 0, len(states), self._wrap(states), scores)
        return scores

    def episodes(self) -> Episodes:
        capacity = self._log.shape[1] - 1
        ended: list[int] = self._log_size[:, 0].tolist()
        parts = [self._log[i, : min(count, capacity)] for i, count in enumerate(ended) if count]
        log = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else self._log[0, :0]
        self._log_size[:] = 0
        return self._listed(log, sum(ended))

    def _state_of(self, index: int) -> Any:
        return self._states[index]

    def _step_envs(self, start: int, stop: int, actions: np.ndarray, out: Transition, chunk: int = 0) -> None:
        """Step envs on this thread; episodes that end are logged in the log of this chunk."""
        try:
            self._kernels.step(start, stop, self._tick, self._records, actions, *out.arrays, True, *self._logs[chunk])
        except Exception as error:
            raise self._explained(error) from error

    def _step_threaded(self, start: int, stop: int, actions: np.ndarray, out: Transition) -> None:
        """Step envs on all threads of this pool."""
        if self.num_threads == 1:
            self._step_envs(start, stop, actions, out)
            return
        arguments = start, stop, actions, out
        self._threading(partial(self._step_on_threads, *arguments), partial(self._step_in_chunks, *arguments))

    def _step_in_chunks(self, start: int, stop: int, actions: np.ndarray, out: Transition) -> None:
        """Step on this thread what several threads would, into the same logs."""
        count, chunks = stop - start, self.num_threads
        for chunk in range(chunks):
            part = start + chunk * count // chunks, start + (chunk + 1) * count // chunks
            self._step_envs(*part, actions, out, chunk)

    def _step_on_threads(self, start: int, stop: int, actions: np.ndarray, out: Transition) -> None:
        with PARALLEL_REGION:
            try:
                is_whole = self._run(
                    "step_threaded", self.num_threads, start, stop, self._tick, self._states, actions,
                    *out.arrays, self._log, self._log_size,
                )  # fmt: skip
            except SystemError:  # what an exception in compiled code becomes on the thread that waits for the others
                is_whole = False
        if not is_whole:
            self._step_in_chunks(start, stop, actions, out)  # what has raised will do so again, most likely
            problem = f"a rule of {self.name} raised an exception on one of {self.num_threads} threads"
            raise WorldError(f"{problem}, and none when its envs were stepped again; find it with --num-threads 1")

    def _run(self, kernel: str, *arguments: Any) -> Any:
        """Call a kernel; an error in it is raised in terms of the world's source."""
        try:
            return getattr(self._kernels, kernel)(*arguments)
        except Exception as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> Exception:
        if self._probation is not None and isinstance(error, IndexError):
            return out_of_bounds(self.env, error)
        probe = partial(play_interpreted, self.env) if self.backend == "cpu" else None
        return diagnosis.explain(self.env, error, probe)

    def _wrap(self, array: np.ndarray) -> Any:
        """Records as the back-end wants them."""
        if self.backend == "cpu":
            return array
        from scramjet.engine.worlds.cpu import Records

        return Records(array, type(self.env).__name__)

    def _check_actions(self, actions: np.ndarray, shape: tuple[int, ...], first_row: int | None = 0) -> None:
        """Refuse actions of another shape or type; interpreted, also illegal ones of rows from `first_row` on."""
        if not self._was_reset:
            raise RuntimeError("reset the pool before the first step: pool.reset(seed)")
        check_actions_fit(actions, shape, self._action_dtype)
        if self.backend == "interpreted":
            mask = None if first_row is None else self._legal[first_row : first_row + len(actions)]
            unfit = unfit_action(self.action_space, actions, mask)
            if unfit is not None:
                row, problem = unfit
                row += first_row or 0
                who = f"env {row // self._rows_per_env}"
                who += f", agent {row % self._rows_per_env}" if self._rows_per_env > 1 else ""
                raise WorldError(f"action {actions[row - (first_row or 0)]} of {who} is {problem} of {self.name}")


def play_interpreted(env: Env) -> None:
    """A few interpreted steps of a world, to find in plain Python what a compiler stumbled over."""
    pool = NativePool(env, 2, backend="interpreted")
    out, random = pool.reset(0), np.random.default_rng(0)
    for _ in range(20):
        out = pool.step(random_actions(pool, out, random))
