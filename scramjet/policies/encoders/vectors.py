"""The base class of encoders, and the plain ones: numbers laid flat, choices one-hot or embedded, dicts of these."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor, nn

from scramjet.policies.config import PolicyConfig
from scramjet.policies.observations import unsupported_space


class Encoder(nn.Module):
    """From a batch of observations to features [B, num_features]."""

    num_features: int


class FlatEncoder(Encoder):
    """Numbers as they are, in one row; pixels divided by 255."""

    def __init__(self, space: Box | MultiBinary) -> None:
        super().__init__()
        self.num_features = math.prod(space.shape)
        self.divisor = pixel_divisor(space) if len(space.shape) == 3 else 1.0

    def forward(self, obs: Tensor) -> Tensor:
        """[B, *shape] to [B, F]."""
        flat = obs.flatten(1) if obs.dim() > 1 else obs.unsqueeze(1)
        return flat if flat.dtype == torch.float32 else flat.float().div_(self.divisor)


class OneHotEncoder(Encoder):
    """One-hot encoding of each choice of a Discrete or MultiDiscrete space."""

    offsets: Tensor  # [components]

    def __init__(self, space: Discrete | MultiDiscrete) -> None:
        super().__init__()
        self.num_features, offsets = count_choices(space)
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """int64 [B, *shape] to [B, all choices]."""
        hot = obs.flatten(1) + self.offsets
        return torch.zeros(len(hot), self.num_features, device=hot.device).scatter(1, hot, 1.0)  # not in place: vmap


class EmbeddingEncoder(Encoder):
    """A learned embedding for each choice of a Discrete or MultiDiscrete space."""

    offsets: Tensor  # [components]

    def __init__(self, space: Discrete | MultiDiscrete, embedding_size: int) -> None:
        super().__init__()
        all_choices, offsets = count_choices(space)
        self.num_features = len(offsets) * embedding_size
        self.table = nn.Embedding(all_choices, embedding_size)
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """int64 [B, *shape] to [B, components * embedding_size]."""
        embedded: Tensor = self.table(obs.flatten(1) + self.offsets)
        return embedded.flatten(1)


class DictEncoder(Encoder):
    """Encodes each entry of a Dict space with its own encoder and concatenates the features."""

    def __init__(self, encoders: Mapping[str, Encoder]) -> None:
        super().__init__()
        self.names = list(encoders)
        self.num_features = sum(encoder.num_features for encoder in encoders.values())
        # torch allows neither dots nor words such as `items` as names in a ModuleDict
        modules = {"entry_" + name.replace(".", "/"): encoder for name, encoder in encoders.items()}
        self.entries = nn.ModuleDict(modules)

    def forward(self, obs: dict[str, Any]) -> Tensor:
        """Entries of [B, ...] to [B, F]."""
        encoders = self.entries.values()
        return torch.cat([encode(obs[name]) for name, encode in zip(self.names, encoders, strict=True)], dim=1)


def flat_encoder(space: Any, config: PolicyConfig) -> Encoder:
    """The encoder that lays any space flat, without convolutions."""
    if isinstance(space, Dict):
        return DictEncoder({name: flat_encoder(entry, config) for name, entry in space.spaces.items()})
    if isinstance(space, Discrete | MultiDiscrete):
        size = config.embedding_size
        return OneHotEncoder(space) if size is None else EmbeddingEncoder(space, size)
    if isinstance(space, Box | MultiBinary):
        return FlatEncoder(space)
    raise unsupported_space(space)


def count_choices(space: Discrete | MultiDiscrete) -> tuple[int, Tensor]:
    """The number of choices of all components together, and what to add to each component's choice to get its index."""
    sizes = np.asarray(space.n if isinstance(space, Discrete) else space.nvec, np.int64).ravel()
    start = np.asarray(space.start, np.int64).ravel()
    return int(sizes.sum()), torch.from_numpy(np.cumsum(sizes) - sizes - start)


def pixel_divisor(space: Box | MultiBinary) -> float:
    """255 for pixels (uint8 up to 255), else 1: small whole numbers are no pixels."""
    is_pixels = isinstance(space, Box) and space.dtype == np.uint8 and bool((space.high == 255).any())
    return 255.0 if is_pixels else 1.0
