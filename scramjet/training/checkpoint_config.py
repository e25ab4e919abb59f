"""The config in a checkpoint: read, compared with the one to train or play with, and recorded in a fork's lineage."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scramjet.engine.privileged import shown_space
from scramjet.errors import CheckpointError
from scramjet.runs import world_files
from scramjet.runs.metadata import check_metadata, check_network_is_given, run_of
from scramjet.runs.world_trust import NOBODY, Caller
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.runtime.files import MAX_DEPTH, portable_path
from scramjet.training.config import files as config_files
from scramjet.training.config.changes import changes
from scramjet.training.config.run_config import RunConfig

if TYPE_CHECKING:
    from torch import nn

if TYPE_CHECKING:
    from torch import nn


def checkpoint_config(checkpoint: Checkpoint, caller: Caller = NOBODY) -> RunConfig:
    """The config recorded in a checkpoint; `caller` is whoever reads it, and what worlds it may name."""
    check_metadata(checkpoint)
    caller = replace(caller, run=run_of(checkpoint))
    return config_files.apply(RunConfig(), checkpoint.metadata["config"], f"checkpoint {checkpoint.path}", caller)


def checkpoint_settings(checkpoint: Checkpoint) -> RunConfig:
    """The config recorded in a checkpoint without its world, which is neither looked for nor loaded."""
    check_metadata(checkpoint)
    data = config_files.without_world(checkpoint.metadata["config"])
    data.pop("log_info", None)  # names in the world's own info: with the default world they would be refused
    return config_files.apply(RunConfig(), data, f"checkpoint {checkpoint.path}", Caller(only_plays=True))


def check_fits(checkpoint: Checkpoint, config: RunConfig, network: nn.Module | None) -> None:
    """Refuse a checkpoint of a world with other spaces, of a network that is not given, or of another memory."""
    check_metadata(checkpoint)
    env = config.make_env()
    for name, here in (("observation_space", shown_space(env)), ("action_space", env.action_space)):
        there = checkpoint.metadata[name]
        if repr(here) != there:
            raise CheckpointError(
                f"'{checkpoint.path}' was trained on another world: its {name.replace('_', ' ')} is {there}, "
                f"that of {config.env} is {here!r}"
            )
    check_network_is_given(checkpoint, network)
    before = checkpoint_settings(checkpoint)
    scales = before.ppo.value_scale, config.ppo.value_scale
    if scales[0] != scales[1] and not set(scales) <= {"none", "popart"}:
        raise CheckpointError(
            f"'{checkpoint.path}' was trained with value_scale={scales[0]!r}, and with {scales[1]!r} all values would "
            f"have to be learned anew; add --value-scale {scales[0]}"
        )
    trained_with, here = before.policy, config.policy
    for name in ("memory", "memory_size", "memory_layers") if network is None else ():
        then, now = getattr(trained_with, name), getattr(here, name)
        if then != now and (name == "memory" or here.memory is not None):
            raise CheckpointError(
                f"'{checkpoint.path}' was trained with policy.{name}={then or 'none'}, and this config has "
                f"{now or 'none'}; add --policy.{name.replace('_', '-')} {then or 'none'}"
            )


def reward_divisor_of(checkpoint: Checkpoint, settings: RunConfig | None = None) -> float | None:
    """What rewards were divided by when the checkpoint was made; None if it does not say, as in those of opponents.

    With the `settings` of a fork: what the fork divides them by at first.
    """
    moments = checkpoint.trainer.get("reward_scaler/moments")
    if moments is None or tuple(moments.shape) != (3,):
        return None
    count, _, squares = moments.tolist()
    if not (count > 0 and squares >= 0):
        return None
    settings = checkpoint_settings(checkpoint) if settings is None else settings
    from scramjet.algorithms.reward_scaling import reward_divisor  # loads torch

    divisor = float(reward_divisor(moments.double(), beside_bonuses=settings.curiosity is not None))
    return divisor if math.isfinite(divisor) else None


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
