"""A network over entities: which of one kind goes with which of another, as in packing items into spaces.

Two streams of entities, rows and columns, attend to themselves and to each other (Vaswani et al. 2017, with the
normalization before each part as in Xiong et al. 2020). An action pairs a row with a column: its logit is the scaled
dot product of the two, and action `row * num_columns + column` stands for the pair. The value is computed from the mean
of each stream. Entities that are not valid get no attention, and their pairs have probability 0. In a recurrent network
a core takes the means; its output is added to every row, and the value is computed from it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium.spaces import Dict
from torch import Tensor, nn
from torch.nn import functional

from scramjet.errors import ConfigError
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import Categorical, Distribution
from scramjet.policies.encoders.entities import EntitySpec, Stream, count_entities, find_entities, make_stream
from scramjet.policies.layers import PolicyOutput, mlp, orthogonal, value_head
from scramjet.policies.recurrent import Core, CoreMaker, check_core, make_core, run_core, split_state

INVALID_PAIR_LOGIT = -1e4
"""The logit of a pair without two valid entities: probability exactly 0, yet far above that of masked actions."""


class Attention(nn.Module):
    """Multi-head attention of the entities of one stream to those of another, or to each other."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = orthogonal(nn.Linear(width, width), 1.0)
        self.key_value = orthogonal(nn.Linear(width, 2 * width), 1.0)
        self.output = orthogonal(nn.Linear(width, width), 1.0)

    def forward(self, own: Tensor, own_stream: Stream, other: Tensor, other_stream: Stream) -> Tensor:
        """What each of `own` [n, W] finds in `other` [m, W]: [n, W]; of an empty stream, the output layer's bias."""
        query = self._split(own_stream.to_slots(self.query(own)))
        key, value = map(self._split, other_stream.to_slots(self.key_value(other)).chunk(2, dim=-1))
        bias = other_stream.bias[:, None, None, :]
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias).transpose(1, 2).flatten(2)
        output: Tensor = self.output(own_stream.from_slots(other_stream.when_any(seen)))
        return output

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, heads, longest, W / heads]


class StreamBlock(nn.Module):
    """One stream's part of a block: self-attention, cross-attention, feed-forward; a residual around each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_self, self.norm_cross, self.norm_forward = (nn.LayerNorm(width) for _ in range(3))
        self.self_attention = Attention(width, heads)
        self.cross_attention = Attention(width, heads)
        self.feed_forward = nn.Sequential(
            orthogonal(nn.Linear(width, 4 * width), math.sqrt(2)),
            nn.ReLU(),
            orthogonal(nn.Linear(4 * width, width), 1.0),
        )

    def look_at_own(self, own: Tensor, stream: Stream) -> Tensor:
        """Self-attention within the stream."""
        normal = self.norm_self(own)
        seen: Tensor = self.self_attention(normal, stream, normal, stream)
        return own + seen

    def look_at_other(self, own: Tensor, seen: Tensor) -> Tensor:
        """Add what cross-attention found in the other stream, then feed-forward."""
        own = own + seen
        forward: Tensor = self.feed_forward(self.norm_forward(own))
        return own + forward


class EntityTorso(nn.Module):
    """Embeds both streams and takes them through all blocks."""

    def __init__(self, space: Dict, spec: EntitySpec, config: PolicyConfig) -> None:
        super().__init__()
        width, heads = config.attention_width, config.attention_heads
        features: list[Any] = [space[names.features] for names in (spec.rows, spec.columns)]
        self.embed_rows = orthogonal(nn.Linear(features[0].shape[1], width), 1.0)
        self.embed_columns = orthogonal(nn.Linear(features[1].shape[1], width), 1.0)
        self.row_blocks = nn.ModuleList([StreamBlock(width, heads) for _ in range(config.attention_blocks)])
        self.column_blocks = nn.ModuleList([StreamBlock(width, heads) for _ in range(config.attention_blocks)])
        self.norm_rows, self.norm_columns = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, row_stream: Stream, column_stream: Stream) -> tuple[Tensor, Tensor]:
        """All rows [n, W] and columns [m, W] of the batch."""
        rows, columns = self.embed_rows(row_stream.features), self.embed_columns(column_stream.features)
        for row_block, column_block in zip(self.row_blocks, self.column_blocks, strict=True):
            assert isinstance(row_block, StreamBlock)
            assert isinstance(column_block, StreamBlock)
            rows = row_block.look_at_own(rows, row_stream)
            columns = column_block.look_at_own(columns, column_stream)
            normal_rows, normal_columns = row_block.norm_cross(rows), column_block.norm_cross(columns)
            in_columns = row_block.cross_attention(normal_rows, row_stream, normal_columns, column_stream)
            in_rows = column_block.cross_attention(normal_columns, column_stream, normal_rows, row_stream)
            rows = row_block.look_at_other(rows, in_columns)
            columns = column_block.look_at_other(columns, in_rows)
        return self.norm_rows(rows), self.norm_columns(columns)


class PairHead(nn.Module):
    """The logit of each pair: a scaled dot product; small at first, so that the first policy is near uniform."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        width = config.attention_width
        self.rows = orthogonal(nn.Linear(width, width), 1.0)
        self.columns = orthogonal(nn.Linear(width, width), 0.01)
        self.scale = 1 / math.sqrt(width)

    def forward(self, rows: Tensor, row_stream: Stream, columns: Tensor, column_stream: Stream) -> Tensor:
        """Logits [B, R * C], row-major; INVALID_PAIR_LOGIT for pairs without two valid entities."""
        keys = column_stream.to_places(self.columns(columns)).transpose(1, 2)
        scores = row_stream.to_places(self.rows(rows) * self.scale) @ keys
        valid = row_stream.valid.unsqueeze(2) & column_stream.valid.unsqueeze(1)
        return scores.masked_fill(~valid, INVALID_PAIR_LOGIT).flatten(1)


class PooledValueHead(nn.Module):
    """The value, by an MLP from the mean of each stream's entities, or from the output of a recurrent core."""

    def __init__(self, num_features: int, config: PolicyConfig) -> None:
        super().__init__()
        self.layers = mlp(num_features, config.hidden, config.activation)
        self.output = value_head(config.hidden[-1], config)

    def forward(self, pooled: Tensor) -> Tensor:
        """[B, F] to values [B]."""
        value: Tensor = self.output(self.layers(pooled))
        return value.squeeze(-1)


class EntityCore(nn.Module):
    """A recurrent core over the mean of each stream, and the layer that adds its output to every row."""

    def __init__(self, core: Core, config: PolicyConfig) -> None:
        super().__init__()
        self.core = core
        self.to_rows = orthogonal(nn.Linear(core.num_features, config.attention_width), 1.0)

    def forward(self, pooled: Tensor, state: Tensor | None, begins: Tensor | None) -> tuple[Tensor, Tensor]:
        """Means [T * rows, 2 W] to the core's outputs [T * rows, M], and the state after the last step."""
        return run_core(self.core, pooled, state, begins)

    def add_to_rows(self, rows: Tensor, stream: Stream, output: Tensor) -> Tensor:
        """Rows [n, W] plus what the core's output [B, M] for their observation adds."""
        return rows + stream.to_entities(self.to_rows(output))


def pool_streams(rows: Tensor, row_stream: Stream, columns: Tensor, column_stream: Stream) -> Tensor:
    """The means of each stream's entities, [B, 2 W]."""
    return torch.cat([row_stream.mean(rows), column_stream.mean(columns)], dim=1)


def make_entity_core(config: PolicyConfig, core: CoreMaker) -> tuple[EntityCore | None, int]:
    """The recurrent core and its number of outputs; without one, None and the numbers in the two means."""
    made = check_core(core(2 * config.attention_width, config))
    return (None, 2 * config.attention_width) if made is None else (EntityCore(made, config), made.num_features)


def _size_of(memory: EntityCore | None) -> int:
    return 0 if memory is None else memory.core.state_size


class SeparateEntityNetwork(nn.Module):
    """Policy and value with a torso and, in a recurrent network, a core each."""

    def __init__(self, space: Dict, spec: EntitySpec, config: PolicyConfig, core: CoreMaker = make_core) -> None:
        super().__init__()
        self.spec = spec
        self.actor, self.actor_head = EntityTorso(space, spec, config), PairHead(config)
        self.actor_memory, num_features = make_entity_core(config, core)
        self.critic, self.critic_head = EntityTorso(space, spec, config), PooledValueHead(num_features, config)
        self.critic_memory, _ = make_entity_core(config, core)
        self.state_size = _size_of(self.actor_memory) + _size_of(self.critic_memory)

    def forward(
        self, obs: dict[str, Tensor], state: Tensor | None = None, begins: Tensor | None = None
    ) -> PolicyOutput:
        """Logits [B, R * C] and values [B]."""
        if self.actor_memory is None or self.critic_memory is None:
            return PolicyOutput(self.logits(obs), self.value(obs))
        actor_state, critic_state = split_state(state, self.actor_memory.core, self.critic_memory.core)
        streams = make_stream(obs, self.spec.rows), make_stream(obs, self.spec.columns)
        rows, columns = self.actor(*streams)
        pooled = pool_streams(rows, streams[0], columns, streams[1])
        output, actor_state = self.actor_memory(pooled, actor_state, begins)
        rows = self.actor_memory.add_to_rows(rows, streams[0], output)
        logits = self.actor_head(rows, streams[0], columns, streams[1])
        rows, columns = self.critic(*streams)
        pooled = pool_streams(rows, streams[0], columns, streams[1])
        output, critic_state = self.critic_memory(pooled, critic_state, begins)
        return PolicyOutput(logits, self.critic_head(output), torch.cat([actor_state, critic_state], dim=1))

    def logits(self, obs: dict[str, Tensor]) -> Tensor:
        """The logits alone, [B, R * C]; only for networks without a core."""
        row_stream, column_stream = make_stream(obs, self.spec.rows), make_stream(obs, self.spec.columns)
        rows, columns = self.actor(row_stream, column_stream)
        logits: Tensor = self.actor_head(rows, row_stream, columns, column_stream)
        return logits

    def value(self, obs: dict[str, Tensor]) -> Tensor:
        """The values alone, [B]; only for networks without a core."""
        row_stream, column_stream = make_stream(obs, self.spec.rows), make_stream(obs, self.spec.columns)
        rows, columns = self.critic(row_stream, column_stream)
        value: Tensor = self.critic_head(pool_streams(rows, row_stream, columns, column_stream))
        return value


class SharedEntityNetwork(nn.Module):
    """Policy and value on one torso and, in a recurrent network, one core."""

    def __init__(self, space: Dict, spec: EntitySpec, config: PolicyConfig, core: CoreMaker = make_core) -> None:
        super().__init__()
        self.spec = spec
        self.torso = EntityTorso(space, spec, config)
        self.memory, num_features = make_entity_core(config, core)
        self.actor_head, self.critic_head = PairHead(config), PooledValueHead(num_features, config)
        self.state_size = _size_of(self.memory)

    def forward(
        self, obs: dict[str, Tensor], state: Tensor | None = None, begins: Tensor | None = None
    ) -> PolicyOutput:
        """Logits [B, R * C] and values [B]."""
        row_stream, column_stream = make_stream(obs, self.spec.rows), make_stream(obs, self.spec.columns)
        rows, columns = self.torso(row_stream, column_stream)
        pooled = pool_streams(rows, row_stream, columns, column_stream)
        if self.memory is not None:
            pooled, state = self.memory(pooled, state, begins)
            rows = self.memory.add_to_rows(rows, row_stream, pooled)
        logits = self.actor_head(rows, row_stream, columns, column_stream)
        return PolicyOutput(logits, self.critic_head(pooled), state)


def make_entity_network(
    space: Any,
    distribution: Distribution,
    config: PolicyConfig,
    spec: EntitySpec | None = None,
    core: CoreMaker = make_core,
) -> nn.Module:
    """The attention network of a Dict space with two kinds of entities; None: those that `find_entities` finds."""
    spec = find_entities(space) if spec is None else spec
    counts = [count_entities(stream, space) for stream in (spec.rows, spec.columns)]
    if not isinstance(distribution, Categorical) or distribution.num_inputs != math.prod(counts):
        raise ConfigError(
            f"policy.encoder='entity_attention' chooses a pair of {counts[0]} {spec.rows.features} and {counts[1]} "
            f"{spec.columns.features}, so the action space must be Discrete({math.prod(counts)}); "
            f"use another --policy.encoder"
        )
    return (SharedEntityNetwork if config.shared_trunk else SeparateEntityNetwork)(space, spec, config, core)
