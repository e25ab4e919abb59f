"""Networks that act and value."""

from scramjet.policies.networks import PolicyConfig, PolicyOutput, SeparateActorCritic, SharedActorCritic
from scramjet.policies.policy import Policy

__all__ = ["Policy", "PolicyConfig", "PolicyOutput", "SeparateActorCritic", "SharedActorCritic"]
