"""The executor of small networks on the GPU: Triton kernels that use the policy's own weights in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scramjet.algorithms.ppo import normalizing
from scramjet.engine.trees import map_leaves
from scramjet.executors.executor import ActStep, Diagnostics, Executor
from scramjet.executors.losses import LossSettings
from scramjet.executors.samples import Minibatches, Samples
from scramjet.executors.supports import why_not_adam, why_torch
from scramjet.executors.torch_executor import chunk_size
from scramjet.executors.torch_with_kernels import TorchWithKernels
from scramjet.executors.triton_mlp import TritonMLP, fitted_mlp
from scramjet.executors.triton_plan import UnsupportedMLPError, check_weights, plan_of
from scramjet.kernels.gpu.language import HAS_TRITON
from scramjet.policies.policy import Policy
from scramjet.runtime.ranks import Ranks


class TritonExecutor(Executor):
    """Acts, values and learns with kernels that keep activations on chip.

    IMPALA's loss and a user's own losses are learned with torch's operators.
    """

    name = "triton"

    def __init__(self, policy: Policy, mlp: TritonMLP, why: str = "") -> None:
        super().__init__(policy, why)
        self.mlp = mlp
        self._plain = TorchWithKernels(policy, may_move_weights=False)  # they lie where the MLP's kernels look
        self.own_losses = self._plain.own_losses
        self.moves_every_weight = self.own_losses is None
        self.writes_env_actions = mlp.plan.bounds is not None
        self._steps_are_even = True  # whether all weights have made as many steps: the kernels count once for all
        self._has_left = False  # whether torch has taken steps since that was looked at, where the counts lie
        self._inputs: Tensor | None = None  # [B, D], the samples' observations where they have to be encoded

    def refresh(self) -> None:
        super().refresh()
        self.mlp.flat.refresh()

    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        return [partial(self._act, step) for step in steps]

    def _act(self, step: ActStep) -> None:
        if self.version:
            self._plain.act(step)
            if step.env_action is not None:
                step.env_action.copy_(self.policy.distribution.env_action(step.action))
            return
        outputs = step.action, step.log_prob, step.value, step.env_action
        self.mlp.act(self._encoded(step.obs), step.mask, step.noise, *outputs)

    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        if self.version:
            self._plain.values(obs, state, value)
            return
        if self.mlp.plan.encode is None:
            self.mlp.values(obs.flatten(1), value)
            return
        chunk = chunk_size(obs, is_on_gpu=value.is_cuda)
        for start in range(0, len(value), chunk):
            rows = slice(start, start + chunk)
            self.mlp.values(self._encoded(map_leaves(lambda leaf, rows=rows: leaf[rows], obs)), value[rows])

    def _encoded(self, obs: Any) -> Tensor:
        """Observations as the kernels read them, [B, D] float32."""
        encode = self.mlp.plan.encode
        inputs: Tensor = obs.flatten(1) if encode is None else encode(obs).contiguous()
        return inputs

    def begin_update(self, samples: Samples, optimizer: torch.optim.Adam) -> None:
        if self.moves_every_weight:
            flat = self.mlp.flat
            flat.refresh()
            if flat.use_optimizer(optimizer) or self._has_left:  # only then: the host waits for the answer
                self._has_left = False
                self._steps_are_even = bool((flat.counts == flat.counts[0]).all())

    def read_samples(self, samples: Samples) -> None:
        """Encode the samples' observations, which stay the same for an update, to memory that stays in its place."""
        if self.mlp.plan.encode is None or not self.moves_every_weight:
            return
        number = len(samples.action)
        if self._inputs is None or len(self._inputs) != number:
            self._inputs = torch.empty(number, self.mlp.num_inputs, device=self.policy.device)
        chunk = chunk_size(samples.obs, is_on_gpu=self._inputs.is_cuda)
        for start in range(0, number, chunk):
            rows = slice(start, start + chunk)
            self._inputs[rows] = self._encoded(map_leaves(lambda leaf, rows=rows: leaf[rows], samples.obs))

    def learn(
        self, samples: Samples, minibatches: Minibatches, loss: LossSettings, optimizer: torch.optim.Adam
    ) -> Diagnostics:
        # A callback may have frozen weights, or added hooks, since this executor was chosen.
        is_as_before = (
            not self.version and self._steps_are_even and _is_supported(self.policy) and not why_not_adam(optimizer)
        )
        if loss.is_impala or not self.moves_every_weight or not is_as_before:
            self._has_left = True
            return self._plain.learn(samples, minibatches, loss, optimizer)
        return Diagnostics(self._learn(samples, minibatches, loss, optimizer))

    @torch.no_grad()
    def _learn(
        self, samples: Samples, minibatches: Minibatches, loss: LossSettings, optimizer: torch.optim.Adam
    ) -> Tensor:
        """Take a gradient step on each minibatch with the kernels; returns the diagnostics, [minibatches, 7]."""
        order, number, statistics = minibatches.order, len(minibatches), minibatches.statistics
        inputs = samples.obs.flatten(1) if self._inputs is None else self._inputs
        table = torch.empty(number, len(Diagnostics.NAMES), device=order.device)
        own_counted = _num_counted(samples, order, number)
        shares = None if own_counted is None else own_counted.clamp(min=1).reciprocal()
        if loss.normalizes_advantages and statistics is None:
            statistics = self._statistics(samples, order, number)
        for i in range(number):
            given = None if statistics is None else statistics[i]
            share = None if shares is None else shares[i : i + 1]
            self.mlp.gradients(inputs, samples, minibatches.units(i), given, loss, share)
            if minibatches.num_counted is not None:
                own = minibatches.sizes[i] if own_counted is None else own_counted[i]
                self._add_up(minibatches.ranks, own / minibatches.num_counted[i])
            self.mlp.step(optimizer, loss.max_grad_norm, diagnostics=table[i])
        return table

    def _statistics(self, samples: Samples, order: Tensor, number: int) -> Tensor:
        """The mean and 1 / deviation of the advantages of each minibatch, [number, 2]."""
        if samples.counts is None:
            statistics = torch.empty(number, 2, device=order.device)
            self.mlp.advantage_statistics(samples.advantage, order, number, statistics)
            return statistics
        counts = samples.counts[order].view(number, -1)
        advantage = samples.advantage[order].view(number, -1).double()
        num_counted = counts.sum(1)
        mean = torch.where(counts, advantage, 0.0).sum(1) / num_counted.clamp(min=1)
        squares = torch.where(counts, advantage - mean[:, None], 0.0).square().sum(1)
        return normalizing(torch.stack([num_counted.double(), mean, squares]))

    def _add_up(self, ranks: Ranks, share: Tensor) -> None:
        """Replace the gradients and loss terms of this rank's part of a minibatch by those of the whole minibatch.

        `share` is how much of the minibatch this rank has, a scalar.
        """
        self.mlp.sums.mul_(share.float())
        ranks.add(self.mlp.sums)
        self.mlp.sum_again()

    def warm_up(self, step: ActStep, samples: Samples, minibatches: Minibatches, loss: LossSettings) -> None:
        if self.writes_env_actions:
            step = replace(step, env_action=self.policy.distribution.env_action(step.action))
        self._act(step)
        self.values(samples.obs, None, samples.value)
        if loss.is_impala or self.own_losses is not None:
            return
        self.read_samples(samples)
        kept = self.mlp.flat.snapshot()
        first = Minibatches.even(minibatches.units(0), 1)
        learning_rate = torch.zeros((), device=self.policy.device)
        self._learn(samples, first, loss, torch.optim.Adam(self.policy.parameters(), lr=learning_rate))
        self.mlp.flat.restore(kept)


def triton_mlp(policy: Policy, precision: str) -> TritonMLP | str:
    """The kernels for a policy; or, if they cannot run it, the reason in words.

    The weights become views of the memory that the kernels read and write.
    """
    if not HAS_TRITON:
        return "Triton is not installed"
    try:
        return fitted_mlp(plan_of(policy), precision)
    except UnsupportedMLPError as reason:
        return str(reason)


def _num_counted(samples: Samples, order: Tensor, number: int) -> Tensor | None:
    """How many samples of each of `number` minibatches of equal size count, float32 [number]; None where all do."""
    return None if samples.counts is None else samples.counts[order].view(number, -1).sum(1).float()


def _is_supported(policy: Policy) -> bool:
    """Whether the kernels may still learn a network that they were chosen for."""
    try:
        check_weights(policy.network)
    except UnsupportedMLPError:
        return False
    return not why_torch(policy)
