"""Search with a trained policy: what its checkpoint says of the rewards that its values are made of."""

from __future__ import annotations

import math
from typing import Any

import torch

from scramjet.envs.api import Env
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.search.requirements import check_searchable, note_on_chance
from scramjet.search.rows import SearchSettings
from scramjet.search.search import Rewards
from scramjet.search.specs import parse_search
from scramjet.training.config.run_config import RunConfig
from scramjet.training.persistence.checkpoint_facts import checkpoint_settings, reward_divisor_of

ETA = "spo/eta"
"""The trainer's tensor that holds the temperature of a run of SPO."""


def search_settings(search: Any, policy: Policy, config: RunConfig, checkpoint: Checkpoint) -> SearchSettings | None:
    """The search that a text such as "alphazero:64" means for a checkpoint's policy; None where it means none.

    `config` has the world that is played. Raises a ConfigError if it cannot be searched with this policy.
    """
    spec = parse_search(search)
    if spec is None:
        return None
    world = config.make_env()
    check_searchable(world, policy, spec.kind)
    assert isinstance(world, Env)
    trained = checkpoint_settings(checkpoint)
    factor = torch.tensor([_reward_factor(trained, checkpoint)])
    rewards = Rewards.of(trained.ppo, factor)
    base = trained.alphazero if spec.kind == "alphazero" else trained.spo
    return SearchSettings(spec, rewards, base, _temperature(checkpoint), note_on_chance(world, spec.kind))


def _reward_factor(config: RunConfig, checkpoint: Checkpoint) -> float:
    """What a reward is multiplied with to be one of those that the policy's values are made of."""
    if not config.ppo.normalize_rewards:
        return 1.0
    divisor = reward_divisor_of(checkpoint)
    if divisor is None:
        raise ConfigError(
            f"{checkpoint.path} does not say how its rewards were scaled (normalize_rewards), so a search cannot add "
            f"them to its values; give a checkpoint of the run itself, RUN/checkpoints/step_..."
        )
    return 1.0 / divisor


def _temperature(checkpoint: Checkpoint) -> float | None:
    """SPO's temperature as it was learned; None where the checkpoint has none."""
    eta = checkpoint.trainer.get(ETA)
    if eta is None or eta.numel() != 1:
        return None
    temperature = float(eta)
    return temperature if math.isfinite(temperature) and temperature > 0 else None
