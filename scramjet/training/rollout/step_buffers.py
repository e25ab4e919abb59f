"""The tensors that a pool writes to in the steps of a rollout, and the views of them for each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from scramjet.engine.transition import Transition
from scramjet.engine.trees import arrays_of, map_leaves


@dataclass(slots=True)
class StepBuffers:
    """T steps of R rows, time-major; the fields are those that a `Transition` has for one step."""

    SHOWN: ClassVar[tuple[str, ...]] = ("obs", "mask", "turn")
    """Fields that players see before a step: T + 1 rows, of which row t is before step t. Other fields are results."""

    obs: Any  # [T + 1, R, *obs_shape], or nested dicts of such
    mask: Tensor  # [T + 1, R, mask_size] bool; [T + 1, R, 0] where the world has no mask
    turn: Tensor  # agents: [T + 1, R] bool; seats: [T + 1, N] int8; else [T + 1, 0]
    reward: Tensor  # [T, R], or [T, N, S]
    terminated: Tensor  # [T, R] bool
    truncated: Tensor  # [T, R] bool

    @classmethod
    def allocate(
        cls, like: Transition, num_steps: int, device: torch.device | str, *, pinned: bool = False
    ) -> StepBuffers:
        """Buffers for steps `like` this one, each filled with it; `pinned`: in memory that the GPU copies itself."""

        def stacked(name: str, array: Any) -> Tensor:
            one = torch.as_tensor(array)
            shape = (num_steps + (name in cls.SHOWN), *one.shape)
            return torch.empty(shape, dtype=one.dtype, device=device, pin_memory=pinned).copy_(one)

        return cls(**{name: map_leaves(partial(stacked, name), getattr(like, name)) for name in _names(cls)})

    @property
    def shown(self) -> list[Tensor]:
        """The tensors that players see, each [T + 1, ...]."""
        return list(arrays_of(self, *self.SHOWN))

    @property
    def results(self) -> list[Tensor]:
        """What their actions lead to, each [T, ...]."""
        return list(arrays_of(self, *(name for name in _names(self) if name not in self.SHOWN)))

    def transitions(self, final_obs: Sequence[Any]) -> list[Transition]:
        """T views, one for each step to be written to; last observations of episodes go to `final_obs[t]`."""
        return [
            Transition(
                **{name: map_leaves(_row(t + (name in self.SHOWN)), getattr(self, name)) for name in _names(self)},
                final_obs=final,
            )
            for t, final in enumerate(final_obs)
        ]  # fmt: skip

    def shown_before(self, transitions: Sequence[Transition]) -> list[Transition]:
        """What players see before each step, as views; `transitions` are those of `transitions`.

        The results in them are of the step before, or of no step before the first.
        """
        first = {name: map_leaves(_row(0), getattr(self, name)) for name in self.SHOWN}
        return [replace(transitions[0], **first), *transitions[:-1]]

    def begin_after(self, before: StepBuffers) -> None:
        """Copy the last row of `before`, the buffers of the last rollout, to row 0; `before` may be these buffers."""
        for here, there in zip(self.shown, before.shown, strict=True):
            if here.numel():  # worlds without masks or turns have empty ones
                here[0] = there[-1]


def _names(buffers: Any) -> list[str]:
    """The names of the fields of step buffers."""
    return [field.name for field in fields(buffers)]


def _row(t: int) -> Any:
    """A function that returns row t of a tensor as pools write to it: a NumPy view, or on the GPU the tensor itself."""
    return lambda tensor: tensor[t] if tensor.is_cuda else tensor[t].numpy()
