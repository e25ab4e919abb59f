"""Records of arrays or tensors, field by field: a new field of a record is one line in its class and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from scramjet.engine.trees import leaves, map_leaves

_Record = TypeVar("_Record", bound=Any)


def map_fields(record: _Record, function: Callable[[Any], Any], **replaced: Any) -> _Record:
    """A record of the same class with `function` applied to every array of every field not in `replaced`.

    A field that is a nested dict of arrays is mapped leaf by leaf, and None stays None. Fields that the class computes
    itself (`init=False`) are computed anew.
    """
    names = [field.name for field in fields(record) if field.init and field.name not in replaced]
    mapped = {name: map_optional(function, getattr(record, name)) for name in names}
    made: _Record = replace(record, **mapped, **replaced)
    return made


def map_optional(function: Callable[[Any], Any], value: Any) -> Any:
    """`function` of an array, or of every array of nested dicts; None of None."""
    return None if value is None else map_leaves(function, value)


def arrays_of(record: Any, *names: str) -> Iterator[Any]:
    """Every array of these fields of a record, those of nested dicts one by one; None and empty ones are left out."""
    for name in names:
        value = getattr(record, name)
        if value is not None:
            yield from leaves(value)
