"""Encoders of small boards: planes of cells, convolved without losing their place.

Of a Dict space, every entry that is a grid (a Box or MultiBinary with two axes, or a Box with channels too) becomes one
or more planes, and so does every MultiDiscrete entry with nvec [height, width], which is a position: its plane has a 1
in that cell. A MultiDiscrete entry with three axes is a grid of symbols, and each value of each symbol has a plane: see
`SymbolEntry`. The other entries are laid flat and concatenated with the features of the planes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete
from torch import Tensor, nn

from scramjet.engine.trees import leaves
from scramjet.errors import ConfigError
from scramjet.kernels.operations import are_convolutions, has_hooks, is_mapped, is_plain_convolution, takes_kernels
from scramjet.policies.config import PolicyConfig
from scramjet.policies.encoders.images import ImageLayout, is_image
from scramjet.policies.encoders.vectors import Encoder, flat_encoder, pixel_divisor
from scramjet.policies.layers import convolution

if TYPE_CHECKING:
    from scramjet.kernels.gpu.convolutions import Source


@dataclass(frozen=True)
class GridEntry:
    """An entry that is a grid, with channels or without, and how many planes it fills."""

    num_planes: int
    layout: ImageLayout | None  # None: two axes, one plane
    divisor: float
    is_binary: bool = False  # whether all numbers are 0 or 1

    def planes(self, entry: Tensor) -> Tensor:
        """[B, *shape] as float32 [B, num_planes, H, W]."""
        planes = entry.unsqueeze(1) if self.layout is None else self.layout.planes_first(entry)
        planes = planes.to(torch.float32, memory_format=torch.contiguous_format)
        return planes if self.divisor == 1.0 else planes / self.divisor

    @property
    def is_channels_first(self) -> bool:
        """Whether a grid's planes lie one behind the other in memory, not the numbers of a cell."""
        return self.layout is not None and not self.layout.is_channels_last

    def write(self, entry: Tensor, out: Tensor, first: int) -> None:
        """The same on the GPU, as planes `first` and following of [B, H, W, P]."""
        from scramjet.kernels.gpu.boards import write_grid

        settings: dict[str, Any] = {"channels_first": self.is_channels_first, "divisor": self.divisor}
        write_grid(out, first, entry, self.num_planes, **settings)


@dataclass(frozen=True)
class PositionEntry:
    """An entry that is a position (row, column): a plane with a 1 in its cell."""

    start: tuple[int, int]
    height: int
    width: int
    num_planes: int = 1

    def planes(self, entry: Tensor) -> Tensor:
        """int64 [B, 2] as float32 [B, 1, H, W]."""
        cells = torch.arange(self.height * self.width, device=entry.device)
        return (self.cell(entry).unsqueeze(1) == cells).float().view(-1, 1, self.height, self.width)

    def write(self, entry: Tensor, out: Tensor, first: int) -> None:
        """The same on the GPU, as plane `first` of [B, H, W, P]."""
        from scramjet.kernels.gpu.boards import write_position

        write_position(out, first, entry, self.start)

    def cell(self, entry: Tensor) -> Tensor:
        """The number of each position's cell, row by row, [B]."""
        entry = entry.long()  # a byte does not count the cells of a large grid
        return (entry[:, 0] - self.start[0]) * self.width + (entry[:, 1] - self.start[1])


class GridPlanes(nn.Module):
    """Lays the grids and positions of an observation out as planes [B, num_planes, height, width]."""

    def __init__(self, space: Any, config: PolicyConfig, encoder: str) -> None:
        super().__init__()
        entries: dict[Any, Any] = dict(space.spaces) if isinstance(space, Dict) else {None: space}
        sizes = {name: size for name, entry in entries.items() if (size := grid_size(entry)) is not None}
        if len(set(sizes.values())) != 1:
            found = ", ".join(f"{name} {list(size)}" for name, size in sizes.items()) or "none"
            raise ConfigError(
                f"policy.encoder='{encoder}' needs grids of one height x width (a Box or MultiBinary with two axes, "
                f"or three with channels or symbols) in the observation space {space}; found: {found}. "
                f"Use --policy.encoder auto"
            )
        self.height, self.width = next(iter(sizes.values()))
        self.num_planes = 0
        self._entries: list[tuple[str | None, slice, GridEntry | PositionEntry | SymbolEntry]] = []
        rest: dict[str, Any] = {}
        for name, entry in entries.items():
            if name in sizes:
                self._add(name, grid_entry(entry))
            elif is_position(entry, self.height, self.width):
                self._add(name, position_entry(entry))
            else:
                assert name is not None
                rest[name] = entry
        self.rest = flat_encoder(Dict(rest), config) if rest else None
        self.num_rest = self.rest.num_features if self.rest is not None else 0

    def _add(self, name: str | None, entry: GridEntry | PositionEntry | SymbolEntry) -> None:
        self._entries.append((name, slice(self.num_planes, self.num_planes + entry.num_planes), entry))
        self.num_planes += entry.num_planes

    @property
    def positions(self) -> list[int]:
        """The planes that show positions."""
        return [place.start for _, place, entry in self._entries if isinstance(entry, PositionEntry)]

    @property
    def are_binary(self) -> bool:
        """Whether all numbers of the planes are 0 or 1, as positions and MultiBinary entries are."""
        entries = [entry for _, _, entry in self._entries]
        return all(isinstance(one, PositionEntry) or (isinstance(one, GridEntry) and one.is_binary) for one in entries)

    def forward(self, obs: Any) -> Tensor:
        """The planes of a batch."""
        planes = [entry.planes(obs if name is None else obs[name]) for name, _, entry in self._entries]
        return planes[0] if len(planes) == 1 else torch.cat(planes, dim=1)

    def source(self, obs: Any) -> Source:
        """What convolutions on the GPU read: a single grid as it lies in the observation, else all planes,
        channels last."""
        from scramjet.kernels.gpu.convolutions import Source

        name, _, entry = self._entries[0]
        first = obs if name is None else obs[name]
        if len(self._entries) == 1 and isinstance(entry, GridEntry):
            return Source(first, self.height, self.width, entry.is_channels_first, entry.divisor)
        boards = self(obs).permute(0, 2, 3, 1) if is_mapped(first) else self.channels_last(obs)
        return Source(boards, self.height, self.width)

    def channels_last(self, obs: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """The planes of a batch on the GPU, [B, height, width, num_planes]."""
        first = leaves(obs)[0]
        out = torch.empty(len(first), self.height, self.width, self.num_planes, dtype=dtype, device=first.device)
        for name, place, entry in self._entries:
            entry.write(obs if name is None else obs[name], out, place.start)
        return out

    def with_rest(self, features: Tensor, obs: Any) -> Tensor:
        """Features [B, F] concatenated with those of the entries that are no planes, [B, F + num_rest]."""
        return features if self.rest is None else torch.cat([features, self.rest(obs)], dim=1)


def grid_size(space: Any) -> tuple[int, int] | None:
    """Height and width of a space that is a grid, else None."""
    if is_image(space):
        layout = ImageLayout.of(space)
        return layout.height, layout.width
    if is_symbol_grid(space) or (isinstance(space, Box | MultiBinary) and len(space.shape) == 2):
        return space.shape[0], space.shape[1]
    return None


def is_position(space: Any, height: int, width: int) -> bool:
    """Whether a space is a cell of a grid: MultiDiscrete([height, width])."""
    return isinstance(space, MultiDiscrete) and space.nvec.tolist() == [height, width]


def grid_entry(space: Any) -> GridEntry | SymbolEntry:
    """The planes of a space that is a grid."""
    if is_symbol_grid(space):
        return SymbolEntry.of(space)
    layout = ImageLayout.of(space) if is_image(space) else None
    num_planes = layout.channels if layout is not None else 1
    return GridEntry(num_planes, layout, pixel_divisor(space), isinstance(space, MultiBinary))


def position_entry(space: MultiDiscrete) -> PositionEntry:
    """The plane of a space that is a position."""
    return PositionEntry((int(space.start[0]), int(space.start[1])), int(space.nvec[0]), int(space.nvec[1]))


class ResidualBlock(nn.Module):
    """Adds two 3x3 convolutions of a board to it (He et al. 2016); a new block changes nothing, so that a deep stack
    of them learns as soon as a shallow one (Zhang et al. 2019)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = convolution(channels, channels, 3, padding=1)
        self.second = convolution(channels, channels, 3, padding=1)
        nn.init.zeros_(self.second.weight)

    def forward(self, board: Tensor) -> Tensor:
        """[B, C, H, W] to the same shape."""
        added: Tensor = self.second(torch.relu(self.first(board)))
        return torch.relu(board + added)


class GridCNN(Encoder):
    """3x3 convolutions with padding and without strides over a small board, so that every cell keeps its place."""

    def __init__(self, space: Any, config: PolicyConfig) -> None:
        super().__init__()
        self.planes = GridPlanes(space, config, "grid_cnn")
        layers: list[nn.Module] = []
        inputs = self.planes.num_planes
        for channels in config.grid_channels:
            layers += [convolution(inputs, channels, 3, padding=1), nn.ReLU()]
            inputs = channels
        layers += [ResidualBlock(inputs) for _ in range(config.grid_blocks)]
        self.layers = nn.Sequential(*layers)
        self.pools = config.grid_readout == "pool"
        cells = 2 if self.pools else self.planes.height * self.planes.width
        self.num_features = inputs * cells + self.planes.num_rest

    def forward(self, obs: Any) -> Tensor:
        """A batch of observations to [B, F]."""
        by_kernels = takes_kernels(leaves(obs)[0]) and self.has_known_layers
        cells = self._on_gpu(obs) if by_kernels else self.layers(self.planes(obs)).flatten(2)
        features = torch.cat([cells.mean(-1), cells.amax(-1)], dim=1) if self.pools else cells.flatten(1)
        return self.planes.with_rest(features, obs)

    @property
    def has_known_layers(self) -> bool:
        """Whether the layers are those that this class makes: a user may have changed some, or hooked into them."""
        if type(self.layers) is not nn.Sequential:
            return False
        blocks = [layer for layer in self.layers if type(layer) is ResidualBlock]
        first_block = len(self.layers) - len(blocks)
        inner = [layer for block in blocks for layer in (block.first, block.second)]
        return (
            are_convolutions(nn.Sequential(*list(self.layers)[:first_block]))
            and all(type(layer) is ResidualBlock for layer in list(self.layers)[first_block:])
            and all(is_plain_convolution(layer) for layer in inner)
            and not has_hooks([self.layers, *blocks, *inner])
        )

    def _on_gpu(self, obs: Any) -> Tensor:
        """The boards after all layers, [B, C, H * W]."""
        from scramjet.kernels.gpu.convolutions import convolve_modules

        convolutions: list[tuple[nn.Conv2d, bool]] = []
        for layer in self.layers:
            if isinstance(layer, ResidualBlock):
                convolutions += [(layer.first, False), (layer.second, True)]
            elif isinstance(layer, nn.Conv2d):
                convolutions.append((layer, False))
        features = convolve_modules(self.planes.source(obs), convolutions)
        return features.unflatten(1, (-1, self.planes.height * self.planes.width))


# --- grids of symbols, such as object and colour: a MultiDiscrete whose last axis has the symbols of one cell


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
