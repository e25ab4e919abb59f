"""Pools of Gymnasium envs: what the serial pool and the worker pool share, and the serial pool.

Results are gathered from the rows that envs wrote, whoever steps them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import numpy as np

from scramjet.adapters.foreign_pool import ForeignPool, seeds_in
from scramjet.adapters.gymnasium.env_state import UnsavableError
from scramjet.adapters.gymnasium.rows import (
    Ended,
    EnvFacts,
    EnvFailedError,
    GymRows,
    MakeEnv,
    RowArrays,
    row_arrays,
    row_layout,
)
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Batch, Rows, RowsUnderWay, check_count, neighbours
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves
from scramjet.errors import ConfigError, WorldError


class GymPool(ForeignPool):
    """Gymnasium envs that write their results into rows of `_rows`, whoever steps them."""

    can_step_rows = True
    overlaps = True

    def __init__(self, name: str, facts: EnvFacts, num_envs: int) -> None:
        super().__init__(name, facts.observation_space, facts.action_space, num_envs, mask_size=facts.mask_size)
        self.has_time_limit, self.draws_every_step = facts.has_time_limit, facts.draws_every_step
        self.render_modes = facts.render_modes
        self._under_way = RowsUnderWay(num_envs)
        self._why_inexact: str | None = None
        self._was_tried = False
        self._row_layout = row_layout(self.observation_space, self.action_space, facts.mask_size, num_envs)
        self._rows: RowArrays

    def _reset(self, seeds: EpisodeSeed, out: Transition) -> None:
        self._under_way.clear()
        self._reset_envs(seeds)
        self._show(slice(None), out)

    def _step(self, actions: np.ndarray, out: Transition) -> None:
        self._under_way.refuse("step()")
        everything = slice(0, self.num_rows)
        self._rows.action[:] = actions
        self._begin(everything)
        self._write(everything, out, self._finish(everything))

    def send(self, actions: np.ndarray, rows: Rows | None = None) -> None:
        self._check_actions(actions, self._action_shape)
        rows = neighbours(rows, self.num_rows)
        self._under_way.add(rows)
        self._rows.action[rows] = actions[rows]
        self._begin(rows)

    def recv(self, rows: Rows | None = None, out: Transition | None = None) -> Batch:
        out = self._fitting(out)
        rows = self._under_way.take(self._ready_first() if rows is None else neighbours(rows, self.num_rows))
        assert isinstance(rows, slice)
        self._tick += rows.start == 0
        self._write(rows, out, self._finish(rows))
        return Batch(rows, out)

    @abstractmethod
    def _reset_envs(self, seeds: EpisodeSeed) -> None:
        """Have every env begin anew and show itself in `_rows`."""

    @abstractmethod
    def _begin(self, rows: slice) -> None:
        """Have the envs of some rows step."""

    def _ready_first(self) -> slice | None:
        """Wait for rows that are under way and return those ready first; None: they step in the order sent."""
        return None

    @abstractmethod
    def _finish(self, rows: slice) -> Iterable[Ended]:
        """Wait until the envs of these rows have stepped; returns their episodes that ended."""

    def _show(self, rows: slice, out: Transition) -> None:
        """Copy the observations and masks of `rows` into these rows of `out`."""
        for leaf, seen in zip(leaves(out.obs), self._rows.obs, strict=True):
            leaf[rows] = seen[rows]
        if self.mask_size:
            out.mask[rows] = self._rows.mask[rows]

    def _write(self, rows: slice, out: Transition, told: Iterable[Ended]) -> None:
        """Copy the results of `rows` into these rows of `out`, and log the episodes that ended (`told`)."""
        shared = self._rows
        self._show(rows, out)
        reward, terminated, truncated = shared.reward[rows], shared.terminated[rows], shared.truncated[rows]
        out.reward[rows], out.terminated[rows], out.truncated[rows] = reward, terminated, truncated
        self._count(reward, rows)
        flags = terminated | truncated
        if True in flags.tobytes():  # of few envs, any() and flatnonzero() take longer
            ended = flags.nonzero()[0]
            numbers = rows.start + ended
            for final, last in zip(leaves(out.final_obs), shared.final_obs, strict=True):
                final[numbers] = last[numbers]
            said = {one.row: one for one in told}
            if not said:
                self._log_episodes(numbers, {})
                return
            for row in numbers.tolist():
                one = said.get(row)
                self._log_episode(row, *((one.stats, one.score, one.length) if one is not None else ({},)))

    def snapshot(self) -> dict[str, np.ndarray]:
        """Exact where the envs' state is plain data, MuJoCo's or ALE's; else the counts alone."""
        self._under_way.refuse("snapshot()")
        if not self._was_reset:
            raise RuntimeError("reset the pool before a snapshot: pool.reset(seed)")
        kept = super().snapshot()
        if not self.can_snapshot:
            return kept
        states = self._capture()
        kept["states"] = np.frombuffer(b"".join(states), np.uint8).copy()
        kept["state_sizes"] = np.array([len(state) for state in states], np.int64)
        kept |= {f"obs/{i}": leaf.copy() for i, leaf in enumerate(self._rows.obs)}
        return {**kept, "mask": self._rows.mask.copy()}

    @property
    def can_snapshot(self) -> bool:
        """Whether envs can be saved exactly; tried out when first asked, on envs made for it."""
        if not self._was_tried:
            self._why_inexact, self._was_tried = self._try_saving(), True
        return self._why_inexact is None

    @abstractmethod
    def _try_saving(self) -> str | None:
        """Why envs cannot be saved exactly; None where they can."""

    @abstractmethod
    def _capture(self) -> list[bytes]:
        """The state of each env."""

    @abstractmethod
    def _put_back(self, states: list[bytes], seeds: EpisodeSeed) -> str | None:
        """Put every env into a state; says what is in the way where one cannot be."""

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        """States of envs are put back only where they are our own: what somebody's env does with texts and numbers that
        a stranger chose, nobody knows."""
        self._under_way.refuse("restore()")
        out = self._fitting(out)
        self._restore_counts(snapshot)
        self._seeds = seeds_in(snapshot).part(self._seeds.first_env)
        is_used = "states" in snapshot and is_own
        problem = self._put_back_saved(snapshot) if is_used else "its episodes are fresh"
        self.resume_note = None
        if problem is not None:
            self._reset_envs(self._seeds_of_fresh_episodes())
        if "states" in snapshot and not is_own:
            self.resume_note = (
                f"the states of {self.name}'s envs were not saved by you on this machine: resumed with fresh episodes; "
                f"--trust puts them back"
            )
        self._was_reset = True
        self._show(slice(None), out)
        return out

    def _put_back_saved(self, snapshot: dict[str, np.ndarray]) -> str | None:
        sizes, raw = snapshot["state_sizes"], snapshot["states"].tobytes()
        if len(sizes) != self.num_envs or int(sizes.sum()) != len(raw) or (sizes < 0).any():
            raise ConfigError(f"a snapshot of {len(sizes)} envs does not fit a pool of {self.num_envs}")
        ends = np.cumsum(sizes)
        problem = self._put_back([raw[end - size : end] for end, size in zip(ends, sizes, strict=True)], self._seeds)
        if problem is None:
            for i, leaf in enumerate(self._rows.obs):
                leaf[:] = snapshot[f"obs/{i}"]
            self._rows.mask[:] = snapshot["mask"]
        return problem


class SerialPool(GymPool):
    """Envs stepped one after the other in this process, to debug, with breakpoints and plain tracebacks. The same
    rules and results as `WorkerPool`.

    It says that it `overlaps`, though its envs step in `recv`: training then sends its rows in the same halves as those
    of worker processes, and learns the same numbers.
    """

    def __init__(self, name: str, make_env: MakeEnv, num_envs: int) -> None:
        check_count("num_envs", num_envs)
        if not callable(make_env):
            raise ConfigError(f"make_env={make_env!r} must be a function that makes a gymnasium.Env")
        self._make_env = make_env
        try:
            self._envs = GymRows(name, make_env, range(num_envs))
        except EnvFailedError as error:
            raise WorldError(str(error)) from error
        super().__init__(name, self._envs.facts, num_envs)
        self._rows = row_arrays([np.zeros(shape, dtype) for shape, dtype in self._row_layout])
        self._envs.bind(self._rows)

    def _reset_envs(self, seeds: EpisodeSeed) -> None:
        try:
            self._envs.reset(seeds)
        except EnvFailedError as error:
            raise WorldError(str(error)) from error

    def _begin(self, rows: slice) -> None:
        """Nothing yet: the envs step when they are waited for."""

    def _finish(self, rows: slice) -> Iterable[Ended]:
        try:
            return self._envs.step(rows.start, rows.stop)[0]
        except EnvFailedError as error:
            raise WorldError(str(error)) from error.__cause__

    def _try_saving(self) -> str | None:
        try:
            pair = GymRows(self.name, self._make_env, range(2))
        except (EnvFailedError, WorldError) as problem:  # there may be no more than there are
            return str(problem)
        try:
            return pair.why_inexact()
        finally:
            pair.close()

    def _capture(self) -> list[bytes]:
        return self._envs.capture()

    def _put_back(self, states: list[bytes], seeds: EpisodeSeed) -> str | None:
        try:
            self._envs.restore(states, seeds)
        except UnsavableError as problem:
            return str(problem)
        return None

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()
