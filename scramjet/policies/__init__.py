"""Policies: networks, distributions over actions, and what observations go through before them.

Names load when they are first used, because configs need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_NAMES_IN: dict[str, tuple[str, ...]] = {
    "encoders.attention": ("make_entity_network",),
    "encoders.entities": (
        "EntitySpec",
        "EntityStream",
    ),
    "config": ("PolicyConfig",),
    "distributions": (
        "Categorical",
        "DiagonalGaussian",
        "Distribution",
        "MultiCategorical",
        "make_distribution",
    ),
    "encoders.grids": ("GridCNN",),
    "encoders.images": (
        "ImpalaCNN",
        "NatureCNN",
    ),
    "recurrent": (
        "GRU",
        "LSTM",
        "Core",
        "MinGRU",
        "make_core",
    ),
    "networks": (
        "PolicyOutput",
        "SeparateActorCritic",
        "SharedActorCritic",
        "default_network",
        "make_encoder",
    ),
    "observations": ("Observations",),
    "policy": ("Policy",),
    "encoders.value_propagation": ("ValuePropagation",),
    "encoders.vectors": ("Encoder",),
}
_HOMES = {name: home for home, names in _NAMES_IN.items() for name in names}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from scramjet.policies.config import PolicyConfig as PolicyConfig
    from scramjet.policies.distributions import Categorical as Categorical
    from scramjet.policies.distributions import DiagonalGaussian as DiagonalGaussian
    from scramjet.policies.distributions import Distribution as Distribution
    from scramjet.policies.distributions import MultiCategorical as MultiCategorical
    from scramjet.policies.distributions import make_distribution as make_distribution
    from scramjet.policies.encoders.attention import make_entity_network as make_entity_network
    from scramjet.policies.encoders.entities import EntitySpec as EntitySpec
    from scramjet.policies.encoders.entities import EntityStream as EntityStream
    from scramjet.policies.encoders.grids import GridCNN as GridCNN
    from scramjet.policies.encoders.images import ImpalaCNN as ImpalaCNN
    from scramjet.policies.encoders.images import NatureCNN as NatureCNN
    from scramjet.policies.encoders.value_propagation import ValuePropagation as ValuePropagation
    from scramjet.policies.encoders.vectors import Encoder as Encoder
    from scramjet.policies.networks import PolicyOutput as PolicyOutput
    from scramjet.policies.networks import SeparateActorCritic as SeparateActorCritic
    from scramjet.policies.networks import SharedActorCritic as SharedActorCritic
    from scramjet.policies.networks import default_network as default_network
    from scramjet.policies.networks import make_encoder as make_encoder
    from scramjet.policies.observations import Observations as Observations
    from scramjet.policies.policy import Policy as Policy
    from scramjet.policies.recurrent import GRU as GRU
    from scramjet.policies.recurrent import LSTM as LSTM
    from scramjet.policies.recurrent import Core as Core
    from scramjet.policies.recurrent import MinGRU as MinGRU
    from scramjet.policies.recurrent import make_core as make_core


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scramjet.policies' has no attribute '{name}'")
    return getattr(importlib.import_module(f"scramjet.policies.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
