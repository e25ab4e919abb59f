"""What it takes to record an update on the GPU as one CUDA graph: its stages, and the numbers that it reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scramjet.executors.cuda_graphs import Stage, stage
from scramjet.executors.executor import Diagnostics
from scramjet.training.batches.shuffling import KEYS
from scramjet.training.learning import Outcome

_WORDS = 2
"""Words of 8 bytes for each value of a schedule: kernels are compiled for addresses that 16 divides."""


@dataclass(frozen=True, slots=True)
class UpdateStages:
    """What is recorded of an update on the GPU: all of it, or each epoch and each correction of advantages."""

    update: Stage[Outcome]
    epoch: Stage[Diagnostics]
    correction: Stage[Tensor]
    are_one: bool  # the whole update is one stage, and the others run within it

    @classmethod
    def whole(cls, device: torch.device) -> UpdateStages:
        """Stages for updates in which nothing is looked at between epochs."""
        return cls(stage("an update", device), Stage(), Stage(), are_one=True)

    @classmethod
    def by_epoch(cls, device: torch.device) -> UpdateStages:
        """Stages for updates that look at numbers between epochs."""
        epoch, correction = stage("an epoch of learning", device), stage("the correction of advantages", device)
        return cls(Stage(), epoch, correction, are_one=False)


class UpdateNumbers:
    """The values of three schedules and the keys of all orders of one update; one copy sends them to the device."""

    def __init__(self, device: torch.device, num_epochs: int) -> None:
        num_words = 3 * _WORDS
        size = num_words + num_epochs * KEYS
        self._sent = torch.zeros(size, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._received = torch.zeros(size, dtype=torch.int64, device=device)
        words = self._sent.numpy()
        self._values, self._keys = words[:num_words].view(np.float32)[:: 2 * _WORDS], words[num_words:]
        on_device = self._received[:num_words].view(torch.float32)[:: 2 * _WORDS]
        self.learning_rate, self.clip, self.entropy_coef = on_device.unbind()
        """Scalars, float32."""
        self.keys = self._received[num_words:].view(num_epochs, KEYS)

    def send(self, learning_rate: float, clip: float, entropy_coef: float, keys: Tensor | None = None) -> None:
        """Write the numbers of an update, with `keys` [num_epochs, KEYS] if they were drawn before it.

        Does not wait for the device: call this again only when the results of the update have been read.
        """
        self._values[:] = learning_rate, clip, entropy_coef
        if keys is not None:
            self._keys[:] = keys.flatten().numpy()
        self._received.copy_(self._sent, non_blocking=True)
