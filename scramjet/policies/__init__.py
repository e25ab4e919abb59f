"""Networks that act and value. Names load when they are first used: the compiled functions here need no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_NAMES_IN: dict[str, tuple[str, ...]] = {
    "attention": (
        "EntitySpec",
        "EntityStream",
        "make_entity_network",
    ),
    "config": ("PolicyConfig",),
    "distributions": (
        "Categorical",
        "DiagonalGaussian",
        "Distribution",
        "MultiCategorical",
        "make_distribution",
    ),
    "encoders": ("make_encoder",),
    "grids": ("GridCNN",),
    "images": (
        "ImpalaCNN",
        "NatureCNN",
    ),
    "memory": (
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
    ),
    "observations": ("Observations",),
    "policy": ("Policy",),
    "value_propagation": ("ValuePropagation",),
    "vectors": ("Encoder",),
}
_HOMES = {name: home for home, names in _NAMES_IN.items() for name in names}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from scramjet.policies.attention import EntitySpec as EntitySpec
    from scramjet.policies.attention import EntityStream as EntityStream
    from scramjet.policies.attention import make_entity_network as make_entity_network
    from scramjet.policies.config import PolicyConfig as PolicyConfig
    from scramjet.policies.distributions import Categorical as Categorical
    from scramjet.policies.distributions import DiagonalGaussian as DiagonalGaussian
    from scramjet.policies.distributions import Distribution as Distribution
    from scramjet.policies.distributions import MultiCategorical as MultiCategorical
    from scramjet.policies.distributions import make_distribution as make_distribution
    from scramjet.policies.encoders import make_encoder as make_encoder
    from scramjet.policies.grids import GridCNN as GridCNN
    from scramjet.policies.images import ImpalaCNN as ImpalaCNN
    from scramjet.policies.images import NatureCNN as NatureCNN
    from scramjet.policies.memory import GRU as GRU
    from scramjet.policies.memory import LSTM as LSTM
    from scramjet.policies.memory import Core as Core
    from scramjet.policies.memory import MinGRU as MinGRU
    from scramjet.policies.memory import make_core as make_core
    from scramjet.policies.networks import PolicyOutput as PolicyOutput
    from scramjet.policies.networks import SeparateActorCritic as SeparateActorCritic
    from scramjet.policies.networks import SharedActorCritic as SharedActorCritic
    from scramjet.policies.networks import default_network as default_network
    from scramjet.policies.observations import Observations as Observations
    from scramjet.policies.policy import Policy as Policy
    from scramjet.policies.value_propagation import ValuePropagation as ValuePropagation
    from scramjet.policies.vectors import Encoder as Encoder


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scramjet.policies' has no attribute '{name}'")
    return getattr(importlib.import_module(f"scramjet.policies.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
