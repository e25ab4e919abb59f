"""Which parameters a world takes, by name, default and type, as far as they are known without making an env."""

from __future__ import annotations

from scramjet.adapters.registry import library_of, parameter_defaults
from scramjet.adapters.world_parameter import WorldParameter, type_in_words


def world_parameters(name: str) -> list[WorldParameter]:
    """The parameters of a world, native or of another library."""
    known = parameter_defaults(name)
    if known is not None:
        return [WorldParameter(key, value, type_in_words(value)) for key, value in known.items()]
    library = library_of(name)
    assert library is not None
    return [parameter for parameter in library.parameters(name) if parameter.name not in library.set_by_us]
