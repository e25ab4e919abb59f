"""Observations as arrays or, for a Dict space, as nested dicts of arrays: walks over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scramjet.envs.api import Dict


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
