"""Loads a checkpoint's weights, the optimizer's state and the scale of its values; says what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scramjet.algorithms.value_scaling import PopArt, mean_and_deviation, rescale
from scramjet.errors import CheckpointError
from scramjet.policies.policy import Policy, value_layer
from scramjet.runtime.checkpoints import Checkpoint

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


def optimizer_tensors(policy: Policy, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """Adam's moments and step counts, by parameter name; a parameter that never had a gradient has none."""
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    names = [name for name, _ in policy.named_parameters()]
    return {f"optimizer/{names[i]}/{entry}": value for i, values in state.items() for entry, value in values.items()}


def restore_optimizer(
    policy: Policy, optimizer: torch.optim.Adam, tensors: Mapping[str, Tensor], path: Path, *, of_every_weight: bool
) -> None:
    """Restore what `optimizer_tensors` gave, found among `tensors`; `path` is where they come from, for messages.

    `of_every_weight`: the optimizer moves all weights in each step, so that a state of only some is another network's.
    """
    parameters = dict(policy.named_parameters())
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
    if state and of_every_weight and len(state) != len(numbers):
        raise CheckpointError(f"'{path}' holds the optimizer's state of another network")
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


# --- values in the scale of returns


def give_returns(policy: Policy, checkpoint: Checkpoint, value_scale: str) -> None:
    """Have a policy with a checkpoint's weights give values in the scale of returns; `value_scale`: the checkpoint's.

    Checkpoints of opponents do not say how their values were normalized: these stay as they are.
    """
    policy.values_are_symlog = value_scale == "symlog"
    moments = checkpoint.trainer.get(PopArt.MOMENTS)
    if value_scale != "popart" or moments is None:
        return
    if tuple(moments.shape) != (3,) or moments.dtype != torch.float64 or not bool(moments.isfinite().all()):
        raise CheckpointError(f"'{checkpoint.path}' does not say how its values were normalized: {PopArt.MOMENTS}")
    mean, deviation = (number.to(policy.device) for number in mean_and_deviation(moments))
    rescale(value_layer(policy), deviation, mean)
