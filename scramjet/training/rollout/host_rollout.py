"""Rollouts of envs on the CPU whose policy is on the GPU.

Envs write to memory that the GPU copies by itself. They are in two halves: while the GPU decides for one, the CPU steps
the other, and each waits only for the other's results. Envs with threads or processes of their own step in both halves
at once but for that moment. With a policy on the CPU the same steps run one after the other.

A decision on the GPU is recorded as a CUDA graph: what it reads and writes lies in the same place at every step, and
the GPU itself counts the steps and moves it to and from the rollout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scramjet.accelerate.cuda_graphs import Recorder
from scramjet.accelerate.triton.mlp import TritonMLP
from scramjet.engine.pool import Pool, halves
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves, map_leaves
from scramjet.policies.policy import Policy
from scramjet.training.rollout.acting import act, value_into, value_rows
from scramjet.training.rollout.final_observations import FinalsOnCPU
from scramjet.training.rollout.step_buffers import StepBuffers

if TYPE_CHECKING:
    from scramjet.training.rollout.rollout import Rollout


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
        self._now = _one_step(self.rollout)
        shown_now = (*leaves(self._now.obs), self._now.mask, self._now.alive, self._now.seat)
        self._shown_now = [leaf for leaf in shown_now if leaf is not None and leaf.numel()]  # as host.shown
        self._t = torch.zeros(1, dtype=torch.int64, device=rollout.action.device)  # the step that is decided next
        is_on_gpu = rollout.action.is_cuda
        say = print if rows.start == 0 else _nothing  # once for all parts
        self._recorder = Recorder[Tensor]("a decision", say) if is_on_gpu else None
        self._decided = torch.cuda.Event() if is_on_gpu else None

    def begin(self, fused: TritonMLP | None) -> None:
        """A new rollout, decided by these kernels where there are some."""
        self._now.fused = fused
        self._t.zero_()

    def show(self, t: int) -> None:
        """Give the policy what the envs show before step t."""
        for pair, now in zip(self._shown, self._shown_now, strict=True):
            if t < self.rollout.num_steps:
                now[0].copy_(pair.here[t], non_blocking=True)
            else:
                pair.send(t)  # nothing is decided there

    def decide(self, policy: Policy, t: int) -> None:
        """Have the policy decide on step t and send its actions back; waits for neither."""
        rollout = self.rollout
        if rollout.memories.is_used and t % rollout.horizon == 0:
            rollout.states[t // rollout.horizon] = rollout.memories.states
        work = partial(self._decide, policy)
        action = work() if self._recorder is None else self._recorder.run(work)
        self._action.copy_(action, non_blocking=True)
        if self._decided is not None:
            self._decided.record()

    def _decide(self, policy: Policy) -> Tensor:
        """The same calls at every step, for a graph to record; actions as envs receive them."""
        now, rollout, t = self._now, self.rollout, self._t
        for pair, shown in zip(self._shown, self._shown_now, strict=True):
            pair.there.index_copy_(0, t, shown)
        now.noise.copy_(rollout.noise.index_select(0, t))
        action = act(policy, now, 0)
        for of_rollout, of_now in (
            (rollout.action, now.action),
            (rollout.log_prob, now.log_prob),
            (rollout.value, now.value),
        ):
            of_rollout.index_copy_(0, t, of_now)
        t.add_(1)
        return action

    @property
    def is_recorded(self) -> bool:
        """Whether decisions are replayed from now on."""
        return self._recorder is not None and self._recorder.is_recorded

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
        self.parts = [Part(rollout, self, rows) for rows in parts(pool)]


def _pairs(here: Iterable[Tensor], there: Iterable[Tensor]) -> list[Copied]:
    return [Copied(mine, other) for mine, other in zip(here, there, strict=True) if mine.numel()]


def _one_step(rollout: Rollout) -> Rollout:
    """A rollout of one step, with the memories of this one and all else its own."""

    def first(tensor: Tensor | None) -> Any:
        return None if tensor is None else tensor[:1].clone(memory_format=torch.contiguous_format)

    obs = map_leaves(first, rollout.obs)
    return replace(
        rollout,
        obs=obs,
        steps_obs=[map_leaves(lambda leaf: leaf[0], obs)],
        mask=first(rollout.mask),
        alive=first(rollout.alive),
        seat=first(rollout.seat),
        action=first(rollout.action),
        log_prob=first(rollout.log_prob),
        value=first(rollout.value),
        noise=first(rollout.noise),
        states=first(rollout.states),
    )


def _nothing(text: str) -> None:
    pass


def parts(pool: Pool) -> list[slice]:
    """Two halves of a pool's rows; all of them where they cannot be stepped apart."""
    return halves(pool.num_envs, pool.num_rows // pool.num_envs) if pool.steps_parts else [slice(0, pool.num_rows)]


def play(pool: Pool, policy: Policy, rollout: Rollout) -> None:
    """All steps, and the values of what was seen."""
    host = rollout.host
    assert host is not None
    host.steps.go_on()
    value = partial(value_into, policy, rollout.fast)
    finals = [FinalsOnCPU(pool, part.rollout, value) for part in host.parts]
    for part in host.parts:
        part.begin(rollout.fused)
        part.show(0)
        part.decide(policy, 0)
        if pool.steps_beside:
            _begin_step(pool, part, host.action)
    for t in range(rollout.num_steps):
        for part, cut_short in zip(host.parts, finals, strict=True):
            if not pool.steps_beside:
                _begin_step(pool, part, host.action)
            _finish_step(pool, part, host.action, rollout.rows[t])
            part.show(t + 1)
            cut_short.keep(t)
            part.forget_ended(t)
            if t + 1 < rollout.num_steps:
                part.decide(policy, t + 1)
                if pool.steps_beside:  # the others step meanwhile, so that there is time to wait
                    _begin_step(pool, part, host.action)
    for pair in host.results:
        pair.send(slice(None))
    for cut_short in finals:
        cut_short.value_all()
    value_rows(policy, rollout)
    if rollout.action.is_cuda:
        torch.cuda.current_stream().synchronize()  # then envs may write over what was copied


def _begin_step(pool: Pool, part: Part, action: Tensor) -> None:
    part.await_actions()
    if pool.steps_parts:
        pool.begin_part(action.numpy(), part.rows)


def _finish_step(pool: Pool, part: Part, action: Tensor, out: Transition) -> None:
    if pool.steps_parts:
        pool.finish_part(part.rows, out)
    else:
        pool.step(action.numpy(), out=out)
