"""The networks of curiosity, from observations to features with the encoders that policies have, and their Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from scramjet.engine.trees import leaves, map_leaves
from scramjet.kernels.operations import run_trunk
from scramjet.policies.config import PolicyConfig
from scramjet.policies.layers import mlp, orthogonal
from scramjet.policies.networks import make_encoder
from scramjet.policies.normalization import ObservationNormalizer
from scramjet.policies.observations import Observations, floats_as_float32, without_entries
from scramjet.runtime.ranks import ALONE, Ranks

OBSERVATION_CLIP = 5.0
"""Where normalized observations are cut (Burda et al. 2018)."""
CHUNK = 1 << 12
"""Observations that go through a network at a time."""
CHUNK_ON_GPU = 1 << 18
NUMBERS_AT_ONCE = 1 << 27
"""Numbers in the observations that go through a network at a time on the GPU; large ones go in smaller chunks."""
NUMBERS_COUNTED = 1 << 24
"""Numbers that statistics take in at a time, in float64: a rollout of pictures is gigabytes of them."""


class EveryNumberNormalizer(nn.Module):
    """Normalizes every Box of an observation, images included, to mean 0 and deviation 1, clipped.

    A random network tells observations apart only if their numbers vary by about 1 (Burda et al. 2018). Choices and
    flags pass as they are.
    """

    def __init__(self, space: Any) -> None:
        super().__init__()
        self._is_dict = isinstance(space, Dict)
        entries = space.spaces if isinstance(space, Dict) else {"": space}
        self.names = [name for name, entry in entries.items() if isinstance(entry, Box | Dict)]
        self.entries = nn.ModuleList(_normalizer(entries[name]) for name in self.names)

    def forward(self, obs: Any) -> Any:
        """Normalize a batch [B, ...]; the statistics change only in `update`."""
        if not self._is_dict:
            return self.entries[0](obs) if self.names else obs
        return obs | {name: entry(obs[name]) for name, entry in zip(self.names, self.entries, strict=True)}

    def update(self, obs: Any, ranks: Ranks = ALONE, counts: Tensor | None = None) -> None:
        """Add the observations [B, ...] of a rollout, on each of the `ranks`, to the statistics.

        `counts` [B] bool: those to add; None: all.
        """
        for name, entry in zip(self.names, self.entries, strict=True):
            entry_obs = obs[name] if self._is_dict else obs
            if isinstance(entry, EveryNumberNormalizer):
                entry.update(entry_obs, ranks, counts)
                continue
            at_once = max(1, NUMBERS_COUNTED // max(1, entry_obs[0].numel()))
            for start in range(0, len(entry_obs), at_once):
                part = slice(start, start + at_once)
                entry.update(entry_obs[part], ranks, None if counts is None else counts[part])  # type: ignore[operator]


def _normalizer(space: Any) -> nn.Module:
    if isinstance(space, Dict):
        return EveryNumberNormalizer(space)
    return ObservationNormalizer(tuple(space.shape) or (1,), clip=OBSERVATION_CLIP)


def normalized_space(space: Any) -> Any:
    """The space of observations after `EveryNumberNormalizer`: floats in place of pixels."""
    if isinstance(space, Dict):
        return Dict({name: normalized_space(entry) for name, entry in space.spaces.items()})
    if isinstance(space, Box):
        return Box(-OBSERVATION_CLIP, OBSERVATION_CLIP, space.shape, np.float32)
    return space


class FeatureNetwork(nn.Module):
    """An encoder, hidden layers and a linear output layer: observations [B, ...] to features [B, size]."""

    def __init__(self, space: Any, config: PolicyConfig, size: int, *, num_hidden: int | None = None) -> None:
        """`space` is that of the observations it gets; `num_hidden`: hidden layers, all of the policy's if None."""
        super().__init__()
        seen = without_entries(space, config.ignore)
        plain = "auto" if config.encoder in ("entity_attention", "value_propagation") else config.encoder
        self.encoder = make_encoder(seen, replace(config, encoder=plain))
        hidden = config.hidden if num_hidden is None else (config.hidden[-1],) * num_hidden
        self.trunk = mlp(self.encoder.num_features, hidden, "relu")
        inputs = hidden[-1] if hidden else self.encoder.num_features
        self.head = orthogonal(nn.Linear(inputs, size), 1.0 if size == 1 else math.sqrt(2))

    def forward(self, obs: Observations) -> Tensor:
        """[B, ...] to [B, size]."""
        features: Tensor = self.head(run_trunk(self.trunk, self.encoder(floats_as_float32(obs))))
        return features


def adam(parameters: Sequence[Tensor], learning_rate: float | Tensor, device: torch.device) -> torch.optim.Adam:
    """Adam whose state is there from the start, so that checkpoints always have it."""
    optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=True, capturable=device.type == "cuda")
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


@torch.no_grad()
def in_chunks(function: Callable[[Any], Tensor], obs: Any) -> Tensor:
    """`function` of observations [T, R, ...], called with rows [B, ...] and returning [B, ...]; the result [T, R, ...].

    Few rows at a time, so that activations stay small.
    """
    flat = map_leaves(lambda leaf: leaf.flatten(0, 1), obs)
    first = leaves(flat)[0]
    steps, num_rows = leaves(obs)[0].shape[:2]
    chunk = CHUNK
    if first.is_cuda:
        width = sum(leaf[0].numel() for leaf in leaves(flat))
        chunk = max(CHUNK, min(CHUNK_ON_GPU, NUMBERS_AT_ONCE // max(width, 1)))
    parts = [
        function(map_leaves(lambda leaf, start=start: leaf[start : start + chunk], flat))
        for start in range(0, len(first), chunk)
    ]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return whole.unflatten(0, (steps, num_rows))
