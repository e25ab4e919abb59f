"""Plays rollouts: T steps of N envs, written by the pool straight into one buffer, on the CPU or on the GPU.

There is one loop. If envs run in their own threads or processes, or on another device than the policy, the rollout is
played in two halves that overlap: while the policy acts for one, the envs of the other step. With envs on the GPU, all
steps are recorded as one CUDA graph, and nothing in them waits for the CPU.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from scramjet.engine.pool import Pool, halves
from scramjet.engine.transition import Transition
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.executors.cuda_graphs import Recorder, Stage
from scramjet.executors.executor import Executor
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.rollout import checks
from scramjet.training.rollout.acting import value_rollout
from scramjet.training.rollout.buffers import RolloutBuffers
from scramjet.training.rollout.compiled_steps import CompiledSteps
from scramjet.training.rollout.noise import NoiseOfRank
from scramjet.training.rollout.others import Others
from scramjet.training.rollout.parts import CopiedPart, DecidedPart, copied
from scramjet.training.rollout.rollout import Rollout


class RolloutPlayer:
    """Plays rollouts on a pool with the actions of an executor, into buffers that are allocated once."""

    def __init__(
        self,
        pool: Pool,
        executor: Executor,
        num_steps: int,
        horizon: int | None = None,
        *,
        apart: bool | None = None,
        in_halves: bool = True,
        others: Others | None = None,
        has_opponents: bool = False,
        ranks: Ranks = ALONE,
    ) -> None:
        """`horizon` and `apart` are as for `RolloutBuffers.allocate`; `in_halves`: play in halves if the pool can.

        `others` choose some of the actions, and then rollouts are not played in halves. `has_opponents`: whether
        rollouts have room for what others do, also if they are played elsewhere. `ranks`: those whose pools together
        are the run's, and who draw the noise of the actions of all of them on the CPU.
        """
        self.pool, self.executor, self._others = pool, executor, others
        self.buffers = RolloutBuffers.allocate(
            pool, executor.policy, num_steps, horizon, apart=apart, has_opponents=has_opponents or others is not None
        )
        in_halves = in_halves and others is None
        self.rollout = self.buffers.rollout
        is_apart = self.buffers.is_apart
        self._in_halves = in_halves and pool.can_step_rows and (is_apart or (pool.overlaps and pool.num_envs > 1))
        rows = halves(pool.num_envs, pool.num_rows // pool.num_envs) if self._in_halves else [slice(0, pool.num_rows)]
        given = self._handed_over() if is_apart or self._in_halves else None
        kind = CopiedPart if is_apart else DecidedPart
        self.parts: list[DecidedPart] = [kind(pool, self.buffers, each, executor, given, others) for each in rows]
        self._compiled = None if is_apart else CompiledSteps.of(pool, self.buffers, self.parts)
        self._noise = NoiseOfRank(executor.policy.distribution, self.rollout.noise, ranks)
        self._results = copied(self.buffers.env_steps.results, self.buffers.policy_steps.results) if is_apart else []
        self._recording: dict[str, Any] = {}
        self._stage: Stage[Tensor | None] = Stage()
        self._glance: checks.Glance | None = None
        if isinstance(pool, CudaPool):
            self._stage, self._glance = Recorder("a rollout"), checks.Glance(pool, self.rollout)
            self._recording = {"recording": pool.recording, "before_replay": partial(pool.before_replay, num_steps)}

    def _handed_over(self) -> Tensor:
        """Allocate the buffer from which envs read the actions of all rows, [R, ...], on the CPU."""
        action = self.executor.policy.distribution.env_action(self.rollout.action[0])
        return torch.zeros_like(action, device="cpu", pin_memory=action.is_cuda)

    @property
    def is_recorded(self) -> bool:
        """Whether whole rollouts are replayed as a CUDA graph from now on."""
        return self._stage.is_recorded

    @torch.inference_mode()
    def play(self, generator: torch.Generator, after: RolloutBuffers | None = None) -> Rollout:
        """Play T steps with actions that the policy draws, and return the rollout.

        It continues from the end of the rollout `after`, by default from the last one that was played here.
        """
        pool, rollout, before = self.pool, self.rollout, after or self.buffers
        self._noise.draw(generator)
        if self._others is not None:
            self._others.begin(rollout.num_steps)
        self.executor.refresh()  # not in the recording, which would copy weights that have moved once every time
        with checks.errors_explained(pool, self.buffers.env_steps.obs, rollout.num_steps):
            is_fine = self._stage.run(lambda: self._play(before), version=self.executor.version, **self._recording)
            pool.begin_reading_episodes()  # before the checks, which wait for the GPU
            if is_fine is None or not bool(is_fine):
                checks.check(pool, rollout)
        return rollout

    def _play(self, before: RolloutBuffers) -> Tensor | None:
        """Play all steps and compute the values. With envs on the GPU, returns whether the rollout may be learned from,
        a scalar there."""
        self.buffers.begin_after(before)
        if self._compiled is not None and self._compiled.can_play and not self.executor.version:
            self._compiled.play()
        else:
            self._play_step_by_step()
        for pair in self._results:
            pair.send(slice(None))
        for part in self.parts:
            part.end()
        value_rollout(self.executor, self.rollout)
        if self._results and self.rollout.action.is_cuda:
            torch.cuda.current_stream().synchronize()  # envs may overwrite their buffers only after that
        return None if self._glance is None else self._glance.is_fine()

    def _play_step_by_step(self) -> None:
        """Play all steps from here: choose actions, step envs, take in the results."""
        parts, last, is_apart = self.parts, self.rollout.num_steps - 1, self.buffers.is_apart
        sends_at_once = self._in_halves and self.pool.overlaps  # the other half steps meanwhile: there is time to wait
        for part in parts:
            part.begin()
            part.show(0)
            part.decide(0)
            if sends_at_once:
                self._send(part)
        for t, out in enumerate(self.buffers.transitions):
            for part in parts:
                self._step(part, out)
                if is_apart:
                    part.show(t + 1)
                part.take_in(t)
                if t < last:
                    part.decide(t + 1)
                    if sends_at_once:
                        self._send(part)

    def _send(self, part: DecidedPart) -> None:
        """Have the envs of a part step."""
        part.await_actions()
        self.pool.send(part.actions.numpy(), part.rows)

    def _step(self, part: DecidedPart, out: Transition) -> None:
        """Step the envs of a part, or wait for those that step already; results are written to `out`."""
        if self._in_halves:
            if not self.pool.overlaps:
                self._send(part)
            self.pool.recv(part.rows, out)
            return
        part.await_actions()
        actions = part.actions
        self.pool.rollout_step(actions if actions.is_cuda else actions.numpy(), out)
