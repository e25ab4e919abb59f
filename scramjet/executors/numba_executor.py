"""The executor of small networks on the CPU: compiled functions that use the policy's own weights in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from scramjet.compile.addresses import AVAILABLE, StepCalls
from scramjet.compile.blas import HAS_BLAS
from scramjet.engine.privileged import is_privileged
from scramjet.executors.executor import ActStep, Diagnostics, Executor
from scramjet.executors.losses import LossSettings
from scramjet.executors.numba_network import Head, NumbaNetwork, NumbaStep, Tower
from scramjet.executors.samples import Minibatches, Samples
from scramjet.executors.supports import (
    ACTIVATIONS,
    MEMORIES,
    NETWORKS,
    SETTINGS,
    are_alike,
    no_linear,
    why_not,
    why_not_adam,
    why_torch,
)
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.kernels.operations import has_hooks
from scramjet.policies.distributions import Categorical, DiagonalGaussian, Distribution, MultiCategorical
from scramjet.policies.networks import GaussianHead, SeparateActorCritic, SharedActorCritic, encode
from scramjet.policies.policy import Policy
from scramjet.policies.recurrent import Core, LayeredCore
from scramjet.policies.symmetries import CanonicalNetwork

if TYPE_CHECKING:
    from scramjet.executors.numba_encoders import CompiledEncoder


class UnsupportedPolicyError(Exception):
    """A policy that compiled functions cannot run; the message is the reason."""


class NumbaExecutor(Executor):
    """Acts, values and learns with compiled functions.

    IMPALA's loss, a user's own losses and samples that do not count are learned with torch's operators.
    """

    name = "numba"

    def __init__(self, policy: Policy, why: str = "") -> None:
        """Raises `UnsupportedPolicyError` if the compiled functions cannot run the policy's network."""
        super().__init__(policy, why)
        self.network = numba_network(policy)
        self._plain = TorchExecutor(policy, parameters=cast(list[nn.Parameter], self.network.parameters))
        self.own_losses = self._plain.own_losses
        self.moves_every_weight = self.own_losses is None
        self._may_learn = True  # since it was chosen: a callback may freeze weights or exchange the optimizer

    def refresh(self) -> None:
        super().refresh()
        if not self.version:
            self.network.refresh()

    def actions(self, steps: Sequence[ActStep]) -> list[Callable[[], None]]:
        if self._reads_in_place(steps[0].obs):
            acts = self.network.acts(self._bound_in_place(steps), steps[0].state)
            return [partial(self._act, step, act) for step, act in zip(steps, acts, strict=True)]
        inputs = torch.zeros(self.network.encode(steps[0].obs).shape)
        acts = self.network.acts([self._bound(step, inputs) for step in steps], steps[0].state)
        encoding = [partial(self._encode_and_act, step.obs, inputs, act) for step, act in zip(steps, acts, strict=True)]
        return [partial(self._act, step, act) for step, act in zip(steps, encoding, strict=True)]

    def _act(self, step: ActStep, act: Callable[[], None]) -> None:
        if self.version:
            self._plain.act(step)
        else:
            act()

    def compiled_actions(self, steps: Sequence[ActStep]) -> StepCalls | None:
        if self.network.has_memory or not self._reads_in_place(steps[0].obs):
            return None
        return self.network.act_calls(self._bound_in_place(steps))

    def _reads_in_place(self, obs: Any) -> bool:
        """Whether encoding returns a view, so that the functions read observations where the envs write them."""
        return isinstance(obs, Tensor) and self.network.encode(obs).data_ptr() == obs.data_ptr()

    def _bound_in_place(self, steps: Sequence[ActStep]) -> list[NumbaStep]:
        return [self._bound(step, self.network.encode(step.obs)) for step in steps]

    def _bound(self, step: ActStep, inputs: Tensor) -> NumbaStep:
        return NumbaStep(inputs, step.mask, step.noise, step.action, step.log_prob, step.value)

    def _encode_and_act(self, obs: Any, inputs: Tensor, act: Callable[[], None]) -> None:
        inputs.copy_(self.network.encode(obs))
        act()

    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        if self.version:
            self._plain.values(obs, state, value)
        else:
            self.network.values(obs, state, value)

    def begin_update(self, samples: Samples, optimizer: torch.optim.Adam) -> None:
        is_as_built = not self.version and _is_supported(self.policy)
        self._may_learn = is_as_built and not why_not_adam(optimizer) and _is_even(optimizer)
        if self._may_learn and self.moves_every_weight and samples.counts is None:
            self.network.use_optimizer(optimizer)
            self.network.use_samples(samples)

    def learn(
        self, samples: Samples, minibatches: Minibatches, loss: LossSettings, optimizer: torch.optim.Adam
    ) -> Diagnostics:
        if loss.is_impala or not self.moves_every_weight or samples.counts is not None or not self._may_learn:
            return self._plain.learn(samples, minibatches, loss, optimizer)
        return Diagnostics(self.network.learn(minibatches, loss))


def numba_network(policy: Policy) -> NumbaNetwork:
    """Prepare the compiled functions for a policy; raises `UnsupportedPolicyError` if they cannot run it."""
    network, distribution = policy.network, policy.distribution
    symmetric = network if type(network) is CanonicalNetwork else None
    network = network if symmetric is None else symmetric.network
    if not AVAILABLE:
        raise UnsupportedPolicyError("of Numba only the public parts are used")
    if not HAS_BLAS:
        raise UnsupportedPolicyError("this torch brings no BLAS that compiled functions can call")
    # A user's own class may do anything, share weights or exclude some from learning.
    if reason := why_not("numba", network, NETWORKS):
        raise UnsupportedPolicyError(reason)
    if reason := why_torch(policy):
        raise UnsupportedPolicyError(reason)
    if type(distribution) is DiagonalGaussian and distribution.squashes:
        raise UnsupportedPolicyError(SETTINGS["squashed actions"].numba)
    if policy.two_hot_head is not None:
        raise UnsupportedPolicyError(SETTINGS["distribution of values"].numba)
    _check_weights(policy.network)
    assert isinstance(network, SeparateActorCritic | SharedActorCritic)
    encoder, towers = _towers(network, policy)
    offsets = distribution.offsets if type(distribution) is MultiCategorical else None
    if type(distribution) is Categorical:
        offsets = torch.tensor([0, distribution.num_inputs])
    return NumbaNetwork(
        towers,
        partial(_inputs, policy, symmetric, encoder, towers[0].encoder is not None),
        num_inputs=distribution.num_inputs,
        num_components=math.prod(distribution.action_shape),
        offsets=offsets,
        turns=None if symmetric is None else symmetric.tables.action_sources,
    )


def _towers(network: SeparateActorCritic | SharedActorCritic, policy: Policy) -> tuple[nn.Module | None, list[Tower]]:
    """The encoder that observations go through first, and the towers of a network."""
    heads = _policy_heads(network.actor_head, policy.distribution)
    critic = _linear(network.critic_head)
    value = Head(critic.weight, critic.bias, policy.distribution.num_inputs)
    if isinstance(network, SharedActorCritic):
        return network.encoder, [_tower(network.encoder, network.trunk, network.core, [*heads, value])]
    towers = [
        _tower(network.actor_encoder, network.actor, network.actor_core, heads),
        _tower(network.critic_encoder, network.critic, network.critic_core, [value]),
    ]
    # What the critic sees begins with what the policy sees.
    is_more = is_privileged(policy.observation_space)
    encoders = network.actor_encoder, network.critic_encoder
    if not is_more and towers[0].encoder is None and not are_alike(*encoders):
        raise UnsupportedPolicyError("actor and critic encode observations in two ways")
    return network.critic_encoder if is_more else network.actor_encoder, towers


def _inputs(policy: Policy, symmetric: CanonicalNetwork | None, encoder: Any, is_compiled: bool, obs: Any) -> Tensor:
    """The inputs [B, D] of a network: features, or if its encoder is compiled what that takes; then the number of the
    symmetry by which a board was turned, where boards are."""
    obs = policy.prepare(obs)
    if symmetric is not None:
        obs, chosen = symmetric.canonical(obs)
    if is_compiled:
        from scramjet.executors.numba_encoders import inputs_of

        inputs = inputs_of(encoder, obs)
    else:
        inputs = encode(encoder, obs)
    return inputs if symmetric is None else torch.cat([inputs, chosen.unsqueeze(1).to(inputs.dtype)], dim=1)


def _is_supported(policy: Policy) -> bool:
    """Whether compiled functions may still learn a network that they were chosen for."""
    try:
        _check_weights(policy.network)
    except UnsupportedPolicyError:
        return False
    return not why_torch(policy)


def _is_even(optimizer: torch.optim.Adam) -> bool:
    """Whether all weights have made as many steps: compiled functions count once for all."""
    return len({int(state["step"]) for state in optimizer.state.values() if state}) <= 1


def _check_weights(network: nn.Module) -> None:
    """Raise unless all weights are float32 on the CPU, learn, and are not shared, and no module has hooks."""
    parameters: list[Any] = [parameter for _, parameter in network.named_parameters(remove_duplicate=False)]
    modules = list(network.modules())
    if not all(p.is_cpu and p.dtype == torch.float32 and p.requires_grad and p.is_contiguous() for p in parameters):
        raise UnsupportedPolicyError("not all weights are contiguous float32 on the CPU and learn")
    if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in parameters) or has_hooks(modules):
        raise UnsupportedPolicyError("the network has hooks")
    if len({id(p) for p in parameters}) < len(parameters):
        raise UnsupportedPolicyError("the network shares weights")


def _linear(module: nn.Module) -> nn.Linear:
    """Return the module if it is a plain linear layer with a bias; raises if it is not."""
    if type(module) is not nn.Linear or module.bias is None:
        raise UnsupportedPolicyError(f"compiled functions do not run {no_linear(module)}")
    return module


def _tower(encoder: nn.Module | None, trunk: nn.Sequential, core: Core | None, heads: list[Head]) -> Tower:
    modules = list(trunk)
    linears, activations = [_linear(module) for module in modules[::2]], modules[1::2]
    if len(linears) != len(activations) or not all(type(activation) in ACTIVATIONS for activation in activations):
        raise UnsupportedPolicyError("a trunk is not linear layers each with tanh or ReLU")
    if core is not None and not (
        isinstance(core, LayeredCore) and not why_not("numba", core, MEMORIES) and len(core.layers) == 1
    ):
        raise UnsupportedPolicyError("the memory core has several layers or is of another kind")
    return Tower(list(zip(linears, activations, strict=True)), core, heads, _encoder(encoder, linears[0]))


def _encoder(encoder: nn.Module | None, following: nn.Linear) -> CompiledEncoder | None:
    """The compiled functions of an encoder with weights; None if it has none; raises if there are no such functions."""
    if encoder is None or not any(True for _ in encoder.parameters()):
        return None
    from scramjet.executors.numba_encoders import compiled_encoder

    found = compiled_encoder(encoder, following)
    if isinstance(found, str):
        raise UnsupportedPolicyError(found)
    return found


def _policy_heads(head: nn.Module, distribution: Distribution) -> list[Head]:
    if isinstance(head, nn.Linear):
        head = _linear(head)
        return [Head(head.weight, head.bias, 0)]
    if type(head) is not GaussianHead or not isinstance(distribution, DiagonalGaussian):
        raise UnsupportedPolicyError(f"compiled functions do not run {no_linear(head)}")
    mean, log_std = _linear(head.mean), head.log_std
    heads = [Head(mean.weight, mean.bias, 0)]
    if isinstance(log_std, nn.Linear):
        return [*heads, Head(log_std.weight, log_std.bias, distribution.size)]
    return [*heads, Head(None, log_std, distribution.size)]
