"""The optimizer's state as tensors: saved in a checkpoint and restored from one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scramjet.errors import CheckpointError
from scramjet.training.learning import Learning


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
