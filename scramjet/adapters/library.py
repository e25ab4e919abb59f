"""What scramjet needs to know of a library whose envs it can train on: one `Library` record each, in `libraries/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import gymnasium

    from scramjet.adapters.foreign_pool import ForeignPool
    from scramjet.adapters.gymnasium.process import Trial
    from scramjet.adapters.world_parameters import WorldParameter

OnError = Literal["fail", "restart"]
DEFAULT_TIMEOUT = 60.0
TEXT_MODES = ("ansi", "rgb_array")
"""Gymnasium's render modes for a terminal, the better one first."""


@dataclass(frozen=True)
class WorkerSettings:
    """How the envs of a pool are kept in processes."""

    num_workers: int | None = None  # None: one for each core, or none where that is faster; 0: none
    timeout: float = DEFAULT_TIMEOUT
    on_error: OnError = "fail"
    apart: bool = False  # a part of a pool, for one of many actors
    threads: int = 1  # of that part, where its library has threads for it
    in_halves: bool = False  # steps one half of the envs, then the other, as training does

    @property
    def is_free(self) -> bool:
        """Whether envs may as well step in this process: nobody asked for what only processes can do."""
        return self.num_workers is None and self.on_error == "fail" and self.timeout == DEFAULT_TIMEOUT


@dataclass(frozen=True)
class PoolRequest:
    """Which pool of a world is wanted."""

    num_envs: int
    learns: bool  # to train with, where that differs from evaluation (Atari's lives and clipped rewards)
    workers: WorkerSettings


class NamedWorld(Protocol):
    """What a library is told of one of its worlds."""

    @property
    def name(self) -> str:
        """The whole name, `gym:CartPole-v1`."""

    @property
    def id(self) -> str:
        """What stands behind the prefix, `CartPole-v1`."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Arguments for whatever makes its envs."""

    @property
    def trial(self) -> Trial:
        """What one env showed when it was tried out in a process of its own; done when first asked for."""


def _never(name: str) -> bool:
    return False


def _always(name: str) -> bool:
    return True


def _unknown(name: str) -> list[WorldParameter]:
    return []


@dataclass(frozen=True)
class Library:
    """A library of envs under one prefix: how its names are resolved, how its pools are made, what its envs can do."""

    prefix: str
    """What stands before the colon: `gym` of `gym:CartPole-v1`."""
    package: str
    """The package that brings the envs; its version is part of what a run records of its world."""
    make_pool: Callable[[NamedWorld, PoolRequest], ForeignPool]
    set_by_us: tuple[str, ...]
    """Arguments that scramjet gives itself: no parameters of a world."""
    env_factory: Callable[[NamedWorld], Callable[[], gymnasium.Env]] | None = None
    """Returns the function that makes one Gymnasium env; None where envs are not made one by one."""
    makes_vector_envs: Callable[[str], bool] = _never
    """Whether the world of this name makes many envs at once, though others of the library may be made one by one."""
    takes_render_mode: Callable[[str], bool] = _always
    """Whether envs of this name can be told how to draw themselves."""
    parameter_defaults: Callable[[], dict[str, Any]] | None = None
    """The parameters of all its worlds and their defaults; None where they differ or only the library knows them."""
    parameters: Callable[[str], list[WorldParameter]] = _unknown
    """The parameters of the world of this name, as far as the library tells of them without making an env."""
    canonical_name: Callable[[str], str] = str
    """The one spelling of a name under which it is recorded."""
    can_be_async: bool = False
    """Whether actors of asynchronous training can step its envs: pools of them can be polled."""
    has_workers: bool = False
    """Whether its envs step in worker processes."""
    has_gymnasium_ids: bool = False
    """Whether its names are ids of Gymnasium's registry."""
    names_functions: bool = False
    """Whether its names are those of a user's own functions, MODULE:FUNCTION or FILE.py:FUNCTION."""
    shows_images: bool = False
    """Whether all its envs show images, which take a convolutional network."""
    auto_actors: int | None = None
    """Actors of asynchronous training where nobody says how many; None: one for each core."""
    tells_info: bool = True
    """Whether the `info` of an episode's last step is known."""
    preset: str | None = None
    """The preset that all its worlds share; None: each may have one of its own."""
    render_hint: str = ""
    """What may help where an env cannot be drawn."""
