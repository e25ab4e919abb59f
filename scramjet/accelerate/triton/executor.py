"""Which policies the fused kernels of the GPU can take, and their weights as those kernels want them."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box
from torch import nn

from scramjet.accelerate.triton.mlp import HAS_TRITON, MLPWeights, TritonMLP, why_unsupported
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.policies.distributions import Categorical
from scramjet.policies.networks import SeparateActorCritic
from scramjet.policies.policy import Policy


def fused_mlp(policy: Policy, pool: Pool, precision: str) -> TritonMLP | None:
    """The fused kernels over a policy's own weights; None where it is of another kind, or not on the GPU.

    Nor with agents: they die, and the kernels take minibatches of one size.
    """
    network, space = policy.network, pool.observation_space
    if not HAS_TRITON or policy.device.type != "cuda" or type(network) is not SeparateActorCritic:
        return None
    is_vector = isinstance(space, Box) and len(space.shape) == 1 and space.dtype == np.float32
    if pool.played_by is PlayedBy.AGENTS:
        return None
    parts = (network.actor_encoder, network.actor_core, policy.normalizer)
    if not is_vector or any(part is not None for part in parts) or not isinstance(policy.distribution, Categorical):
        return None
    activation = _activation(network.actor)
    trunks = [[layer for layer in trunk if isinstance(layer, nn.Linear)] for trunk in (network.actor, network.critic)]
    if activation is None or any(len(layers) != 2 for layers in trunks):
        return None
    actor = MLPWeights.of(network.actor, network.actor_head)
    critic = MLPWeights.of(network.critic, network.critic_head)
    if why_unsupported(actor, critic, activation=activation, precision=precision) is not None:
        return None
    fused = TritonMLP(actor, critic, activation=activation, precision=precision)
    layers = [
        layer
        for trunk, head in ((network.actor, network.actor_head), (network.critic, network.critic_head))
        for part in (trunk, head)
        for layer in part.modules()
        if isinstance(layer, nn.Linear)
    ]
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    for parameter, view in zip(parameters, fused.views, strict=True):
        parameter.grad = view
    return fused


def _activation(trunk: nn.Sequential) -> str | None:
    """The one between all layers, by the kernels' name."""
    names = {nn.Tanh: "tanh", nn.ReLU: "relu"}
    found = {names.get(type(layer)) for layer in trunk if not isinstance(layer, nn.Linear)}
    return found.pop() if len(found) == 1 else None
