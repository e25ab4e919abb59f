"""What a pool writes in the steps of a rollout: tensors, and the views of them that it writes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scramjet.engine.layout import PlayedBy, allocate_obs
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves, map_leaves


@dataclass(slots=True)
class StepBuffers:
    """T steps of R rows, time-major, as a `Transition` has them one by one."""

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
        """Buffers for a pool whose steps are `like` this one; `pinned`: in memory that the GPU copies by itself."""
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
        """What players see, each [T + 1, ...]: row t before step t."""
        return [*leaves(self.obs), self.mask, self.turn]

    @property
    def results(self) -> list[Tensor]:
        """What comes of their actions, each [T, ...]."""
        return [self.reward, self.terminated, self.truncated]

    def rows(self, final_obs: Sequence[Any]) -> list[Transition]:
        """T views: where step t is written, last observations of episodes to `final_obs[t]`."""
        return [
            Transition(
                obs=map_leaves(lambda leaf, t=t: _array(leaf[t + 1]), self.obs),
                mask=_array(self.mask[t + 1]),
                turn=_array(self.turn[t + 1]),
                reward=_array(self.reward[t]),
                terminated=_array(self.terminated[t]),
                truncated=_array(self.truncated[t]),
                final_obs=final,
            )
            for t, final in enumerate(final_obs)
        ]

    def go_on(self) -> None:
        """Begin with what the last step showed."""
        for leaf in self.shown:
            leaf[0] = leaf[-1]


def _array(tensor: Tensor) -> Any:
    """A tensor as a pool writes to it: NumPy's view of it, or on the GPU itself."""
    return tensor if tensor.is_cuda else tensor.numpy()
