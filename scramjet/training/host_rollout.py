"""Rollouts of envs on the CPU whose policy is on the GPU.

Envs write to memory that the GPU copies by itself. They are in two halves: while the GPU decides for one, the CPU steps
the other, and each waits only for the other's results. With a policy on the CPU the same steps run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scramjet.engine.layout import Transition
from scramjet.engine.pool import Pool
from scramjet.policies.policy import Policy
from scramjet.training.acting import act, value_into, value_rows
from scramjet.training.final_observations import FinalsOnCPU
from scramjet.training.step_buffers import StepBuffers

if TYPE_CHECKING:
    from scramjet.training.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Copied:
    """A buffer of the envs and that of the policy; row t goes from one to the other when it is written."""

    here: Tensor  # [T or T + 1, rows, ...], where envs write it
    there: Tensor  # the same, where the policy reads it

    def send(self, t: int | slice) -> None:
        """Have row t copied; on the GPU without waiting for it."""
        self.there[t].copy_(self.here[t], non_blocking=True)


class Part:
    """Some rows of a rollout, whole envs, which are decided for and stepped together."""

    def __init__(self, rollout: Rollout, host: Host, rows: slice) -> None:
        self.rows = rows
        self.rollout = rollout.part(rows)
        self._action = host.action[rows]
        self._shown = [Copied(pair.here[:, rows], pair.there[:, rows]) for pair in host.shown]
        self._ended = [Copied(pair.here[:, rows], pair.there[:, rows]) for pair in host.ended]
        self._decided = torch.cuda.Event() if rollout.action.is_cuda else None

    def show(self, t: int) -> None:
        """Give the policy what the envs show before step t."""
        for pair in self._shown:
            pair.send(t)

    def decide(self, policy: Policy, t: int) -> None:
        """Have the policy decide on step t and send its actions back; waits for neither."""
        self._action.copy_(act(policy, self.rollout, t), non_blocking=True)
        if self._decided is not None:
            self._decided.record()

    def await_actions(self) -> None:
        """Wait until the actions are here."""
        if self._decided is not None:
            self._decided.synchronize()

    def forget_ended(self, t: int) -> None:
        """Have the policy forget what belongs to episodes that ended in step t."""
        rollout = self.rollout
        if rollout.memories.is_used:
            for pair in self._ended:
                pair.send(t)
            rollout.memories.forget_ended(rollout.turn(t), rollout.terminated[t], rollout.truncated[t])


class Host:
    """The side of a rollout that is the envs': what they write, and the actions they get."""

    def __init__(
        self, pool: Pool, policy: Policy, rollout: Rollout, steps: StepBuffers, policy_steps: StepBuffers
    ) -> None:
        """`steps` are the envs', and `policy_steps` the same steps as parts of `rollout`."""
        self.steps = steps
        action = policy.distribution.env_action(rollout.action[0])
        self.action = torch.zeros_like(action, device="cpu", pin_memory=action.is_cuda)  # [R, *action_shape]
        self.shown = _pairs(steps.shown, policy_steps.shown)
        self.results = _pairs(steps.results, policy_steps.results)
        self.ended = self.results[1:]
        self.parts = [Part(rollout, self, rows) for rows in _halves(pool)]


def _pairs(here: Iterable[Tensor], there: Iterable[Tensor]) -> list[Copied]:
    return [Copied(mine, other) for mine, other in zip(here, there, strict=True) if mine.numel()]


def _halves(pool: Pool) -> list[slice]:
    """Two halves of a pool's rows, whole envs; all of them where they cannot be stepped apart."""
    if not pool.steps_parts or pool.num_envs == 1:
        return [slice(0, pool.num_rows)]
    middle = pool.num_envs // 2 * (pool.num_rows // pool.num_envs)
    return [slice(0, middle), slice(middle, pool.num_rows)]


def play(pool: Pool, policy: Policy, rollout: Rollout) -> None:
    """All steps, and the values of what was seen."""
    host = rollout.host
    assert host is not None
    host.steps.go_on()
    value = partial(value_into, policy, rollout.fast)
    finals = [FinalsOnCPU(pool, part.rollout, value) for part in host.parts]
    for part in host.parts:
        part.rollout.fused = rollout.fused
        part.show(0)
        part.decide(policy, 0)
    for t in range(rollout.num_steps):
        for part, cut_short in zip(host.parts, finals, strict=True):
            part.await_actions()
            _step(pool, part.rows, host.action, rollout.rows[t])
            part.show(t + 1)
            cut_short.keep(t)
            part.forget_ended(t)
            if t + 1 < rollout.num_steps:
                part.decide(policy, t + 1)
    for pair in host.results:
        pair.send(slice(None))
    for cut_short in finals:
        cut_short.value_all()
    value_rows(pool, policy, rollout)
    if rollout.action.is_cuda:
        torch.cuda.current_stream().synchronize()  # then envs may write over what was copied


def _step(pool: Pool, rows: slice, action: Tensor, out: Transition) -> None:
    if pool.steps_parts:
        pool.step_part(action.numpy(), rows, out)
    else:
        pool.step(action.numpy(), out=out)
