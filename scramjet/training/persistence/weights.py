"""Loads a checkpoint's weights, the optimizer's state and the scale of its values; says what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scramjet.algorithms.value_scaling import PopArt, mean_and_deviation, rescale
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies.policy import Policy, check_value_layer, value_layer
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.training.config.run_config import RunConfig
from scramjet.training.learning import Learning
from scramjet.training.persistence.metadata import reward_divisor_of

# --- weights


def load_weights(policy: Policy, checkpoint: Checkpoint) -> None:
    """Load a checkpoint's weights into a policy; raises a CheckpointError that says what does not fit."""
    check_weights(policy.state_dict(), checkpoint)
    policy.load_state_dict(checkpoint.model)


def check_weights(own: Mapping[str, Tensor], checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose tensors differ in name or shape from `own`, the state dict of a policy."""
    for name in dict.fromkeys([*own, *checkpoint.model]):
        here, there = _shape(own, name), _shape(checkpoint.model, name)
        if here != there:
            raise CheckpointError(
                f"'{checkpoint.path}' holds another network: {name} is {there} there and {here} here; "
                f"use the --policy and --normalize-observations settings it was trained with"
            )


def _shape(tensors: Mapping[str, Tensor], name: str) -> str:
    """A tensor's shape in words, and its type where that is not float32; "absent" if there is none."""
    if name not in tensors:
        return "absent"
    kind = "" if tensors[name].dtype == torch.float32 else f" of {str(tensors[name].dtype).removeprefix('torch.')}"
    return f"{list(tensors[name].shape)}{kind}"


# --- the optimizer's state


def optimizer_tensors(learner: Learning[Any]) -> dict[str, Tensor]:
    """Adam's moments and step counts, by parameter name; a parameter that never had a gradient has none."""
    state: dict[int, dict[str, Any]] = learner.optimizer.state_dict()["state"]
    names = [name for name, _ in learner.policy.named_parameters()]
    return {f"optimizer/{names[i]}/{entry}": value for i, values in state.items() for entry, value in values.items()}


def restore_optimizer(learner: Learning[Any], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Restore what `optimizer_tensors` gave, found among `tensors`; `path` is where they come from, for messages."""
    parameters = dict(learner.policy.named_parameters())
    numbers = {name: i for i, name in enumerate(parameters)}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if not key.startswith("optimizer/"):
            continue
        name, _, entry = key.removeprefix("optimizer/").rpartition("/")
        parameter = parameters.get(name)
        expected = () if entry == "step" else None if parameter is None else parameter.shape
        if tuple(tensor.shape) != expected or tensor.dtype != torch.float32:
            raise CheckpointError(f"'{path}' does not fit this network: {key} is {list(tensor.shape)}")
        # Moments lie in memory as their weights do, or the optimizer could not take them together.
        like = tensor if entry == "step" else parameters[name]
        state.setdefault(numbers[name], {})[entry] = torch.empty_like(like, device=tensor.device).copy_(tensor)
    if state and any(set(entries) != {"step", "exp_avg", "exp_avg_sq"} for entries in state.values()):
        raise CheckpointError(f"'{path}' holds only a part of the optimizer's state")
    # Weights that never had a gradient, frozen or unused, have no state yet; the compiled functions move all of them.
    if state and learner.executor.moves_every_weight and len(state) != len(numbers):
        raise CheckpointError(f"'{path}' holds the optimizer's state of another network")
    groups = learner.optimizer.state_dict()["param_groups"]
    learner.optimizer.load_state_dict({"state": state, "param_groups": groups})


# --- values in another scale: that of returns, or that of a fork's rewards

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
