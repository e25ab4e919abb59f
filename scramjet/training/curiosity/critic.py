"""The critic of bonuses: what they add up to from an observation on. It has no memory, and a policy's encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor
from torch.nn import functional

from scramjet.executors.executor import Diagnostics
from scramjet.executors.losses import LossSettings
from scramjet.executors.samples import Samples
from scramjet.kernels.operations import takes_kernels
from scramjet.policies.config import PolicyConfig
from scramjet.policies.encoders.vectors import FlatEncoder
from scramjet.policies.policy import Policy
from scramjet.training.curiosity.bonus import Transitions, at_places, mean_of_counted
from scramjet.training.curiosity.networks import FeatureNetwork, adam, in_chunks

if TYPE_CHECKING:
    from scramjet.executors.triton_mlp import TritonMLP

_SQUARED_ERROR = LossSettings(
    clip=0.0, entropy_coef=0.0, value_coef=1.0, value_clip=None, max_grad_norm=None, normalizes_advantages=False
)
_VALUE_LOSS = Diagnostics.NAMES.index("value_loss")


class BonusCritic:
    """Values observations and learns returns of bonuses: on the GPU by the kernels of small networks, if they take it.

    A gradient step is `learn`, which finds the gradient, and then `step`. All weights learn: nobody else has a hand on
    them, so the kernels are chosen once.
    """

    def __init__(
        self, policy: Policy, space: Any, config: PolicyConfig, learning_rate: float, *, may_use_kernels: bool
    ) -> None:
        """`space` is that of the observations that the policy sees."""
        self._policy = policy
        self.network = FeatureNetwork(space, config, 1).to(policy.device)
        self.parameters = list(self.network.parameters())
        self._mlp = self._kernels(space) if may_use_kernels and takes_kernels(self.parameters[0]) else None
        rate = learning_rate if self._mlp is None else torch.tensor(learning_rate, device=policy.device)
        self.optimizer = adam(self.parameters, rate, policy.device)
        self._diagnostics = torch.zeros(len(Diagnostics.NAMES), device=policy.device)  # the kernels write them

    def _kernels(self, space: Any) -> TritonMLP | None:
        reads_vectors = isinstance(space, Box) and space.dtype == np.float32
        if not reads_vectors or type(self.network.encoder) is not FlatEncoder:
            return None
        from scramjet.executors.triton_mlp import fitted_mlp
        from scramjet.executors.triton_plan import UnsupportedMLPError, plan_of_critic
        from scramjet.kernels.gpu.language import product_precision

        try:
            plan = plan_of_critic(self.network, self.network.trunk, self.network.head, self._policy.normalizer)
        except UnsupportedMLPError:
            return None
        found = fitted_mlp(plan, product_precision())
        return None if isinstance(found, str) else found

    def begin_update(self) -> None:
        """Take over weights and moments that were loaded since the last update."""
        if self._mlp is not None:
            self._mlp.flat.refresh()
            self._mlp.flat.use_optimizer(self.optimizer)

    @torch.no_grad()
    def values(self, obs: Any) -> Tensor:
        """The values of observations [T, R, ...], [T, R]."""
        if self._mlp is None:
            return in_chunks(self._value, obs)
        self._mlp.flat.refresh()
        steps, num_rows = obs.shape[:2]
        value = torch.empty(steps, num_rows, device=obs.device)
        self._mlp.values(_rows(obs), value.view(-1))
        return value

    def _value(self, obs: Any) -> Tensor:
        return self.network(self._policy.prepare_seen(obs)).squeeze(-1)

    def learn(self, steps: Transitions, returns: Tensor, places: Tensor, num_ranks: int) -> Tensor:
        """Add the gradient of the loss at these places [B] of a rollout with returns [T, R]; the loss, a scalar.

        The gradient is this rank's share of that of `num_ranks`. The next call may write to the memory of the loss.
        """
        if self._mlp is None:
            loss = self._loss(steps, returns, places)
            (loss if num_ranks == 1 else loss / num_ranks).backward()
            return loss.detach()
        assert num_ranks == 1
        counts = None if steps.counts is None else steps.counts.flatten()
        number = None if counts is None else at_places(steps.counts, places).sum().clamp(min=1).float().view(1)
        rows, wanted = _rows(steps.obs), returns.flatten()
        samples = Samples(
            obs=rows, mask=None, action=places, log_prob=wanted, value=wanted, advantage=wanted, returns=wanted,
            place=places, counts=counts,
        )  # fmt: skip
        self._mlp.gradients(rows, samples, places, None, _SQUARED_ERROR, None if number is None else 1.0 / number)
        return self._mlp.terms[_VALUE_LOSS]

    def _loss(self, steps: Transitions, returns: Tensor, places: Tensor) -> Tensor:
        """Half the squared error, a mean over the steps that count."""
        wanted = at_places(returns, places)
        error = functional.mse_loss(self._value(at_places(steps.obs, places)), wanted, reduction="none")
        counts = None if steps.counts is None else at_places(steps.counts, places)
        return 0.5 * mean_of_counted(error, counts)

    def step(self) -> None:
        """Move the weights against the gradient that was found."""
        if self._mlp is None:
            self.optimizer.step()
        else:
            self._mlp.step(self.optimizer, None, diagnostics=self._diagnostics)


def _rows(obs: Tensor) -> Tensor:
    """Observations [T, R, *shape] as vectors, one below the other, [T * R, D]."""
    return obs.reshape(obs.shape[0] * obs.shape[1], -1)
