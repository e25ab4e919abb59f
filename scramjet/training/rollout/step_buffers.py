"""The tensors that a pool writes to in the steps of a rollout, and the views of them for each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from scramjet.engine.layout import PlayedBy, allocate_obs
from scramjet.engine.pool import Pool
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
        cls, pool: Pool, like: Transition, num_steps: int, device: torch.device | str, *, pinned: bool = False
    ) -> StepBuffers:
        """Allocate buffers for a pool whose transitions have the shapes of `like`; `pinned`: in pinned memory."""
        options: dict[str, Any] = {"device": device, "pin_memory": pinned}
        turn_type = torch.int8 if pool.played_by is PlayedBy.SEATS else torch.bool

        def place(array: Any) -> Tensor:
            tensor = torch.from_numpy(array)
            return tensor.pin_memory() if pinned else tensor.to(device)

        return cls(
            obs=map_leaves(place, allocate_obs(pool.observation_space, num_steps + 1, pool.num_rows)),
            mask=torch.ones(num_steps + 1, pool.num_rows, pool.mask_size, dtype=torch.bool, **options),
            turn=torch.zeros(num_steps + 1, *like.turn.shape, dtype=turn_type, **options),
            reward=torch.zeros(num_steps, *like.reward.shape, **options),
            terminated=torch.zeros(num_steps, pool.num_rows, dtype=torch.bool, **options),
            truncated=torch.zeros(num_steps, pool.num_rows, dtype=torch.bool, **options),
        )

    @property
    def shown(self) -> list[Tensor]:
        """The tensors that players see, each [T + 1, ...]."""
        return list(arrays_of(self, *self.SHOWN))

    @property
    def results(self) -> list[Tensor]:
        """The tensors of results (reward, terminated, truncated), each [T, ...]."""
        return list(arrays_of(self, *(field.name for field in fields(self) if field.name not in self.SHOWN)))

    def transitions(self, final_obs: Sequence[Any]) -> list[Transition]:
        """T views, one for each step to be written to; last observations of episodes go to `final_obs[t]`."""
        return [
            Transition(
                **{field.name: map_leaves(_row(t + (field.name in self.SHOWN)), getattr(self, field.name))
                   for field in fields(self)},
                final_obs=final,
            )
            for t, final in enumerate(final_obs)
        ]  # fmt: skip

    def begin_after(self, before: StepBuffers) -> None:
        """Copy the last row of `before`, the buffers of the last rollout, to row 0; `before` may be these buffers."""
        for here, there in zip(self.shown, before.shown, strict=True):
            here[0] = there[-1]


def _row(t: int) -> Any:
    """A function that returns row t of a tensor as pools write to it: a NumPy view, or on the GPU the tensor itself."""
    return lambda tensor: tensor[t] if tensor.is_cuda else tensor[t].numpy()
