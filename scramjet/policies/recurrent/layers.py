"""How networks use memory cores: features of steps laid flat, states of several cores side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from scramjet.errors import ConfigError
from scramjet.policies.config import PolicyConfig
from scramjet.policies.recurrent.cores import Core

CoreMaker: TypeAlias = Callable[[int, PolicyConfig], Core | None]
"""From a number of features and the config to a core, or None for no memory."""


def checked(core: Core | None) -> Core | None:
    """A core as a user's function made it; refuses one that does not say what it gives and keeps."""
    if core is None:
        return None
    for name in ("num_features", "state_size"):
        count = getattr(core, name, None)
        if not callable(core) or not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ConfigError(
                f"the memory core {type(core).__name__} has {name}={count!r}; a core is a module with num_features and "
                f"state_size, whole numbers of at least 1, and forward(features, state, begins) -> (features, state)"
            )
    return core


def remember(core: Core, features: Tensor, state: Tensor | None, begins: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run a core over features [T * rows, F], time-major, from a state [rows, S]: features [T * rows, M], state.

    Without a state every row is an episode's first step.
    """
    if state is None:
        state = features.new_zeros(len(features), core.state_size)
    after, state = core(features.unflatten(0, (-1, len(state))), state, begins)
    return after.flatten(0, 1), state


def state_size(*cores: Core | None) -> int:
    """Numbers that cores keep for each row, together; 0 without any."""
    return sum(core.state_size for core in cores if core is not None)


def state_parts(state: Tensor | None, *cores: Core | None) -> list[Tensor | None]:
    """The part of a state [rows, S] that belongs to each core."""
    if state is None:
        return [None for _ in cores]
    return list(state.split([state_size(core) for core in cores], dim=1))
