"""Parts of a rollout: rows, in whole envs, for which actions are chosen and envs are stepped together.

A rollout is one part or two halves. With halves, the policy acts for one while the envs of the other step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from scramjet.compile.addresses import StepCalls
from scramjet.engine.pool import Pool
from scramjet.engine.trees import leaves, map_fields
from scramjet.executors.cuda_graphs import stage
from scramjet.executors.executor import Executor
from scramjet.training.rollout.acting import Acting
from scramjet.training.rollout.buffers import RolloutBuffers
from scramjet.training.rollout.final_observations import Finals, ValueInto, final_observations
from scramjet.training.rollout.others import BoundOthers, Others
from scramjet.training.rollout.rollout import Rollout


class Part:
    """Some rows of a rollout: takes in the results of their steps. Subclasses choose the actions."""

    def __init__(self, pool: Pool, buffers: RolloutBuffers, rows: slice, value: ValueInto) -> None:
        """`value` computes the values of the last observations of truncated episodes."""
        self.pool, self.buffers, self.rows = pool, buffers, rows
        is_whole = rows == slice(0, pool.num_rows)
        self.rollout = buffers.rollout if is_whole else buffers.rollout.part(rows)
        self.transitions = buffers.transitions if is_whole else [each.part(rows) for each in buffers.transitions]
        self._has_memory = self.rollout.recurrent.is_used
        self._value = value
        self._finals: Finals | None = None

    def begin(self) -> None:
        """Begin a new rollout."""
        self._finals = final_observations(self.pool, self.rollout, self.transitions, self._value, self.rows.start)

    def take_in(self, t: int) -> None:
        """Take in the results of step t: keep last observations to value, reset recurrent states of ended episodes."""
        assert self._finals is not None
        self._finals.keep(t)
        if self._has_memory:
            self.reset_ended(t)

    def reset_ended(self, t: int) -> None:
        """Reset the recurrent states of episodes that ended in step t."""
        row = self.transitions[t]
        self.rollout.recurrent.reset_ended(self.rollout.turn(t), row.terminated, row.truncated)

    def end(self) -> None:
        """End the rollout: value the last observations of truncated episodes."""
        assert self._finals is not None
        self._finals.value_all()


class DecidedPart(Part):
    """A part for which an executor chooses actions; envs write to the memory that the policy reads."""

    def __init__(
        self,
        pool: Pool,
        buffers: RolloutBuffers,
        rows: slice,
        executor: Executor,
        given: Tensor | None,
        others: Others | None = None,
    ) -> None:
        """`given` [R, ...]: the buffer from which envs read the actions of all rows of the pool; None: they read the
        actions where they are drawn. `others` choose some of the actions; they need all rows to be in one part."""
        super().__init__(pool, buffers, rows, executor.values)
        self._given = None if given is None else given[rows]
        self.actions = buffers.rollout.action[0] if given is None else given
        """The actions of all rows of the pool as envs receive them, [R, ...]; `decide` fills this part's rows."""
        self._executor = executor
        self._others: BoundOthers | None = None
        self._acting = self._make_acting(executor, others)

    def _make_acting(self, executor: Executor, others: Others | None) -> Acting:
        return Acting(executor, self.rollout, self._bind(others, self.rollout))

    def _bind(self, others: Others | None, acting: Rollout) -> BoundOthers | None:
        """Have others choose some of the actions in the buffers `acting`."""
        if others is not None:
            shown = self.buffers.env_steps.shown_before(self.transitions)
            self._others = others.bind(acting, self.rollout, shown)
        return self._others

    def take_in(self, t: int) -> None:
        super().take_in(t)
        if self._others is not None:
            self._others.take_in(t)

    def end(self) -> None:
        super().end()
        if self._others is not None:
            self._others.end()

    def calls(self) -> StepCalls | None:
        """What compiled code calls to choose the actions of each step, if envs read them where they are drawn."""
        return self._acting.calls() if self._given is None else None

    def show(self, t: int) -> None:
        """Copy what the envs show before step t to where the policy reads it, if that is elsewhere."""

    def decide(self, t: int) -> None:
        """Choose the actions of step t and copy them to where envs read them; does not wait for the GPU."""
        action = self._acting.act(t)
        if self._given is None:
            self.actions = action
        else:
            self._given.copy_(action)

    def await_actions(self) -> None:
        """Wait until the actions of the last `decide` are where envs read them."""


@dataclass(frozen=True, slots=True)
class _Copied:
    """A buffer that envs write to, and the buffer of the policy that it is copied to step by step."""

    here: Tensor  # [T or T + 1, rows, ...], where envs write
    there: Tensor  # of the same shape, where the policy reads

    def send(self, t: int | slice) -> None:
        """Copy step t to the policy's buffer; on the GPU without waiting for it."""
        self.there[t].copy_(self.here[t], non_blocking=True)


def copied(here: Iterable[Tensor], there: Iterable[Tensor], rows: slice | None = None) -> list[_Copied]:
    """Pairs of an env's and the policy's buffers, or of some rows of them; empty buffers are left out."""
    pairs = [(mine, other) for mine, other in zip(here, there, strict=True) if mine.numel()]
    return [_Copied(mine, other) if rows is None else _Copied(mine[:, rows], other[:, rows]) for mine, other in pairs]


class CopiedPart(DecidedPart):
    """A part whose envs write to separate buffers: what they show is copied to the policy's, and actions back.

    On the GPU a decision is recorded as a CUDA graph. So it reads and writes the same memory in every step, buffers of
    one step, and copies these to and from the rollout at a step number that the GPU counts.
    """

    def __init__(
        self,
        pool: Pool,
        buffers: RolloutBuffers,
        rows: slice,
        executor: Executor,
        given: Tensor | None,
        others: Others | None = None,
    ) -> None:
        super().__init__(pool, buffers, rows, executor, given, others)
        here, there = buffers.env_steps, buffers.policy_steps
        self._shown = copied(here.shown, there.shown, rows)
        self._ended = copied((here.terminated, here.truncated), (there.terminated, there.truncated), rows)
        self._rewards = copied((here.reward,), (there.reward,), rows)
        device = self.rollout.action.device
        self._t = torch.zeros(1, dtype=torch.int64, device=device)  # the step to choose actions for next
        say = print if rows.start == 0 else _say_nothing  # one message for all parts
        self._deciding = stage("a decision", device, say)
        self._decided = torch.cuda.Event() if device.type == "cuda" else None

    def _make_acting(self, executor: Executor, others: Others | None) -> Acting:
        """Make the `Acting` on the buffers of one step."""
        self._now = now = map_fields(self.rollout, _first_step, recurrent=self.rollout.recurrent)
        turn = now.seat if now.alive is None else now.alive
        seen = (*leaves(now.obs), now.mask, turn)
        self._shown_now = [leaf for leaf in seen if leaf is not None and leaf.numel()]  # in the order of `_shown`
        return Acting(executor, now, self._bind(others, now))

    def begin(self) -> None:
        super().begin()
        self._t.zero_()

    def take_in(self, t: int) -> None:
        if self._others is not None:  # they look at results at once, where the policy's buffers are
            for pair in (*self._ended, *self._rewards):
                pair.send(t)
        super().take_in(t)

    def show(self, t: int) -> None:
        for pair, now in zip(self._shown, self._shown_now, strict=True):
            if t < self.rollout.num_steps:
                now[0].copy_(pair.here[t], non_blocking=True)
            else:
                pair.send(t)  # no actions are chosen after the last step

    def decide(self, t: int) -> None:
        rollout = self.rollout
        if rollout.recurrent.is_used and t % rollout.horizon == 0:
            rollout.states[t // rollout.horizon] = rollout.recurrent.states
        action = self._deciding.run(self._decide, version=self._executor.version)
        assert self._given is not None
        self._given.copy_(action, non_blocking=True)
        if self._decided is not None:
            self._decided.record()

    def _decide(self) -> Tensor:
        """Choose the actions of step `_t` and increment it; returns the actions as envs receive them."""
        now, rollout, t = self._now, self.rollout, self._t
        for pair, shown in zip(self._shown, self._shown_now, strict=True):
            pair.there.index_copy_(0, t, shown)
        now.noise.copy_(rollout.noise.index_select(0, t))
        action = self._acting.act(0, t)
        for name in ("action", "log_prob", "value", "mine"):
            if getattr(now, name) is not None:
                getattr(rollout, name).index_copy_(0, t, getattr(now, name))
        t.add_(1)
        return action

    @property
    def is_recorded(self) -> bool:
        """Whether decisions are replayed as a CUDA graph from now on."""
        return self._deciding.is_recorded

    def await_actions(self) -> None:
        if self._decided is not None:
            self._decided.synchronize()

    def reset_ended(self, t: int) -> None:
        for pair in self._ended:
            pair.send(t)
        rollout = self.rollout
        rollout.recurrent.reset_ended(rollout.turn(t), rollout.terminated[t], rollout.truncated[t])


def _first_step(tensor: Tensor) -> Tensor:
    return tensor[:1].clone(memory_format=torch.contiguous_format)


def _say_nothing(text: str) -> None:
    pass
