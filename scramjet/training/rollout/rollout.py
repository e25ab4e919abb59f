"""The data of a rollout: T steps of N envs as tensors. `player.py` plays it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from scramjet.engine.layout import PlayedBy, obs_bytes
from scramjet.engine.pool import Pool
from scramjet.engine.trees import leaves, map_fields, map_leaves
from scramjet.policies.layers import count_parameters
from scramjet.policies.policy import Policy
from scramjet.runtime.machine import require_memory
from scramjet.training.rollout.recurrent_states import RecurrentStates
from scramjet.training.rollout.step_buffers import StepBuffers


class Outcome(IntEnum):
    """How a game ended for the learner."""

    LOSS, DRAW, WIN = 1, 2, 3


@dataclass(slots=True)
class Rollout:
    """T steps of R rows, time-major; allocated once and reused for every update.

    A row is an env, or one agent of an env. With S seats a row is an env, and rewards have a further axis for seats.
    Observations are a tensor, or for a Dict space nested dicts of tensors.
    """

    obs: Any  # [T + 1, R, *obs_shape]; the next rollout begins with the last row
    mask: Tensor | None  # [T + 1, R, mask_size] bool, legal actions; None where the world has no mask
    alive: Tensor | None  # [T + 1, R] bool, which agents are alive; None if the world has no agents
    seat: Tensor | None  # [T + 1, N] int8, whose turn it is; None if the world has no seats
    action: Tensor  # [T, R, *action_shape]
    log_prob: Tensor  # [T, R], under the policy that acted
    value: Tensor  # [T + 1, R]
    reward: Tensor  # [T, R], or [T, N, S]
    terminated: Tensor  # [T, R] bool; never merged with truncated
    truncated: Tensor  # [T, R] bool
    final_value: Tensor  # [T, R], the value of a truncated episode's own last observation, else 0; seats have none
    noise: Tensor  # [T, R, ...], the random numbers that actions are drawn with
    states: Tensor  # [T / horizon, slots, state_size], recurrent states before every horizon-th step
    recurrent: RecurrentStates  # the states after the last step
    # Where opponents play in some envs; else None. Of what belongs to a game, an env's first row holds it.
    mine: Tensor | None = None  # [T, R] bool, whether the learner chose the action; other rows are no samples
    opponent: Tensor | None = None  # [T, R] int32, where a game against an opponent ended: the opponent's number
    outcome: Tensor | None = None  # [T, R] int8, how that game ended for the learner (see `Outcome`), or 0
    game: Tensor | None = None  # [T, R] int64, where a game ended: a hash of all its actions
    findings: Any = None  # what a search found before each step (see `training/search/`); None without search

    @property
    def num_steps(self) -> int:
        """T, the number of steps."""
        return self.action.shape[0]

    @property
    def horizon(self) -> int:
        """Steps from one kept recurrent state to the next; gradients go back no further."""
        return self.num_steps // len(self.states)

    def obs_at(self, t: int) -> Any:
        """The observations before step t, [R, ...]."""
        return map_leaves(lambda leaf: leaf[t], self.obs)

    def turn(self, t: int) -> Tensor | None:
        """Who is alive, or whose turn it is, before step t; None if each env has one player."""
        turns = self.seat if self.alive is None else self.alive
        return None if turns is None else turns[t]

    def part(self, rows: slice) -> Rollout:
        """Views of some rows, which must be whole envs."""
        states = self.states[:, self.recurrent.slots(rows)]
        return map_fields(self, lambda leaf: leaf[:, rows], states=states, recurrent=self.recurrent.part(rows))

    @property
    def learned_tensors(self) -> list[Tensor]:
        """Everything that a learner reads, in a fixed order; the tensors themselves."""
        names = [field.name for field in fields(self) if field.name not in ("noise", "recurrent", "findings")]
        found = [leaf for name in names if (mine := getattr(self, name)) is not None for leaf in leaves(mine)]
        return [*found, self.recurrent.states]

    @torch.inference_mode()
    def copy_to(self, target: Rollout, rows: slice) -> None:
        """Copy everything that a learner reads to `rows` of a larger rollout; on the GPU without waiting for it."""
        for here, there in zip(self.learned_tensors, target.part(rows).learned_tensors, strict=True):
            there.copy_(here, non_blocking=True)


def allocate_rollout(
    pool: Pool,
    policy: Policy,
    steps: StepBuffers,
    num_steps: int,
    horizon: int | None = None,
    *,
    has_opponents: bool = False,
) -> Rollout:
    """Allocate a rollout of `num_steps` steps for a pool and a policy; what envs write is in the step buffers `steps`.

    `horizon` is the number of steps between kept recurrent states, and divides `num_steps`; None: all steps.
    `has_opponents`: whether opponents play in some envs.
    """
    device, distribution, num_rows = policy.device, policy.distribution, pool.num_rows
    recurrent = RecurrentStates.of(policy, pool)
    actions = (num_steps, num_rows, *distribution.action_shape)
    turn = steps.turn
    of_envs = {field.name: getattr(steps, field.name) for field in fields(steps) if field.name not in ("mask", "turn")}
    return Rollout(
        **of_envs,
        mask=steps.mask if pool.mask_size else None,
        alive=turn if pool.played_by is PlayedBy.AGENTS else None,
        seat=turn if pool.played_by is PlayedBy.SEATS else None,
        action=torch.zeros(actions, dtype=distribution.action_dtype, device=device),
        log_prob=torch.zeros(num_steps, num_rows, device=device),
        value=torch.zeros(num_steps + 1, num_rows, device=device),
        final_value=torch.zeros(num_steps, num_rows, device=device),
        noise=distribution.noise(num_steps, num_rows, torch.Generator(device)),
        states=torch.zeros(num_steps // (horizon or num_steps), *recurrent.states.shape, device=device),
        recurrent=recurrent,
        **(_allocate_games(num_steps, num_rows, device) if has_opponents else {}),
    )


def _allocate_games(num_steps: int, num_rows: int, device: torch.device) -> dict[str, Tensor]:
    """The fields that say who chose actions and how games ended; all actions are the learner's at first."""
    shape = (num_steps, num_rows)
    return {
        "mine": torch.ones(shape, dtype=torch.bool, device=device),
        "opponent": torch.zeros(shape, dtype=torch.int32, device=device),
        "outcome": torch.zeros(shape, dtype=torch.int8, device=device),
        "game": torch.zeros(shape, dtype=torch.int64, device=device),
    }


def check_memory(pool: Pool, policy: Policy, num_steps: int) -> None:
    """Raise an error if a rollout and the policy's training would not fit into memory; counts the largest parts."""
    distribution = policy.distribution
    action = math.prod(distribution.action_shape) * (distribution.action_dtype.itemsize + 4)  # and the noise
    rewards = 4 * pool.num_players if pool.played_by is PlayedBy.SEATS else 4
    sample = obs_bytes(pool.observation_space) + pool.mask_size + action + rewards + _OTHER_BYTES
    num_weights = count_parameters(policy) if policy.device.type == "cpu" else 0
    num_bytes = num_steps * (pool.num_rows * sample + _BYTES_PER_STEP) + BYTES_PER_WEIGHT * num_weights
    what = f"a rollout of num_envs={pool.num_envs} x num_steps={num_steps}, {sample:,} bytes a sample,"
    what += f" and a network of {num_weights:,} weights" if num_weights else ""
    require_memory(num_bytes, what, "lower --num-envs, --num-steps, --policy.hidden or the size of observations")


_OTHER_BYTES = 22
"""Bytes of each sample for log-probability, value, final value, advantage, return, and how the episode ended."""
BYTES_PER_WEIGHT = 16
"""Bytes of each weight with its gradient and two moments."""
_BYTES_PER_STEP = 4096
"""Bytes of the views that each step is written to, for any number of envs."""
