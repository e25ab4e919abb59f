"""Which encoder an observation space gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gymnasium.spaces import Dict

from scramjet.engine.privileged import CRITIC, POLICY
from scramjet.errors import ConfigError
from scramjet.policies.config import PolicyConfig
from scramjet.policies.encoders.grids import GridCNN, grid_size
from scramjet.policies.encoders.images import NATURE_SMALLEST, ImpalaCNN, NatureCNN, is_image
from scramjet.policies.encoders.symbols import is_symbol_grid
from scramjet.policies.encoders.value_propagation import ValuePropagation
from scramjet.policies.encoders.vectors import DictEncoder, Encoder, flat_encoder


def make_encoder(space: Any, config: PolicyConfig) -> Encoder:
    """The encoder of an observation space that the config asks for.

    "auto" lays everything flat except images (a Box with three axes) and grids of symbols (a MultiDiscrete with three):
    images with both sides of at least 36 go through nature_cnn, smaller ones and symbols through grid_cnn. In a Dict
    space each entry is encoded by itself and the features are concatenated; but grid_cnn and value_propagation turn all
    its grids and positions into planes of one picture.
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
    if is_symbol_grid(space) and config.encoder == "auto":
        return GridCNN(space, config)
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
