"""The winner as a preset file, in the form of those that come with scramjet."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import tomli_w

from scramjet.adapters.registry import parameter_defaults
from scramjet.errors import printable
from scramjet.runtime.machine import available_cores
from scramjet.telemetry.readable import human_count, human_duration
from scramjet.training.config.algorithm_choice import with_algorithm
from scramjet.training.config.changes import changes
from scramjet.training.config.files import apply, starting_config, to_dict
from scramjet.training.config.run_config import RunConfig
from scramjet.training.config.setting_tables import nested
from scramjet.tuning.report.results import StudyResults, TrialSummary
from scramjet.tuning.report.table import spread_text

NOT_IN_A_PRESET = (
    *("env", "seed", "time_limit", "num_threads", "num_workers", "num_processes", "device", "env_device", "tags"),
    *("track", "track_project", "video_every", "record_schedule", "replay_schedule", "checkpoint"),
)
"""Settings that belong to one run or machine: whoever trains with the preset decides on them."""


def preset_text(config: RunConfig, header: str) -> str:
    """The settings of `config` as a preset, below `header` as a comment.

    It holds what differs from the code's defaults, or from the world's own preset: so it is the same whether it is
    laid over that preset (`scramjet train --config FILE`) or takes its place.
    """
    wanted = _settings(config)
    usual = _settings(with_algorithm(RunConfig(env=config.env), config.algorithm))
    shipped = apply(starting_config(config.env), {"algorithm": config.algorithm}, "the winner")
    names = [*changes(usual, wanted), *changes(_settings(shipped), wanted)]
    flat = {name: _value(wanted, name) for name in dict.fromkeys(names)}
    settings = nested({name: "none" if value is None else value for name, value in flat.items()}, "the winner")
    tables = {name: value for name, value in settings.items() if isinstance(value, dict)}
    plain = {name: value for name, value in settings.items() if name not in tables}
    # Of the parameters in the world's preset, those that the winner leaves at their defaults are named too.
    defaults = parameter_defaults(config.env) or {}
    parameters = {name: defaults[name] for name in shipped.env_parameters if name in defaults} | config.env_parameters
    algorithm = {} if config.algorithm == "ppo" else {"algorithm": config.algorithm}
    if parameters:
        tables = {"env": {"name": config.env, **parameters}, **tables}
    else:
        plain = {"env": config.env, **plain}
    comment = "".join(f"# {line}\n" for line in textwrap.wrap(printable(header), 118))
    return comment + tomli_w.dumps({**algorithm, **plain, **tables})


def preset_header(results: StudyResults, winner: TrialSummary, config: RunConfig) -> str:
    """What the winner reached, after how many steps, on which machine and when."""
    repeated = winner.repeated
    score = spread_text(repeated) if repeated is not None else f"{winner.score:.4g} (1 seed, not repeated)"
    world = config.env.replace("_", " ").capitalize() if config.env.isidentifier() else config.env
    seconds = f", {human_duration(winner.seconds)} of training" if winner.seconds is not None else ""
    return (
        f"{world}: {results.objective} {score}, {human_count(config.total_timesteps)} steps{seconds} on "
        f"{machine()} ({date.today().isoformat()}). Trial {winner.number} of {len(results.trials)} of the study "
        f"{results.name}."
    )


def machine() -> str:
    """This machine in a few words: its cores and their kind."""
    cores = available_cores()
    return f"{_core_name()}, {cores} core{'s' if cores > 1 else ''}"


def _core_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return "a CPU"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "a CPU")[:60]


def _settings(config: RunConfig) -> dict[str, Any]:
    """The settings of a config that belong in a preset, as a file holds them."""
    return {name: value for name, value in to_dict(config).items() if name not in NOT_IN_A_PRESET}


def _value(settings: Mapping[str, Any], name: str) -> Any:
    table, _, key = name.rpartition(".")
    value = settings[table][key] if table else settings[name]
    return list(value) if isinstance(value, tuple) else value
