"""`scramjet train`: a new, resumed or forked run. Flags override --config, which overrides the preset."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from scramjet.adapters.gymnasium.workers.started_ahead import end_unused
from scramjet.commands.arguments.env_parameters import parameter_help, split_env_parameters, typed_parameters
from scramjet.commands.arguments.help_text import show_help
from scramjet.commands.arguments.search import refuse_search
from scramjet.commands.command_line import CommandLine, read_words
from scramjet.errors import ConfigError
from scramjet.runtime.ranks.environment import is_launched
from scramjet.runtime.ranks.joining import RANK_TIMEOUT
from scramjet.runtime.runs import Run, find_run
from scramjet.settings import Flat, coerce, require, require_counts
from scramjet.training.config import files as config_files
from scramjet.training.config.algorithm_choice import with_algorithm
from scramjet.training.config.changes import reopened
from scramjet.training.config.keywords import SERVICES
from scramjet.training.config.reading import read_file
from scramjet.training.config.resolution import with_open_choices
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.config import with_curiosity
from scramjet.training.loop import train
from scramjet.training.persistence.checkpoint_facts import checkpoint_config, find_checkpoint
from scramjet.training.worlds.trust import Caller
from scramjet.training.worlds.user_worlds import name_of

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


def train_command(words: list[str]) -> int:
    """Run `scramjet train ...`; returns the exit code."""
    all_words = words
    words, env_values = split_env_parameters(words)
    refuse_search(words)
    given = read_words(Arguments, words, prog="scramjet train")
    place = given.laid_over(Place(), ("place",))
    place.check()
    if place.resume is not None and not given.wants_help:
        return _resume(given, given_flags(words), env_values, place, all_words)
    named = given.values.get(("settings", "env"))
    if place.env is not None and place.fork is None:
        raise ConfigError(f"--env is for --resume and --fork; to train a world, name it: scramjet train {place.env}")
    if place.env is not None and named is not None:
        raise ConfigError(f"'{named}' and --env {place.env} both name the world of the fork; give one of them")
    if named is not None:
        named = given.values["settings", "env"] = name_of(named)
    base = base_config(named, place, given.values.get(("settings", "algorithm")))
    if given.wants_help:
        parameters = parameter_help(base.env, base.env_parameters)
        show_help(Arguments, "scramjet train", DESCRIPTION + parameters, Arguments(settings=base))
    config = with_flags(base, given, env_values)
    if config.num_processes > 1 and not is_launched():
        return _launch(all_words, config.num_processes, place)
    result = train(
        config,
        fork=place.fork,
        runs_dir=place.runs_dir,
        run_name=place.run_name,
        display=place.display,
        rank_timeout=place.rank_timeout,
    )
    return result.exit_code


def _launch(words: list[str], num_processes: int, place: Place) -> int:
    """Run this command as several ranks on this machine; returns the exit code of rank 0."""
    from scramjet.runtime.ranks.launching import launch

    end_unused()
    is_safe = os.getcwd() not in sys.path and "" not in sys.path  # files here are no modules for `scramjet` either
    command = [sys.executable, *(["-P"] if is_safe else []), "-m", "scramjet", "train", *words]
    return launch(command, num_processes, max_restarts=place.max_restarts)


def base_config(env: str | None, place: Place, algorithm: str | None = None) -> RunConfig:
    """The config that flags are laid over: that of the forked checkpoint or a preset, then --config FILE.

    `env` is the world of the command line, in place of any other; parameters in files are kept if they are for it.
    `algorithm` is the command line's too: what is tuned for another is left out.
    """
    moved = None if place.env is None else name_of(place.env)
    caller = Caller(place.trust, env or moved, keeps_parameters=moved is not None)
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


def given_flags(words: list[str]) -> list[str]:
    """The flags on a command line, in their one spelling."""
    return [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]


def _frozen_num_processes(run: str, runs_dir: Path) -> int:
    """How many processes train a run, by its frozen config."""
    found = read_file(Run.open(find_run(run, runs_dir)).config_path, follow_links=False)
    return coerce("num_processes", found.get("num_processes", 1), int)


def _resume(
    given: CommandLine, flags: list[str], env_values: dict[str, str], place: Place, all_words: list[str]
) -> int:
    refused = [flag for flag in flags if flag not in RESUME_FLAGS]
    refused += [f"--env.{name}" for name in env_values]
    if refused:
        raise ConfigError(
            f"{refused[0]} cannot change when a run is resumed: its config is frozen. Only --total-timesteps, "
            f"--time-limit, --track and --ray-address may; to change more, start a new run with --fork {place.resume}"
        )
    assert place.resume is not None
    if ("settings", "env") in given.values:
        world = given.values["settings", "env"]
        raise ConfigError(
            f"'{world}' is not needed with --resume: the run knows its world; if that is elsewhere now, add "
            f"--env {world}"
        )
    settings = given.laid_over(RunConfig(), ("settings",))
    if not is_launched() and (num_processes := _frozen_num_processes(place.resume, place.runs_dir)) > 1:
        return _launch(all_words, num_processes, place)
    result = train(
        resume=place.resume,
        env=place.env,
        runs_dir=place.runs_dir,
        display=place.display,
        total_timesteps=settings.total_timesteps if "--total-timesteps" in flags else None,
        time_limit=settings.time_limit,
        trust=place.trust,
        rank_timeout=place.rank_timeout,
        **{name: getattr(settings, name) for name in SERVICES if ("settings", name) in given.values},
    )
    return result.exit_code
