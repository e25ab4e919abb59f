"""Rollouts: T steps of N envs, written by the pool straight into one buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.engine.layout import PlayedBy, Transition, allocate_obs
from scramjet.engine.pool import Pool
from scramjet.engine.trees import leaves, map_leaves, named_leaves, space_tree
from scramjet.envs.api import Discrete, MultiDiscrete
from scramjet.errors import TrainingError
from scramjet.policies.policy import Policy
from scramjet.training.memories import Memories

VALUE_CHUNK = 4096
"""Observations valued at a time: small enough that activations stay in cache."""


@dataclass(slots=True)
class Rollout:
    """T steps of R rows, time-major; allocated once and used again for every update.

    A row is an env, or one agent of an env. With S seats a row is an env, and what concerns each seat has a further
    axis. Observations are a tensor, or for a Dict space nested dicts of tensors.
    """

    obs: Any  # [T + 1, R, *obs_shape]; the last row is what the next rollout begins with
    mask: Tensor | None  # [T + 1, R, mask_size] bool, legal actions; None where the world has no mask
    alive: Tensor | None  # [T + 1, R] bool, which agents are; None but for agents
    seat: Tensor | None  # [T + 1, N] int8, whose turn it is; None but for seats
    action: Tensor  # [T, R, *action_shape]
    log_prob: Tensor  # [T, R], under the policy that acted
    value: Tensor  # [T + 1, R]
    reward: Tensor  # [T, R], or [T, N, S]
    terminated: Tensor  # [T, R] bool; never merged with truncated
    truncated: Tensor  # [T, R] bool
    final_value: Tensor  # [T, R] ([T, N, S]), the value of a truncated episode's own last observation, else 0
    last_value: Tensor | None  # [N, S], of each seat's own view after the rollout; None but for seats
    memories: Memories  # what the policy remembers after the last step
    states: Tensor  # [T / horizon, slots, state_size], what it remembered before every horizon-th step
    rows: list[Transition]  # T views: where step t is written
    steps_obs: list[Any]  # T + 1 views: the observations before step t

    @property
    def num_steps(self) -> int:
        """T."""
        return self.action.shape[0]

    def turn(self, t: int) -> Tensor | None:
        """Who is alive, or whose turn it is, before step t; None where one plays alone."""
        turns = self.seat if self.alive is None else self.alive
        return None if turns is None else turns[t]

    @property
    def horizon(self) -> int:
        """Steps from one kept state to the next: how far gradients go back."""
        return self.num_steps // len(self.states)


def allocate_rollout(pool: Pool, policy: Policy, num_steps: int, horizon: int | None = None) -> Rollout:
    """A rollout buffer that fits the pool and the actions and memory of a policy; `horizon` divides `num_steps`."""
    like, num_rows, distribution = pool.allocate(), pool.num_rows, policy.distribution
    memories = Memories.of(policy, pool)
    obs = allocate_obs(pool.observation_space, num_steps + 1, num_rows)
    mask = np.ones((num_steps + 1, num_rows, pool.mask_size), np.bool_)
    turn = np.zeros((num_steps + 1, *like.turn.shape), like.turn.dtype)
    reward = np.zeros((num_steps, *like.reward.shape), np.float32)
    terminated = np.zeros((num_steps, num_rows), np.bool_)
    truncated = np.zeros((num_steps, num_rows), np.bool_)
    rows = [
        Transition(
            obs=map_leaves(lambda leaf, t=t: leaf[t + 1], obs),
            mask=mask[t + 1],
            turn=turn[t + 1],
            reward=reward[t],
            terminated=terminated[t],
            truncated=truncated[t],
            final_obs=like.final_obs,
        )
        for t in range(num_steps)
    ]
    tensors = map_leaves(torch.from_numpy, obs)
    by_seats = pool.played_by is PlayedBy.SEATS
    return Rollout(
        obs=tensors,
        mask=torch.from_numpy(mask) if pool.mask_size else None,
        alive=torch.from_numpy(turn) if pool.played_by is PlayedBy.AGENTS else None,
        seat=torch.from_numpy(turn) if by_seats else None,
        action=torch.zeros(num_steps, num_rows, *distribution.action_shape, dtype=distribution.action_dtype),
        log_prob=torch.zeros(num_steps, num_rows),
        value=torch.zeros(num_steps + 1, num_rows),
        reward=torch.from_numpy(reward),
        terminated=torch.from_numpy(terminated),
        truncated=torch.from_numpy(truncated),
        final_value=torch.zeros(reward.shape),
        last_value=torch.zeros(num_rows, pool.num_players) if by_seats else None,
        memories=memories,
        states=torch.zeros(num_steps // (horizon or num_steps), *memories.states.shape),
        rows=rows,
        steps_obs=[map_leaves(lambda leaf, t=t: leaf[t], tensors) for t in range(num_steps + 1)],
    )


@torch.inference_mode()
def collect(pool: Pool, policy: Policy, rollout: Rollout, generator: torch.Generator) -> Rollout:
    """Play T steps with the policy's own random actions, going on where the last rollout ended."""
    for part in (rollout.obs, rollout.mask, rollout.alive, rollout.seat):
        for leaf in leaves(part) if part is not None else ():
            leaf[0] = leaf[-1]
    rollout.final_value.zero_()
    distribution = policy.distribution
    noise = distribution.noise(rollout.num_steps, pool.num_rows, generator)
    final_obs = FinalObservations(pool, rollout, policy)
    memories, horizon = rollout.memories, rollout.horizon
    try:
        for t in range(rollout.num_steps):
            turn = rollout.turn(t)
            if t % horizon == 0:
                rollout.states[t // horizon] = memories.states
            if policy.splits:
                logits = policy.logits(rollout.steps_obs[t])
            else:
                logits, rollout.value[t], state = policy(rollout.steps_obs[t], memories.of_movers(turn))
                memories.keep(turn, state)
            mask = None if rollout.mask is None else rollout.mask[t]
            distribution.sample(logits, mask, noise[t], rollout.action[t], rollout.log_prob[t])
            pool.step(distribution.env_action(rollout.action[t]).numpy(), out=rollout.rows[t])
            final_obs.keep(t)
            memories.forget_ended(turn, rollout.rows[t])
        final_obs.value_all()
    except (IndexError, RuntimeError):  # an encoder may stumble over a choice that is none: tell whose it is
        _check_choices(pool, rollout)
        raise
    _check_finite(pool, rollout)
    _check_choices(pool, rollout)
    _value_rows(pool, policy, rollout)
    return rollout


def _value_rows(pool: Pool, policy: Policy, rollout: Rollout) -> None:
    """Fill in the values that the steps left open: all of them, or only those after the rollout."""
    memories = rollout.memories
    if policy.splits:
        flat_obs = map_leaves(lambda leaf: leaf.flatten(0, 1), rollout.obs)
        _value_into(policy, flat_obs, None, rollout.value.flatten())
    else:
        rollout.value[-1] = policy.value(rollout.steps_obs[-1], memories.of_movers(rollout.turn(-1)))
    if rollout.last_value is not None:
        views = map_leaves(torch.from_numpy, pool.views())
        _value_into(policy, views, memories.states if memories.is_used else None, rollout.last_value.flatten())


def _value_into(policy: Policy, obs: Any, state: Tensor | None, value: Tensor) -> None:
    """The values [B] of observations [B, ...] and, with memory, states [B, state_size], a chunk at a time."""
    for start in range(0, len(value), VALUE_CHUNK):
        part = slice(start, start + VALUE_CHUNK)
        part_state = None if state is None else state[part]
        value[part] = policy.value(map_leaves(lambda leaf, part=part: leaf[part], obs), part_state)


class FinalObservations:
    """The last observations of truncated episodes, gathered to be valued together.

    Truncation is rare, so this costs a look at the flags each step and one small forward pass a rollout.
    """

    def __init__(self, pool: Pool, rollout: Rollout, policy: Policy) -> None:
        self._pool = pool
        self._rollout = rollout
        self._policy = policy
        self._views = pool.num_players if pool.played_by is PlayedBy.SEATS else 1  # of each row
        self._observations: list[Any] = []
        self._states: list[Tensor] = []  # what was remembered when each was seen; empty without memory
        self._places: list[tuple[int, np.ndarray]] = []  # the step, and where in its flattened row
        self._held = 0

    def keep(self, t: int) -> None:
        """Copy what step t cut short, before the next step writes over it and memory forgets."""
        row = self._rollout.rows[t]
        if not row.truncated.any():
            return
        cut = np.flatnonzero(row.truncated)
        places = (cut[:, None] * self._views + np.arange(self._views)).ravel()
        observations = map_leaves(lambda leaf: leaf[places], row.final_obs)
        self._check_finite(observations, places)
        self._observations.append(observations)
        if self._rollout.memories.is_used:
            self._states.append(self._rollout.memories.states[torch.from_numpy(places)])
        self._places.append((t, places))
        self._held += len(places)
        if self._held >= max(VALUE_CHUNK, row.truncated.size):
            self.value_all()

    def _check_finite(self, observations: Any, places: np.ndarray) -> None:
        for leaf in leaves(observations):
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                worst = int(np.flatnonzero(~np.isfinite(leaf).reshape(len(leaf), -1).all(1))[0])
                value = float(leaf[worst][~np.isfinite(leaf[worst])][0])
                row = int(places[worst]) // self._views
                raise _bad_number(self._pool, "an observation", value, row, self._pool.steps_taken)

    def value_all(self) -> None:
        """Value what is held and write it to `final_value`."""
        if not self._held:
            return
        first, *rest = self._observations
        gathered = map_leaves(lambda *parts: torch.from_numpy(np.concatenate(parts)), first, *rest)
        values = torch.empty(self._held)
        _value_into(self._policy, gathered, torch.cat(self._states) if self._states else None, values)
        start = 0
        for t, places in self._places:
            self._rollout.final_value[t].view(-1)[torch.from_numpy(places)] = values[start : start + len(places)]
            start += len(places)
        self._observations, self._states, self._places, self._held = [], [], [], 0


def _check_finite(pool: Pool, rollout: Rollout) -> None:
    """Stop before numbers that are none reach the weights; name the env and the step they come from."""
    # One sum is the cheapest look: it is finite unless an element is not (or the sum overflows, checked next).
    steps_before = pool.steps_taken - rollout.num_steps
    looked_at = [("a reward", rollout.reward, 1), *(("an observation", leaf, 0) for leaf in leaves(rollout.obs))]
    for name, data, first in looked_at:
        if not data.is_floating_point() or bool(torch.isfinite(data.sum())):
            continue
        bad = ~torch.isfinite(data)
        if bool(bad.any()):
            t, row = (int(i) for i in bad.nonzero()[0][:2])
            raise _bad_number(pool, name, float(data[bad][0]), row, steps_before + first + t)


def _check_choices(pool: Pool, rollout: Rollout) -> None:
    """Refuse a choice outside its space: one-hot, it would be another one's, or nobody's."""
    spaces = leaves(space_tree(pool.observation_space))
    for (name, leaf), space in zip(named_leaves(rollout.obs), spaces, strict=True):
        if not isinstance(space, Discrete | MultiDiscrete):
            continue
        bad = (leaf < 0) | (leaf >= torch.as_tensor(space.n if isinstance(space, Discrete) else space.nvec))
        if bool(bad.any()):
            t, row = (int(i) for i in bad.nonzero()[0][:2])
            step = pool.steps_taken - (pool.steps_taken - 1) % rollout.num_steps - 1 + t
            raise _bad_number(pool, f"{name} =", int(leaf[bad][0]), row, step)


def _bad_number(pool: Pool, name: str, value: float, row: int, step: int) -> TrainingError:
    env = row * pool.num_envs // pool.num_rows
    said = f"{name} {value}, outside its space," if name.endswith("=") else f"{name} of {value}"
    return TrainingError(
        f"{pool.name} gave {said} in env {env} at step {step}; look for it with `scramjet check`. "
        f"The weights have not seen it, and the checkpoints are kept"
    )
