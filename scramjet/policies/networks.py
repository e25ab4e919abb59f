"""Networks from observations to numbers: the MLP encoder and the actor-critic made of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from scramjet.errors import ConfigError
from scramjet.settings import settle


@dataclass(frozen=True)
class PolicyConfig:
    """The network that acts and values."""

    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Nonlinearity after each hidden layer."""
    shared_trunk: bool = False
    """One trunk for policy and value, instead of one each."""

    def __post_init__(self) -> None:
        settle(self, "policy.")
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(
                f"policy.hidden={list(self.hidden)} needs at least one layer of at least one unit; "
                f"try --policy.hidden 64 64"
            )


class PolicyOutput(NamedTuple):
    """What a network makes of B observations."""

    logits: Tensor  # [B, num_actions], unnormalized log-probabilities
    value: Tensor  # [B]


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """Orthogonal weights and zero bias (Saxe et al. 2014)."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(inputs: int, hidden: Sequence[int], activation: str) -> nn.Sequential:
    """Linear layers with a nonlinearity after each; gain sqrt 2."""
    nonlinearity: type[nn.Module] = nn.Tanh if activation == "tanh" else nn.ReLU
    layers: list[nn.Module] = []
    for outputs in hidden:
        layers += [orthogonal(nn.Linear(inputs, outputs), math.sqrt(2)), nonlinearity()]
        inputs = outputs
    return nn.Sequential(*layers)


class SeparateActorCritic(nn.Module):
    """Policy and value with an MLP trunk each.

    Output gains 0.01 (policy) and 1 (value): a near-uniform first policy, a value of natural scale.
    """

    def __init__(self, num_inputs: int, num_actions: int, config: PolicyConfig) -> None:
        super().__init__()
        self.actor = mlp(num_inputs, config.hidden, config.activation)
        self.actor_head = orthogonal(nn.Linear(config.hidden[-1], num_actions), 0.01)
        self.critic = mlp(num_inputs, config.hidden, config.activation)
        self.critic_head = orthogonal(nn.Linear(config.hidden[-1], 1), 1.0)

    def forward(self, obs: Tensor) -> PolicyOutput:
        """Logits [B, num_actions] and values [B] of observations [B, *obs_shape]."""
        return PolicyOutput(self.logits(obs), self.value(obs))

    def logits(self, obs: Tensor) -> Tensor:
        """The logits alone, [B, num_actions]."""
        logits: Tensor = self.actor_head(self.actor(obs.flatten(1)))
        return logits

    def value(self, obs: Tensor) -> Tensor:
        """The values alone, [B]."""
        value: Tensor = self.critic_head(self.critic(obs.flatten(1)))
        return value.squeeze(-1)


class SharedActorCritic(nn.Module):
    """Policy and value on one MLP trunk; the same output gains."""

    def __init__(self, num_inputs: int, num_actions: int, config: PolicyConfig) -> None:
        super().__init__()
        self.trunk = mlp(num_inputs, config.hidden, config.activation)
        self.actor_head = orthogonal(nn.Linear(config.hidden[-1], num_actions), 0.01)
        self.critic_head = orthogonal(nn.Linear(config.hidden[-1], 1), 1.0)

    def forward(self, obs: Tensor) -> PolicyOutput:
        """Logits [B, num_actions] and values [B] of observations [B, *obs_shape]."""
        features = self.trunk(obs.flatten(1))
        return PolicyOutput(self.actor_head(features), self.critic_head(features).squeeze(-1))


def count_parameters(module: nn.Module) -> int:
    """Trainable numbers in a module."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def default_network(observation_space: Any, action_space: Any, config: PolicyConfig) -> nn.Module:
    """The network scramjet builds for these spaces when the user brings none."""
    kind = SharedActorCritic if config.shared_trunk else SeparateActorCritic
    widest = max(before * after for before, after in itertools.pairwise((1, *config.hidden, 1)))
    if widest > 2**31:
        raise ConfigError(f"policy.hidden={list(config.hidden)} makes a layer of {widest:.1e} weights; lower it")
    return kind(math.prod(observation_space.shape), int(action_space.n), config)


def check_network(network: nn.Module, observation_space: Any, action_space: Any) -> None:
    """Try a user's network on two empty observations; say what does not fit."""
    shape, num_actions = tuple(observation_space.shape), int(action_space.n)
    name = type(network).__name__
    try:
        with torch.no_grad():
            output = network(torch.zeros(2, *shape))
        logits, value = output
        if not (isinstance(logits, Tensor) and isinstance(value, Tensor)):
            raise TypeError(f"it returned {type(logits).__name__} and {type(value).__name__}, not two tensors")
    except Exception as error:
        raise ConfigError(
            f"the network {name} failed on observations of shape [2, {', '.join(map(str, shape))}]: {error}; "
            f"a network takes [B, *obs_shape] and returns (logits [B, {num_actions}], value [B])"
        ) from error
    if tuple(logits.shape) != (2, num_actions) or tuple(value.shape) != (2,):
        raise ConfigError(
            f"the network {name} returned logits {list(logits.shape)} and value {list(value.shape)} for a batch "
            f"of 2; this world needs logits [2, {num_actions}] and value [2]"
        )
