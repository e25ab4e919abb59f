"""The plain executor: torch's operators and autograd. It runs every policy, on every device. With several
ranks it adds up their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.algorithms.ppo import LossTerms
from scramjet.engine.trees import leaves, map_leaves
from scramjet.executors.executor import ActStep, Diagnostics, Executor
from scramjet.executors.losses import LossSettings, minibatch_loss
from scramjet.executors.samples import Minibatches, Samples
from scramjet.policies.policy import Policy
from scramjet.runtime.ranks import Ranks

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

    def __init__(self, policy: Policy, why: str = "", parameters: Sequence[nn.Parameter] | None = None) -> None:
        """`parameters`: all weights in the order in which ranks exchange their gradients; None: as the policy has."""
        super().__init__(policy, why)
        self.parameters = list(policy.parameters()) if parameters is None else list(parameters)
        self._gradients: FlatGradients | None = None  # with several ranks only

    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        return [partial(self.act, step) for step in steps]

    def act(self, step: ActStep) -> None:
        """Draw the actions of one step."""
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
        chunk = chunk_size(obs, is_on_gpu=value.is_cuda)
        for start in range(0, len(value), chunk):
            rows = slice(start, start + chunk)
            rows_state = None if state is None else state[rows]
            value[rows] = self.policy.value(map_leaves(lambda leaf, rows=rows: leaf[rows], obs), rows_state)

    def learn(
        self, samples: Samples, minibatches: Minibatches, loss: LossSettings, optimizer: torch.optim.Adam
    ) -> Diagnostics:
        if not minibatches.ranks.is_alone:
            rows = [self._shared_step(samples, minibatches, k, loss, optimizer) for k in range(len(minibatches))]
        else:
            selected = (self._select(samples, minibatches.units(k)) for k in range(len(minibatches)))
            rows = [self._gradient_step(minibatch, loss, optimizer) for minibatch in selected]
        return Diagnostics(torch.stack(rows), () if self.own_losses is None else self.own_losses.names)

    def _gradient_step(self, minibatch: Samples, loss: LossSettings, optimizer: torch.optim.Adam) -> Tensor:
        """Take a gradient step on one minibatch; returns its diagnostics, one row of the table."""
        terms = self._loss(minibatch, loss)
        optimizer.zero_grad(set_to_none=True)
        self._backward(terms.total)
        grad_norm = self._clip_and_step(loss, optimizer)
        named = [getattr(terms, name).detach() for name in Diagnostics.NAMES if name != "grad_norm"]
        return torch.stack([*named, grad_norm, *self._own_terms])

    def _select(self, samples: Samples, units: Tensor) -> Samples:
        """The samples, or sequences, numbered `units`."""
        return samples.select(units)

    def _loss(self, minibatch: Samples, loss: LossSettings, statistics: Tensor | None = None) -> LossTerms:
        """The terms of the loss on a minibatch; `statistics` are as for `minibatch_loss`."""
        return minibatch_loss(self.policy, minibatch, loss, self.own_losses, statistics)

    def _backward(self, total: Tensor) -> None:
        if self.own_losses is None:
            total.backward()
        else:
            self.own_losses.backward(total)

    def _clip_and_step(self, loss: LossSettings, optimizer: torch.optim.Adam) -> Tensor:
        """Clip the gradients, step the optimizer and return the norm of the gradients before clipping."""
        bound = torch.inf if loss.max_grad_norm is None else loss.max_grad_norm
        grad_norm = nn.utils.clip_grad_norm_(self.policy.parameters(), bound)
        optimizer.step()
        return grad_norm

    @property
    def _own_terms(self) -> list[Tensor]:
        return [] if self.own_losses is None else self.own_losses.latest

    def _shared_step(
        self, samples: Samples, minibatches: Minibatches, k: int, loss: LossSettings, optimizer: torch.optim.Adam
    ) -> Tensor:
        """Take a gradient step on minibatch k of all ranks; returns its diagnostics, one row of the table."""
        total = named = None
        if len(minibatches.order):
            total, named = self._shared_loss(samples, minibatches, k, loss)
        num_named = len(Diagnostics.NAMES) - 1
        if self._gradients is None:
            num_terms, is_plain = num_named + len(self._own_terms), self.own_losses is None
            self._gradients = FlatGradients(self.parameters, num_terms, minibatches.ranks, may_overlap=is_plain)
        self._gradients.clear()
        if total is not None:
            self._backward(total)
        terms = self._gradients.add_up(named)
        grad_norm = self._clip_and_step(loss, optimizer)
        return torch.cat([terms[:num_named], grad_norm.view(1), terms[num_named:]])

    def _shared_loss(
        self, samples: Samples, minibatches: Minibatches, k: int, loss: LossSettings
    ) -> tuple[Tensor, Tensor]:
        """The part of the loss of minibatch k that this rank's samples make, and of the terms to report."""
        assert minibatches.num_counted is not None
        units = minibatches.units(k)
        # A rank that holds none of the minibatch takes one of its other units, which weighs nothing.
        minibatch = self._select(samples, units if len(units) else minibatches.order[:1])
        share = minibatch.num_counted / minibatches.num_counted[k] if len(units) else torch.zeros(())
        share = share.to(self.policy.device, torch.float32)
        statistics = None if minibatches.statistics is None else minibatches.statistics[k]
        terms = self._loss(minibatch, loss, statistics)
        named = [getattr(terms, name).detach() for name in Diagnostics.NAMES if name != "grad_norm"]
        return terms.total * share, torch.stack([*named, *self._own_terms]) * share


def chunk_size(obs: Any, *, is_on_gpu: bool) -> int:
    """How many observations to value at a time."""
    if not is_on_gpu:
        return VALUE_CHUNK
    size = sum(leaf[0].numel() for leaf in leaves(obs))
    return max(VALUE_CHUNK, min(VALUE_CHUNK_ON_GPU, VALUED_NUMBERS // size))


# --- the gradients of all weights in one piece of memory, so that ranks add them up in one exchange
#
# Those of large networks on the CPU are added up in pieces instead, each as soon as the backward pass has filled it,
# while the pass goes on.


MIN_OVERLAPPED = 8 << 20
"""Bytes of gradients from which pieces are exchanged during the backward pass; below, one exchange is as quick."""
PIECE = 2 << 20
"""Bytes of a piece, at least."""


class FlatGradients:
    """The gradients of some parameters, one behind the other, then the terms of the loss that they belong to.

    A parameter that a minibatch does not reach has a gradient of 0, since it may be reached on another rank.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], num_terms: int, ranks: Ranks, *, may_overlap: bool = True
    ) -> None:
        """`may_overlap`: each backward pass adds to each gradient once, so that it may be sent at once."""
        self._parameters, self._ranks = parameters, ranks
        sizes = [parameter.numel() for parameter in parameters]
        self._numbers = torch.zeros(sum(sizes) + num_terms, device=parameters[0].device)
        *parts, self._terms = self._numbers.split([*sizes, num_terms])
        self._views = [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
        overlaps = may_overlap and self._numbers.nbytes >= MIN_OVERLAPPED and not self._numbers.is_cuda
        self._pieces = _Pieces(self._numbers, parameters, ranks) if overlaps else None

    def clear(self) -> None:
        """Set everything to 0, and have the next backward pass add to it."""
        self._numbers.zero_()
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view
        if self._pieces is not None:
            self._pieces.begin()

    def add_up(self, terms: Tensor | None) -> Tensor:
        """Replace the gradients by their sum over all ranks; returns the sum of `terms` [terms], None: zeros."""
        if terms is not None:
            self._terms.copy_(terms)
        if self._pieces is None:
            self._ranks.add(self._numbers)
        else:
            self._pieces.end()
            self._ranks.add(self._terms)
        return self._terms.clone()


class _Pieces:
    """Sums of neighbouring gradients that begin while the backward pass goes on.

    It fills the gradients of the last parameters first. Pieces are sent from the last to the first and never out of
    that order, which may differ between ranks otherwise.
    """

    def __init__(self, numbers: Tensor, parameters: Sequence[nn.Parameter], ranks: Ranks) -> None:
        self._ranks = ranks
        self._pieces: list[Tensor] = []  # the last parameters' first
        self._sizes: list[int] = []  # parameters in each piece
        self._missing: list[int] = []  # parameters of each piece that the backward pass has not reached
        self._under_way: list[Callable[[], None]] = []
        end = begin = sum(parameter.numel() for parameter in parameters)
        count = 0
        for place, parameter in reversed(list(enumerate(parameters))):
            begin, count = begin - parameter.numel(), count + 1
            parameter.register_post_accumulate_grad_hook(self._hook(len(self._pieces)))
            if place == 0 or 4 * (end - begin) >= PIECE:
                self._pieces.append(numbers[begin:end])
                self._sizes.append(count)
                end, count = begin, 0

    def _hook(self, piece: int) -> Callable[[Tensor], None]:
        def reached(parameter: Tensor) -> None:
            self._missing[piece] -= 1
            self._send_ready()

        return reached

    def begin(self) -> None:
        """Expect a backward pass."""
        self._missing, self._under_way = list(self._sizes), []

    def _send_ready(self) -> None:
        """Begin the sums of pieces that are filled, up to the first that is not."""
        while len(self._under_way) < len(self._pieces) and not self._missing[len(self._under_way)]:
            self._under_way.append(self._ranks.start_add(self._pieces[len(self._under_way)]))

    def end(self) -> None:
        """Send what the backward pass did not reach too, and wait for all sums."""
        self._missing = [0] * len(self._pieces)
        self._send_ready()
        for finish in self._under_way:
            finish()
