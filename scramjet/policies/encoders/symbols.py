"""Grids of symbols: a MultiDiscrete with three axes, whose last has the symbols of one cell, such as object and colour.

The numbers are names, not amounts, so each value of each symbol becomes a plane of its own: 1 where a cell has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import MultiDiscrete
from torch import Tensor


def is_symbol_grid(space: Any) -> bool:
    """Whether a space is a grid of symbols: [height, width, symbols], with the same choices in every cell."""
    if not isinstance(space, MultiDiscrete) or space.nvec.ndim != 3:
        return False
    return bool((space.nvec == space.nvec[:1, :1]).all() and (space.start == space.start[:1, :1]).all())


@dataclass(frozen=True)
class SymbolEntry:
    """An entry that is a grid of symbols: a plane for each value of each symbol."""

    sizes: tuple[int, ...]  # choices of each symbol
    starts: tuple[int, ...]  # the lowest choice of each

    @classmethod
    def of(cls, space: MultiDiscrete) -> SymbolEntry:
        """The planes of a space that is a grid of symbols."""
        return cls(tuple(space.nvec[0, 0].tolist()), tuple(np.asarray(space.start)[0, 0].tolist()))

    @property
    def num_planes(self) -> int:
        """Values of all symbols."""
        return sum(self.sizes)

    def planes(self, entry: Tensor) -> Tensor:
        """Whole numbers [B, H, W, symbols] as float32 [B, num_planes, H, W]."""
        hot = [
            entry[..., k, None] == torch.arange(start, start + size, dtype=entry.dtype, device=entry.device)
            for k, (size, start) in enumerate(zip(self.sizes, self.starts, strict=True))
        ]
        return torch.cat(hot, dim=-1).permute(0, 3, 1, 2).to(torch.float32)

    def write(self, entry: Tensor, out: Tensor, first: int) -> None:
        """The same on the GPU, as planes `first` and following of [B, H, W, P]."""
        from scramjet.kernels.gpu.boards import write_symbols

        write_symbols(out, first, entry, self.sizes, self.starts)
