"""What the serial pool and the worker pool share: results gathered from the rows that envs wrote, and snapshots."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import numpy as np

from scramjet.adapters.foreign_pool import ForeignPool, seeds_in
from scramjet.adapters.gymnasium.env_results import Ended, EnvFacts, RowArrays, row_layout
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Batch, Rows, RowsUnderWay, neighbours
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves
from scramjet.errors import ConfigError


class GymPool(ForeignPool):
    """Gymnasium envs that write their results into rows of `_rows`, whoever steps them."""

    can_step_rows = True
    overlaps = True
    _hands_over_parts = False
    """Whether `recv` may hand over some of the rows of a `send` before the others."""

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
        rows = self._sendable(rows)
        self._under_way.add(rows)
        self._rows.action[rows] = actions[rows]
        self._begin(rows)

    def recv(self, rows: Rows | None = None, out: Transition | None = None) -> Batch:
        out = self._fitting(out)
        rows = self._ready_first() if rows is None else self._receivable(rows)
        rows = self._under_way.take(rows, partly=self._hands_over_parts)
        self._tick += rows.start == 0 if isinstance(rows, slice) else 0 in rows
        self._write(rows, out, self._finish(rows))
        return Batch(rows, out)

    @abstractmethod
    def _reset_envs(self, seeds: EpisodeSeed) -> None:
        """Have every env begin anew and show itself in `_rows`."""

    def _sendable(self, rows: Rows | None) -> Rows:
        """`rows` in the form in which they are kept; refuses what cannot be sent together."""
        return neighbours(rows, self.num_rows)

    def _receivable(self, rows: Rows) -> Rows:
        """`rows` in the form in which they are kept; refuses rows that were not sent so."""
        return self._sendable(rows)

    @abstractmethod
    def _begin(self, rows: Rows) -> None:
        """Have the envs of some rows step."""

    def _ready_first(self) -> Rows | None:
        """Wait for rows that are under way and return those ready first; None: they step in the order sent."""
        return None

    @abstractmethod
    def _finish(self, rows: Rows) -> Iterable[Ended]:
        """Wait until the envs of these rows have stepped; returns their episodes that ended."""

    def _show(self, rows: Rows, out: Transition) -> None:
        """Copy the observations and masks of `rows` into these rows of `out`."""
        for leaf, seen in zip(leaves(out.obs), self._rows.obs, strict=True):
            leaf[rows] = seen[rows]
        if self.mask_size:
            out.mask[rows] = self._rows.mask[rows]

    def _write(self, rows: Rows, out: Transition, told: Iterable[Ended]) -> None:
        """Copy the results of `rows` into these rows of `out`, and log the episodes that ended (`told`)."""
        shared = self._rows
        self._show(rows, out)
        reward, terminated, truncated = shared.reward[rows], shared.terminated[rows], shared.truncated[rows]
        out.reward[rows], out.terminated[rows], out.truncated[rows] = reward, terminated, truncated
        self._count(reward, rows)
        flags = terminated | truncated
        if True in flags.tobytes():  # of few envs, any() and flatnonzero() take longer
            ended = flags.nonzero()[0]
            numbers = rows.start + ended if isinstance(rows, slice) else rows[ended]
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
