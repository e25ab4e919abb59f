"""The arrays that one step of a pool is written to."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np

from scramjet.engine.layout import PlayedBy, allocate_obs
from scramjet.engine.trees import leaves, map_fields, map_leaves


@dataclass(frozen=True, slots=True)
class Transition:
    """Where one step of N envs is written. Allocated once; rows of a rollout are views of this kind.

    There are R rows: N, or N * num_agents where several agents act at once (agent k of env i has row
    i * num_agents + k). `obs` and `mask` are what the policy sees next: after an episode's end they belong to the
    next episode. For a Dict space `obs` and `final_obs` are nested dicts of arrays.
    """

    obs: Any  # [R, *obs_shape]
    mask: np.ndarray  # [R, mask_size] bool, legal actions; [R, 0] where the world has no mask
    turn: np.ndarray  # agents: [R] bool, who of them is alive; seats: [N] int8, who is to move; else [0] bool
    reward: np.ndarray  # [R] float32; seats: [N, num_seats]
    terminated: np.ndarray  # [R] bool
    truncated: np.ndarray  # [R] bool, never together with terminated
    final_obs: Any  # [R, *obs_shape] ([N * num_seats, ...]); the last of each episode that ended; other rows are stale
    arrays: tuple[Any, ...] = field(init=False, repr=False)  # all of the above as kernels take them
    layout: tuple[Any, ...] = field(init=False, repr=False)  # shapes, types, writeable: to compare at a glance

    def __post_init__(self) -> None:
        trees = [getattr(self, name) for name in FIELDS]
        object.__setattr__(self, "arrays", tuple(map(kernel_obs, trees)))
        object.__setattr__(self, "layout", tuple(_layout(leaf) for tree in trees for leaf in leaves(tree)))

    def part(self, rows: slice | np.ndarray) -> Transition:
        """Some rows, whole envs: views where they are neighbours, copies where they are given by their numbers."""
        per_row = len(leaves(self.final_obs)[0]) // len(self.terminated)
        if isinstance(rows, slice):
            final: slice | np.ndarray = slice(rows.start * per_row, rows.stop * per_row)
        else:
            final = (rows[:, None] * per_row + np.arange(per_row)).ravel()
        turn = self.turn[rows] if len(self.turn) else self.turn
        final_obs = map_leaves(lambda leaf: leaf[final], self.final_obs)
        return map_fields(self, lambda array: array[rows], turn=turn, final_obs=final_obs)


FIELDS = tuple(one.name for one in fields(Transition) if one.init)
"""Names of a Transition's arrays and trees of arrays."""

KernelArrays = cast(Any, namedtuple("KernelArrays", FIELDS))
"""A Transition's arrays by name, inside kernels; a tree of arrays is a tuple.

From Python, kernels take `Transition.arrays` one by one: a named tuple would take Numba as long as the step of an env.
"""

ShownArrays = namedtuple("ShownArrays", ("obs", "mask", "turn"))
"""Those of them that say what the players see now."""


def kernel_obs(tree: Any) -> Any:
    """Observations as kernels take them: an array, or the arrays of a tree in one tuple."""
    return tuple(_kernel_array(leaf) for leaf in leaves(tree)) if isinstance(tree, dict) else _kernel_array(tree)


def _kernel_array(array: Any) -> Any:
    """An array as kernels take it: NumPy's as it is, one on the GPU as Numba sees it."""
    if isinstance(array, np.ndarray):
        return array
    from numba import cuda

    return cuda.as_cuda_array(array)


def _layout(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.flags.writeable if isinstance(array, np.ndarray) else array.device


def allocate_transition(
    space: Any, played_by: PlayedBy, *, num_envs: int, num_rows: int, num_players: int, mask_size: int
) -> Transition:
    """Fresh arrays for one step of `num_envs` envs with observations of `space`."""
    by_seats = played_by is PlayedBy.SEATS
    turn_dtype: Any = np.int8 if by_seats else np.bool_
    return Transition(
        obs=allocate_obs(space, num_rows),
        mask=np.ones((num_rows, mask_size), np.bool_),
        turn=np.zeros(0 if played_by is PlayedBy.ONE else num_rows, turn_dtype),
        reward=np.zeros((num_envs, num_players) if by_seats else num_rows, np.float32),
        terminated=np.zeros(num_rows, np.bool_),
        truncated=np.zeros(num_rows, np.bool_),
        final_obs=allocate_obs(space, num_envs * num_players if by_seats else num_rows),
    )
