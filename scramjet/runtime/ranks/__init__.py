"""Several processes that train one run together, seen from one of them: the interface `Ranks`, and the run of one.

`joining` has them find each other, `group` exchanges numbers, `watching` notices a lost one, `launching` starts them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `environment` is wanted by commands that load no torch
    from torch import Tensor


def _done() -> None:
    """End a sum that was complete when it was begun."""


class Ranks(ABC):
    """The processes of one run. Every rank makes the same calls in the same order; a call returns once all made it."""

    rank: int = 0
    """The number of this process, from 0."""
    size: int = 1
    """How many processes there are."""
    local_rank: int = 0
    """The number of this process among those on its machine."""
    local_size: int = 1
    """How many of the processes are on this machine."""
    can_be_recorded: bool = True
    """Whether sums of tensors on the GPU may be part of a CUDA graph."""

    earlier_run: Path | None = None
    """The run that these ranks began before their launcher started all of them again."""
    note: str = ""
    """A remark for the user about how the ranks are joined; empty where there is none."""

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which alone writes the run's folder, shows its progress and evaluates."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is only one process."""
        return self.size == 1

    @abstractmethod
    def add(self, numbers: Tensor) -> None:
        """Replace `numbers` by their sum over all ranks, in place; the result is the same, bit for bit, on all."""

    def start_add(self, numbers: Tensor) -> Callable[[], None]:
        """Begin `add` and return a function that ends it; other sums may be begun and work be done in between."""
        self.add(numbers)
        return _done

    @abstractmethod
    def gather(self, data: bytes) -> list[bytes]:
        """The `data` of all ranks, in their order, on every rank; lengths may differ."""

    def to_first(self, data: bytes) -> list[bytes]:
        """The `data` of all ranks, in their order, on rank 0; an empty list on the others."""
        everything = self.gather(data)
        return everything if self.is_first else []

    @abstractmethod
    def from_first(self, data: bytes) -> bytes:
        """The `data` of rank 0, on every rank; what other ranks pass is ignored."""

    def is_ending(self) -> bool:
        """Whether a rank was lost, so that all are about to end."""
        return False

    def began(self, run: Path) -> None:  # noqa: B027 - nothing to remember without a launcher
        """Remember on rank 0 which run this is: if the launcher starts all ranks again, they go on with it."""


class Alone(Ranks):
    """A run of one process: nothing is exchanged."""

    def add(self, numbers: Tensor) -> None:
        """Leave the numbers as they are."""

    def gather(self, data: bytes) -> list[bytes]:
        return [data]

    def from_first(self, data: bytes) -> bytes:
        return data


ALONE = Alone()
