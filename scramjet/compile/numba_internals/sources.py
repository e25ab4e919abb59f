"""The Python source behind objects that Numba's decorators make. Looks at attributes alone, which another version of
Numba may lack: then nothing is found, and nothing breaks."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def intrinsic_source(value: Any) -> FunctionType | None:
    """The function that writes the code of an intrinsic; None for anything else."""
    function = getattr(value, "_defn", None)
    return function if isinstance(function, FunctionType) else None


def compiled_source(value: Any) -> FunctionType | None:
    """The function that njit, vectorize or cuda.jit was put on; None for anything else."""
    value = getattr(value, "_dispatcher", value)  # of numba.vectorize
    function = getattr(value, "py_func", None) or getattr(value, "_pyfunc", None)
    return function if isinstance(function, FunctionType) else None


def jitclass_members(cls: type) -> tuple[str, list[tuple[str, Any]]] | None:
    """The fields of a jitclass, as text, and its methods and properties by name; None for any other class."""
    compiled = getattr(cls, "class_type", None)
    if compiled is None:
        return None
    try:
        fields = repr(sorted(compiled.struct.items(), key=str))
        properties = {f"{name} {kind}": one for name, of in compiled.jit_props.items() for kind, one in of.items()}
        return fields, sorted({**compiled.jit_methods, **compiled.jit_static_methods, **properties}.items())
    except AttributeError:
        return None
