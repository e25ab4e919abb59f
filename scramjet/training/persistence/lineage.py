"""The lineage of a fork: the checkpoint it comes from and what it changed, for lineage.json and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scramjet.runtime.checkpoints import Checkpoint
from scramjet.runtime.files import portable_path
from scramjet.runtime.strict_json import MAX_DEPTH
from scramjet.training.config import files as config_files
from scramjet.training.config.changes import changes
from scramjet.training.config.run_config import RunConfig
from scramjet.training.persistence.checkpoint_facts import run_of
from scramjet.training.worlds import world_files


def lineage_of(parent: Checkpoint, config: RunConfig, run: Path) -> dict[str, Any]:
    """The parent's path, hash and step, what `config` changes, and the parent's own lineage.

    Paths are as seen from `run`, the folder of the fork.
    """
    return {
        "parent_checkpoint": portable_path(parent.path, run),
        "parent_digest": parent.digest,
        "parent_step": parent.step,
        "changed": changes(_config_seen_from(run, parent), config_files.to_dict(config, run)),
        "parent_lineage": _youngest(parent.metadata["lineage"]),
    }


def _config_seen_from(run: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """The config in a checkpoint, with the path of its world relative to the folder of another run."""
    data = dict(checkpoint.metadata["config"])
    env = data.get("env")
    if isinstance(env, dict) and isinstance(env.get("name"), str):
        name = world_files.name_in(env["name"], run_of(checkpoint))
        data["env"] = {**env, "name": world_files.recorded_name(name, run)}
    return data


def _youngest(lineage: dict[str, Any] | None, generations: int = MAX_DEPTH // 2) -> dict[str, Any] | None:
    """A lineage without its oldest generations: each nests in the next, and a JSON file may nest only so deep."""
    if lineage is None or generations == 0:
        return None
    older = lineage.get("parent_lineage")
    return {**lineage, "parent_lineage": _youngest(older if isinstance(older, dict) else None, generations - 1)}
