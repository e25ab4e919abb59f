"""What a tool is told about a run beside its numbers, read from the run's folder and checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.errors import RunError, printable
from scramjet.runtime.files import read_regular, why_unreadable
from scramjet.runtime.runs import Run
from scramjet.runtime.strict_json import parse_json
from scramjet.training.config.reading import read_file

_MAX_LINEAGE_BYTES = 1 << 22
_MAX_TEXT = 500  # characters of a value; MLflow takes no longer ones
_PARENT = re.compile(r"\.\./([A-Za-z0-9_][A-Za-z0-9._-]{0,99})/checkpoints/step_\d+")


@dataclass(frozen=True)
class RunFacts:
    """A run as a tool shows it."""

    name: str
    path: Path
    config: Mapping[str, Any]
    """The frozen config, nested as config.toml is."""
    lineage: Mapping[str, Any]
    """What lineage.json says of a fork: parent_checkpoint, parent_step, changed; empty for other runs."""
    project: str | None = None
    """The project or experiment to file the run under, where the user named one."""

    @classmethod
    def read(cls, run: Run, project: str | None = None) -> RunFacts:
        """The facts of a run, from its folder; a RunError says what is wrong with a file of it."""
        config = read_file(run.config_path, follow_links=False)
        own = config.get("track_project")
        named = own if isinstance(own, str) and own != "none" else None
        return cls(run.name, run.path, config, _lineage(run.lineage_path), project or named)

    @property
    def env(self) -> str:
        """The name of the run's world."""
        env = self.config.get("env")
        name = env.get("name") if isinstance(env, Mapping) else env
        return _text(name if isinstance(name, str) else "unknown")

    @property
    def total_steps(self) -> float:
        """The step that the run is to end at; infinity where the config does not say."""
        total = self.config.get("total_timesteps")
        return total if isinstance(total, int) else math.inf

    @property
    def tags(self) -> dict[str, str]:
        """What runs are grouped and found by."""
        return {
            "env": self.env,
            "algorithm": _text(self.config.get("algorithm", "ppo")),
            "seed": _text(self.config.get("seed", "")),
        }

    @property
    def own_tags(self) -> tuple[str, ...]:
        """The words that the user gave with `--tags`."""
        tags = self.config.get("tags")
        return tuple(_text(tag) for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()

    @property
    def group(self) -> str:
        """The runs that differ in their seed alone, in words."""
        return f"{self.tags['env']} {self.tags['algorithm']}"

    @property
    def flat_config(self) -> dict[str, bool | int | float | str]:
        """The config without nesting: `policy.hidden`, lists as text."""
        return _flattened(self.config)

    @property
    def parent(self) -> str | None:
        """The name of the run that this one was forked from, if that lies beside it."""
        found = _PARENT.fullmatch(str(self.lineage.get("parent_checkpoint", "")))
        return found[1] if found else None

    @property
    def fork_notes(self) -> dict[str, str | int]:
        """The checkpoint and the step that a fork comes from; empty for other runs."""
        if not self.lineage:
            return {}
        step = self.lineage.get("parent_step")
        notes: dict[str, str | int] = {"parent_checkpoint": _text(self.lineage.get("parent_checkpoint", ""))}
        if self.parent is not None:
            notes["parent_run"] = self.parent
        if isinstance(step, int):
            notes["parent_step"] = step
        return notes


def _lineage(path: Path) -> dict[str, Any]:
    try:
        lineage = parse_json(read_regular(path, _MAX_LINEAGE_BYTES))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RunError(f"{path} {why_unreadable(error)}; put it back") from error
    except ValueError as error:
        raise RunError(f"{path} {error}; put it back") from error
    return lineage if isinstance(lineage, dict) else {}


def _flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    flat: dict[str, bool | int | float | str] = {}
    for key, value in values.items():
        name = _text(f"{prefix}{key}")
        if isinstance(value, Mapping):
            flat.update(_flattened(value, f"{name}."))
        else:
            flat[name] = value if isinstance(value, bool | int | float) else _text(value)
    return flat


def _text(value: Any) -> str:
    return printable(str(value))[:_MAX_TEXT]
