"""The one seam for speed: an executor acts, values observations and takes gradient steps for one policy.

`TorchExecutor` is the plain one, torch's operators and autograd. Others do the same work in fused kernels and give the
same numbers up to rounding. `choice.py` decides which one a policy gets, and why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from scramjet.accelerate.own_losses import OwnLosses
from scramjet.accelerate.samples import Samples
from scramjet.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class ActStep:
    """What deciding on one step of R rows reads and writes."""

    obs: Any  # [R, *obs_shape], or nested dicts of such
    mask: Tensor | None  # [R, mask_size] bool, legal actions; None where all are
    noise: Tensor  # [R, ...], the random numbers that actions are drawn with
    action: Tensor  # [R, *action_shape], written
    log_prob: Tensor  # [R], written
    value: Tensor | None  # [R], written; None where values are asked for after the rollout
    state: Tensor | None  # [R, state_size], read and brought up to date; None without memory


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The numbers of the loss and of its gradient step. Those that schedules move are tensors on the GPU."""

    clip: float | Tensor
    entropy_coef: float | Tensor
    value_coef: float
    value_clip: float | None
    max_grad_norm: float | None
    normalizes_advantages: bool
    """Bring advantages to mean 0 and deviation 1 within each minibatch."""
    is_impala: bool = False
    """The policy gradient of IMPALA in the place of the clipped surrogate."""
    rho_clip: float | None = None
    """IMPALA: the bound on the probability ratio that weighs the gradient; None: the ratio does not weigh it."""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What gradient steps report, by name; kept on the device and read once an update."""

    NAMES: ClassVar[tuple[str, ...]] = (
        "policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k1", "clip_fraction", "grad_norm",
    )  # fmt: skip
    """What every executor reports, in the order in which kernels write it."""

    table: Tensor  # [gradient steps, names]: NAMES, then the user's own losses
    own: tuple[str, ...] = ()  # names of the losses of the user's own network

    def column(self, name: str) -> Tensor:
        """One diagnostic of every gradient step, [steps]."""
        return self.table[:, (*self.NAMES, *self.own).index(name)]

    def clone(self) -> Diagnostics:
        """A copy, where a replayed graph will write over this one."""
        return replace(self, table=self.table.clone())


class Executor(ABC):
    """Acts, values and learns for one policy."""

    name: ClassVar[str]
    """What people call it: torch, numba, triton."""
    moves_every_weight = False
    """Whether each gradient step moves all weights, so that the optimizer has a state for every one of them."""

    def __init__(self, policy: Policy, why: str = "") -> None:
        self.policy = policy
        self.why = why
        """Why this one runs, in words."""
        self.own_losses = OwnLosses.of(policy.network)
        """The losses that a user's own network adds; torch's operators learn them."""

    @property
    def note(self) -> str:
        """What the header of a run says of it."""
        return f"{self.name} executor" + (f" ({self.why})" if self.why else "")

    @property
    def can_be_recorded(self) -> bool:
        """Whether an epoch may become a CUDA graph: a loss of the user's may do what cannot be recorded."""
        return self.own_losses is None

    def refresh(self) -> None:  # noqa: B027 - torch's operators always see the weights as they are
        """Take notice of weights that were changed or moved since the last call; before a rollout is played."""

    @abstractmethod
    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        """One function for each step: it draws that step's actions into the buffers of `steps`.

        Buffers are looked at once, here, and must stay where they are.
        """

    @abstractmethod
    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        """Write `value` [B] of observations [B, ...] and, with memory, states [B, state_size]."""

    def begin_update(self, samples: Samples, optimizer: torch.optim.Adam) -> None:  # noqa: B027 - most need none
        """Take notice of the samples and the optimizer of the passes that follow; once an update."""

    @abstractmethod
    def learn(
        self,
        samples: Samples,
        order: Tensor,
        num_minibatches: int,
        loss: LossSettings,
        optimizer: torch.optim.Adam,
    ) -> Diagnostics:
        """One pass over the samples: a gradient step on each of the minibatches that `order` [units] is split into."""

    def warm_up(  # noqa: B027 - torch's operators need none
        self, step: ActStep, samples: Samples, order: Tensor, num_minibatches: int, loss: LossSettings
    ) -> None:
        """Compile what the first update would, on buffers that nobody has written to yet."""
