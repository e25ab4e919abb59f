"""Weights & Biases, online or offline as its own settings say (WANDB_MODE, WANDB_PROJECT, WANDB_DIR and the rest).

A resumed run has the same id, and goes on behind the last step that W&B's server has. Offline files do not say which
steps they hold; there, points are noted as sent before they are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from scramjet.errors import ConfigError
from scramjet.telemetry.tracking.tracker import (
    DEFAULT_PROJECT,
    Place,
    Point,
    RunFacts,
    Sent,
    Tracker,
    Value,
    run_id_beside,
)

_wandb: Any = import_module("wandb")


class WandbTracker(Tracker):
    """Writes one W&B run."""

    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        """Begin a W&B run, or resume the one that this run has."""
        _require_account()
        notes = facts.fork_notes
        if notes and facts.parent is not None:
            notes["parent_id"] = run_id_beside(facts.path, facts.parent, "wandb")
        self._run = _wandb.init(
            project=facts.project or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT,
            id=sent.run_id or None,
            resume="allow" if sent.run_id else None,
            name=facts.name,
            group=facts.group,
            tags=[*facts.own_tags, *(f"{name}:{value}"[:64] for name, value in facts.tags.items())],
            config={**facts.config, **({"lineage": notes} if notes else {})},
            reinit="create_new",
            settings=_wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
        )
        self.notes_first = bool(self._run.offline)
        last = int(self._run.step) - 1 if self._run.resumed else -1
        if sent.run_id and any(Path(self._run.settings.wandb_dir).glob(f"offline-run-*-{sent.run_id}")):
            last = max(last, sent.step)  # what is still here will be uploaded by `wandb sync`
        return Place(self._run.id, last)

    def write(self, points: Sequence[Point]) -> None:
        """Log a row for each point."""
        for point in points:
            self._run.log(dict(point.values), step=point.step, commit=True)

    def video(self, path: Path, step: int) -> None:
        """Add a video or picture as a row of its own, behind those that are written already."""
        media = _wandb.Image(str(path)) if path.suffix == ".png" else _wandb.Video(str(path), format=path.suffix[1:])
        self._run.log({"video": media}, step=max(step, int(self._run.step)), commit=True)

    def close(self, summary: Mapping[str, Value]) -> None:
        """Set the summary and end the run."""
        self._run.summary.update({f"final/{name}": value for name, value in summary.items()})
        self._run.finish()


def make() -> Tracker:
    """A tracker for one run."""
    return WandbTracker()


def _require_account() -> None:
    """Raise a ConfigError where W&B would ask for an account on the terminal."""
    is_online = os.environ.get("WANDB_MODE", "online") not in ("offline", "disabled", "dryrun")
    if is_online and _wandb.setup().settings.mode == "online" and _wandb.api.api_key is None:
        raise ConfigError("W&B knows no account here: run `wandb login`, or set WANDB_MODE=offline")
