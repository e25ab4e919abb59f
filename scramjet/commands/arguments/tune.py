"""The flags of `scramjet tune`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from scramjet.commands.arguments.env_parameters import split_env_parameters
from scramjet.commands.arguments.search import refuse_search
from scramjet.commands.command_line import CommandLine, read_words, show_help
from scramjet.errors import ConfigError, shortened
from scramjet.settings import Flat
from scramjet.training.config.reading import read_file
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import is_dimension

DESCRIPTION = """Search for good settings: try many in runs of their own, and keep them all.

A flag of `scramjet train` with a range or a choice as its value varies; with a plain value it is the same in all runs.

  scramjet tune cartpole --learning-rate log:1e-4..1e-2 --trials 40
  scramjet tune cartpole --gamma 0.9..0.999 --num-epochs int:1..8
  scramjet tune cartpole --num-envs choice:64,256 --total-timesteps 200K
  scramjet tune cartpole --space space.toml --method halving --parallel 4
  scramjet tune cartpole --space space.toml --objective steps_to:475
  scramjet tune cartpole --learning-rate log:1e-4..1e-2 --method pbt
  scramjet tune --resume studies/cartpole-1          go on where it stopped
  scramjet tune --resume studies/cartpole-1 --trials 80
  scramjet tune --report studies/cartpole-1          its report, at any time
"""


@dataclass(frozen=True)
class Place:
    """What the study begins from and where it is kept."""

    space: Path | None = None
    """A TOML or YAML file with a table [space] of the settings that vary."""
    preset: str | None = None
    """A preset that comes with scramjet, in place of the world's own; alone it names the world too."""
    config: Path | None = None
    """A TOML or YAML file with settings that all runs share."""
    resume: str | None = None
    """Go on with this study (its folder or name); only its budget may change: --trials, --steps, --hours, --parallel,
    --best and --seeds."""
    report: str | None = None
    """Make the report of this study (its folder or name) anew, and run nothing; it may be running."""
    out: Path | None = None
    """With --report: a file for its plots besides, .svg or .png, drawn by matplotlib."""
    study_name: str | None = None
    """Name of the study's folder; by default the world's name and a number."""
    studies_dir: Path = Path("studies")
    """Folder that holds the studies."""
    ray: str | None = None
    """Hand the trials to Ray Tune on the cluster at this address (auto, HOST:PORT), or on this machine: local."""
    display: Literal["auto", "live", "plain", "quiet"] = "auto"
    """What to show; auto: a live table in a terminal, plain lines elsewhere."""
    trust: bool = False
    """Let a study or file name a world in a file or module that you have not named yourself: it is run."""


@dataclass(frozen=True)
class Arguments:
    """All of the command line."""

    place: Annotated[Place, Flat()] = field(default_factory=Place)
    study: Annotated[StudySettings, Flat()] = field(default_factory=StudySettings)
    settings: Annotated[RunConfig, Flat()] = field(default_factory=RunConfig)


@dataclass(frozen=True)
class Given:
    """A command line of `scramjet tune` that was read."""

    line: CommandLine
    """The values of flags, but for those that vary and those of the world's parameters."""
    dimensions: dict[str, str]
    """How settings vary, by their names."""
    env_values: dict[str, str]
    """The values of `--env.NAME` flags."""
    place: Place


def read(words: list[str]) -> tuple[Given]:
    """What the words of the command say; with --help the help is shown, and the command ends."""
    words, dimensions = split_dimensions(words)
    words, env_values = split_env_parameters(words)
    refuse_search(words)
    line = read_words(Arguments, words, prog="scramjet tune")
    if line.wants_help:
        show_help(Arguments, "scramjet tune", DESCRIPTION)
    return (Given(line, dimensions, env_values, line.laid_over(Place(), ("place",))),)


# --- the space of a study: flags whose value is a dimension, and --space FILE


def split_dimensions(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words without the flags whose value is a dimension, and these dimensions by setting."""
    rest: list[str] = []
    dimensions: dict[str, str] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        spelled, equals, text = word.partition("=")
        if not equals and position < len(words):
            text = words[position]
        if not (word.startswith("--") and is_dimension(text)):
            rest.append(word)
            continue
        position += 0 if equals else 1
        name = spelled.removeprefix("--").replace("-", "_")
        if name in dimensions:
            raise ConfigError(f"{spelled} is given twice, as {dimensions[name]} and {text}; give it once")
        dimensions[name] = text
    return rest, dimensions


def read_space(path: Path) -> dict[str, Any]:
    """The dimensions in the table [space] of a TOML or YAML file, tables in it with a dot: `policy.hidden`."""
    data = read_file(path)
    table = data.get("space")
    if not isinstance(table, Mapping):
        raise ConfigError(f'{path} has no table [space]; write one, such as learning_rate = "log:1e-4..1e-2" in it')
    for key in data:
        if key != "space":
            raise ConfigError(
                f"{path}: unknown key {shortened(key)}; a file for --space has the table [space] alone, and settings "
                f"that do not vary are for --config FILE or flags"
            )
    dimensions: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            dimensions.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            dimensions[str(name)] = value
    return dimensions
