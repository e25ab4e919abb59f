"""`scramjet train`: defaults < preset < --config < flags; new, resumed or forked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from scramjet.commands.env_parameters import parameter_help, split_env_parameters, typed_parameters
from scramjet.errors import ConfigError
from scramjet.settings import NONE_WORDS
from scramjet.training import config_files
from scramjet.training.config import RunConfig, reopened
from scramjet.training.loop import train
from scramjet.training.named_worlds import name_of
from scramjet.training.recorded import checkpoint_config, find_checkpoint

DESCRIPTION = """Train an agent with PPO.

Values come from the code's defaults, then the world's preset, then --config FILE, then flags.

  scramjet train                                   CartPole, solved in seconds
  scramjet train cartpole --seed 7 --num-envs 64
  scramjet train my_world.py --env.length 20       a world of your own, with a parameter
  scramjet train --config my_run.toml
  scramjet train --resume runs/cartpole-1          go on exactly where it stopped
  scramjet train --fork runs/cartpole-1/checkpoints/best --learning-rate 1e-4
  scramjet train --resume runs/my_world-1 --env elsewhere/my_world.py
"""

RESUME_FLAGS = (
    *("--resume", "--runs-dir", "--display", "--total-timesteps", "--time-limit", "--env", "--trust", "--no-trust"),
)


@dataclass(frozen=True)
class Place:
    """Where the run comes from and goes to."""

    config: Path | None = None
    """A TOML or YAML file with settings."""
    resume: str | None = None
    """Go on with this run (its folder or name); only --total-timesteps and --time-limit may change."""
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


@dataclass(frozen=True)
class Arguments:
    """All of the command line."""

    place: Annotated[Place, tyro.conf.OmitArgPrefixes] = field(default_factory=Place)
    settings: Annotated[RunConfig, tyro.conf.arg(name="")] = field(default_factory=RunConfig)


def train_command(words: list[str]) -> int:
    """Run `scramjet train ...`; returns the exit code."""
    words, env_values = split_env_parameters(words)
    words = ["None" if word in NONE_WORDS else word for word in words]
    asked = [word for word in words if word not in ("-h", "--help")]  # help shows the values of the chosen world
    place, rest = tyro.cli(Place, prog="scramjet train", args=asked, return_unknown_args=True)
    if place.resume is not None:
        return _resume(words, env_values, place)
    if place.env is not None and place.fork is None:
        raise ConfigError(f"--env is for --resume and --fork; to train a world, name it: scramjet train {place.env}")
    named = asked[0] if asked and not asked[0].startswith("-") else _named_after_flags(asked, rest, place)
    if place.env is not None and named is not None:
        raise ConfigError(f"'{named}' and --env {place.env} both name the world of the fork; give one of them")
    if named is not None:
        named, asked, words, rest = _settled(named, asked, words, rest)
    base = base_config(named, place)
    changes_nothing = rest == ([] if named is None else [base.env])
    config = base if changes_nothing else _parse(asked, base).settings
    env, is_final = config.env, words == asked
    if env != base.env:  # the world was named after the flags
        env, words = _settled(env, words)
        base, is_final = base_config(env, place), False
    if not is_final:
        config = _parse(words, base, env).settings
    given = [flag.removeprefix("--").replace("-", "_") for flag in given_flags(words)]
    if "num_minibatches" in given and "minibatch_size" in given:
        raise ConfigError("--num-minibatches and --minibatch-size say the same in two ways; give one of them")
    config = replace(config, ppo=reopened(base.ppo, config.ppo, given))
    config = replace(config, env_parameters={**base.env_parameters, **typed_parameters(env, env_values)})
    result = train(config, fork=place.fork, runs_dir=place.runs_dir, run_name=place.run_name, display=place.display)
    return result.exit_code


def _settled(named: str, *lists: list[str]) -> tuple[Any, ...]:
    """The name of the world on the command line as it trains, and lists of words with it in place of what was typed."""
    name = name_of(named)
    return name, *([name if word == named else word for word in words] for words in lists)


def base_config(env: str | None, place: Place) -> RunConfig:
    """What the flags are laid over: the parent's config or the world's preset, then the file.

    The command line's world `env` stands in place of any other; parameters in the files stay if they are for that one.
    """
    moved = None if place.env is None else name_of(place.env)
    caller = config_files.Caller(place.trust, env or moved, keeps_parameters=moved is not None)
    if place.fork is not None:
        checkpoint = find_checkpoint(place.fork, place.runs_dir)
        base = checkpoint_config(checkpoint, caller).with_open_choices()
    elif env is None and place.config is not None:
        return config_files.load_config(place.config, trust=place.trust)
    else:
        base = config_files.starting_config(env or RunConfig.env)
    if place.config is None:
        return base
    caller = replace(caller, folder=place.config.parent)
    return config_files.apply(base, config_files.read_file(place.config), str(place.config), caller)


def _named_after_flags(asked: list[str], rest: list[str], place: Place) -> str | None:
    """The world that stands behind flags, where a file names one too: then the file's is not to be loaded."""
    if not rest or (place.config is None and place.fork is None):
        return None
    unnamed = RunConfig(env="")
    try:
        return _parse(asked, unnamed).settings.env or None
    except ConfigError:  # flags that do not go together without what the file says
        return None


def given_flags(words: list[str]) -> list[str]:
    """The flags on a command line, in their one spelling."""
    return [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]


def _resume(words: list[str], env_values: dict[str, str], place: Place) -> int:
    flags = given_flags(words)
    refused = [flag for flag in flags if flag not in RESUME_FLAGS]
    refused += [f"--env.{name}" for name in env_values]
    if refused:
        raise ConfigError(
            f"{refused[0]} cannot change when a run is resumed: its config is frozen. Only --total-timesteps and "
            f"--time-limit may; to change more, start a new run with --fork {place.resume}"
        )
    assert place.resume is not None
    unnamed = ""
    given = _parse(words, RunConfig(env=unnamed)).settings
    if given.env != unnamed:
        raise ConfigError(
            f"'{given.env}' is not needed with --resume: the run knows its world; if that is elsewhere now, add --env "
            f"{given.env}"
        )
    result = train(
        resume=place.resume,
        env=place.env,
        runs_dir=place.runs_dir,
        display=place.display,
        total_timesteps=given.total_timesteps if "--total-timesteps" in flags else None,
        time_limit=given.time_limit,
        trust=place.trust,
    )
    return result.exit_code


def _parse(words: list[str], base: RunConfig, env: str | None = None) -> Arguments:
    """The command line laid over `base`; the help lists the parameters of `env`."""
    parameters = "" if env is None else parameter_help(env, base.env_parameters)
    return tyro.cli(
        Arguments,
        prog="scramjet train",
        description=DESCRIPTION + parameters,
        args=words,
        default=Arguments(settings=base),
        config=(tyro.conf.ConsolidateSubcommandArgs,),
    )
