"""The plain executor: torch's operators and autograd. It runs every policy, on every device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.accelerate.executor import ActStep, Diagnostics, Executor, LossSettings
from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.samples import Samples
from scramjet.engine.trees import leaves, map_leaves

VALUE_CHUNK = 4096
"""Observations valued at a time on the CPU: few enough that activations stay in cache."""
VALUE_CHUNK_ON_GPU = 1 << 20
"""Most observations valued at a time on the GPU: enough to fill it."""
VALUED_NUMBERS = 1 << 26
"""Numbers in the observations valued at a time on the GPU. Large observations are valued fewer at a time, but never
fewer than VALUE_CHUNK."""


class TorchExecutor(Executor):
    """Acts, values and learns with the policy's own forward pass and autograd."""

    name = "torch"

    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        return [partial(self._act, step) for step in steps]

    def _act(self, step: ActStep) -> None:
        policy = self.policy
        if policy.splits:
            logits = policy.logits(step.obs)
        else:
            logits, value, state = policy(step.obs, step.state)
            assert step.value is not None
            step.value.copy_(value)
            if step.state is not None:
                step.state.copy_(state)
        policy.distribution.sample(logits, step.mask, step.noise, step.action, step.log_prob)

    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        chunk = _chunk_size(obs, is_on_gpu=value.is_cuda)
        for start in range(0, len(value), chunk):
            rows = slice(start, start + chunk)
            rows_state = None if state is None else state[rows]
            value[rows] = self.policy.value(map_leaves(lambda leaf, rows=rows: leaf[rows], obs), rows_state)

    def learn(
        self,
        samples: Samples,
        order: Tensor,
        num_minibatches: int,
        loss: LossSettings,
        optimizer: torch.optim.Adam,
    ) -> Diagnostics:
        minibatches = order.tensor_split(num_minibatches)
        rows = [self._gradient_step(samples.select(units), loss, optimizer) for units in minibatches]
        return Diagnostics(torch.stack(rows), () if self.own_losses is None else self.own_losses.names)

    def _gradient_step(self, minibatch: Samples, loss: LossSettings, optimizer: torch.optim.Adam) -> Tensor:
        """Take a gradient step on one minibatch; returns its diagnostics, one row of the table."""
        terms = minibatch_loss(self.policy, minibatch, loss, self.own_losses)
        optimizer.zero_grad(set_to_none=True)
        if self.own_losses is None:
            terms.total.backward()
        else:
            self.own_losses.backward(terms.total)
        bound = torch.inf if loss.max_grad_norm is None else loss.max_grad_norm
        grad_norm = nn.utils.clip_grad_norm_(self.policy.parameters(), bound)
        optimizer.step()
        named = [getattr(terms, name).detach() for name in Diagnostics.NAMES if name != "grad_norm"]
        return torch.stack([*named, grad_norm, *([] if self.own_losses is None else self.own_losses.latest)])


def _chunk_size(obs: Any, *, is_on_gpu: bool) -> int:
    """How many observations to value at a time."""
    if not is_on_gpu:
        return VALUE_CHUNK
    size = sum(leaf[0].numel() for leaf in leaves(obs))
    return max(VALUE_CHUNK, min(VALUE_CHUNK_ON_GPU, VALUED_NUMBERS // size))
