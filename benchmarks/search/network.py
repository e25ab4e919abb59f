"""The network that both sides of a comparison have, described without either's library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """The kind of a network, as scramjet's policy settings name it."""

    hidden: tuple[int, ...]
    """Width of each hidden layer."""
    activation: str
    """relu or tanh, after each hidden layer."""
    shared_trunk: bool
    """One trunk for policy and value, instead of one each."""
    channels: int = 0
    """Of a 3x3 convolution before the hidden layers, with relu; 0: observations are laid flat instead."""
    blocks: int = 0
    """Residual blocks of two more 3x3 convolutions each."""
    dtype: str = "float32"
    """Of the layers. On NVIDIA's newer GPUs both sides multiply float32 in TF32: XLA does unless told otherwise, and
    scramjet is told to."""

    def __str__(self) -> str:
        width = "x".join(str(units) for units in self.hidden)
        board = f"{self.channels} channels, {self.blocks} residual blocks, " if self.channels else ""
        trunk = "one trunk" if self.shared_trunk else "two trunks"
        return f"{board}hidden {width} {self.activation}, {trunk}, {self.dtype}"
