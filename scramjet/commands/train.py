"""`scramjet train`: defaults < preset < --config < flags; new, resumed or forked."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from scramjet.commands.command_line import CommandLine, read_words
from scramjet.commands.help_text import show_help
from scramjet.engine.cpu import is_compiled
from scramjet.engine.foreign_worlds import ForeignWorld, parameter_defaults
from scramjet.errors import ConfigError, did_you_mean, printable
from scramjet.training import config_files, start
from scramjet.training.config import RunConfig, reopened
from scramjet.training.loop import train
from scramjet.training.trust import remember

DESCRIPTION = """Train an agent with PPO.

Values come from the code's defaults, then the world's preset (or --preset NAME), then --config FILE, then flags.

  scramjet train                                  CartPole, solved in seconds
  scramjet train cartpole --seed 7 --num-envs 64
  scramjet train my_world.py --env.length 20      your own world, a parameter
  scramjet train gym:Acrobot-v1 --preset acrobot  the preset of another world
  scramjet train --config my_run.toml
  scramjet train --resume runs/cartpole-1         go on where it stopped
  scramjet train --fork runs/cartpole-1/checkpoints/best --learning-rate 1e-4
"""

RESUME_FLAGS = ("--resume", "--runs-dir", "--display", "--total-timesteps", "--time-limit", "--trust", "--no-trust")


@dataclass(frozen=True)
class Place:
    """Where the run comes from and goes to."""

    preset: str | None = None
    """A preset that comes with scramjet, in place of the world's own; alone it names the world too."""
    config: Path | None = None
    """A TOML or YAML file with settings."""
    resume: str | None = None
    """Go on with this run (its folder or name); only --total-timesteps and --time-limit may change."""
    fork: str | None = None
    """Start a new run from this checkpoint, or from a run's newest one."""
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
    given = read_words(Arguments, words, prog="scramjet train")
    place = given.laid_over(Place(), ("place",))
    if place.resume is not None and not given.wants_help:
        return _resume(given, given_flags(words), env_values, place)
    named = given.values.get(("settings", "env"))
    base = base_config(named, place)
    if named is not None:
        remember(named, is_named=True)
    if given.wants_help:
        show_help(Arguments, "scramjet train", DESCRIPTION + _parameter_help(base), Arguments(settings=base))
    config = given.laid_over(base, ("settings",))
    names = given.names()
    if "num_minibatches" in names and "minibatch_size" in names:
        raise ConfigError("--num-minibatches and --minibatch-size say the same in two ways; give one of them")
    config = replace(config, ppo=reopened(base.ppo, config.ppo, names))
    config = replace(config, env_parameters={**base.env_parameters, **_typed(config.env, env_values)})
    world = config.make_env()
    if place.display != "quiet" and not isinstance(world, ForeignWorld) and not is_compiled(world):
        print(f"compiling {printable(config.env)} for this machine: a few seconds, once", file=sys.stderr, flush=True)
    result = train(config, fork=place.fork, runs_dir=place.runs_dir, run_name=place.run_name, display=place.display)
    return result.exit_code


def base_config(env: str | None, place: Place) -> RunConfig:
    """What the flags are laid over: the parent's config or a preset, then the file.

    The command line's world `env` stands in place of any other; parameters in the files stay if they are for that one.
    """
    caller = config_files.Caller(place.trust, env)
    if place.fork is not None:
        checkpoint = start.find_checkpoint(place.fork, place.runs_dir)
        base = start.checkpoint_config(checkpoint, caller).with_open_choices()
        if place.preset is not None:
            base = config_files.with_preset(base, place.preset)
    elif env is None and place.config is not None:
        return config_files.load_config(place.config, trust=place.trust, preset=place.preset)
    else:
        base = config_files.starting_config(env, place.preset)
    if place.config is None:
        return base
    return config_files.apply(base, config_files.read_file(place.config), str(place.config), caller)


def given_flags(words: list[str]) -> list[str]:
    """The flags on a command line, in their one spelling."""
    return [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]


def _resume(given: CommandLine, flags: list[str], env_values: dict[str, str], place: Place) -> int:
    refused = [flag for flag in flags if flag not in RESUME_FLAGS]
    refused += [f"--env.{name}" for name in env_values]
    if refused:
        raise ConfigError(
            f"{refused[0]} cannot change when a run is resumed: its config is frozen. Only --total-timesteps and "
            f"--time-limit may; to change more, start a new run with --fork {place.resume}"
        )
    assert place.resume is not None
    if ("settings", "env") in given.values:
        world = given.values["settings", "env"]
        raise ConfigError(f"'{world}' is not needed with --resume: the run knows its world")
    settings = given.laid_over(RunConfig(), ("settings",))
    result = train(
        resume=place.resume,
        runs_dir=place.runs_dir,
        display=place.display,
        total_timesteps=settings.total_timesteps if "--total-timesteps" in flags else None,
        time_limit=settings.time_limit,
        trust=place.trust,
    )
    return result.exit_code


def _parameter_help(base: RunConfig) -> str:
    """The world's own flags, with the values they have now."""
    values = {**(parameter_defaults(base.env) or {}), **base.env_parameters}
    flags = "".join(f"\n  --env.{name.replace('_', '-')} {value}" for name, value in values.items())
    return f"\nParameters of {base.env}:{flags}\n"


BARE = ""


def split_env_parameters(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Take the `--env.NAME value` pairs out of the command line: what they may be depends on the world.

    A flag without a value, as booleans have it, gets BARE.
    """
    rest: list[str] = []
    values: dict[str, str] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("--env."):
            rest.append(word)
            continue
        name, equals, value = word.removeprefix("--env.").partition("=")
        if not equals and (position == len(words) or words[position].startswith("--")):
            value = BARE
        elif not equals:
            value = words[position]
            position += 1
        values[name.replace("-", "_")] = value
    return rest, values


def _typed(env: str, values: dict[str, str]) -> dict[str, Any]:
    """Flag values as numbers; the world's constructor checks the rest."""
    known = parameter_defaults(env)
    if known is None:
        return {name: _typed_freely(text) for name, text in values.items()}
    typed: dict[str, Any] = {}
    for name, text in values.items():
        switch = name if name in known else name.removeprefix("no_")
        if text == BARE and isinstance(known.get(switch), bool):
            typed[switch] = switch == name
            continue
        if name not in known:
            raise ConfigError(
                f"{env} has no parameter '{name}'.{did_you_mean(name, known)} Parameters: {', '.join(known)}"
            )
        if text == BARE:
            flag = f"--env.{name.replace('_', '-')}"
            raise ConfigError(f"{flag} needs a value: {flag} {known[name]}")
        typed[name] = _typed_freely(text)
        if isinstance(typed[name], str):
            raise ConfigError(f"--env.{name.replace('_', '-')} {text} is not a number, true or false")
    return typed


def _typed_freely(text: str) -> Any:
    """A flag's value as a number, true, false or none where it reads like one; a bare flag is true."""
    words = {"true": True, "false": False, "none": None, BARE: True}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text
