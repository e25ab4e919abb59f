"""The last observations of episodes that the time limit cut short: what would have come after them is worth a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from scramjet.engine.layout import PlayedBy, Transition
from scramjet.engine.pool import Pool
from scramjet.engine.trees import leaves, map_leaves
from scramjet.training.rollout import checks
from scramjet.training.rollout.rollout import Rollout

ValueInto = Callable[[Any, "Tensor | None", Tensor], None]
"""(observations [B, ...], states [B, state_size] or None, values [B] to write)"""

VALUED_AT_ONCE = 4096


class Finals(Protocol):
    """Keeps what each step cut short, and fills a rollout's `final_value`."""

    def keep(self, t: int) -> None:
        """Look at what step t cut short, before the next step writes over it and memory forgets."""

    def value_all(self) -> None:
        """Write all values; after the last step."""


def are_valued(pool: Pool) -> bool:
    """Whether last observations are of use: of several seats, none is seen by the one whose turn would be next."""
    return pool.played_by is not PlayedBy.SEATS or pool.num_players == 1


def final_obs_buffers(pool: Pool, like: Transition, num_steps: int) -> list[Any]:
    """Where each step writes the last observations of episodes: on the CPU one place for all, read after each step.

    On the GPU nobody looks in between. But two episodes of one env that were cut short by the time limit are at least
    that many steps apart, so one place for every so many steps holds them all.
    """
    if not isinstance(like.reward, Tensor):
        return [like.final_obs] * num_steps
    limit = pool.env.max_episode_steps or num_steps
    windows = [map_leaves(torch.zeros_like, like.final_obs) for _ in range(0, num_steps, limit)]
    return [windows[t // limit] for t in range(num_steps)]


def final_observations(
    pool: Pool, rollout: Rollout, transitions: Sequence[Transition], value: ValueInto, first_row: int = 0
) -> Finals:
    """For one rollout whose steps are written to `transitions`, where its envs are.

    `first_row`: that of the pool, where the rollout is of some rows alone.
    """
    if isinstance(transitions[0].reward, Tensor):
        return FinalsOnGPU(pool, rollout, transitions, value)
    return FinalsOnCPU(pool, rollout, transitions, value, first_row)


class FinalsOnCPU:
    """The last observations of truncated episodes, gathered to be valued together.

    Truncation is rare, so this costs a look at the flags each step and one small forward pass a rollout.
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
        self._states: list[Tensor] = []  # what was remembered when each was seen; empty without memory
        self._places: list[tuple[int, np.ndarray]] = []  # the step, and which rows
        self._held = 0

    def keep(self, t: int) -> None:
        """Copy what step t cut short, before the next step writes over it and memory forgets."""
        row = self._transitions[t]
        if not self._are_valued or True not in row.truncated.tobytes():  # of few envs, any() takes as long as a step
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
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                worst = int(np.flatnonzero(~np.isfinite(leaf).reshape(len(leaf), -1).all(1))[0])
                value = float(leaf[worst][~np.isfinite(leaf[worst])][0])
                row = self._first_row + int(places[worst])
                raise checks.bad_number(self._pool, "an observation", value, row, self._pool.steps_taken)

    def value_all(self) -> None:
        """Value what is held and write it to `final_value`."""
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
    """Values each env's place for last observations, whether or not it holds one: nobody looks at what was cut short.

    That is one more value for every so many steps as the time limit has, see `final_obs_buffers`.
    """

    def __init__(self, pool: Pool, rollout: Rollout, transitions: Sequence[Transition], value_into: ValueInto) -> None:
        self._rollout, self._transitions, self._value_into = rollout, transitions, value_into
        self._has_limit = pool.env.max_episode_steps is not None and are_valued(pool)
        self._windows: dict[int, list[int]] = {}  # by the place they share: its steps
        for t, row in enumerate(transitions):
            self._windows.setdefault(id(leaves(row.final_obs)[0]), []).append(t)
        self._states: dict[int, Tensor] = {}

    def keep(self, t: int) -> None:
        """What was remembered when an episode was cut short; its observation stays where the step wrote it."""
        recurrent, row = self._rollout.recurrent, self._transitions[t]
        if not recurrent.is_used or not self._has_limit:
            return
        window = id(leaves(row.final_obs)[0])
        cut = torch.as_tensor(row.truncated).unsqueeze(1)
        before = self._states.get(window)
        self._states[window] = (
            recurrent.states.clone() if before is None else torch.where(cut, recurrent.states, before)
        )

    def value_all(self) -> None:
        """Value every place, and take of it what was cut short."""
        rollout = self._rollout
        if not self._has_limit:
            return  # final_value was zero from the start
        for window, steps in self._windows.items():
            observations = self._transitions[steps[0]].final_obs
            values = torch.empty_like(rollout.final_value[0])
            self._value_into(observations, self._states.get(window), values)
            part = slice(steps[0], steps[-1] + 1)
            rollout.final_value[part] = torch.where(rollout.truncated[part], values, 0.0)
