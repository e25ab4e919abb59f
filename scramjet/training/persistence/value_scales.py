"""Values of a checkpoint's policy that are not in the scale of returns: brought back to it where that is needed."""

from __future__ import annotations

import torch

from scramjet.algorithms.value_scaling import PopArt, mean_and_deviation, rescale
from scramjet.errors import CheckpointError
from scramjet.policies.policy import Policy
from scramjet.policies.value_layer import value_layer
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.training.config.run_config import RunConfig


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


def take_over_values(policy: Policy, checkpoint: Checkpoint, before: RunConfig, now: RunConfig) -> None:
    """Bring the values of a fork's policy from the scale of its parent, with settings `before`, to its own."""
    if before.ppo.value_scale == "popart" != now.ppo.value_scale:
        give_returns(policy, checkpoint, before)
