"""The interface of executors: an executor acts, values observations and takes gradient steps for one policy.

`TorchExecutor` is the plain one: torch's operators and autograd. The others do the same work in fused kernels and give
the same numbers up to rounding. `choice.py` chooses the executor of a policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from scramjet.compile.addresses import StepCalls
from scramjet.executors.losses import LossSettings, OwnLosses
from scramjet.executors.samples import Minibatches, Samples
from scramjet.executors.supports import Watched
from scramjet.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class ActStep:
    """The buffers of one decision: what drawing the actions of R rows reads and writes."""

    obs: Any  # [R, *obs_shape], or nested dicts of such
    mask: Tensor | None  # [R, mask_size] bool, legal actions; None where all are
    noise: Tensor  # [R, ...], the random numbers that actions are drawn with
    action: Tensor  # [R, *action_shape], written
    log_prob: Tensor  # [R], written
    value: Tensor | None  # [R], written; None if values are computed after the rollout
    state: Tensor | None  # [R, state_size], recurrent states, read and updated; None without memory
    env_action: Tensor | None = None  # [R, *space.shape], the action as envs receive it, see `writes_env_actions`


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Named numbers that gradient steps report; they stay on the device and are read once an update."""

    NAMES: ClassVar[tuple[str, ...]] = (
        "policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k1", "clip_fraction", "grad_norm",
    )  # fmt: skip
    """The names that every executor reports, in the order in which kernels write them."""

    table: Tensor  # [gradient steps, names]; columns are NAMES, then `own`
    own: tuple[str, ...] = ()  # names of the losses of the user's own network

    def column(self, name: str) -> Tensor:
        """One diagnostic of every gradient step, [steps]."""
        return self.table[:, (*self.NAMES, *self.own).index(name)]

    def clone(self) -> Diagnostics:
        """A copy, to keep when a replayed CUDA graph will write over this one."""
        return replace(self, table=self.table.clone())


class Executor(ABC):
    """Draws actions, computes values and takes gradient steps for one policy."""

    name: ClassVar[str]
    """The name in messages: torch, numba or triton."""
    moves_every_weight = False
    """Whether each gradient step changes every weight, so that the optimizer has a state for each of them."""

    writes_env_actions = False
    """Whether `actions` also write `env_action` of steps that have it, as `Distribution.env_action` computes it."""

    def __init__(self, policy: Policy, why: str = "") -> None:
        self.policy = policy
        self.why = why
        """Why this executor was chosen, in words; empty if there is nothing to say."""
        self._watched = Watched(policy)
        self.own_losses = OwnLosses.of(policy.network)
        """The losses that a user's own network adds, which only torch's operators can compute; None if it adds none."""

    @property
    def note(self) -> str:
        """The executor's name and the reason for it, for the header of a run."""
        return f"{self.name} executor" + (f" ({self.why})" if self.why else "")

    @property
    def can_be_recorded(self) -> bool:
        """Whether an epoch may be recorded as a CUDA graph; a user's own loss may do what cannot be recorded."""
        return self.own_losses is None

    @property
    def version(self) -> int:
        """How often a callback was found to have changed what the policy is made of. Kernels, and recorded graphs, are
        for the version that they were made for."""
        return self._watched.version

    def look_again(self) -> None:
        """Notice whether a callback has exchanged, hooked into or replaced a part of the policy since the last look."""
        self._watched.look_again()

    def refresh(self) -> None:
        """Look up the weights again, which may have changed or moved; called before each rollout."""
        self.look_again()

    @abstractmethod
    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        """Return one function for each step, which draws that step's actions into its buffers.

        The addresses of the buffers are looked up once, here: the buffers must not move.
        """

    def compiled_actions(self, steps: Sequence[ActStep]) -> StepCalls | None:
        """What compiled code calls to draw the actions of each step, as `actions` does; None if there is no such
        function, or if it should run on several threads."""
        return None

    @abstractmethod
    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        """Write the values of observations [B, ...] to `value` [B].

        `state` [B, state_size] are the recurrent states before them; None without memory.
        """

    def begin_update(self, samples: Samples, optimizer: torch.optim.Adam) -> None:  # noqa: B027 - most need none
        """Prepare for the passes of one update over these samples with this optimizer; nothing of it is recorded."""

    def read_samples(self, samples: Samples) -> None:  # noqa: B027 - most need none
        """Compute from the samples what all passes of an update use; called after `begin_update`, before the first."""

    @abstractmethod
    def learn(
        self, samples: Samples, minibatches: Minibatches, loss: LossSettings, optimizer: torch.optim.Adam
    ) -> Diagnostics:
        """Take one pass over the samples: a gradient step on each minibatch. Returns the diagnostics of each step.

        With several ranks all of them call this together, and weights and diagnostics are the same on all afterwards.
        """

    def warm_up(  # noqa: B027 - torch's operators need none
        self, step: ActStep, samples: Samples, minibatches: Minibatches, loss: LossSettings
    ) -> None:
        """Compile now what the first update would compile; the buffers need not be filled."""
