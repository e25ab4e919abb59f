"""A policy's network as a description for JSON and one block of float32 weights, which network.js runs in the page.

Each part of a network is a dictionary with its `op`; a tensor is its place in the block, {"at": first, "shape": [...]}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.errors import ConfigError
from scramjet.policies.distributions import Categorical, DiagonalGaussian, Distribution, MultiCategorical
from scramjet.policies.encoders.grids import GridCNN, GridEntry, GridPlanes, ResidualBlock, SymbolEntry
from scramjet.policies.encoders.images import ImageEncoder, Residual
from scramjet.policies.encoders.value_propagation import ValuePropagation
from scramjet.policies.encoders.vectors import DictEncoder, EmbeddingEncoder, FlatEncoder, OneHotEncoder
from scramjet.policies.layers import MAX_SYMLOG, TwoHotHead
from scramjet.policies.networks import GaussianHead, SeparateActorCritic, SharedActorCritic
from scramjet.policies.normalization import DictNormalizer, ObservationNormalizer
from scramjet.policies.policy import Policy
from scramjet.policies.recurrent import GRU, LSTM, MinGRU
from scramjet.policies.symmetries import AveragedNetwork, CanonicalNetwork

Description = dict[str, Any]


class NetworkWriter:
    """Describes the parts of a network and gathers their weights."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self._size = 0
        self._describe: dict[type, Callable[[Any], Description]] = {
            SeparateActorCritic: self._separate,
            SharedActorCritic: self._shared,
            CanonicalNetwork: self._symmetric,
            AveragedNetwork: self._symmetric,
            FlatEncoder: lambda part: {"op": "flat", "divisor": part.divisor},
            OneHotEncoder: lambda part: {"op": "one_hot", "offsets": part.offsets.tolist(), "size": part.num_features},
            EmbeddingEncoder: lambda part: {
                "op": "embedding", "offsets": part.offsets.tolist(), "table": self.tensor(part.table.weight),
            },
            DictEncoder: self._dict_encoder,
            GridCNN: self._grid_cnn,
            ValuePropagation: self._value_propagation,
            nn.Sequential: lambda part: {"op": "sequence", "parts": [self.part(one) for one in part]},
            nn.Tanh: lambda part: {"op": "tanh"},
            nn.ReLU: lambda part: {"op": "relu"},
            nn.Linear: lambda part: {"op": "linear", **self._weights(part)},
            nn.Conv2d: self._convolution,
            nn.MaxPool2d: lambda part: {
                "op": "max_pool", "size": part.kernel_size, "stride": part.stride, "padding": part.padding,
            },
            ResidualBlock: lambda part: self._residual(part, "residual_block"),
            Residual: lambda part: self._residual(part, "residual"),
            LSTM: lambda part: self._core(part, "lstm"),
            GRU: lambda part: self._core(part, "gru"),
            MinGRU: lambda part: self._core(part, "mingru"),
            GaussianHead: self._gaussian_head,
            TwoHotHead: lambda part: {
                "op": "two_hot", "layer": self.part(part.layer), "bins": self.tensor(part.bins),
            },
            ObservationNormalizer: self._normalizer,
            DictNormalizer: lambda part: {
                "entries": {name: self.part(one) for name, one in zip(part.names, part.entries, strict=True)}
            },
        }  # fmt: skip

    @property
    def weights(self) -> bytes:
        """All weights, float32, little endian."""
        return b"".join(block.astype("<f4").tobytes() for block in self._blocks)

    def part(self, module: Any) -> Description | None:
        """The description of a module; a ConfigError for one that the page cannot run."""
        if module is None:
            return None
        if isinstance(module, ImageEncoder):
            layout = module.layout
            planes = {"channels": layout.channels, "height": layout.height, "width": layout.width}
            source = {"isLast": layout.is_channels_last, "divisor": layout.divisor}
            return {"op": "image", **planes, **source, "layers": self.part(module.layers)}
        describe = self._describe.get(type(module))
        if describe is None:
            raise ConfigError(
                f"export-page cannot take a network with {type(module).__name__}: the page runs scramjet's own MLPs, "
                f"CNNs, value propagation and recurrent cores, not attention and not modules of your own"
            )
        return describe(module)

    def tensor(self, tensor: Tensor) -> Description:
        """Put a tensor's numbers into the block; where they are."""
        block = tensor.detach().to("cpu", torch.float64).numpy()
        if not np.isfinite(block).all():
            raise ConfigError("export-page cannot take this network: some of its weights are no finite numbers")
        place = {"at": self._size, "shape": list(block.shape)}
        self._blocks.append(block.ravel())
        self._size += block.size
        return place

    def _weights(self, layer: Any) -> Description:
        return {"weight": self.tensor(layer.weight), "bias": self.tensor(layer.bias)}

    def _convolution(self, layer: nn.Conv2d) -> Description:
        return {
            "op": "convolution", **self._weights(layer), "stride": layer.stride[0], "padding": int(layer.padding[0]),
        }  # fmt: skip

    def _residual(self, block: Any, op: str) -> Description:
        return {"op": op, "first": self.part(block.first), "second": self.part(block.second)}

    def _core(self, core: Any, op: str) -> Description:
        layers = []
        for layer in core.layers:
            names = dict(layer.named_parameters())
            layers.append({name: self.tensor(names[name]) for name in names})
        return {"op": op, "layers": layers, "stateSize": core.state_size}

    def _separate(self, network: SeparateActorCritic) -> Description:
        sides = {}
        for side in ("actor", "critic"):
            parts = {"encoder": f"{side}_encoder", "trunk": side, "core": f"{side}_core", "head": f"{side}_head"}
            sides[side] = {name: self.part(getattr(network, attribute)) for name, attribute in parts.items()}
        return {"op": "separate", **sides, "stateSize": network.state_size}

    def _shared(self, network: SharedActorCritic) -> Description:
        names = {"encoder": "encoder", "trunk": "trunk", "core": "core", "head": "actor_head", "value": "critic_head"}
        parts = {name: self.part(getattr(network, attribute)) for name, attribute in names.items()}
        return {"op": "shared", **parts, "stateSize": network.state_size}

    def _symmetric(self, network: CanonicalNetwork | AveragedNetwork) -> Description:
        tables = network.tables
        given: Description = {
            "op": "canonical" if isinstance(network, CanonicalNetwork) else "average",
            "network": self.part(network.network),
            "obsSources": tables.obs_sources.tolist(),
            "actionSources": tables.action_sources.tolist(),
            "stateSize": getattr(network, "state_size", 0),
        }
        if isinstance(network, CanonicalNetwork):
            given["order"] = network.order.tolist()
        return given

    def _dict_encoder(self, encoder: DictEncoder) -> Description:
        entries = zip(encoder.names, encoder.entries.values(), strict=True)
        return {"op": "dict", "entries": [[name, self.part(one)] for name, one in entries]}

    def _planes(self, planes: GridPlanes) -> Description:
        entries = []
        for name, _, entry in planes._entries:
            if isinstance(entry, GridEntry):
                is_last = entry.layout is not None and entry.layout.is_channels_last
                given: Description = {"channels": entry.num_planes, "isLast": is_last, "divisor": entry.divisor}
            elif isinstance(entry, SymbolEntry):
                given = {"channels": entry.num_planes, "sizes": list(entry.sizes), "starts": list(entry.starts)}
            else:
                given = {"start": list(entry.start)}
            entries.append({"name": name, **given})
        sizes = {"height": planes.height, "width": planes.width, "channels": planes.num_planes}
        return {**sizes, "entries": entries, "rest": self.part(planes.rest)}

    def _grid_cnn(self, encoder: GridCNN) -> Description:
        return {
            "op": "grid", "planes": self._planes(encoder.planes), "layers": self.part(encoder.layers),
            "pools": encoder.pools,
        }  # fmt: skip

    def _value_propagation(self, encoder: ValuePropagation) -> Description:
        return {
            "op": "value_propagation", "planes": self._planes(encoder.planes), "embed": self.part(encoder.embed),
            "maps": self.part(encoder.maps), "start": encoder.start.tolist(), "maxSweeps": encoder.max_sweeps,
            "guess": encoder.guess.flatten(1).tolist(), "bias": encoder.bias.tolist(),
        }  # fmt: skip

    def _gaussian_head(self, head: GaussianHead) -> Description:
        log_std = head.log_std
        spread = {"linear": self.part(log_std)} if isinstance(log_std, nn.Linear) else {"same": self.tensor(log_std)}
        return {"op": "gaussian", "mean": self.part(head.mean), **spread}

    def _normalizer(self, normalizer: ObservationNormalizer) -> Description:
        moments = normalizer.moments
        scale = (moments.variance + 1e-8).rsqrt().float()
        return {"mean": self.tensor(moments.mean.float()), "scale": self.tensor(scale), "clip": normalizer.clip}


def describe_policy(policy: Policy) -> tuple[Description, bytes]:
    """A policy as a description and its weights; a ConfigError for a network that the page cannot run."""
    writer = NetworkWriter()
    described: Description = {
        "network": writer.part(policy.network),
        "normalizer": writer.part(policy.normalizer),
        "distribution": _distribution(policy.distribution),
        "stateSize": policy.state_size,
        "maxSymlog": MAX_SYMLOG if policy.values_are_symlog else None,
    }
    return described, writer.weights


def _distribution(distribution: Distribution) -> Description:
    if isinstance(distribution, Categorical):
        return {"kind": "choice"}
    if isinstance(distribution, MultiCategorical):
        return {"kind": "choices", "sizes": np.diff(distribution.offsets.numpy()).tolist()}
    assert isinstance(distribution, DiagonalGaussian)
    bounds = {"low": distribution.low, "high": distribution.high}
    scales = {"centre": distribution.centre, "halfWidth": distribution.half_width}
    numbers = {name: [_finite(one) for one in tensor.tolist()] for name, tensor in (bounds | scales).items()}
    return {
        "kind": "box", "size": distribution.size, "squashes": distribution.squashes, "scales": distribution.scales,
        **numbers,
    }  # fmt: skip


def _finite(bound: float) -> float:
    """A bound that JSON can hold."""
    return float(np.clip(bound, -np.finfo(np.float32).max, np.finfo(np.float32).max))
