"""An encoder that plans on grids: values spread from cell to cell, and those around the agent are its features.

Value Propagation Networks (Nardelli et al. 2019, "MVProp", eq. 7), in the line of Value Iteration Networks (Tamar et
al. 2016). What is in a cell gives it a reward r and a share p of its neighbours' value that it lets through. Then,
with v = r to begin with,

    v_i = max(v_i, r_i + p_i (max over the four neighbours n of v_n - r_i))

is repeated until no cell changes. What was learned for a cell holds on every grid, however long its paths.

Sweeping over the cells in place, in alternating directions, settles in fewer rounds than updating all at once. It is
one compiled pass over the batch; its gradient follows, from each cell, the neighbour that its value came from. On the
GPU kernels do the same.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.spaces import Dict
from torch import Tensor, nn
from torch.nn import functional

from scramjet.errors import ConfigError
from scramjet.kernels.cpu.planning import BOUND, LEAK, PAUSE, SHARPNESS, SMALLEST
from scramjet.kernels.operations import has_hooks, is_mapped, is_plain_convolution, propagate, takes_kernels
from scramjet.policies.config import PolicyConfig
from scramjet.policies.encoders.grids import GridPlanes, is_position
from scramjet.policies.encoders.vectors import Encoder
from scramjet.policies.layers import convolution, keep_within, orthogonal
from scramjet.policies.observations import without_entries

FIRST_GUESS = 3.0
"""What a position entry adds to its cell's reward before anything is learned: every named place is first taken for a
goal. Otherwise chance decides in the first updates whether a goal is worth more or less than the cells around it, and
a policy that has learned to go beside it stays with that, because values spread from peaks only."""
MOST_PLANES, MOST_UNITS = 8, 64
"""Most planes and units of the embedding that fit on the GPU's chips; wider ones go through torch's convolutions."""
MOST_BINARY_PLANES = 3
"""Most planes of zeros and ones for which the GPU computes a reward and share for each kind of cell."""
AGENT = "agent"
"""The Dict entry from which it plans: the agent's position, a MultiDiscrete([height, width]) as other positions are."""


class ValuePropagation(Encoder):
    """The values of the 3x3 cells around the agent, and their shares, after planning over the whole grid."""

    around: Tensor  # [9], the cells around one, as steps in a grid with a border
    start: Tensor  # [2], where rows and columns are counted from
    strides: Tensor  # [2], cells from one row and column to the next, in a grid with a border
    guess: Tensor  # [2, planes, 1, 1], with `bias` [2] what a cell's reward and share begin at
    bias: Tensor

    def __init__(self, space: Any, config: PolicyConfig) -> None:
        super().__init__()
        agent: Any = space.spaces.get(AGENT) if isinstance(space, Dict) else None
        # A cell's reward and share do not depend on where the agent is: its position only says which values to read.
        planned = without_entries(space, (AGENT,)) if agent is not None and len(space.spaces) > 1 else space
        self.planes = GridPlanes(planned, config, "value_propagation")
        height, width = self.planes.height, self.planes.width
        if not is_position(agent, height, width):
            raise ConfigError(
                f"policy.encoder='value_propagation' plans from an entry '{AGENT}' of the space "
                f"MultiDiscrete([{height}, {width}]), a cell of the grid, and it is {agent} in {space}; "
                f"use --policy.encoder grid_cnn"
            )
        self.register_buffer("start", torch.tensor(agent.start, dtype=torch.int64), persistent=False)
        self.counted_from = (int(agent.start[0]), int(agent.start[1]))
        self.register_buffer("strides", torch.tensor([width + 2, 1]), persistent=False)
        self.max_sweeps = config.planning_steps or height * width
        channels = config.grid_channels[0]
        self.embed = convolution(self.planes.num_planes, channels, 1)
        self.maps = orthogonal(nn.Conv2d(channels, 2, 1), 0.1 / SHARPNESS)
        # At first a cell has a low reward, unless it is a named place, and lets most of its neighbours' value through.
        self.register_buffer("bias", torch.tensor([-4.0, 2.0]), persistent=False)
        guess = torch.zeros(2, self.planes.num_planes, 1, 1)
        guess[0, self.planes.positions] = FIRST_GUESS
        self.register_buffer("guess", guess, persistent=False)
        around = [row * (width + 2) + column for row in range(3) for column in range(3)]
        self.register_buffer("around", torch.tensor(around), persistent=False)
        self.num_features = 9 + 9 + 2 + self.planes.num_rest

    def forward(self, obs: Any) -> Tensor:
        """A batch of observations to [B, F]."""
        reward, passes = self.reward_and_passes(obs)
        value = propagate(reward, passes, self.max_sweeps)
        return self.planes.with_rest(self.agent_features(value, passes, obs), obs)

    def agent_features(self, value: Tensor, passes: Tensor, obs: Any) -> Tensor:
        """What the agent is told of the cells around it, [B, 20]."""
        if takes_kernels(value) and not is_mapped(value):
            from scramjet.kernels.gpu.cells import agent_features

            return agent_features(value, passes, obs[AGENT], self.counted_from, smallest=SMALLEST, pause=PAUSE)
        values, passable = self.around_agent(value, passes, obs)  # [B, 9]
        # Logarithms tell near from far where all values are tiny. Divided by that of the agent's own share, they count
        # steps: the neighbour that its value came from is about 1 better than its own cell.
        logs = (values + SMALLEST).log()
        log_pass = (passable[:, 4:5] + SMALLEST).log()
        steps = torch.tanh((logs - logs[:, 4:5]) / (PAUSE - log_pass))
        distance = logs[:, 4:5] / (log_pass - PAUSE) / (self.planes.height + self.planes.width)
        return torch.cat([steps, passable, values[:, 4:5], distance], dim=1)

    def around_agent(self, value: Tensor, passes: Tensor, obs: Any) -> tuple[Tensor, Tensor]:
        """The values and shares of the 3x3 cells around the agent, each [B, 9]; 0 outside of the grid."""
        # In a grid with a border, the corner above and to the left of the agent has the agent's own row and column.
        places = self.corner(obs).unsqueeze(1) + self.around
        values, passable = (
            functional.pad(cells, (1, 1, 1, 1)).flatten(1).gather(1, places) for cells in (value, passes)
        )
        return values, passable

    def corner(self, obs: Any) -> Tensor:
        """The number of the cell above and to the left of the agent in a grid with a border, [B]."""
        # The GPU has no product of whole-number matrices.
        corner: Tensor = ((obs[AGENT] - self.start) * self.strides).sum(1)
        return corner

    def reward_and_passes(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Each cell's reward and the share of value it lets through, both in (0, 1), [B, H, W]."""
        agent = obs[AGENT]
        if takes_kernels(agent) and not is_mapped(agent) and self._fits_kernels:
            return self._maps_on_gpu(obs)
        planes = self.planes(obs)
        maps: Tensor = self.maps(functional.leaky_relu(self.embed(planes), LEAK))
        guess = functional.conv2d(planes, self.guess, self.bias)
        maps = torch.sigmoid(keep_within(SHARPNESS * maps + guess, -BOUND, BOUND)).float()
        return maps[:, 0], maps[:, 1]

    @property
    def _fits_kernels(self) -> bool:
        layers = [self.embed, self.maps]
        return (
            self.planes.num_planes <= MOST_PLANES
            and self.embed.out_channels <= MOST_UNITS
            and all(is_plain_convolution(layer) and layer.kernel_size == (1, 1) for layer in layers)
            and not has_hooks(layers)
        )

    def _maps_on_gpu(self, obs: Any) -> tuple[Tensor, Tensor]:
        from scramjet.kernels.gpu.cells import CellWeights, cell_kinds, cell_maps

        assert self.embed.bias is not None
        assert self.maps.bias is not None
        embed, maps, guess = (weight.flatten(1) for weight in (self.embed.weight, self.maps.weight, self.guess))
        weights = CellWeights(embed, self.embed.bias, maps, self.maps.bias, guess, self.bias)
        numbers: dict[str, float] = {"slope": LEAK, "sharpness": SHARPNESS, "bound": BOUND}
        has_kinds = self.planes.are_binary and self.planes.num_planes <= MOST_BINARY_PLANES
        if has_kinds:
            reward, passes = cell_kinds(self.planes.channels_last(obs, torch.int8), weights, **numbers)
        else:
            reward, passes = cell_maps(self.planes.channels_last(obs), weights, **numbers)
        return reward, passes
