"""The pool of native worlds: records in one array, kernels over them, interpreted or compiled."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Literal, get_args

import numpy as np

from scramjet.engine import diagnosis
from scramjet.engine.kernels import Kernels
from scramjet.engine.layout import (
    Transition,
    allocate_transition,
    check_spaces,
    episode_dtype,
    mask_size,
    state_dtype,
)
from scramjet.engine.pool import Batch, Episodes, Pool
from scramjet.engine.random_play import random_actions
from scramjet.envs.api import Env
from scramjet.errors import ConfigError, WorldError

Backend = Literal["cpu", "interpreted"]

EPISODES_KEPT_PER_ENV = 16
ENVS_PER_THREAD = 256
"""Below this many envs a thread costs more to wake than it saves."""

# Numba's fallback threading layer allows one parallel region at a time in a process.
_PARALLEL_REGION = threading.Lock()


class NativePool(Pool):
    """Many copies of one world. Steps allocate nothing; results do not depend on the number of threads."""

    def __init__(self, env: Env, num_envs: int, *, num_threads: int | None = None, backend: Backend = "cpu") -> None:
        if num_envs < 1:
            raise ConfigError(f"num_envs={num_envs} must be at least 1")
        if num_threads is not None and num_threads < 1:
            raise ConfigError(f"num_threads={num_threads} must be at least 1")
        if backend not in get_args(Backend):
            raise ConfigError(f"backend={backend!r} must be one of {', '.join(get_args(Backend))}")
        check_spaces(env)
        self.env = env
        self.name = type(env).__name__
        self.num_envs = num_envs
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.mask_size = mask_size(env)
        self.backend = backend
        self._states = np.zeros(num_envs, state_dtype(env))
        self._state_bytes = self._states.view(np.uint8).reshape(num_envs, -1)  # [N, record size]
        self._records = self._wrap(self._states)
        self._kernels, self.num_threads = self._start(backend, num_threads)
        capacity = max(4096, EPISODES_KEPT_PER_ENV * num_envs // self.num_threads)
        self._log = np.zeros((self.num_threads, capacity + 1), episode_dtype(env))
        self._log_size = np.zeros((self.num_threads, 2), np.int64)  # episodes since the last look, next row
        self._first_log = self._wrap(self._log[0]), self._log_size[0]
        self._tick = 0
        self._own = self.allocate()
        self._sent: deque[slice] = deque()
        self._sent_actions = np.zeros(num_envs, np.int64)
        self._was_reset = False

    def _start(self, backend: Backend, num_threads: int | None) -> tuple[Kernels, int]:
        """Kernels and the number of threads they run on."""
        if backend == "interpreted":
            from scramjet.engine.interpreted import interpreted_kernels

            return interpreted_kernels(self.env), 1
        from scramjet.engine.cpu import available_threads, compile_kernels

        wanted = num_threads or max(1, self.num_envs // ENVS_PER_THREAD)
        return compile_kernels(self.env), min(wanted, available_threads(), self.num_envs)

    @property
    def steps_taken(self) -> int:
        return self._tick

    def allocate(self) -> Transition:
        return allocate_transition(self.env, self.num_envs)

    def prepare(self) -> None:
        """Play a little interpreted and compile what steps need: a mistake shows before anything else begins."""
        if self.backend == "cpu":
            self._play_interpreted()
        self._step_rows(0, 0, self._sent_actions, self._own)
        self._tick = 0

    def reset(self, seed: int, out: Transition | None = None) -> Transition:
        if not -(2**63) <= seed <= 2**63 - self.num_envs:
            raise ConfigError(f"seed={seed} must be from -2**63 to 2**63 less the number of envs")
        out = self._own if out is None else self._fitting(out)
        self._run("reset", 0, self.num_envs, int(seed), self._records, self._state_bytes, out.obs, out.mask)
        self._tick = 0
        self._log_size[:] = 0
        self._sent.clear()
        self._was_reset = True
        return out

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        out = self._own if out is None else self._fitting(out)
        self._check_actions(actions, self.num_envs)
        if self.num_threads == 1:
            self._step_rows(0, self.num_envs, actions, out)
            return out
        self._tick += 1
        with _PARALLEL_REGION:
            self._run(
                "step_threaded", self.num_threads, self._tick, self._states, self._state_bytes, actions,
                out.obs, out.mask, out.reward, out.terminated, out.truncated, out.final_obs,
                self._log, self._log_size,
            )  # fmt: skip
        return out

    def send(self, actions: np.ndarray, rows: slice | None = None) -> None:
        start, stop, _ = (rows or slice(None)).indices(self.num_envs)
        self._check_actions(actions, stop - start)
        for sent in self._sent:
            if start < sent.stop and sent.start < stop:
                raise RuntimeError(f"rows {sent.start}:{sent.stop} were sent already; recv them first")
        self._sent_actions[start:stop] = actions
        self._step_rows(start, stop, self._sent_actions, self._own)
        self._sent.append(slice(start, stop))

    def recv(self) -> Batch:
        if not self._sent:
            raise RuntimeError("recv() without send(): nothing is under way")
        rows = self._sent.popleft()
        own = self._own
        return Batch(
            rows,
            Transition(
                own.obs[rows], own.mask[rows], own.reward[rows],
                own.terminated[rows], own.truncated[rows], own.final_obs[rows],
            ),
        )  # fmt: skip

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"states": self._state_bytes.copy(), "tick": np.array([self._tick])}

    def restore(self, snapshot: dict[str, np.ndarray], out: Transition | None = None) -> Transition:
        raw = snapshot["states"]
        if raw.shape != self._state_bytes.shape or raw.dtype != np.uint8:
            raise ConfigError(
                f"a snapshot of {raw.dtype} {list(raw.shape)} does not fit a pool of "
                f"{self.num_envs} envs of {self._states.itemsize} bytes; use the same world and num_envs, or where the "
                f"world's state has changed, begin a new run with --fork"
            )
        self._state_bytes[:] = raw
        self._tick = int(snapshot["tick"][0])
        self._log_size[:] = 0
        self._sent.clear()
        self._was_reset = True
        out = self._own if out is None else self._fitting(out)
        self._run("observe", 0, self.num_envs, self._records, out.obs, out.mask)
        return out

    def states(self) -> np.ndarray:
        """A copy of every env's record, to branch from with `simulate`."""
        return self._states.copy()

    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        after = states.copy()
        self._check_actions(actions, len(after))
        out = allocate_transition(self.env, len(after))
        self._run(
            "simulate", 0, len(after), self._wrap(after), actions,
            out.obs, out.mask, out.reward, out.terminated, out.truncated,
        )  # fmt: skip
        return after, out

    def episodes(self) -> Episodes:
        capacity = self._log.shape[1] - 1
        ended = self._log_size[:, 0]
        log = np.concatenate([self._log[i, : min(int(count), capacity)] for i, count in enumerate(ended)])
        log = log[np.lexsort((log["_env"], log["_tick"]))]
        num_ended = int(ended.sum())
        self._log_size[:] = 0
        return Episodes(
            num_ended=num_ended,
            returns=log["_return"],
            lengths=log["_length"],
            env_ids=log["_env"],
            stats={name: log[name] for name in self.env.stat_names},
        )

    def record(self, index: int) -> Any:
        """Env `index`'s record with its fields as attributes: what `render` and `ascii` take."""
        return self.as_record(self._states[index])

    def as_record(self, state: np.void) -> Any:
        """One of `states()` with its fields as attributes."""
        from scramjet.engine.interpreted import Record

        return Record(state, type(self.env).__name__)

    def _step_rows(self, start: int, stop: int, actions: np.ndarray, out: Transition) -> None:
        self._tick += 1
        self._run(
            "step", start, stop, self._tick, self._records, self._state_bytes, actions,
            out.obs, out.mask, out.reward, out.terminated, out.truncated, out.final_obs, *self._first_log,
        )  # fmt: skip

    def _run(self, kernel: str, *arguments: Any) -> None:
        """Call a kernel; what goes wrong in it is told in the author's terms."""
        try:
            getattr(self._kernels, kernel)(*arguments)
        except Exception as error:
            probe = self._play_interpreted if self.backend == "cpu" else None
            raise diagnosis.explain(self.env, error, probe) from error

    def _play_interpreted(self) -> None:
        """A few interpreted steps of this world, to find in plain Python what the compiler stumbled over."""
        pool = NativePool(self.env, 2, backend="interpreted")
        out, random = pool.reset(0), np.random.default_rng(0)
        for _ in range(20):
            out = pool.step(random_actions(pool, out, random))

    def _wrap(self, array: np.ndarray) -> Any:
        """Records as the back-end wants them."""
        if self.backend == "cpu":
            return array
        from scramjet.engine.interpreted import Records

        return Records(array, type(self.env).__name__)

    def _fitting(self, out: Transition) -> Transition:
        """Refuse arrays of another size: compiled code would write past their end."""
        own = self._own
        if (
            out.obs.shape != own.obs.shape
            or out.mask.shape != own.mask.shape
            or out.reward.shape != own.reward.shape
            or out.terminated.shape != own.terminated.shape
            or out.truncated.shape != own.truncated.shape
            or out.final_obs.shape != own.final_obs.shape
        ):
            raise ConfigError(f"out= is not of this pool's size ({self.num_envs} envs); make it with pool.allocate()")
        return out

    def _check_actions(self, actions: np.ndarray, count: int) -> None:
        if not self._was_reset:
            raise RuntimeError("reset the pool before the first step: pool.reset(seed)")
        if not isinstance(actions, np.ndarray) or actions.shape != (count,) or actions.dtype != np.int64:
            given = f"{actions.dtype} {list(actions.shape)}" if isinstance(actions, np.ndarray) else repr(actions)[:60]
            raise ConfigError(f"actions are {given}; this pool takes int64 [{count}] as a NumPy array")
        if self.backend == "interpreted" and not ((actions >= 0) & (actions < self.action_space.n)).all():
            worst = int(np.flatnonzero((actions < 0) | (actions >= self.action_space.n))[0])
            raise WorldError(
                f"action {actions[worst]} of env {worst} is outside {self.action_space!r} of {type(self.env).__name__}"
            )
