"""Networks from observations to logits and values: encoder, MLP trunk, recurrent core if asked for, heads;
and which encoder an observation space gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Dict
from torch import Tensor, nn

from scramjet.engine.privileged import CRITIC, POLICY, is_privileged, policy_part, policy_space
from scramjet.engine.trees import map_leaves
from scramjet.errors import ConfigError
from scramjet.kernels.operations import run_heads, run_trunk
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import DiagonalGaussian, Distribution, make_distribution
from scramjet.policies.encoders.attention import make_entity_network
from scramjet.policies.encoders.grids import GridCNN, grid_size
from scramjet.policies.encoders.images import NATURE_SMALLEST, ImpalaCNN, NatureCNN, is_image
from scramjet.policies.encoders.value_propagation import ValuePropagation
from scramjet.policies.encoders.vectors import DictEncoder, Encoder, FlatEncoder, flat_encoder
from scramjet.policies.layers import PolicyOutput, count_parameters, mlp, orthogonal, value_head
from scramjet.policies.observations import (
    Observations,
    describe_observations,
    lowest_observations,
    without_entries,
)
from scramjet.policies.recurrent import Core, CoreMaker, check_core, make_core, run_core, split_state, state_size
from scramjet.runtime.machine import require_memory

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
    """Means and logarithms of deviations, [B, 2 D]; the deviation is computed from the features, or is the same learned
    number in all states."""

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
    """The layer from features to a distribution's logits; gain 0.01, so that the first policy is near uniform."""
    if isinstance(distribution, DiagonalGaussian):
        return GaussianHead(num_features, distribution.size, config)
    return orthogonal(nn.Linear(num_features, distribution.num_inputs), 0.01)


def encoder_before_trunk(space: Any, config: PolicyConfig) -> tuple[Encoder | None, int]:
    """The encoder of a space and its number of features; None where floats only have to be laid flat, because calling a
    module for that would cost a small network several percent of its time."""
    encoder = make_encoder(space, config)
    is_done_already = isinstance(encoder, FlatEncoder) and space.shape and np.dtype(space.dtype).kind == "f"
    return None if is_done_already else encoder, encoder.num_features


def encode(encoder: Encoder | None, obs: Any) -> Tensor:
    """Features [B, F] of a batch of observations."""
    features: Tensor = obs.flatten(1) if encoder is None else encoder(obs)
    return features


class SeparateActorCritic(nn.Module):
    """An actor and a critic, each with its own encoder, MLP trunk and, if asked for, recurrent core.

    In a world with `observe_critic` the actor sees the policy's entry of an observation and the critic both entries.
    Output layers have gains 0.01 (policy) and 1 (value): a near-uniform first policy, values of natural scale.
    """

    def __init__(
        self, observation_space: Any, distribution: Distribution, config: PolicyConfig, core: CoreMaker = make_core
    ) -> None:
        super().__init__()
        own_space = policy_space(observation_space)
        self.actor_encoder, num_features = encoder_before_trunk(own_space, config)
        self.actor = mlp(num_features, config.hidden, config.activation)
        self.actor_core, width = core_after_trunk(config, core)
        self.actor_head = policy_head(width, distribution, config)
        self.critic_encoder: Encoder | None
        if is_privileged(observation_space):
            self.critic_encoder = critic_encoder(observation_space, config)
            num_features = self.critic_encoder.num_features
        else:
            self.critic_encoder, _ = encoder_before_trunk(own_space, config)
        self.critic = mlp(num_features, config.hidden, config.activation)
        self.critic_core, _ = core_after_trunk(config, core)
        self.critic_head = value_head(width, config)
        self.state_size = state_size(self.actor_core, self.critic_core)

    def forward(self, obs: Observations, state: Tensor | None = None, begins: Tensor | None = None) -> PolicyOutput:
        """Logits [B, num_inputs] and values [B] of a batch of observations; see `Policy` for the state."""
        if self.actor_core is None or self.critic_core is None:
            return PolicyOutput(self.logits(obs), self.value(obs))
        actor_state, critic_state = split_state(state, self.actor_core, self.critic_core)
        to_actor, actor_state = run_core(self.actor_core, self._actor_features(obs), actor_state, begins)
        to_critic, critic_state = run_core(self.critic_core, self._critic_features(obs), critic_state, begins)
        after = torch.cat([actor_state, critic_state], dim=1)
        return PolicyOutput(self.actor_head(to_actor), self.critic_head(to_critic).squeeze(-1), after)

    def logits(self, obs: Observations) -> Tensor:
        """The logits alone, [B, num_inputs]; only for networks without a core."""
        logits: Tensor = self.actor_head(self._actor_features(obs))
        return logits

    def value(self, obs: Observations) -> Tensor:
        """The values alone, [B]; only for networks without a core."""
        value: Tensor = self.critic_head(self._critic_features(obs))
        return value.squeeze(-1)

    def _actor_features(self, obs: Observations) -> Tensor:
        return run_trunk(self.actor, encode(self.actor_encoder, policy_part(obs)))

    def _critic_features(self, obs: Observations) -> Tensor:
        return run_trunk(self.critic, encode(self.critic_encoder, obs))


class SharedActorCritic(nn.Module):
    """Actor and critic on one encoder, MLP trunk and recurrent core; output gains as in `SeparateActorCritic`."""

    def __init__(
        self, observation_space: Any, distribution: Distribution, config: PolicyConfig, core: CoreMaker = make_core
    ) -> None:
        super().__init__()
        self.encoder, num_features = encoder_before_trunk(observation_space, config)
        self.trunk = mlp(num_features, config.hidden, config.activation)
        self.core, width = core_after_trunk(config, core)
        self.actor_head = policy_head(width, distribution, config)
        self.critic_head = value_head(width, config)
        self.state_size = state_size(self.core)

    def forward(self, obs: Observations, state: Tensor | None = None, begins: Tensor | None = None) -> PolicyOutput:
        """Logits [B, num_inputs] and values [B] of a batch of observations; see `Policy` for the state."""
        features = run_trunk(self.trunk, encode(self.encoder, obs))
        if self.core is not None:
            features, state = run_core(self.core, features, state, begins)
        return PolicyOutput(*run_heads(features, self.actor_head, self.critic_head), state)


def core_after_trunk(config: PolicyConfig, core: CoreMaker) -> tuple[Core | None, int]:
    """The recurrent core and its number of outputs; without one, None and the number of the trunk's outputs."""
    made = check_core(core(config.hidden[-1], config))
    return made, config.hidden[-1] if made is None else made.num_features


def default_network(
    observation_space: Any, action_space: Any, config: PolicyConfig, core: CoreMaker = make_core
) -> nn.Module:
    """The network that scramjet builds for these spaces when the user gives none.

    `core` makes the recurrent core from (number of features, config); by default the one that config.memory names.
    """
    distribution = make_distribution(action_space, config)
    if is_privileged(observation_space):
        _check_privileged(config)
        own = without_entries(policy_space(observation_space), config.ignore)
        shown = Dict([(POLICY, own), (CRITIC, observation_space.spaces[CRITIC])])
        return SeparateActorCritic(shown, distribution, config, core)
    observation_space = without_entries(observation_space, config.ignore)
    if config.encoder == "entity_attention":
        return make_entity_network(observation_space, distribution, config, core=core)
    kind = SharedActorCritic if config.shared_trunk else SeparateActorCritic
    return kind(observation_space, distribution, config, core)


def _check_privileged(config: PolicyConfig) -> None:
    """Refuse a network whose policy would see what only its critic may."""
    if config.shared_trunk:
        raise ConfigError(
            "policy.shared_trunk is set, and this world's critic sees more than its policy (observe_critic): they "
            "cannot share a trunk; use --policy.no-shared-trunk"
        )
    if config.encoder == "entity_attention":
        raise ConfigError(
            "policy.encoder='entity_attention' is one network for policy and value, and this world's critic sees more "
            "than its policy (observe_critic); use --policy.encoder auto"
        )


def check_network_memory(
    observation_space: Any, action_space: Any, config: PolicyConfig, *, bytes_per_weight: int
) -> None:
    """Refuse a default network that does not fit into the machine's memory, before it is allocated."""
    fix = "lower --policy.hidden or --policy.memory-size, or the size of the world's observations"
    try:
        with torch.device("meta"):  # shapes without numbers
            network = default_network(observation_space, action_space, config)
    except RuntimeError as error:  # more numbers than 63 bits count
        raise ConfigError(f"the network would have more weights than any machine holds; {fix}") from error
    num_weights = count_parameters(network)
    require_memory(bytes_per_weight * num_weights, f"the network of {num_weights:,} weights", fix)


def splits(network: nn.Module) -> bool:
    """Whether a network is not recurrent and has methods `logits` and `value`; layers of these names do not count."""
    if getattr(network, "state_size", 0):
        return False
    parts = (getattr(network, "logits", None), getattr(network, "value", None))
    return all(callable(part) and not isinstance(part, nn.Module) for part in parts)


def check_network(network: nn.Module, observation_space: Any, action_space: Any, config: PolicyConfig) -> None:
    """Try a user's network on two observations of lowest numbers; a ConfigError says what does not fit."""
    num_inputs = make_distribution(action_space, config).num_inputs
    size = getattr(network, "state_size", 0)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ConfigError(
            f"the network {type(network).__name__} has state_size={size!r}; it is an int, how many numbers are kept "
            f"for each row, 0 without memory"
        )
    name, obs = type(network).__name__, lowest_observations(observation_space, 2)
    try:
        with torch.no_grad():
            if size:
                outputs = [_as_output(*network(obs, torch.zeros(rows, size), None)) for rows in (2, 1)]
            else:
                outputs = [_as_output(*network(obs))]
            if splits(network):
                outputs.append(_as_output(network.logits(obs), network.value(obs)))  # type: ignore[operator]
    except Exception as error:
        takes, returns = (", state [rows, state_size], begins [T, rows] or None", ", state") if size else ("", "")
        raise ConfigError(
            f"the network {name} failed on observations of shape {describe_observations(obs)}: {error}; "
            f"a network takes observations as their space lays them out{takes}, floats as float32 and all else in its "
            f"own number type (so call .float() on whole numbers), and returns (logits [B, {num_inputs}], value [B]"
            f"{returns})"
        ) from error
    for rows, (logits, value, state) in zip((2, 1), outputs, strict=False):
        if tuple(logits.shape) != (2, num_inputs) or tuple(value.shape) != (2,):
            raise ConfigError(
                f"the network {name} returned logits {list(logits.shape)} and value {list(value.shape)} for a batch "
                f"of 2; this world needs logits [2, {num_inputs}] and value [2]"
            )
        if size and (state is None or tuple(state.shape) != (rows, size) or state.dtype != torch.float32):
            given = "no state" if state is None else f"a state {str(state.dtype)[6:]} {list(state.shape)}"
            raise ConfigError(
                f"the network {name} returned {given} for {rows} rows; it must be float32 [{rows}, {size}]"
            )
    if size:
        _check_recurrence(network, observation_space, size)


@torch.no_grad()
def _check_recurrence(network: nn.Module, observation_space: Any, size: int) -> None:
    """Check that two steps of three rows in one call give what they give in two calls, with and without a row whose
    episode begins at the second step."""
    name, steps, rows = type(network).__name__, 2, 3
    was_training = network.training
    network.eval()
    obs = lowest_observations(observation_space, rows)
    both = map_leaves(lambda leaf: torch.cat([leaf] * steps), obs)
    state = torch.linspace(-1, 1, rows * size).view(rows, size)
    for begins in (None, torch.tensor([[False] * rows, [False, False, True]])):
        whole = _as_output(*network(both, state, begins))
        first = _as_output(*network(obs, state, None))
        assert first.state is not None
        between = first.state.clone()
        if begins is not None:
            between[-1] = 0
        second = _as_output(*network(obs, between, None))
        assert second.state is not None
        apart = torch.cat([first.logits, second.logits]), torch.cat([first.value, second.value]), second.state
        for together, one_by_one in zip(whole, apart, strict=True):
            if together is None or not torch.allclose(together, one_by_one, atol=1e-3, rtol=1e-3, equal_nan=True):
                rule = "steps are laid out time-major, [T, rows, ...]"
                if begins is not None:
                    rule = "where begins[t, row] is set, the row starts from a state of zeros"
                raise ConfigError(
                    f"the memory of the network {name} does not give for {steps} steps of {rows} rows what it gives "
                    f"step by step: {rule}"
                )
    network.train(was_training)


def _as_output(logits: Any, value: Any, state: Any = None) -> PolicyOutput:
    if not (isinstance(logits, Tensor) and isinstance(value, Tensor)):
        raise TypeError(f"it returned {type(logits).__name__} and {type(value).__name__}, not two tensors")
    return PolicyOutput(logits, value, state)


# --- which encoder an observation space gets


def make_encoder(space: Any, config: PolicyConfig) -> Encoder:
    """The encoder of an observation space that the config asks for.

    "auto" lays everything flat except images (a Box with three axes): those with both sides of at least 36 go through
    nature_cnn, smaller ones through grid_cnn. In a Dict space each entry is encoded by itself and the features are
    concatenated; but grid_cnn and value_propagation turn all its grids and positions into planes of one picture.
    """
    if config.encoder == "grid_cnn":
        return GridCNN(space, config)
    if config.encoder == "value_propagation":
        return ValuePropagation(space, config)
    if config.encoder in ("nature_cnn", "impala_cnn"):
        if not _holds_image(space):
            raise ConfigError(
                f"policy.encoder='{config.encoder}' needs an image (a Box with three axes) and the observation space "
                f"is {space}; use --policy.encoder auto"
            )
    elif config.encoder not in ("auto", "mlp"):
        raise ConfigError(
            f"policy.encoder='{config.encoder}' is a whole network, not an encoder; use --policy.encoder auto"
        )
    return _encode_entry(space, config)


def critic_encoder(space: Any, config: PolicyConfig) -> Encoder:
    """The encoder of a critic that sees more than the policy, for the space of both parts: the features of the policy's
    observation, then those of its own. Encoders for grids are for the policy's part alone."""
    own = replace(config, encoder="auto") if config.encoder in ("grid_cnn", "value_propagation") else config
    entries = {POLICY: make_encoder(space.spaces[POLICY], config), CRITIC: _encode_entry(space.spaces[CRITIC], own)}
    return DictEncoder(entries)


def _encode_entry(space: Any, config: PolicyConfig) -> Encoder:
    if isinstance(space, Dict):
        return DictEncoder({name: _encode_entry(entry, config) for name, entry in space.spaces.items()})
    if not is_image(space) or config.encoder == "mlp":
        return flat_encoder(space, config)
    if config.encoder == "impala_cnn":
        return ImpalaCNN(space, config)
    size = grid_size(space)
    assert size is not None
    is_large = min(size) >= NATURE_SMALLEST
    return NatureCNN(space, config) if config.encoder == "nature_cnn" or is_large else GridCNN(space, config)


def _holds_image(space: Any) -> bool:
    return any(map(_holds_image, space.spaces.values())) if isinstance(space, Dict) else is_image(space)
