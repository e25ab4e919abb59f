"""The executor of small networks on the GPU: Triton kernels that use the policy's own weights in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from scramjet.accelerate.executor import ActStep, Diagnostics, Executor, LossSettings
from scramjet.accelerate.minibatches import Minibatches
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.accelerate.triton.mlp import MLPWeights, TritonMLP, why_unsupported
from scramjet.compile.triton import HAS_TRITON
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.privileged import is_privileged
from scramjet.policies.distributions import Categorical
from scramjet.policies.networks import SeparateActorCritic
from scramjet.policies.policy import Policy
from scramjet.runtime.ranks.interface import Ranks


class TritonExecutor(Executor):
    """Acts, values and learns with kernels that keep activations on chip.

    IMPALA's loss, a user's own losses and samples that do not count are learned with torch's operators.
    """

    name = "triton"

    def __init__(self, policy: Policy, mlp: TritonMLP, why: str = "") -> None:
        super().__init__(policy, why)
        self.mlp = mlp
        self._plain = TorchExecutor(policy)
        self.own_losses = self._plain.own_losses

    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        return [partial(self._act, step) for step in steps]

    def _act(self, step: ActStep) -> None:
        self.mlp.act(step.obs, step.mask, step.noise, step.action, step.log_prob)

    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        self.mlp.values(obs, value)

    def learn(
        self, samples: Samples, minibatches: Minibatches, loss: LossSettings, optimizer: torch.optim.Adam
    ) -> Diagnostics:
        if loss.is_impala or self.own_losses is not None or not samples.is_plain:
            return self._plain.learn(samples, minibatches, loss, optimizer)
        return self._learn(samples, minibatches, loss, optimizer)

    @torch.no_grad()
    def _learn(
        self, samples: Samples, minibatches: Minibatches, loss: LossSettings, optimizer: torch.optim.Adam
    ) -> Diagnostics:
        """Learn with the kernels, which write gradients to the memory that the optimizer reads."""
        rows = []
        for diagnostics in self._gradients(samples, minibatches, loss):
            if loss.max_grad_norm is not None:  # the optimizer divides gradients by `grad_scale`
                excess = (diagnostics[-1:] + 1e-6) / loss.max_grad_norm
                optimizer.grad_scale = excess.clamp(min=1.0)  # type: ignore[attr-defined]
            optimizer.step()
            rows.append(diagnostics)
        return Diagnostics(torch.stack(rows))

    def _gradients(self, samples: Samples, minibatches: Minibatches, loss: LossSettings) -> Iterator[Tensor]:
        """Compute the gradients of one minibatch after the other, and yield the diagnostics of each."""
        order, number, statistics = minibatches.order, len(minibatches), minibatches.statistics
        table = torch.empty(number, len(Diagnostics.NAMES), device=order.device)
        if loss.normalizes_advantages and statistics is None:
            statistics = torch.empty(number, 2, device=order.device)
            self.mlp.advantage_statistics(samples.advantage, order, number, statistics)
        for i in range(number):
            given = None if statistics is None else statistics[i]
            self.mlp.gradients(samples, minibatches.units(i), given, loss, diagnostics=table[i])
            if minibatches.num_counted is not None:
                self._add_up(minibatches.ranks, minibatches.sizes[i] / minibatches.num_counted[i], table[i])
            yield table[i]

    def _add_up(self, ranks: Ranks, share: Tensor, diagnostics: Tensor) -> None:
        """Replace the gradients and diagnostics [7] of this rank's part of a minibatch by those of the whole minibatch.

        `share` is how much of the minibatch this rank has, a scalar.
        """
        numbers, terms = self.mlp.exchanged, self.mlp.exchanged[self.mlp.num_parameters :]
        terms.copy_(diagnostics[:-1])
        numbers.mul_(share.float())
        ranks.add(numbers)
        diagnostics[:-1] = terms
        diagnostics[-1] = torch.linalg.vector_norm(self.mlp.grads)

    def warm_up(self, step: ActStep, samples: Samples, minibatches: Minibatches, loss: LossSettings) -> None:
        if not samples.is_plain:
            return
        self._act(step)
        self.mlp.values(samples.obs, samples.value)
        if not loss.is_impala and self.own_losses is None:
            next(self._gradients(samples, minibatches, loss))


def triton_mlp(policy: Policy, pool: Pool, precision: str) -> TritonMLP | str:
    """The kernels for a policy; or, if they cannot run it, the reason in words.

    The `grad` of each weight becomes a view of the memory that the kernels write gradients to.
    """
    network, space = policy.network, pool.observation_space
    if not HAS_TRITON:
        return "Triton is not installed"
    if type(network) is not SeparateActorCritic:
        return f"Triton kernels do not run a {type(network).__name__}"
    if pool.played_by is PlayedBy.AGENTS:
        return "agents die, and Triton kernels learn only where every sample counts"
    if is_privileged(space):
        return "Triton kernels give policy and critic the same observations (observe_critic)"
    if not (isinstance(space, Box) and len(space.shape) == 1 and space.dtype == np.float32):
        return "Triton kernels take observations that are vectors of float32"
    if any(part is not None for part in (network.actor_encoder, network.actor_core, policy.normalizer)):
        return "Triton kernels know no encoder, memory or normalization of observations"
    if policy.two_hot_head is not None:
        return "Triton kernels learn values by their squared error"
    if not isinstance(policy.distribution, Categorical):
        return "Triton kernels draw discrete actions only"
    activation = _activation(network.actor)
    trunks = [[layer for layer in trunk if isinstance(layer, nn.Linear)] for trunk in (network.actor, network.critic)]
    if activation is None or any(len(layers) != 2 for layers in trunks):
        return "Triton kernels take two hidden layers of tanh or ReLU"
    actor = MLPWeights.of(network.actor, network.actor_head)
    critic = MLPWeights.of(network.critic, network.critic_head)
    problem = why_unsupported(actor, critic, activation=activation, precision=precision)
    if problem is not None:
        return problem
    mlp = TritonMLP(actor, critic, activation=activation, precision=precision)
    _take_gradients_from(mlp, network)
    return mlp


def _take_gradients_from(mlp: TritonMLP, network: SeparateActorCritic) -> None:
    """Set the `grad` of each weight to the view that the kernels write its gradient to."""
    layers = [
        layer
        for trunk, head in ((network.actor, network.actor_head), (network.critic, network.critic_head))
        for part in (trunk, head)
        for layer in part.modules()
        if isinstance(layer, nn.Linear)
    ]
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    for parameter, view in zip(parameters, mlp.views, strict=True):
        parameter.grad = view


def _activation(trunk: nn.Sequential) -> str | None:
    """The kernels' name of the activation after all layers; None if it is unknown or not the same everywhere."""
    names = {nn.Tanh: "tanh", nn.ReLU: "relu"}
    found = {names.get(type(layer)) for layer in trunk if not isinstance(layer, nn.Linear)}
    return found.pop() if len(found) == 1 else None
