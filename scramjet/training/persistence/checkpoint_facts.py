"""Find the checkpoint that a user means, read its config, and check that it fits a world and a network."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scramjet.engine.privileged import shown_space
from scramjet.errors import CheckpointError
from scramjet.runtime.checkpoints import Checkpoint, load_checkpoint
from scramjet.runtime.runs import find_run
from scramjet.training.config import files as config_files
from scramjet.training.config.run_config import RunConfig
from scramjet.training.persistence.metadata import DEFAULT_NETWORK, check_metadata
from scramjet.training.worlds.trust import NOBODY, Caller

if TYPE_CHECKING:
    from torch import nn


def find_checkpoint(text: str | Path, runs_dir: Path) -> Checkpoint:
    """The checkpoint a user named: its folder, a run's folder, or a run's name in `runs_dir`."""
    parent = os.path.basename(os.path.dirname(text))  # os.path: a name may be too long for a file
    if not os.path.exists(text) and parent not in ("checkpoints", "opponents"):
        return load_checkpoint(find_run(str(text), runs_dir))
    return load_checkpoint(Path(text))


def checkpoint_config(checkpoint: Checkpoint, caller: Caller = NOBODY) -> RunConfig:
    """The config recorded in a checkpoint; `caller` is whoever reads it, and what worlds it may name."""
    check_metadata(checkpoint)
    caller = replace(caller, run=run_of(checkpoint))
    return config_files.apply(RunConfig(), checkpoint.metadata["config"], f"checkpoint {checkpoint.path}", caller)


def run_of(checkpoint: Checkpoint) -> Path:
    """The folder of the run that a checkpoint belongs to; its own where it lies in none."""
    path = checkpoint.path.resolve()  # the user may have a link to it
    if path.parent.name in ("checkpoints", "opponents"):
        return path.parents[1]
    return path.parents[2] if path.parents[1].name == "opponents" else path


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


def check_network_is_given(checkpoint: Checkpoint, network: nn.Module | None) -> None:
    """Refuse a checkpoint of a user's own network if `network` is None."""
    needed = checkpoint.metadata["network"]
    if needed != DEFAULT_NETWORK and network is None:
        raise CheckpointError(
            f"'{checkpoint.path}' was trained with a network of its own, {needed}; load it from Python and give it "
            f"again: network={needed.rpartition('.')[2]}(...)"
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
