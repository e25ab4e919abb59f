"""What each rank tells the others after an update, and how what all told becomes that of one run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scramjet.engine.pool import Episodes
from scramjet.engine.wrappers.concatenated_pool import concatenate_episodes
from scramjet.training.parallel.parcels import packed, unpacked

_COUNTS = ("async/queue_depth", "async/frames_in_flight", "async/stale_trajectories", "async/env_restarts")
"""Metrics of collecting that add up over ranks."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank has to tell after an update."""

    episodes: Episodes
    metrics: dict[str, float] = field(default_factory=dict)
    """The metrics of collecting."""
    news: list[str] = field(default_factory=list)
    """Messages for the user."""
    digest: str = ""
    """A hash of the weights, at updates at which they are compared."""

    def to_bytes(self) -> bytes:
        """The report as data to send."""
        episodes = self.episodes
        facts: dict[str, Any] = {"num_ended": episodes.num_ended, "stats": list(episodes.stats)}
        facts |= {"metrics": self.metrics, "news": self.news, "digest": self.digest}
        columns = [episodes.returns, *episodes.stats.values()]
        numbers = [episodes.lengths, episodes.env_ids, episodes.players]
        numbers += [] if episodes.ticks is None else [episodes.ticks]
        return packed(
            {
                "facts": json.dumps(facts).encode(),
                "floats": np.stack(columns).astype(np.float64).tobytes(),
                "counts": np.stack(numbers).astype(np.int64).tobytes(),
                "has_ticks": b"" if episodes.ticks is None else b"+",
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """The report that `to_bytes` made `data` of."""
        parts = unpacked(data)
        facts: dict[str, Any] = json.loads(parts["facts"])
        floats = np.frombuffer(parts["floats"]).reshape(1 + len(facts["stats"]), -1)
        counts = np.frombuffer(parts["counts"], np.int64).reshape(4 if parts["has_ticks"] else 3, -1)
        episodes = Episodes(
            num_ended=facts["num_ended"],
            returns=floats[0],
            lengths=counts[0],
            env_ids=counts[1],
            players=counts[2],
            stats=dict(zip(facts["stats"], floats[1:], strict=True)),
            ticks=counts[3] if parts["has_ticks"] else None,
        )
        return cls(episodes, facts["metrics"], facts["news"], facts["digest"])


def merged_episodes(parts: Sequence[Episodes], num_envs: int) -> Episodes:
    """The episodes of all ranks, each of `num_envs` envs, in the order in which they ended.

    Where the step in which each ended is not known, those of all ranks are spread evenly, so that none are the last.
    """
    everything = concatenate_episodes(parts, num_envs)
    ticks = [part.ticks for part in parts if part.ticks is not None]
    if len(ticks) == len(parts):
        order = np.lexsort((everything.players, everything.env_ids, np.concatenate(ticks)))
    else:
        order = np.argsort(np.concatenate([(np.arange(len(part)) + 0.5) / len(part) for part in parts]), kind="stable")
    return Episodes(
        num_ended=everything.num_ended,
        returns=everything.returns[order],
        lengths=everything.lengths[order],
        env_ids=everything.env_ids[order],
        players=everything.players[order],
        stats={name: values[order] for name, values in everything.stats.items()},
    )


def merged_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of collecting of all ranks as those of one: counts add up, of maxima the largest, else the mean."""
    merged: dict[str, float] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if name in _COUNTS:
            merged[name] = sum(values)
        else:
            merged[name] = max(values) if name.endswith("_max") else sum(values) / len(values)
    return merged
