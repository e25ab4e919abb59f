"""The runs that a user names, in groups that differ in their seed alone or agree in chosen settings."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.errors import ConfigError, RunError, did_you_mean, printable, shortened
from scramjet.reports.run_files import RunConfigFile, RunFiles, list_run_folders, world_label
from scramjet.runtime.runs import find_run

_NOT_LEARNING = (
    "config_version", "seed", "time_limit", "env_timeout", "checkpoint.every", "checkpoint.keep_last_n",
    "tags", "track", "track_project", "video_every", "log_info", "num_threads", "num_workers", "num_processes",
    "ray_address",
)  # fmt: skip
"""Settings that do not change what a run learns, but for chance: runs that differ only in these make one group."""
FORKED_FROM = "forked_from"
"""Beside the config's settings: the parent run and step of a fork, "none" for others."""
_LONGEST_LABEL = 60
_FEW = 3
"""Settings that a label has all of, where there is room; else as many as tell the groups apart."""
_MISSING = "none"


@dataclass(frozen=True)
class Group:
    """Runs that are shown as one."""

    runs: list[RunFiles]
    label: str


@dataclass(frozen=True)
class Configured:
    """A run with its settings by flat names, such as `env.name` and `policy.hidden`."""

    run: RunFiles
    config: RunConfigFile
    settings: dict[str, Any]


def configured(runs: Iterable[RunFiles]) -> tuple[list[Configured], list[str]]:
    """Each run with its settings, and a note for each whose config cannot be read."""
    found, notes = [], []
    for run in runs:
        try:
            config = run.config()
        except (ConfigError, RunError) as error:
            notes.append(f"{run.name} is left out: {error}")
            continue
        found.append(Configured(run, config, {**flat(config.values), FORKED_FROM: _parent(run)}))
    return found, notes


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by flat names: {"policy": {"hidden": 64}} is {"policy.hidden": 64}."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of settings that are not the same in all, in the order of the first that has them."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if any(each.get(name) != settings[0].get(name) for each in settings)]


def group_runs(runs: Sequence[Configured], by: Sequence[str] = ()) -> list[Group]:
    """Put runs together that agree in the settings `by`; by default in all that differ but the seed."""
    if by:
        names = [setting_name(name, runs) for name in by]
    else:
        names = [name for name in differing([run.settings for run in runs]) if name not in _NOT_LEARNING]
    members: dict[str, list[Configured]] = {}
    for run in runs:
        members.setdefault(repr([run.settings.get(name, _MISSING) for name in names]), []).append(run)
    groups = list(members.values())
    if any(len(group) > 1 for group in groups) or by:
        groups.sort(key=lambda group: [_order(group[0].settings.get(name, _MISSING)) for name in names])
    shared = [{name: group[0].settings.get(name, _MISSING) for name in names} for group in groups]
    if all(len(group) == 1 for group in groups) and not by:
        labels = [group[0].run.name for group in groups]
    else:
        labels = _labels(shared, groups)
    return [Group([member.run for member in group], label) for group, label in zip(groups, labels, strict=True)]


def setting_name(name: str, runs: Sequence[Configured]) -> str:
    """The flat name of a setting as a user writes it: `env` is `env.name`, PPO's stand at the top or in `ppo`."""
    known = dict.fromkeys(key for run in runs for key in run.settings)
    for candidate in (name, name.replace("-", "_"), f"{name}.name", name.removeprefix("ppo.").replace("-", "_")):
        if candidate in known:
            return candidate
    raise ConfigError(f"--group-by {name}: no run has this setting.{did_you_mean(name, known)}")


def value_text(value: Any, longest: int = 40) -> str:
    """A setting's value in a few characters, safe to show."""
    if isinstance(value, list):
        text = "x".join(map(str, value)) if value and all(isinstance(item, int) for item in value) else str(value)
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _order(value: Any) -> tuple[int, float, str]:
    """Sorts numbers by their size and before texts."""
    is_number = isinstance(value, int | float)
    return (0, float(value), "") if is_number else (1, 0.0, str(value))


def _labels(shared: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[Configured]]) -> list[str]:
    if len(shared) == 1:
        first = groups[0][0]
        return [f"{first.config.env or first.run.name} {first.config.algorithm}".strip()]
    # What people look for first comes first.
    names = sorted(differing(shared), key=lambda name: (name != "env.name", name != "algorithm"))
    for count in [*([len(names)] if len(names) <= _FEW else []), *range(1, len(names) + 1)]:
        labels = [_label(settings, names[:count]) for settings in shared]
        if len(set(labels)) == len(labels) and max(map(len, labels)) <= _LONGEST_LABEL:
            return labels
    firsts = [printable(group[0].run.name) for group in groups]
    return [first if len(group) == 1 else f"{first} and seeds" for first, group in zip(firsts, groups, strict=True)]


def _label(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    texts = []
    for name in names:
        value = world_label(str(settings[name])) if name == "env.name" else settings[name]
        value = value_text(value, 24)
        short = name.rpartition(".")[2]
        texts.append(value if name in ("env.name", "algorithm") else f"{printable(short)} {value}")
    return ", ".join(texts)


def _parent(run: RunFiles) -> str:
    try:
        lineage = run.lineage()
    except RunError:
        return "unreadable"
    return _MISSING if lineage is None else f"{lineage.parent_run}@{lineage.parent_step}"


# --- runs by path, by name, by pattern, or a whole folder of them


_MARKS = ("config.toml", "metrics.jsonl")


def find_runs(texts: Sequence[str], runs_dir: Path) -> list[RunFiles]:
    """The runs that `texts` name, each once, in the order given.

    A text is the path of a run, its name in `runs_dir`, a pattern such as `cartpole-*` for either, or a folder that
    holds runs. A RunError says what was not found.
    """
    found: dict[Path, RunFiles] = {}
    for text in texts:
        for path in _paths(text, runs_dir):
            run = RunFiles(path)
            found.setdefault(run.path, run)
    return list(found.values())


def _paths(text: str, runs_dir: Path) -> list[Path]:
    if glob.has_magic(text) and not os.path.lexists(text):
        return _matching(text, runs_dir)
    path = find_run(text, runs_dir)
    if _is_run(path):
        return [path]
    names = list_run_folders(path)
    if not names:
        raise RunError(f"{path} is no run and holds none; name a folder that `scramjet train` made")
    return [path / name for name in names]


def _matching(pattern: str, runs_dir: Path) -> list[Path]:
    # Runs here, else those in `runs_dir`; other files that match, such as cartpole-notes.txt, count for nothing.
    paths = _runs_at(pattern) or _runs_at(os.path.join(glob.escape(str(runs_dir)), pattern))
    if not paths:
        raise RunError(f"no run matches {shortened(pattern)}, neither here nor in {runs_dir}/; see `ls {runs_dir}`")
    return paths


def _runs_at(pattern: str) -> list[Path]:
    try:
        return [Path(text) for text in sorted(glob.glob(pattern)) if _is_run(Path(text))]
    except (OSError, ValueError):  # a NUL byte
        return []


def _is_run(path: Path) -> bool:
    return any(os.path.lexists(path / mark) for mark in _MARKS)
