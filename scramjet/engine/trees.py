"""Functions over trees of arrays, over records of them and over rows of numbers.

A tree is one array or, for a Dict space, nested dicts of arrays. A record is a dataclass whose fields are such trees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from scramjet.envs.api import Dict

Record = TypeVar("Record")


def leaves(tree: Any) -> tuple[Any, ...]:
    """The arrays of a tree, in the order of its space."""
    if not isinstance(tree, dict):
        return (tree,)
    return tuple(leaf for branch in tree.values() for leaf in leaves(branch))


def map_leaves(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The tree of `function(leaf, ...)` over trees of one shape."""
    if not isinstance(tree, dict):
        return function(tree, *others)
    return {name: map_leaves(function, tree[name], *(other[name] for other in others)) for name in tree}


def map_optional(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree of `function(leaf)`; None where there is no tree."""
    return None if tree is None else map_leaves(function, tree)


def map_fields(record: Record, function: Callable[[Any], Any], **replaced: Any) -> Record:
    """A copy of a dataclass with `function` applied to each of its arrays or tensors, those in nested dicts too.

    Fields named in `replaced` get the value given there. None, numbers and whatever else is no array stay as they are;
    fields that the class fills in itself (`init=False`) are filled in anew.
    """

    def apply(leaf: Any) -> Any:
        return function(leaf) if hasattr(leaf, "shape") else leaf

    names = [field.name for field in dataclasses.fields(record) if field.init]  # type: ignore[arg-type]
    mapped = {name: map_leaves(apply, getattr(record, name)) for name in names if name not in replaced}
    return dataclasses.replace(record, **mapped, **replaced)  # type: ignore[type-var]


def arrays_of(record: Any, *names: str) -> Iterator[Any]:
    """Every array of these fields of a record, those of nested dicts one by one; fields that are None have none."""
    for name in names:
        value = getattr(record, name)
        if value is not None:
            yield from leaves(value)


def space_tree(space: Any) -> Any:
    """A Dict space as nested dicts of plain spaces; any other space as it is."""
    if not isinstance(space, Dict):
        return space
    return {name: space_tree(part) for name, part in space.spaces.items()}


def named_leaves(tree: Any, prefix: str = "obs") -> Iterator[tuple[str, Any]]:
    """Each leaf with the way to it as an author writes it: `obs.agent.row`."""
    if not isinstance(tree, dict):
        yield prefix, tree
        return
    for name, branch in tree.items():
        yield from named_leaves(branch, f"{prefix}.{name}")


# --- Hashes of many rows of numbers at once, to tell games and positions apart


GOLDEN = 0x9E3779B97F4A7C15


def mixed(words: np.ndarray) -> np.ndarray:
    """Each uint64 turned into one of which every bit depends on all of its bits (splitmix64, Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))


def hash_rows(words: np.ndarray) -> np.ndarray:
    """A hash [N] of each row of uint64 [N, K]; two of a million rows share one with a probability of 3e-8."""
    places = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    return mixed(mixed(words + mixed(places)).sum(1, dtype=np.uint64))
