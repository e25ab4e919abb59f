"""Load a checkpoint's weights into a policy, and say what does not fit."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from scramjet.errors import CheckpointError
from scramjet.policies.policy import Policy
from scramjet.runtime.checkpoints import Checkpoint


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
