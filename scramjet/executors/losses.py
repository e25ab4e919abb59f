"""The loss of one minibatch: the policy's forward pass, PPO's or IMPALA's terms, and the losses of a user's own
network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.algorithms.impala import policy_gradient
from scramjet.algorithms.ppo import LossTerms, normalize, normalize_by, ppo_loss
from scramjet.errors import ConfigError, TrainingError, shortened
from scramjet.executors.samples import Samples
from scramjet.policies.layers import PolicyOutput
from scramjet.policies.policy import Policy


def minibatch_loss(
    policy: Policy,
    minibatch: Samples,
    loss: LossSettings,
    own_losses: OwnLosses | None = None,
    statistics: Tensor | None = None,
) -> LossTerms:
    """The terms of the loss on a minibatch, scalars with gradients; `own_losses` are added to the total only.

    `statistics` [2] normalize advantages, those of a minibatch that this is a part of; None: its own do.
    """
    output = policy(minibatch.obs, minibatch.state, minibatch.begins)
    now = policy.distribution.log_prob_and_entropy(output.logits, minibatch.action, minibatch.mask)
    log_prob, entropy = now
    value, old_value, counts = output.value, minibatch.value, minibatch.counts
    advantage = minibatch.advantage
    if loss.normalizes_advantages:
        advantage = normalize(advantage, counts) if statistics is None else normalize_by(statistics, advantage)
    if counts is not None:  # samples that do not count add nothing to any sum
        log_prob = torch.where(counts, log_prob, minibatch.log_prob)
        value, old_value = (torch.where(counts, each, minibatch.returns) for each in (value, old_value))
        entropy, advantage = (torch.where(counts, each, 0.0) for each in (entropy, advantage))
    policy_term = value_term = None
    if (head := policy.two_hot_head) is not None:
        errors = head.loss(minibatch.returns)
        value_term = (errors if counts is None else torch.where(counts, errors, 0.0)).mean()
    if loss.is_impala:
        policy_term = policy_gradient(log_prob, log_prob - minibatch.log_prob, advantage, rho_clip=loss.rho_clip)
    terms = ppo_loss(
        log_prob,
        entropy,
        value,
        old_log_prob=minibatch.log_prob,
        old_value=old_value,
        advantage=advantage,
        returns=minibatch.returns,
        clip=loss.clip,
        value_clip=loss.value_clip,
        entropy_coef=loss.entropy_coef,
        value_coef=loss.value_coef,
        policy_term=policy_term,
        value_term=value_term,
    )
    if counts is not None:
        terms = terms.scaled(len(counts) / counts.sum().clamp(min=1))
    if own_losses is not None:
        terms.total = terms.total + own_losses.total(policy, minibatch, output, *now)
    return terms


# --- losses of a user's own network, added to PPO's in every gradient step: auxiliary heads, regularizers
#
# A network adds losses by having a method `loss(batch)` that returns a dict of scalar tensors by name.


MAX_NAME_LENGTH = 100
"""Most characters in the name of a loss or metric that a user's code adds."""

_WHAT_IT_MAY_NOT_DO = (
    "it may not change the batch or the weights in place, call backward() on what the batch holds, or turn gradients "
    "off for good (use `with torch.no_grad():`)"
)


@dataclass(frozen=True, slots=True)
class LossBatch:
    """One minibatch as `network.loss` receives it: B samples, and the network's current outputs for them.

    Without memory the samples are in no particular order. With memory they are L steps of M sequences, time-major,
    B = L * M: `obs.unflatten(0, (-1, len(state)))` is [L, M, ...].
    """

    obs: Any  # [B, *obs_shape] or nested dicts of such, as `forward` gets them: normalized, floats as float32
    action: Tensor  # [B, *action_shape], the actions taken
    mask: Tensor | None  # [B, mask_size], which actions were legal; None where all are
    advantage: Tensor  # [B], of the rollout: not normalized within this minibatch
    returns: Tensor  # [B], what the value is learned from
    old_log_prob: Tensor  # [B], of the action under the policy that acted
    old_value: Tensor  # [B], at the time of acting
    logits: Tensor  # [B, num_inputs], of the network now, with gradients
    value: Tensor  # [B], of the network now, with gradients
    log_prob: Tensor  # [B], of the action under the policy now, with gradients
    entropy: Tensor  # [B], of the policy now, with gradients
    state: Tensor | None  # [M, state_size], recurrent states before each sequence; None without memory
    begins: Tensor | None  # [L, M] bool, steps that are an episode's first; None without memory
    counts: Tensor | None  # [B] bool, samples to learn from (not dead agents or padding); None: all


class OwnLosses:
    """Calls the method `loss` of a user's network, checks what it returns and adds it up."""

    def __init__(self, network: nn.Module, loss: Callable[[LossBatch], Any]) -> None:
        self.names: tuple[str, ...] = ()  # as the first minibatch named them
        self.latest: list[Tensor] = []  # scalars of the last minibatch, without gradients
        self._where = f"the loss of the network {type(network).__name__}"
        self._loss = loss

    @classmethod
    def of(cls, network: nn.Module) -> OwnLosses | None:
        """The losses of a network, or None if it has no method `loss` (a layer of that name does not count)."""
        loss = getattr(network, "loss", None)
        return cls(network, loss) if callable(loss) and not isinstance(loss, nn.Module) else None

    def total(
        self, policy: Policy, minibatch: Samples, output: PolicyOutput, log_prob: Tensor, entropy: Tensor
    ) -> Tensor:
        """The sum of the network's own losses on a minibatch, a scalar with gradients."""
        batch = LossBatch(
            obs=policy.prepare(minibatch.obs),
            action=minibatch.action,
            mask=minibatch.mask,
            advantage=minibatch.advantage,
            returns=minibatch.returns,
            old_log_prob=minibatch.log_prob,
            old_value=minibatch.value,
            logits=output.logits,
            value=output.value,
            log_prob=log_prob,
            entropy=entropy,
            state=minibatch.state,
            begins=minibatch.begins,
            counts=minibatch.counts,
        )
        try:
            with torch.enable_grad():  # restores the setting if a loss turns gradients off
                losses = self._loss(batch)
                has_gradients = torch.is_grad_enabled()
        except Exception as error:
            raise ConfigError(f"{self._where} failed: {type(error).__name__}: {error}") from error
        if not has_gradients:
            raise ConfigError(f"{self._where} left torch's gradients turned off; {_WHAT_IT_MAY_NOT_DO}")
        self._check(losses)
        values = [losses[name].to(output.value.device, torch.float32) for name in self.names]
        self.latest = [value.detach() for value in values]
        return torch.stack(values).sum()

    def backward(self, total: Tensor) -> None:
        """Run the backward pass of the total loss; if it fails, the error names the network."""
        try:
            total.backward()
        except Exception as error:
            raise ConfigError(
                f"{self._where} failed in the backward pass: {type(error).__name__}: {error}; {_WHAT_IT_MAY_NOT_DO}"
            ) from error

    def summary(self, means: list[float]) -> dict[str, float]:
        """Metrics by name from `means` [names] over an update's gradient steps; raises if one is not finite."""
        for name, mean in zip(self.names, means, strict=True):
            if not torch.isfinite(torch.tensor(mean)):
                raise TrainingError(
                    f"{self._where} gave {name!r} as {mean}: training has diverged; go back to the last checkpoint "
                    f"with a smaller weight of it or a lower --learning-rate (--fork)"
                )
        return {f"loss/{name}": mean for name, mean in zip(self.names, means, strict=True)}

    def _check(self, losses: Any) -> None:
        """Raise a ConfigError unless `losses` is a dict of scalars with the names of the first minibatch."""
        if not isinstance(losses, Mapping) or not losses:
            raise ConfigError(
                f"{self._where} returned {shortened(losses)}; it returns a dict of scalar tensors by name, such as "
                f'{{"reconstruction": error.square().mean()}}'
            )
        if self.names != tuple(losses):
            for name in losses:
                _check_name(name, self._where)
            if self.names:
                raise ConfigError(
                    f"{self._where} returned {', '.join(losses)}, and before that {', '.join(self.names)}; it returns "
                    f"the same names each time, with a tensor of 0 where there is nothing to learn"
                )
            self.names = tuple(losses)
        for name, loss in losses.items():
            if not isinstance(loss, Tensor) or loss.shape != () or not loss.is_floating_point():
                given = f"a tensor {list(loss.shape)} of {loss.dtype}" if isinstance(loss, Tensor) else shortened(loss)
                raise ConfigError(
                    f"{self._where} returned {name!r} as {given}; each loss is one number, a tensor without "
                    f"dimensions, such as a mean()"
                )


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.strip()) <= MAX_NAME_LENGTH:
        raise ConfigError(
            f"{where} named one {shortened(name)}; a name is text of 1 to {MAX_NAME_LENGTH} printable characters"
        )


def note(network: nn.Module) -> str:
    """A remark for the header of a run whose network adds losses; empty if it adds none."""
    if OwnLosses.of(network) is None:
        return ""
    return f"adds the losses of {type(network).__name__}, so learns by torch's operators"


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The coefficients of the loss and of its gradient step.

    On the GPU, the coefficients that schedules change are tensors.
    """

    clip: float | Tensor
    entropy_coef: float | Tensor
    value_coef: float
    value_clip: float | None
    max_grad_norm: float | None
    normalizes_advantages: bool
    """Whether advantages are normalized to mean 0 and deviation 1 within each minibatch."""
    is_impala: bool = False
    """Whether the policy loss is IMPALA's policy gradient instead of the clipped surrogate."""
    rho_clip: float | None = None
    """IMPALA: upper bound of the probability ratio that multiplies the gradient; None: no ratio multiplies it."""
