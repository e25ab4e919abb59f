"""What is remembered of the episodes under way."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EpisodicMemory(nn.Module):
    """A memory of the episode of each of R rows, kept over rollouts; each of its buffers has a row for each."""

    is_under_way: Tensor  # [R] bool, whether the first observation of the row's episode is remembered

    def __init__(self, num_rows: int) -> None:
        super().__init__()
        self.register_buffer("is_under_way", torch.zeros(num_rows, dtype=torch.bool))

    def forget(self) -> None:
        """Begin every row's next step as the first of an episode."""
        self.is_under_way.zero_()
