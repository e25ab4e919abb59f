"""Networks from observations to logits and values: encoder, MLP trunk, heads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.errors import ConfigError
from scramjet.policies.attention import make_entity_network
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import DiagonalGaussian, Distribution, make_distribution
from scramjet.policies.encoders import make_encoder
from scramjet.policies.layers import PolicyOutput, count_parameters, mlp, orthogonal
from scramjet.policies.observations import Observations, describe_observations, lowest_observations
from scramjet.policies.vectors import Encoder, FlatEncoder

__all__ = [
    "GaussianHead",
    "PolicyConfig",
    "PolicyOutput",
    "SeparateActorCritic",
    "SharedActorCritic",
    "check_network",
    "count_parameters",
    "default_network",
]


class GaussianHead(nn.Module):
    """Means and logarithms of deviations, [B, 2 D]; deviations from the features, or one learned for all states."""

    def __init__(self, num_features: int, size: int, config: PolicyConfig) -> None:
        super().__init__()
        self.mean = orthogonal(nn.Linear(num_features, size), 0.01)
        if config.state_dependent_std:
            self.log_std: nn.Linear | nn.Parameter = orthogonal(nn.Linear(num_features, size), 0.01)
            nn.init.constant_(self.log_std.bias, config.log_std_init)
        else:
            self.log_std = nn.Parameter(torch.full((size,), config.log_std_init))

    def forward(self, features: Tensor) -> Tensor:
        """[B, F] to [B, 2 D]."""
        mean: Tensor = self.mean(features)
        log_std = self.log_std(features) if isinstance(self.log_std, nn.Linear) else self.log_std.expand_as(mean)
        return torch.cat([mean, log_std], dim=-1)


def policy_head(num_features: int, distribution: Distribution, config: PolicyConfig) -> nn.Module:
    """From features to a distribution's logits; gain 0.01, for a first policy that hardly prefers anything."""
    if isinstance(distribution, DiagonalGaussian):
        return GaussianHead(num_features, distribution.size, config)
    return orthogonal(nn.Linear(num_features, distribution.num_inputs), 0.01)


def encoder_before_trunk(space: Any, config: PolicyConfig) -> tuple[Encoder | None, int]:
    """The encoder of a space and its number of features; None where there is nothing to do but to lay floats flat.

    Calling a module for that would cost a small network several percent of its time.
    """
    encoder = make_encoder(space, config)
    is_done_already = isinstance(encoder, FlatEncoder) and space.shape and np.dtype(space.dtype).kind == "f"
    return None if is_done_already else encoder, encoder.num_features


def encode(encoder: Encoder | None, obs: Any) -> Tensor:
    """Features [B, F] of a batch of observations."""
    features: Tensor = obs.flatten(1) if encoder is None else encoder(obs)
    return features


class SeparateActorCritic(nn.Module):
    """Policy and value with an encoder and an MLP trunk each.

    Output gains 0.01 (policy) and 1 (value): a near-uniform first policy, a value of natural scale. Memory, where
    there is any, stands between `*_encoder` and the trunk that follows it.
    """

    def __init__(self, observation_space: Any, distribution: Distribution, config: PolicyConfig) -> None:
        super().__init__()
        self.actor_encoder, num_features = encoder_before_trunk(observation_space, config)
        self.actor = mlp(num_features, config.hidden, config.activation)
        self.actor_head = policy_head(config.hidden[-1], distribution, config)
        self.critic_encoder, _ = encoder_before_trunk(observation_space, config)
        self.critic = mlp(num_features, config.hidden, config.activation)
        self.critic_head = orthogonal(nn.Linear(config.hidden[-1], 1), 1.0)

    def forward(self, obs: Observations) -> PolicyOutput:
        """Logits [B, num_inputs] and values [B] of a batch of observations."""
        return PolicyOutput(self.logits(obs), self.value(obs))

    def logits(self, obs: Observations) -> Tensor:
        """The logits alone, [B, num_inputs]."""
        logits: Tensor = self.actor_head(self.actor(encode(self.actor_encoder, obs)))
        return logits

    def value(self, obs: Observations) -> Tensor:
        """The values alone, [B]."""
        value: Tensor = self.critic_head(self.critic(encode(self.critic_encoder, obs)))
        return value.squeeze(-1)


class SharedActorCritic(nn.Module):
    """Policy and value on one encoder and MLP trunk; the same output gains, the same place for memory."""

    def __init__(self, observation_space: Any, distribution: Distribution, config: PolicyConfig) -> None:
        super().__init__()
        self.encoder, num_features = encoder_before_trunk(observation_space, config)
        self.trunk = mlp(num_features, config.hidden, config.activation)
        self.actor_head = policy_head(config.hidden[-1], distribution, config)
        self.critic_head = orthogonal(nn.Linear(config.hidden[-1], 1), 1.0)

    def forward(self, obs: Observations) -> PolicyOutput:
        """Logits [B, num_inputs] and values [B] of a batch of observations."""
        features = self.trunk(encode(self.encoder, obs))
        return PolicyOutput(self.actor_head(features), self.critic_head(features).squeeze(-1))


def default_network(observation_space: Any, action_space: Any, config: PolicyConfig) -> nn.Module:
    """The network scramjet builds for these spaces when the user brings none."""
    widest = max(before * after for before, after in itertools.pairwise((1, *config.hidden, 1)))
    if widest > 2**31:
        raise ConfigError(f"policy.hidden={list(config.hidden)} makes a layer of {widest:.1e} weights; lower it")
    distribution = make_distribution(action_space, config)
    if config.encoder == "entity_attention":
        return make_entity_network(observation_space, distribution, config)
    kind = SharedActorCritic if config.shared_trunk else SeparateActorCritic
    return kind(observation_space, distribution, config)


def splits(network: nn.Module) -> bool:
    """Whether a network has the methods `logits` and `value`; layers of these names are just layers."""
    parts = (getattr(network, "logits", None), getattr(network, "value", None))
    return all(callable(part) and not isinstance(part, nn.Module) for part in parts)


def check_network(network: nn.Module, observation_space: Any, action_space: Any, config: PolicyConfig) -> None:
    """Try a user's network on two empty observations; say what does not fit."""
    num_inputs = make_distribution(action_space, config).num_inputs
    name, obs = type(network).__name__, lowest_observations(observation_space, 2)
    try:
        with torch.no_grad():
            outputs = [_as_output(*network(obs))]
            if splits(network):
                outputs.append(_as_output(network.logits(obs), network.value(obs)))  # type: ignore[operator]
    except Exception as error:
        raise ConfigError(
            f"the network {name} failed on observations of shape {describe_observations(obs)}: {error}; "
            f"a network takes observations as their space lays them out, floats as float32 and all else in its own "
            f"number type (so call .float() on whole numbers), and returns (logits [B, {num_inputs}], value [B])"
        ) from error
    for logits, value in outputs:
        if tuple(logits.shape) != (2, num_inputs) or tuple(value.shape) != (2,):
            raise ConfigError(
                f"the network {name} returned logits {list(logits.shape)} and value {list(value.shape)} for a batch "
                f"of 2; this world needs logits [2, {num_inputs}] and value [2]"
            )


def _as_output(logits: Any, value: Any) -> PolicyOutput:
    if not (isinstance(logits, Tensor) and isinstance(value, Tensor)):
        raise TypeError(f"it returned {type(logits).__name__} and {type(value).__name__}, not two tensors")
    return PolicyOutput(logits, value)
