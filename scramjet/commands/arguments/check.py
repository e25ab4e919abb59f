"""The flags of `scramjet check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from scramjet.commands.arguments.env_parameters import split_env_parameters
from scramjet.commands.command_line import parse
from scramjet.settings import Positional, require_counts, settle

DESCRIPTION = """Run a world through its back-ends and say, in its author's terms, what is wrong.

  scramjet check my_world.py
  scramjet check cartpole
  scramjet check gym:my_package:MyEnv-v0       API, seeds, saving, speed
  scramjet check factory:my_envs.py:make_env
"""


@dataclass(frozen=True)
class Arguments:
    """What to check."""

    world: Annotated[str, Positional("WORLD")]
    """A file such as my_world.py or my_world.py:MyWorld, a name from `scramjet list`, or a Gymnasium env: gym:ID,
    mujoco:ID, factory:MODULE:FUNCTION."""
    steps: int = 500
    """Steps to play in each of a few envs."""
    json: bool = False
    """Print one JSON object instead of lines."""

    def __post_init__(self) -> None:
        settle(self)
        require_counts(self, ("steps",))


def read(words: list[str]) -> tuple[Arguments, dict[str, str]]:
    """What the words of the command say, and the values of `--env.NAME` flags."""
    words, env_values = split_env_parameters(words)
    return parse(Arguments, words, prog="scramjet check", description=DESCRIPTION), env_values
