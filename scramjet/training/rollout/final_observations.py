"""Values the last observations of truncated episodes, from which their returns are bootstrapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves, map_leaves
from scramjet.training.rollout import checks
from scramjet.training.rollout.recurrent_states import copy_rows
from scramjet.training.rollout.rollout import Rollout

ValueInto = Callable[[Any, "Tensor | None", Tensor], None]
"""Writes values: takes observations [B, ...], recurrent states [B, state_size] or None, and the values [B] to write."""

VALUED_AT_ONCE = 4096
"""Last observations that are gathered on the CPU before they are valued."""


class Finals(Protocol):
    """Keeps the last observations of truncated episodes, and fills a rollout's `final_value`."""

    def keep(self, t: int) -> None:
        """Keep what step t truncated, before the next step overwrites it and recurrent states are reset."""

    def value_all(self) -> None:
        """Write all values; called after the last step."""


def are_valued(pool: Pool) -> bool:
    """Whether last observations are valued; not with several seats, since the seat to move next does not see them."""
    return pool.played_by is not PlayedBy.SEATS or pool.num_players == 1


def final_obs_buffers(pool: Pool, like: Transition, num_steps: int) -> list[Any]:
    """For each step the buffer that last observations of episodes are written to.

    On the CPU all steps share one buffer, which is read after each step. On the GPU it is read only after the rollout.
    But an env's truncated episodes end at least the time limit apart, so one buffer for as many steps holds them all.
    """
    if not isinstance(like.reward, Tensor):
        return [like.final_obs] * num_steps
    limit = pool.env.max_episode_steps or num_steps
    windows = [map_leaves(torch.zeros_like, like.final_obs) for _ in range(0, num_steps, limit)]
    return [windows[t // limit] for t in range(num_steps)]


def final_observations(
    pool: Pool, rollout: Rollout, transitions: Sequence[Transition], value: ValueInto, first_row: int = 0
) -> Finals:
    """The `Finals` of a rollout whose steps are written to `transitions`, for the device of the envs.

    `first_row`: the pool's row that is the rollout's first, if the rollout has only some rows.
    """
    if isinstance(transitions[0].reward, Tensor):
        return FinalsOnGPU(pool, rollout, transitions, value)
    return FinalsOnCPU(pool, rollout, transitions, value, first_row)


class FinalsOnCPU:
    """Gathers the last observations of truncated episodes on the CPU, to value them together.

    Truncation is rare, so this costs a check of the flags in each step and one small forward pass a rollout.
    """

    def __init__(
        self, pool: Pool, rollout: Rollout, transitions: Sequence[Transition], value_into: ValueInto, first_row: int = 0
    ) -> None:
        self._pool, self._first_row = pool, first_row
        self._rollout, self._transitions = rollout, transitions
        self._value_into = value_into
        rollout.final_value.zero_()
        self._are_valued = are_valued(pool)
        self._observations: list[Any] = []
        self._states: list[Tensor] = []  # recurrent states before each observation; empty without memory
        self._places: list[tuple[int, np.ndarray]] = []  # the step and its rows
        self._held = 0

    def keep(self, t: int) -> None:
        """Copy what step t truncated, before the next step overwrites it and recurrent states are reset."""
        row = self._transitions[t]
        if not self._are_valued or True not in row.truncated.tobytes():  # for few envs, any() takes as long as a step
            return
        places = np.flatnonzero(row.truncated)
        observations = map_leaves(lambda leaf: leaf[places], row.final_obs)
        self._check_finite(observations, places)
        self._observations.append(observations)
        if self._rollout.recurrent.is_used:
            self._states.append(self._rollout.recurrent.states[torch.from_numpy(places)])
        self._places.append((t, places))
        self._held += len(places)
        if self._held >= max(VALUED_AT_ONCE, row.truncated.size):
            self.value_all()

    def _check_finite(self, observations: Any, places: np.ndarray) -> None:
        for leaf in leaves(observations):
            if leaf.dtype.kind != "f":
                continue
            with np.errstate(over="ignore"):
                bad = ~np.isfinite(leaf.astype(np.float32, copy=False))  # as the network sees it
            if bad.any():
                worst = int(np.flatnonzero(bad.reshape(len(leaf), -1).any(1))[0])
                value = float(leaf[worst][bad[worst]][0])
                row = self._first_row + int(places[worst])
                raise checks.bad_number(self._pool, "an observation", value, row, self._pool.steps_taken)

    def value_all(self) -> None:
        """Value the observations gathered so far and write the values to `final_value`."""
        if not self._held:
            return
        final_value = self._rollout.final_value
        first, *rest = self._observations
        gathered = map_leaves(
            lambda *parts: torch.from_numpy(np.concatenate(parts)).to(final_value.device), first, *rest
        )
        values = torch.empty(self._held, device=final_value.device)
        self._value_into(gathered, torch.cat(self._states) if self._states else None, values)
        steps, places = zip(*self._places, strict=True)
        step = torch.from_numpy(np.repeat(steps, [len(of_step) for of_step in places])).to(final_value.device)
        place = torch.from_numpy(np.concatenate(places)).to(final_value.device)
        final_value[step, place] = values
        self._observations, self._states, self._places, self._held = [], [], [], 0


class FinalsOnGPU:
    """Values all buffers for last observations on the GPU, without reading which episodes were truncated.

    That is one more value for each env and each buffer, see `final_obs_buffers`.
    """

    def __init__(self, pool: Pool, rollout: Rollout, transitions: Sequence[Transition], value_into: ValueInto) -> None:
        self._rollout, self._transitions, self._value_into = rollout, transitions, value_into
        self._has_limit = pool.env.max_episode_steps is not None and are_valued(pool)
        self._windows: dict[int, list[int]] = {}  # the steps that share a buffer, by the id of that buffer
        for t, row in enumerate(transitions):
            self._windows.setdefault(id(leaves(row.final_obs)[0]), []).append(t)
        self._states: dict[int, Tensor] = {}

    def keep(self, t: int) -> None:
        """Keep the recurrent states of episodes that step t truncated; observations stay in their buffer."""
        recurrent, row = self._rollout.recurrent, self._transitions[t]
        if not recurrent.is_used or not self._has_limit:
            return
        window = id(leaves(row.final_obs)[0])
        if (kept := self._states.get(window)) is None:
            self._states[window] = recurrent.states.clone()
        else:
            copy_rows.on(len(kept), torch.as_tensor(row.truncated), recurrent.states, kept)

    def value_all(self) -> None:
        """Value all buffers, and write the values of truncated episodes to `final_value`."""
        rollout = self._rollout
        if not self._has_limit:
            return  # final_value is zero from the start
        for window, steps in self._windows.items():
            observations = self._transitions[steps[0]].final_obs
            values = torch.empty_like(rollout.final_value[0])
            self._value_into(observations, self._states.get(window), values)
            part = slice(steps[0], steps[-1] + 1)
            rollout.final_value[part] = torch.where(rollout.truncated[part], values, 0.0)
