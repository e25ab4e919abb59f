"""`scramjet.check`: what is wrong in a world, in its author's terms; the command `scramjet check` from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scramjet.adapters.gymnasium.check import check_gym_world
from scramjet.adapters.registry import ForeignWorld, is_foreign, load_world, note_on_id
from scramjet.engine.worlds.check import Finding, check_world
from scramjet.envs.registry import stop_if_being_read
from scramjet.errors import LAYOUT, ConfigError, WorldError, printable
from scramjet.runs.world_trust import world_of
from scramjet.settings import coerce

if TYPE_CHECKING:
    from scramjet.adapters.objects import World

Parameters = Callable[[str], Mapping[str, Any]]
"""Takes a world's name, and returns the parameters to check it with."""


class CheckReport(tuple[Finding, ...]):
    """The findings of a check, in order; true if nothing is wrong."""

    @property
    def is_fine(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.is_fine for finding in self)

    def __bool__(self) -> bool:
        return self.is_fine

    def __repr__(self) -> str:
        """A line for each finding, as the command prints them."""
        return "\n".join(line_of(finding) for finding in self)


def line_of(finding: Finding) -> str:
    """A finding as one line, or more where it has an example."""
    return f"{'ok   ' if finding.is_fine else 'WRONG'}  {printable(finding.text, keep=LAYOUT)}"


def check(world: World, *, steps: int = 500, env_parameters: Mapping[str, Any] | None = None) -> CheckReport:
    """Run a world through its back-ends and say, in its author's terms, what is wrong: `scramjet check` from Python.

    `world` is a name, a file or an object, as for `train`; `steps` are played in each of a few envs.
    """
    stop_if_being_read()
    if not (steps := coerce("steps", steps, int)) >= 1:
        raise ConfigError(f"steps={steps} must be at least 1")
    chosen = {} if env_parameters is None else coerce("env_parameters", env_parameters, dict[str, Any])
    return CheckReport(findings_on(world, steps, lambda name: chosen))


def findings_on(world: World, steps: int, parameters_for: Parameters) -> Iterator[Finding]:
    """The findings about a world, a native or a Gymnasium one, as they come."""
    try:
        given = world_of(world)
    except WorldError as error:
        yield Finding(False, str(error))
        return
    if note := note_on_id(given.name):
        yield Finding(True, note)
    parameters = {**(given.parameters or {}), **parameters_for(given.name)}
    if not is_foreign(given.name):
        yield from check_world(given.name, steps=steps, parameters=parameters)
        return
    loaded = load_world(given.name, parameters)
    assert isinstance(loaded, ForeignWorld)
    yield from check_gym_world(loaded, steps=steps)
