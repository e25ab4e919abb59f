"""Which policies the compiled functions of the CPU can take, and their weights as those want them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from scramjet.accelerate.numba.network import ACTIVATIONS, CORES, ActStep, Head, NumbaNetwork, Tower
from scramjet.compile.blas import HAS_BLAS
from scramjet.policies.distributions import Categorical, DiagonalGaussian, Distribution, MultiCategorical
from scramjet.policies.networks import GaussianHead, SeparateActorCritic, SharedActorCritic, encode
from scramjet.policies.policy import Policy
from scramjet.policies.recurrent.cores import Core, LayeredCore

if TYPE_CHECKING:
    from scramjet.training.rollout.rollout import Rollout


class NativePlay:
    """The steps of a rollout, acted by compiled functions."""

    def __init__(self, network: NumbaNetwork, policy: Policy, rollout: Rollout) -> None:
        self.network = network
        self._rollout = rollout
        first = network.encode(rollout.steps_obs[0])
        obs, memories = rollout.steps_obs[0], rollout.memories
        self._is_direct = isinstance(obs, Tensor) and first.data_ptr() == obs.data_ptr()
        self._inputs = torch.zeros(first.shape)
        self._states = memories.states
        if memories.is_used and rollout.seat is not None:  # those of the seats to move
            self._states = torch.zeros(rollout.action.shape[1], policy.state_size)
        self._distribution, self._actions = policy.distribution, list(rollout.action)
        given = policy.distribution.env_action(rollout.action[0])
        self._given_as_stored = given.data_ptr() == rollout.action.data_ptr()
        steps = [self._step(t, policy) for t in range(rollout.num_steps)]
        self._acts = network.acts(steps, self._states if memories.is_used else None)

    def _step(self, t: int, policy: Policy) -> ActStep:
        rollout = self._rollout
        return ActStep(
            inputs=self.network.encode(rollout.steps_obs[t]) if self._is_direct else self._inputs,
            mask=None if rollout.mask is None else rollout.mask[t],
            noise=rollout.noise[t],
            action=rollout.action[t],
            log_prob=rollout.log_prob[t],
            value=None if policy.splits else rollout.value[t],
        )

    def act(self, t: int) -> Tensor:
        """Draw the actions of step t and take in what is remembered after it; returns them as envs receive them."""
        rollout = self._rollout
        if not self._is_direct:
            self._inputs.copy_(self.network.encode(rollout.steps_obs[t]))
        if self._states is rollout.memories.states:
            self._acts[t]()
        else:
            turn = rollout.turn(t)
            self._states.copy_(rollout.memories.of_movers(turn))  # type: ignore[arg-type]
            self._acts[t]()
            rollout.memories.keep(turn, self._states)
        return self._actions[t] if self._given_as_stored else self._distribution.env_action(self._actions[t])


def native_play(policy: Policy, rollout: Rollout) -> NativePlay | None:
    """Compiled functions for a policy and its rollouts; None where it is of a kind they do not take."""
    network = native_network(policy)
    return None if network is None else NativePlay(network, policy, rollout)


def native_network(policy: Policy) -> NumbaNetwork | None:
    """The compiled functions over a policy's own weights; None where it is of another kind, or not on the CPU."""
    network, distribution = policy.network, policy.distribution
    is_squashed = isinstance(distribution, DiagonalGaussian) and distribution.squashes
    # A class of the user's own may do anything, and weights may be shared or kept from learning.
    if type(network) not in (SeparateActorCritic, SharedActorCritic) or is_squashed or not _are_plain(network):
        return None
    if not HAS_BLAS:
        return None
    assert isinstance(network, SeparateActorCritic | SharedActorCritic)
    heads = _policy_heads(network.actor_head, distribution)
    if heads is None or not _is_linear(network.critic_head):
        return None
    value = Head(network.critic_head.weight, network.critic_head.bias, distribution.num_inputs)
    if isinstance(network, SharedActorCritic):
        encoder = network.encoder
        towers = [_tower(network.trunk, network.core, [*heads, value])]
    else:
        encoder = network.actor_encoder
        towers = [
            _tower(network.actor, network.actor_core, heads),
            _tower(network.critic, network.critic_core, [value]),
        ]
    if encoder is not None and any(True for _ in encoder.parameters()):
        return None
    known = [tower for tower in towers if tower is not None]
    if len(known) < len(towers):
        return None
    offsets = distribution.offsets if isinstance(distribution, MultiCategorical) else None
    if isinstance(distribution, Categorical):
        offsets = torch.tensor([0, distribution.num_inputs])
    return NumbaNetwork(
        known,
        lambda obs: encode(encoder, policy.prepare(obs)),
        num_inputs=distribution.num_inputs,
        num_components=math.prod(distribution.action_shape),
        offsets=offsets,
    )


def _are_plain(network: nn.Module) -> bool:
    """Whether all weights are floats on the CPU that learn, each in one place, and nobody listens in."""
    parameters = list(network.named_parameters(remove_duplicate=False))
    is_plain = all(p.is_cpu and p.dtype == torch.float32 and p.requires_grad for _, p in parameters)
    is_heard = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in network.modules())
    return is_plain and not is_heard and len({id(p) for _, p in parameters}) == len(parameters)


def _is_linear(module: nn.Module) -> bool:
    return type(module) is nn.Linear and module.bias is not None


def _tower(trunk: nn.Sequential, core: Core | None, heads: list[Head]) -> Tower | None:
    """None where a layer or the core is not one of ours."""
    modules = list(trunk)
    linears, activations = modules[::2], modules[1::2]
    if len(linears) != len(activations) or not all(map(_is_linear, linears)):
        return None
    if not all(type(activation) in ACTIVATIONS for activation in activations):
        return None
    layers = list(zip(linears, activations, strict=True))
    if core is not None and not (isinstance(core, LayeredCore) and type(core) in CORES and len(core.layers) == 1):
        return None
    return Tower(layers, core, heads)  # type: ignore[arg-type]  # looked at above


def _policy_heads(head: nn.Module, distribution: Distribution) -> list[Head] | None:
    if isinstance(head, nn.Linear) and _is_linear(head):
        return [Head(head.weight, head.bias, 0)]
    if type(head) is not GaussianHead or not isinstance(distribution, DiagonalGaussian) or not _is_linear(head.mean):
        return None
    mean, log_std = Head(head.mean.weight, head.mean.bias, 0), head.log_std
    if isinstance(log_std, nn.Linear):
        return [mean, Head(log_std.weight, log_std.bias, distribution.size)]
    return [mean, Head(None, log_std, distribution.size)]
