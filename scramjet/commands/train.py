"""`scramjet train`: a new, resumed or forked run. Flags override --config, which overrides the preset."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from scramjet.adapters.gymnasium.process import end_unused
from scramjet.commands.arguments.train import Given, Place
from scramjet.runtime.ranks.environment import is_launched
from scramjet.runtime.runs import Run, find_run
from scramjet.settings import coerce
from scramjet.training.config.keywords import SERVICES
from scramjet.training.config.reading import read_file
from scramjet.training.config.run_config import RunConfig
from scramjet.training.loop import train


def train_command(given: Given) -> int:
    """Run `scramjet train ...`; returns the exit code."""
    if given.config is None:
        return _resume(given)
    if given.config.num_processes > 1 and not is_launched():
        return _launch(given.words, given.config.num_processes, given.place)
    result = train(
        given.config,
        fork=given.place.fork,
        runs_dir=given.place.runs_dir,
        run_name=given.place.run_name,
        display=given.place.display,
        rank_timeout=given.place.rank_timeout,
    )
    return result.exit_code


def _launch(words: list[str], num_processes: int, place: Place) -> int:
    """Run this command as several ranks on this machine; returns the exit code of rank 0."""
    from scramjet.runtime.ranks.launching import launch

    end_unused()
    is_safe = os.getcwd() not in sys.path and "" not in sys.path  # files here are no modules for `scramjet` either
    command = [sys.executable, *(["-P"] if is_safe else []), "-m", "scramjet", "train", *words]
    return launch(command, num_processes, max_restarts=place.max_restarts)


def _frozen_num_processes(run: str, runs_dir: Path) -> int:
    """How many processes train a run, by its frozen config."""
    found = read_file(Run.open(find_run(run, runs_dir)).config_path, follow_links=False)
    return coerce("num_processes", found.get("num_processes", 1), int)


def _resume(given: Given) -> int:
    line, place = given.line, given.place
    assert place.resume is not None
    settings = line.laid_over(RunConfig(), ("settings",))
    if not is_launched() and (num_processes := _frozen_num_processes(place.resume, place.runs_dir)) > 1:
        return _launch(given.words, num_processes, place)
    result = train(
        resume=place.resume,
        env=place.env,
        runs_dir=place.runs_dir,
        display=place.display,
        total_timesteps=settings.total_timesteps if ("settings", "total_timesteps") in line.values else None,
        time_limit=settings.time_limit,
        trust=place.trust,
        rank_timeout=place.rank_timeout,
        **{name: getattr(settings, name) for name in SERVICES if ("settings", name) in line.values},
    )
    return result.exit_code
