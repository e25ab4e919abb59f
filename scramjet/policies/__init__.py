"""Networks that act and value."""

from scramjet.policies.attention import EntitySpec, EntityStream, make_entity_network
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import (
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiCategorical,
    make_distribution,
)
from scramjet.policies.encoders import make_encoder
from scramjet.policies.grids import GridCNN
from scramjet.policies.images import ImpalaCNN, NatureCNN
from scramjet.policies.memory import GRU, LSTM, Core, MinGRU, make_core
from scramjet.policies.networks import PolicyOutput, SeparateActorCritic, SharedActorCritic, default_network
from scramjet.policies.observations import Observations
from scramjet.policies.policy import Policy
from scramjet.policies.value_propagation import ValuePropagation
from scramjet.policies.vectors import Encoder

__all__ = [
    "GRU",
    "LSTM",
    "Categorical",
    "Core",
    "DiagonalGaussian",
    "Distribution",
    "Encoder",
    "EntitySpec",
    "EntityStream",
    "GridCNN",
    "ImpalaCNN",
    "MinGRU",
    "MultiCategorical",
    "NatureCNN",
    "Observations",
    "Policy",
    "PolicyConfig",
    "PolicyOutput",
    "SeparateActorCritic",
    "SharedActorCritic",
    "ValuePropagation",
    "default_network",
    "make_core",
    "make_distribution",
    "make_encoder",
    "make_entity_network",
]
