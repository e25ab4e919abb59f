"""Observations and actions in an env's own terms, beside those of a policy that was trained on it.

A policy sees rows of arrays in adapted spaces (see spaces.py), perhaps several frames of them. Here what an env
or a vector env of Gymnasium gives becomes such rows, by the rules that a pool follows in training, and the policy's
choices become actions of the env.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.spaces import env_actions, observed_leaves, without_leading_ones
from scramjet.engine.layout import leaf_layout
from scramjet.engine.pool import Pool
from scramjet.engine.privileged import policy_space
from scramjet.engine.trees import leaves, map_leaves, space_tree
from scramjet.engine.wrappers import ConcatenatedPool, FrameStackPool, pushed
from scramjet.errors import PredictError, shortened


@dataclass(frozen=True)
class EnvSpaces:
    """The spaces of an env as its authors have them, and those of its policy."""

    observation_space: Any  # the env's
    action_space: Any  # the env's
    seen: Any  # what pools show the policy, and its critic, of one observation, without the frames before it
    chosen: Any  # what the policy acts in
    num_frames: int = 1

    @cached_property
    def _leaves(self) -> list[_Leaf]:
        pairs = zip(observed_leaves(self.observation_space), leaves(self._tree), strict=True)
        return [_Leaf.of(way, theirs, ours) for (way, theirs), ours in pairs]

    @cached_property
    def _tree(self) -> Any:
        """The spaces of what the policy sees, without what only its critic sees."""
        return space_tree(policy_space(self.seen))

    def rows_of(self, obs: Any) -> tuple[Any, int, bool]:
        """One observation, or a batch of them, as the policy's arrays [rows, ...]; the number of rows; and whether it
        was a batch. Raises a PredictError where it is neither."""
        if _is_list_of_dicts(obs):
            given = [(leaf, _array([_part(each, leaf.way) for each in obs], leaf)) for leaf in self._leaves]
        else:
            given = [(leaf, _array(_part(obs, leaf.way), leaf)) for leaf in self._leaves]
        if all(leaf.is_one(array) for leaf, array in given):
            rows, is_batch = 1, False
        elif all(leaf.is_batch(array) for leaf, array in given):
            sizes = {leaf.where: len(array) for leaf, array in given}
            rows, is_batch = next(iter(sizes.values())), True
            if rows == 0 or len(set(sizes.values())) > 1:
                raise PredictError(f"a batch of observations has {sizes} rows; each entry needs the same, at least one")
        elif all(leaf.is_one(array, strictly=False) for leaf, array in given):
            rows, is_batch = 1, False
        else:
            neither = (pair for pair in given if not pair[0].is_one(pair[1], strictly=False))
            leaf, array = next(neither, given[0])
            raise leaf.misfit(array)
        arrays = iter([leaf.rows(array, rows) for leaf, array in given])
        return map_leaves(lambda _: next(arrays), self._tree), rows, is_batch

    def stacked(self, frames: Any, newest: Any) -> Any:
        """The last `num_frames` observations of each row, the newest last: what the policy sees, and the frames to give
        the next time. `frames` is None where all rows begin; then zeros stand for what came before."""

        def stack(space: Any, new: np.ndarray, old: np.ndarray | None) -> np.ndarray:
            if not isinstance(space, spaces.Box):
                return new
            if old is None:
                old = np.zeros((len(new), self.num_frames * new.shape[1], *new.shape[2:]), new.dtype)
            return pushed(old, new)

        before = map_leaves(lambda _: None, self._tree) if frames is None else frames
        return map_leaves(stack, self._tree, newest, before)

    @property
    def mask_sizes(self) -> list[int]:
        """Choices of each component of an action; none of a Box, whose actions are not masked."""
        if isinstance(self.chosen, spaces.Discrete):
            return [int(self.chosen.n)]
        return self.chosen.nvec.ravel().tolist() if isinstance(self.chosen, spaces.MultiDiscrete) else []

    def mask_rows(self, mask: Any, rows: int, is_batch: bool) -> np.ndarray:
        """Legal choices as the policy takes them, bool [rows, all choices]; a PredictError says what is wrong."""
        sizes = self.mask_sizes
        if not sizes:
            raise PredictError(f"a mask was given, and actions of {self.chosen} are not masked; leave it out")
        expected = [rows, sum(sizes)] if is_batch else [sum(sizes)]
        try:
            parts = [np.asarray(part) for part in mask] if isinstance(mask, tuple | list) and len(sizes) > 1 else [mask]
            flat = np.concatenate([np.asarray(part).reshape(rows, -1) for part in parts], axis=1)
            legal = flat.astype(np.bool_)
        except (TypeError, ValueError):
            raise PredictError(f"the mask is {_said(mask)}; expected {expected} of truth values") from None
        is_plain = flat.dtype.kind in "biuf" and bool((legal == flat).all())
        if legal.shape != (rows, sum(sizes)) or not is_plain:
            raise PredictError(f"the mask is {_said(mask)}; expected {expected} of truth values, or of 0 and 1")
        for i, component in enumerate(np.split(legal, np.cumsum(sizes)[:-1], axis=1)):
            for row in np.flatnonzero(~component.any(axis=1))[:1]:
                which = f" of component {i}" if len(sizes) > 1 else ""
                raise PredictError(f"the mask allows no choice{which} in row {row}; at least one must be legal")
        return legal

    def env_actions(self, actions: np.ndarray, is_batch: bool) -> Any:
        """The policy's actions [rows, ...] as the env takes them: a batch, or a single one."""
        space = self.action_space
        if space == self.chosen:
            theirs = actions.reshape(len(actions), *space.shape).astype(space.dtype)
        else:
            theirs = env_actions(space)(actions)
        return theirs if is_batch else theirs[0]


@dataclass(frozen=True)
class _Leaf:
    """One entry of an observation: where it is, what the env says of it and what the policy sees of it."""

    way: tuple[Any, ...]
    shape: tuple[int, ...]  # in the env's terms, of one observation
    row_shape: tuple[int, ...]  # of a row that the policy sees
    dtype: np.dtype  # that the policy sees
    shift: Any  # what is taken off a choice, where the policy counts from another number
    lowest: Any  # choice in the env's terms; None where it is none
    count: Any  # of choices, from the lowest on

    @classmethod
    def of(cls, way: tuple[Any, ...], theirs: Any, ours: Any) -> _Leaf:
        row_shape, dtype = leaf_layout(ours)
        is_choice = isinstance(theirs, spaces.Discrete | spaces.MultiDiscrete)
        lowest = np.asarray(theirs.start) if is_choice else None
        count = None if not is_choice else np.asarray(getattr(theirs, "nvec", getattr(theirs, "n", None)))
        shift = lowest - np.asarray(ours.start) if is_choice else 0
        return cls(way, tuple(theirs.shape), row_shape, dtype, shift, lowest, count)

    @property
    def where(self) -> str:
        """The entry as Python code reads it from an observation: `obs['camera']`."""
        return "observation" + "".join(f"[{key!r}]" for key in self.way)

    def is_one(self, array: np.ndarray, *, strictly: bool = True) -> bool:
        """Whether an array has the shape of a single observation; if not `strictly`, leading axes of 1 do not count."""
        if strictly:
            return array.shape == self.shape
        return without_leading_ones(array.shape) == without_leading_ones(self.shape)

    def is_batch(self, array: np.ndarray) -> bool:
        """Whether an array has the shape of a batch of observations."""
        return array.ndim > 0 and array.shape[1:] == self.shape

    def misfit(self, array: np.ndarray) -> PredictError:
        """The error for an array of another shape."""
        one = f"{self.dtype} {list(self.shape)}"
        batch = f"[batch, {', '.join(map(str, self.shape))}]" if self.shape else "[batch]"
        return PredictError(
            f"{self.where} is {array.dtype} {list(array.shape)}; expected {one}, or {batch} for a batch"
        )

    def rows(self, array: np.ndarray, rows: int) -> np.ndarray:
        """The array as the policy sees it, [rows, ...]; refuses numbers that are none, or outside their kind."""
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise PredictError(f"{self.where} holds {array[~np.isfinite(array)].ravel()[0]}; expected finite numbers")
        if self.lowest is not None:
            bad = (array < self.lowest) | (array >= self.lowest + self.count)
            if bad.any():
                low, high = self.lowest.tolist(), (self.lowest + self.count - 1).tolist()
                unfit = array[bad].ravel()[0]
                raise PredictError(f"{self.where} holds {unfit}; expected choices from {low} to {high}")
            array = array - self.shift
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(self.dtype)
        is_held = np.isfinite(converted) if self.dtype.kind == "f" else converted == array
        if not is_held.all():
            unfit = array[~is_held].ravel()[0]
            raise PredictError(f"{self.where} holds {unfit} in {array.dtype}; expected numbers that {self.dtype} holds")
        return converted.reshape(rows, *self.row_shape)


def _is_list_of_dicts(obs: Any) -> bool:
    """Whether these are Dict observations one by one, and not a dict of their entries."""
    is_sequence = isinstance(obs, list | tuple | deque) or (isinstance(obs, np.ndarray) and obs.dtype == object)
    return is_sequence and len(obs) > 0 and all(isinstance(each, Mapping) for each in obs)


def _part(obs: Any, way: tuple[Any, ...]) -> Any:
    value, where = obs, "observation"
    for key in way:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise PredictError(f"{where} is {_said(value)} and has no {key!r}; expected what the env gives") from None
        where += f"[{key!r}]"
    return value


def _array(value: Any, leaf: _Leaf) -> np.ndarray:
    """An entry as an array of numbers: of a tensor, of a list or deque, of frames that are stacked lazily."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        array = np.asarray(list(value) if isinstance(value, deque) else value)
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths, and whatever a class of others raises
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        expected = f"expected numbers for {leaf.dtype} {list(leaf.shape)}"
        raise PredictError(f"{leaf.where} is {_said(value)}; {expected}")
    return array


def _said(value: Any) -> str:
    """A value in few words: of an array what it is, of anything else how it looks."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(str, list(value)[:10])) or 'nothing'}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{type(value).__name__} of {len(value)}: {shortened(value)}"
    return f"{shortened(value)} ({type(value).__name__})"


def their_spaces(pool: Pool) -> tuple[Any, Any]:
    """The observation and action space of a pool's envs, as their authors have them."""
    while isinstance(pool, ConcatenatedPool | FrameStackPool):
        pool = pool.pools[0] if isinstance(pool, ConcatenatedPool) else pool.pool
    if isinstance(pool, ForeignPool):
        return pool.their_observation_space, pool.their_action_space
    return policy_space(pool.observation_space), pool.action_space


def env_spaces(pool: Pool) -> EnvSpaces:
    """The spaces of a pool's envs and of a policy that is trained on it."""
    inner = pool.pools[0] if isinstance(pool, ConcatenatedPool) else pool
    num_frames = inner.num_frames if isinstance(inner, FrameStackPool) else 1
    seen = inner.pool.observation_space if isinstance(inner, FrameStackPool) else inner.observation_space
    return EnvSpaces(*their_spaces(pool), seen, pool.action_space, num_frames)
