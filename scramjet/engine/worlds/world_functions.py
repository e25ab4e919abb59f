"""What kernels are made of: a world's functions, what stands in where it has none, and a back-end's compilers."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.engine.layout import ActionKind, PlayedBy

NO_LIMIT = (1 << 31) - 1

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


EpisodeLog = namedtuple("EpisodeLog", ("rows", "size"))
"""The log of finished episodes that one thread writes: records (see `episode_dtype`), and how many it has."""


@dataclass(frozen=True, slots=True)
class Compilers:
    """How a back-end makes its functions out of plain ones."""

    inner: Compile  # called by others; it keeps and returns none of the arrays it is given
    view: Compile  # called by others; returns a part of an array
    entry: Compile  # called from Python
    threaded_entry: Compile  # called from Python, its prange over threads
    shown_row: Callable[..., Any] | None = (
        None  # what `observe` writes to for the policy, where that is not `rules.row`
    )
    call: Callable[..., Any] | None = None  # (address, numbers): call compiled code at an address; None: it cannot be
    claim: Callable[..., Any] | None = None  # (log_size, blank) -> the next slot of the log; None: one thread writes it


@dataclass(frozen=True, slots=True)
class Rules:
    """A world's functions, each taking the parameters first, and what the engine must know of them."""

    parameters: Any
    reset: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any]
    mask: Callable[..., Any]
    stats: Callable[..., Any]
    alive: Callable[..., Any]
    seat: Callable[..., Any]
    score: Callable[..., Any]
    row: Callable[..., Any]  # (obs, i) -> what `observe` writes to
    clear: Callable[..., Any]  # (s): set all fields to zero but the engine's header
    max_episode_steps: int
    played_by: PlayedBy
    num_players: int
    action_kind: ActionKind
    action_sizes: np.ndarray  # int64, the number of choices of each component of a discrete action


def no_mask(parameters: Any, s: Any, mask: Any) -> None:
    """Stands in where a world has no mask."""


def no_mask_of_player(parameters: Any, s: Any, mask: Any, player: Any) -> None:
    """Stands in where a world of several players has no mask."""


def no_stats(parameters: Any, s: Any, stats: Any) -> None:
    """Stands in where a world has no stats."""


def no_stats_of_player(parameters: Any, s: Any, stats: Any, player: Any) -> None:
    """Stands in where a world of several players has no stats."""


def always_alive(parameters: Any, s: Any, player: Any) -> bool:
    """Stands in where agents do not die."""
    return True


def no_score(parameters: Any, s: Any, player: Any) -> float:
    """Stands in where a world does not judge positions."""
    return 0.0


def first_seat(parameters: Any, s: Any) -> int:
    """Stands in where nobody takes turns."""
    return 0
