"""Brings values of a checkpoint's policy to another scale: to that of returns, or to that of a fork's rewards."""

from __future__ import annotations

from typing import Any

import torch

from scramjet.algorithms.value_scaling import PopArt, mean_and_deviation, rescale
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies.policy import Policy
from scramjet.policies.value_layer import check_value_layer, value_layer
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learning import Learning
from scramjet.training.persistence.checkpoint_facts import reward_divisor_of

MOST_ENLARGED = 32.0
"""How many times values that were learned beside bonuses are made larger. Where rewards are so small that it would take
more, the errors of the critic are larger than what it learned of them, and would take long to unlearn."""


def give_returns(policy: Policy, checkpoint: Checkpoint, settings: RunConfig) -> None:
    """Have a policy with a checkpoint's weights give values in the scale of returns; `settings`: the checkpoint's.

    Checkpoints of opponents do not say how their values were normalized: these stay as they are.
    """
    policy.values_are_symlog = settings.ppo.value_scale == "symlog"
    moments = checkpoint.trainer.get(PopArt.MOMENTS)
    if settings.ppo.value_scale != "popart" or moments is None:
        return
    if tuple(moments.shape) != (3,) or moments.dtype != torch.float64 or not bool(moments.isfinite().all()):
        raise CheckpointError(f"'{checkpoint.path}' does not say how its values were normalized: {PopArt.MOMENTS}")
    mean, deviation = (number.to(policy.device) for number in mean_and_deviation(moments))
    rescale(value_layer(policy), deviation, mean)


def take_over_values(
    learner: Learning[Any], observation_space: Any, checkpoint: Checkpoint, before: RunConfig, now: RunConfig
) -> str:
    """Bring the values of a fork's policy from the scale of its parent, with settings `before`, to its own.

    `observation_space` is what the policy sees. Returns a note for the user where the values cannot be brought to the
    scale of the fork's rewards; else an empty text. The optimizer's moments stay as they are.
    """
    if before.ppo.value_scale == "popart" != now.ppo.value_scale:
        give_returns(learner.policy, checkpoint, before)
    divisors = _divisor(checkpoint, before), _divisor(checkpoint, now)
    if divisors[0] == divisors[1]:
        return ""
    factor = divisors[0] / divisors[1]
    if before.curiosity is not None and factor > MOST_ENLARGED:
        obstacle = "from numbers so small"
    else:
        obstacle = _multiply_values(learner, observation_space, factor, now)
    if not obstacle:
        return ""
    return (
        f"rewards are divided by {divisors[1]:.3g} and no longer by {divisors[0]:.3g}, and values cannot be brought to "
        f"that {obstacle}: the critic learns them anew"
    )


def _divisor(checkpoint: Checkpoint, settings: RunConfig) -> float:
    """What a run with these settings divides rewards by when it begins from a checkpoint; 1 where that is not known."""
    divisor = reward_divisor_of(checkpoint, settings) if settings.ppo.normalize_rewards else None
    return 1.0 if divisor is None else divisor


def _multiply_values(learner: Learning[Any], observation_space: Any, factor: float, now: RunConfig) -> str:
    """Multiply all values of a policy by a factor; returns what is in the way, an empty text where nothing is."""
    if isinstance(learner.value_scale, PopArt):
        learner.value_scale.multiply_returns(factor)
        return ""
    if now.ppo.value_scale == "symlog":
        return "with value_scale='symlog'"
    if now.policy.value_bins is not None:
        return f"with policy.value_bins={now.policy.value_bins}"
    try:
        check_value_layer(learner.policy, observation_space)
    except ConfigError:
        return "in a network without a layer critic_head = nn.Linear(..., 1) that gives them"
    rescale(value_layer(learner.policy), *torch.tensor([factor, 0.0], dtype=torch.float64))
    return ""
