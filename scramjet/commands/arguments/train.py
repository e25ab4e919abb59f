"""The flags of `scramjet train`, and the config that they make: flags override --config, which overrides the preset."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from scramjet.commands.arguments.env_parameters import parameter_help, split_env_parameters, typed_parameters
from scramjet.commands.arguments.search import refuse_search
from scramjet.commands.command_line import CommandLine, read_words, show_help
from scramjet.errors import ConfigError
from scramjet.runs.metadata import find_checkpoint
from scramjet.runs.world_trust import Caller, name_of
from scramjet.runtime.ranks.environment import RANK_TIMEOUT
from scramjet.runtime.runs import find_run
from scramjet.runtime.trust import said
from scramjet.settings import Flat, require, require_counts
from scramjet.training.checkpoint_config import checkpoint_config
from scramjet.training.config import files as config_files
from scramjet.training.config.algorithm_choice import with_algorithm
from scramjet.training.config.changes import reopened
from scramjet.training.config.reading import read_file
from scramjet.training.config.resolution import with_open_choices
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.config import with_curiosity

DESCRIPTION = """Train an agent: with PPO, or with a search that it learns from (--algorithm spo or alphazero).

Values come from the code's defaults, then the world's preset (or --preset NAME), then --config FILE, then flags.

  scramjet train                                  CartPole, solved in seconds
  scramjet train cartpole --seed 7 --num-envs 64
  scramjet train my_world.py --env.length 20      your own world, a parameter
  scramjet train gym:Acrobot-v1 --preset acrobot  the preset of another world
  scramjet train connect_four --algorithm alphazero
  scramjet train --config my_run.toml
  scramjet train --resume runs/cartpole-1         go on where it stopped
  scramjet train --fork runs/cartpole-1/checkpoints/best --learning-rate 1e-4
  scramjet train --resume runs/my_world-1 --env elsewhere/my_world.py
"""


RESUME_FLAGS = (
    *("--resume", "--runs-dir", "--display", "--total-timesteps", "--time-limit", "--env", "--trust", "--no-trust"),
    *("--track", "--track-project", "--ray-address", "--rank-timeout", "--max-restarts"),
)


@dataclass(frozen=True)
class Place:
    """Where the run begins from and where it is kept."""

    preset: str | None = None
    """A preset that comes with scramjet, in place of the world's own; alone it names the world too."""
    config: Path | None = None
    """A TOML or YAML file with settings."""
    resume: str | None = None
    """Go on with this run (its folder or name); only --total-timesteps, --time-limit, --track and --ray-address may
    change."""
    fork: str | None = None
    """Start a new run from this checkpoint, or from a run's newest one."""
    env: str | None = None
    """With --resume and --fork: the file or name of the run's world now, where that has changed."""
    run_name: str | None = None
    """Name of the run's folder; by default the world's name and a number."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs."""
    display: Literal["auto", "live", "plain", "quiet"] = "auto"
    """What to show while training; auto: live in a terminal, plain lines elsewhere."""
    trust: bool = False
    """Let the run, checkpoint or file name a world in a file or module that you have not named yourself: it is run."""
    rank_timeout: float = RANK_TIMEOUT
    """Several processes: seconds without a sign of life after which one of them counts as lost, and all end."""
    max_restarts: int = 0
    """--num-processes: how many times all are started again when one was lost; the run goes on from its newest
    checkpoint."""

    def check(self) -> None:
        """Refuse numbers that are out of range."""
        require(self, ("rank_timeout",), lambda x: x >= 1, "must be 1 second or more")
        require_counts(self, ("max_restarts",), least=0)


@dataclass(frozen=True)
class Arguments:
    """All of the command line."""

    place: Annotated[Place, Flat()] = field(default_factory=Place)
    settings: Annotated[RunConfig, Flat()] = field(default_factory=RunConfig)


@dataclass(frozen=True)
class Given:
    """A command line of `scramjet train` that was read."""

    words: list[str]
    """As it was typed."""
    line: CommandLine
    """The values of flags, but for those of the world's parameters."""
    env_values: dict[str, str]
    """The values of `--env.NAME` flags."""
    place: Place
    config: RunConfig | None
    """The config of the new or forked run; None where a run is resumed."""


def read(words: list[str]) -> tuple[Given]:
    """What the words of the command say; with --help the help is shown, and the command ends."""
    rest, env_values = split_env_parameters(words)
    refuse_search(rest)
    line = read_words(Arguments, rest, prog="scramjet train")
    place = line.laid_over(Place(), ("place",))
    place.check()
    if place.resume is not None and not line.wants_help:
        _check_resumed(line, given_flags(rest), env_values, place)
        return (Given(words, line, env_values, place, None),)
    named = line.values.get(("settings", "env"))
    if place.env is not None and place.fork is None:
        raise ConfigError(f"--env is for --resume and --fork; to train a world, name it: scramjet train {place.env}")
    if place.env is not None and named is not None:
        raise ConfigError(f"'{named}' and --env {place.env} both name the world of the fork; give one of them")
    if named is not None:
        named = line.values["settings", "env"] = name_of(named)
    loss = line.values.get(("settings", "ppo", "loss"))  # an older word for two of the algorithms
    if loss is not None:
        line.values.setdefault(("settings", "algorithm"), loss)
    base = base_config(named, place, line.values.get(("settings", "algorithm")))
    if line.wants_help:
        parameters = parameter_help(base.env, base.env_parameters)
        show_help(Arguments, "scramjet train", DESCRIPTION + parameters, Arguments(settings=base))
    return (Given(words, line, env_values, place, with_flags(base, line, env_values)),)


def _check_resumed(line: CommandLine, flags: list[str], env_values: dict[str, str], place: Place) -> None:
    """Refuse what cannot change when a run is resumed, and a run that is not there."""
    assert place.resume is not None
    refused = [flag for flag in flags if flag not in RESUME_FLAGS]
    refused += [f"--env.{name}" for name in env_values]
    if refused:
        raise ConfigError(
            f"{refused[0]} cannot change when a run is resumed: its config is frozen. Only --total-timesteps, "
            f"--time-limit, --track and --ray-address may; to change more, start a new run with --fork {place.resume}"
        )
    if ("settings", "env") in line.values:
        world = line.values["settings", "env"]
        raise ConfigError(
            f"'{world}' is not needed with --resume: the run knows its world; if that is elsewhere now, add "
            f"--env {world}"
        )
    find_run(place.resume, place.runs_dir)


def given_flags(words: list[str]) -> list[str]:
    """The flags on a command line, in their one spelling."""
    return [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]


def base_config(env: str | None, place: Place, algorithm: str | None = None) -> RunConfig:
    """The config that flags are laid over: that of the forked checkpoint or a preset, then --config FILE.

    `env` is the world of the command line, in place of any other; parameters in files are kept if they are for it.
    `algorithm` is the command line's too: what is tuned for another is left out.
    """
    moved = None if place.env is None else name_of(place.env)
    caller = Caller(said(place.trust), env or moved, keeps_parameters=moved is not None)
    if place.fork is not None:
        checkpoint = find_checkpoint(place.fork, place.runs_dir)
        base = with_open_choices(checkpoint_config(checkpoint, caller))
        if place.preset is not None:
            base = config_files.with_preset(base, place.preset)
    elif env is None and place.config is not None:
        loaded = config_files.load_config(place.config, trust=place.trust, preset=place.preset)
        return loaded if algorithm is None else with_algorithm(loaded, algorithm)
    else:
        base = config_files.starting_config(env, place.preset, algorithm)
    if place.config is not None:
        caller = replace(caller, folder=place.config.parent)
        base = config_files.apply(base, read_file(place.config), str(place.config), caller)
    return base if algorithm is None else with_algorithm(base, algorithm)


def with_flags(base: RunConfig, given: CommandLine, env_values: dict[str, str]) -> RunConfig:
    """`base` with the flags of a command line laid over it; `env_values` are those of its --env.NAME flags."""
    names = given.names()
    base = replace(base, ppo=reopened(base.ppo, base.ppo, names))  # a preset's minibatches do not bind the flags
    if "curiosity" in names:
        base = with_curiosity(base, given.values["settings", "curiosity"])
    config = given.laid_over(base, ("settings",))
    if "num_minibatches" in names and "minibatch_size" in names:
        raise ConfigError("--num-minibatches and --minibatch-size say the same in two ways; give one of them")
    config = replace(config, ppo=reopened(base.ppo, config.ppo, names))
    return replace(config, env_parameters={**base.env_parameters, **typed_parameters(config.env, env_values)})
