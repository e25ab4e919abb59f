"""What tests of recurrent cores compare with."""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.policies.recurrent.cores import LayeredCore


def plainly(core: LayeredCore, features: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor]:
    """What the core does, by torch's operators."""
    after = []
    for layer, own in zip(core.layers, state.split(core.layer_state_size, dim=1), strict=True):
        features, own = core.recurrence.plain(features, own, begins, *layer.weights())
        after.append(own)
    return features, torch.cat(after, dim=1)
