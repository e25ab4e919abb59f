"""The settings of a policy's network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scramjet.errors import ConfigError
from scramjet.kernels import MAX_LOG_STD, MIN_LOG_STD
from scramjet.settings import require, require_counts, settle

MAX_LAYERS = 64
MAX_PLANNING_STEPS = 10_000
MAX_WIDTH = 1 << 20
"""Bounds on what a config may ask for, so that a checkpoint from somebody else cannot keep a machine busy for ever."""

EncoderName = Literal["auto", "mlp", "nature_cnn", "impala_cnn", "grid_cnn", "value_propagation", "entity_attention"]

MemoryName = Literal["lstm", "gru", "mingru"]


@dataclass(frozen=True)
class PolicyConfig:
    """The network that chooses actions and estimates values."""

    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Nonlinearity after each hidden layer."""
    shared_trunk: bool = False
    """One encoder and trunk for policy and value, instead of one each."""
    encoder: EncoderName = "auto"
    """How observations become features; auto: images by a CNN, everything else laid flat."""
    ignore: tuple[str, ...] = ()
    """Entries of a Dict observation that the network does not see, such as a step count; inner.name for nested ones."""
    memory: MemoryName | None = None
    """The recurrent core between the hidden layers and the outputs; none: the policy is not recurrent."""
    memory_size: int = 128
    """Units of each layer of the recurrent core."""
    memory_layers: int = 1
    """Layers of the recurrent core, one on top of the other."""
    embedding_size: int | None = None
    """Width of a learned embedding of each choice of a discrete observation; none: one-hot."""
    state_dependent_std: bool = False
    """Continuous actions: the deviation is an output of the network, instead of one learned number for all states."""
    log_std_init: float = 0.0
    """Continuous actions: logarithm of the initial standard deviation."""
    bounded_actions: Literal["scale", "clip", "tanh"] = "scale"
    """Continuous actions: how they are brought into their bounds: -1 to 1 stretched to them, clipped, or by tanh."""
    value_bins: int | None = None
    """Values as a distribution over this many returns, learned by cross entropy (two-hot); none: one number, by its
    squared error. 101 is usual."""
    noise_color: float = 0.0
    """Continuous actions: how far the noise on them is correlated in time within a rollout: 0 white, 0.5 between, 1
    pink, 2 Brownian."""
    impala_width: int = 1
    """impala_cnn: multiplies its 16, 32, 32 channels."""
    grid_channels: tuple[int, ...] = (32, 32)
    """grid_cnn: channels of each 3x3 convolution; value_propagation: the first is the width of its cell embedding."""
    grid_blocks: int = 0
    """grid_cnn: residual blocks of two more 3x3 convolutions each, after those of `grid_channels`."""
    grid_readout: Literal["flatten", "pool"] = "flatten"
    """grid_cnn: features are those of every cell, or the mean and maximum of each channel."""
    symmetry: Literal["none", "canonical", "average"] = "none"
    """How the symmetries that a world declares are used; none: not; canonical: of all turned boards the network sees
    one; average: it sees all of them, and its outputs are averaged."""
    planning_steps: int | None = None
    """value_propagation: sweeps over the grid; none: until no value changes."""
    attention_blocks: int = 2
    """entity_attention: blocks of self-attention, cross-attention and feed-forward."""
    attention_heads: int = 4
    """entity_attention: heads of each attention."""
    attention_width: int = 64
    """entity_attention: numbers that describe an entity; a multiple of the heads."""

    def __post_init__(self) -> None:
        settle(self, "policy.")
        for name in ("hidden", "grid_channels"):
            widths = getattr(self, name)
            if len(widths) > MAX_LAYERS:
                raise ConfigError(f"policy.{name} has {len(widths)} layers; {MAX_LAYERS} are the most")
            if not widths or min(widths) < 1:
                raise ConfigError(
                    f"policy.{name}={list(widths)} needs at least one layer of at least one unit; "
                    f"try --policy.{name.replace('_', '-')} 64 64"
                )
            if max(widths) > MAX_WIDTH:
                raise ConfigError(f"policy.{name} has a layer of {max(widths)} units; {MAX_WIDTH} are the most")
        require_counts(self, ("memory_layers", "attention_blocks"), most=MAX_LAYERS, prefix="policy.")
        require_counts(self, ("grid_blocks",), least=0, most=MAX_LAYERS, prefix="policy.")
        require_counts(self, ("planning_steps",), most=MAX_PLANNING_STEPS, prefix="policy.")
        widths = ("memory_size", "embedding_size", "impala_width", "attention_heads", "attention_width")
        require_counts(self, widths, prefix="policy.", most=MAX_WIDTH)
        require_counts(self, ("value_bins",), least=2, most=MAX_WIDTH, prefix="policy.")
        if self.value_bins is not None and self.symmetry == "average":
            raise ConfigError(
                f"policy.value_bins={self.value_bins} is one distribution for each position, and "
                f"policy.symmetry='average' has one for each turned board; use --policy.symmetry canonical"
            )
        within = f"must be from {MIN_LOG_STD} to {MAX_LOG_STD}, where deviations are kept"
        require(self, ("log_std_init",), lambda value: MIN_LOG_STD <= value <= MAX_LOG_STD, within, "policy.")
        require(self, ("noise_color",), lambda value: 0 <= value <= 2, "must be from 0 to 2", "policy.")
        heads, width = self.attention_heads, self.attention_width
        if width % heads:
            raise ConfigError(
                f"policy.attention_width={width} does not split into attention_heads={heads}; "
                f"try --policy.attention-width {heads * (width // heads + 1)}"
            )
