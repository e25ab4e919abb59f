"""Rollouts: T steps of N envs, written by the pool straight into one buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scramjet.engine.layout import Transition
from scramjet.engine.pool import Pool
from scramjet.errors import TrainingError
from scramjet.policies import categorical
from scramjet.policies.policy import Policy

VALUE_CHUNK = 4096
"""Observations valued at a time: small enough that activations stay in cache."""


@dataclass(slots=True)
class Rollout:
    """T steps of N rows, time-major; allocated once and used again for every update."""

    obs: Tensor  # [T + 1, N, *obs_shape]; the last row is what the next rollout begins with
    mask: Tensor | None  # [T + 1, N, num_actions] bool, legal actions; None where the world has no mask
    action: Tensor  # [T, N] int64
    log_prob: Tensor  # [T, N], under the policy that acted
    value: Tensor  # [T + 1, N]
    reward: Tensor  # [T, N]
    terminated: Tensor  # [T, N] bool; never merged with truncated
    truncated: Tensor  # [T, N] bool
    final_value: Tensor  # [T, N], the value of a truncated episode's own last observation, else 0
    rows: list[Transition]  # T views: where step t is written
    actions: list[np.ndarray]  # T views: the actions of step t

    @property
    def num_steps(self) -> int:
        """T."""
        return self.action.shape[0]


def allocate_rollout(pool: Pool, num_steps: int) -> Rollout:
    """A rollout buffer that fits the pool."""
    like, num_envs = pool.allocate(), pool.num_envs
    obs = np.zeros((num_steps + 1, *like.obs.shape), like.obs.dtype)
    mask = np.ones((num_steps + 1, num_envs, pool.mask_size), np.bool_)
    reward = np.zeros((num_steps, num_envs), np.float32)
    terminated = np.zeros((num_steps, num_envs), np.bool_)
    truncated = np.zeros((num_steps, num_envs), np.bool_)
    action = np.zeros((num_steps, num_envs), np.int64)
    rows = [
        Transition(obs[t + 1], mask[t + 1], reward[t], terminated[t], truncated[t], like.final_obs)
        for t in range(num_steps)
    ]
    return Rollout(
        obs=torch.from_numpy(obs),
        mask=torch.from_numpy(mask) if pool.mask_size else None,
        action=torch.from_numpy(action),
        log_prob=torch.zeros(num_steps, num_envs),
        value=torch.zeros(num_steps + 1, num_envs),
        reward=torch.from_numpy(reward),
        terminated=torch.from_numpy(terminated),
        truncated=torch.from_numpy(truncated),
        final_value=torch.zeros(num_steps, num_envs),
        rows=rows,
        actions=list(action),
    )


@torch.inference_mode()
def collect(pool: Pool, policy: Policy, rollout: Rollout, generator: torch.Generator) -> Rollout:
    """Play T steps with the policy's own random actions, going on where the last rollout ended."""
    rollout.obs[0] = rollout.obs[-1]
    if rollout.mask is not None:
        rollout.mask[0] = rollout.mask[-1]
    rollout.final_value.zero_()
    uniform = torch.rand(rollout.action.shape, generator=generator)
    final_obs = FinalObservations(pool, rollout, policy)
    for t in range(rollout.num_steps):
        if policy.splits:
            logits = policy.logits(rollout.obs[t])
        else:
            logits, rollout.value[t] = policy(rollout.obs[t])
        mask = None if rollout.mask is None else rollout.mask[t]
        categorical.sample(logits, mask, uniform[t], rollout.action[t], rollout.log_prob[t])
        pool.step(rollout.actions[t], out=rollout.rows[t])
        final_obs.keep(t)
    final_obs.value_all()
    _check_finite(pool, rollout)
    _value_rows(policy, rollout)
    return rollout


def _value_rows(policy: Policy, rollout: Rollout) -> None:
    """Fill in the values that the steps left open: all of them, or only that of the last observation."""
    if not policy.splits:
        rollout.value[-1] = policy.value(rollout.obs[-1])
        return
    flat_obs, flat_value = rollout.obs.flatten(0, 1), rollout.value.flatten()
    for start in range(0, len(flat_value), VALUE_CHUNK):
        part = slice(start, start + VALUE_CHUNK)
        flat_value[part] = policy.value(flat_obs[part])


class FinalObservations:
    """The last observations of truncated episodes, gathered to be valued together.

    Truncation is rare, so this costs a look at the flags each step and one small forward pass a rollout.
    """

    def __init__(self, pool: Pool, rollout: Rollout, policy: Policy) -> None:
        self._pool = pool
        self._rollout = rollout
        self._policy = policy
        self._observations: list[np.ndarray] = []
        self._places: list[tuple[int, np.ndarray]] = []
        self._held = 0

    def keep(self, t: int) -> None:
        """Copy what step t cut short, before the next step writes over it."""
        row = self._rollout.rows[t]
        if not row.truncated.any():
            return
        envs = np.flatnonzero(row.truncated)
        observations = row.final_obs[envs]
        if observations.dtype.kind == "f" and not np.isfinite(observations).all():
            worst = int(np.flatnonzero(~np.isfinite(observations).reshape(len(envs), -1).all(1))[0])
            value = float(observations[worst][~np.isfinite(observations[worst])][0])
            raise _bad_number(self._pool, "an observation", value, int(envs[worst]), self._pool.steps_taken)
        self._observations.append(observations)
        self._places.append((t, envs))
        self._held += len(envs)
        if self._held >= max(VALUE_CHUNK, row.truncated.size):
            self.value_all()

    def value_all(self) -> None:
        """Value what is held and write it to `final_value`."""
        if not self._held:
            return
        values = self._policy.value(torch.from_numpy(np.concatenate(self._observations)))
        start = 0
        for t, envs in self._places:
            self._rollout.final_value[t, torch.from_numpy(envs)] = values[start : start + len(envs)]
            start += len(envs)
        self._observations, self._places, self._held = [], [], 0


def _check_finite(pool: Pool, rollout: Rollout) -> None:
    """Stop before numbers that are none reach the weights; name the env and the step they come from."""
    # One sum is the cheapest look: it is finite unless an element is not (or the sum overflows, checked next).
    steps_before = pool.steps_taken - rollout.num_steps
    for name, data, first in (("a reward", rollout.reward, 1), ("an observation", rollout.obs, 0)):
        if not data.is_floating_point() or bool(torch.isfinite(data.sum())):
            continue
        bad = ~torch.isfinite(data)
        if bool(bad.any()):
            t, env = (int(i) for i in bad.nonzero()[0][:2])
            raise _bad_number(pool, name, float(data[bad][0]), env, steps_before + first + t)


def _bad_number(pool: Pool, name: str, value: float, env: int, step: int) -> TrainingError:
    return TrainingError(
        f"{pool.name} gave {name} of {value} in env {env} at step {step}; look for it with `scramjet check`. "
        f"The weights have not seen it, and the checkpoints are kept"
    )
