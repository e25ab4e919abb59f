"""What a checkpoint says beside its tensors, of its policy and world: written, found, checked and read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scramjet.adapters.env_spaces import EnvSpaces, their_spaces
from scramjet.adapters.spaces import adapted_action_space, adapted_observation_space
from scramjet.engine.pool import Pool
from scramjet.engine.privileged import policy_space, shown_space
from scramjet.engine.wrappers import unstacked_space
from scramjet.errors import CheckpointError, WorldError, shortened
from scramjet.runs.results import Best
from scramjet.runs.space_files import space_from_data, space_to_data
from scramjet.runs.world_files import name_in
from scramjet.runtime.checkpoints import Checkpoint, load_checkpoint
from scramjet.runtime.runs import find_run

if TYPE_CHECKING:
    from torch import Tensor, nn

    from scramjet.policies.policy import Facts, Policy

if TYPE_CHECKING:
    from torch import nn


DEFAULT_NETWORK = "default"
"""The network's name in a checkpoint where scramjet can build it without the user."""
_UNTRAINED = {"update": 0, "elapsed_seconds": 0.0, "best_return": None, "best_lower_bound": None, "lineage": None}
"""What is said of training where a policy is saved without its state."""
_SPACES = ("policy_spaces", "env_spaces")
_METADATA_TYPES: dict[str, Any] = {
    "update": int,
    "elapsed_seconds": int | float,
    "best_return": int | float | None,
    "best_lower_bound": int | float | None,
    "lineage": dict | None,
    "network": str,
    "rules": str,
    "observation_space": str,
    "action_space": str,
    "config": dict,
}
_MISSING = object()
_METADATA_RANGES = {
    "update": (0, 2**63 - 1),
    "elapsed_seconds": (0.0, 1e10),
    "best_return": (-1e300, 1e300),
    "best_lower_bound": (-1e300, 1e300),
}


# --- written


def policy_metadata(config: Mapping[str, Any], pool: Pool, policy: Policy, rules: str) -> dict[str, Any]:
    """What a checkpoint says about a policy and its world, as plain values for JSON.

    `config` is the run's, as its files record it; `rules` the hash of the world's rules.
    """
    env = pool.env
    spaces = [space_to_data(space) for space in (pool.observation_space, pool.action_space)]
    of_env = [space_to_data(space) for space in their_spaces(pool)]
    return {
        "rules": rules,
        "network": network_name(policy.network),
        "observation_space": repr(shown_space(env)),
        "action_space": repr(env.action_space),
        "policy_spaces": None if None in spaces else spaces,
        "env_spaces": None if None in of_env else of_env,
        "config": dict(config),
    }


def member_metadata(config: Mapping[str, Any], pool: Pool, policy: Policy, rules: str) -> dict[str, Any]:
    """The metadata of a policy that is saved without the state of its training."""
    return {**_UNTRAINED, **policy_metadata(config, pool, policy, rules)}


def facts_of(
    metadata: Mapping[str, Any], step: int, run: Path | None, tensors: Mapping[str, Tensor] | None = None
) -> Facts:
    """What `Policy.save` writes beside the weights, from a checkpoint's metadata; a world in a file by its full path.

    `run` is the folder that the path in the metadata is seen from, `tensors` what says how values are normalized.
    """
    from scramjet.policies.policy import Facts  # loads torch, which the help of train does without

    config = metadata["config"]
    world = {**config["env"], "name": name_in(config["env"]["name"], run)}
    kept = {key: value for key, value in metadata.items() if key in (*_METADATA_TYPES, *_SPACES)}
    return Facts(step, {**kept, **_UNTRAINED, "config": {**config, "env": world}}, dict(tensors or {}))


def network_name(network: nn.Module) -> str:
    """The name of a network in a checkpoint: the class of the first user's module in it, or DEFAULT_NETWORK."""
    for module in network.modules():
        if not type(module).__module__.startswith(("scramjet.", "torch.")):
            return f"{type(module).__module__}.{type(module).__qualname__}"
    return DEFAULT_NETWORK


# --- read: nothing is believed before check_metadata


def check_metadata(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose metadata is not what `checkpoint_of` writes."""
    for name, kind in _METADATA_TYPES.items():
        value = checkpoint.metadata.get(name, None if name == "best_lower_bound" else _MISSING)  # older ones lack it
        low, high = _METADATA_RANGES.get(name, (0, 0))
        is_number = name in _METADATA_RANGES and value is not None
        if not isinstance(value, kind) or isinstance(value, bool) or (is_number and not low <= value <= high):
            shown = "absent" if value is _MISSING else shortened(value)
            raise CheckpointError(f"'{checkpoint.path}' is no checkpoint of a training run: its {name} is {shown}")


def best_of(checkpoint: Checkpoint) -> Best | None:
    """The best return so far as a checkpoint records it; older ones have no lower bound, and the mean stands for it."""
    mean, bound = checkpoint.metadata["best_return"], checkpoint.metadata.get("best_lower_bound")
    return None if mean is None else Best(mean, mean if bound is None else bound)


def policy_spaces(checkpoint: Checkpoint) -> tuple[Any, Any] | None:
    """The spaces a checkpoint's policy observes and acts in; None in older checkpoints, which do not say."""
    return _spaces_in(checkpoint, "policy_spaces")


def env_terms(checkpoint: Checkpoint, policy: tuple[Any, Any], num_frames: int) -> EnvSpaces:
    """The env's spaces and those of the policy trained on it, between which `Policy.predict` translates.

    `policy` are the policy's observation and action space. Older checkpoints do not record the env's spaces: for these
    they are the policy's own, of one frame.
    """
    try:
        seen = unstacked_space(policy[0], num_frames) if num_frames > 1 else policy[0]
        theirs = _spaces_in(checkpoint, "env_spaces") or (policy_space(seen), policy[1])
        adapted = (adapted_observation_space("env", theirs[0]), adapted_action_space("env", theirs[1]))
    except (ValueError, WorldError) as error:
        raise CheckpointError(f"'{checkpoint.path}' does not say what its env observes: {error}") from error
    for own, converted, expected in zip(theirs, adapted, (policy_space(seen), policy[1]), strict=True):
        if repr(expected) not in (repr(own), repr(converted)) or expected not in (own, converted):
            raise CheckpointError(f"'{checkpoint.path}' is of an env with {own}, and its policy is for {expected}")
    return EnvSpaces(*theirs, seen, policy[1], num_frames)


def _spaces_in(checkpoint: Checkpoint, entry: str) -> tuple[Any, Any] | None:
    """The observation and action space under a key of the metadata; None where they are not recorded."""
    saved = checkpoint.metadata.get(entry)
    if saved is None:
        return None
    try:
        observation_space, action_space = map(space_from_data, saved)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"'{checkpoint.path}' does not say what its policy observes: {error}") from error
    return observation_space, action_space


# --- the checkpoint that a user means


def find_checkpoint(text: str | Path, runs_dir: Path) -> Checkpoint:
    """The checkpoint a user named: its folder, a run's folder, or a run's name in `runs_dir`."""
    parent = os.path.basename(os.path.dirname(text))  # os.path: a name may be too long for a file
    if not os.path.exists(text) and parent not in ("checkpoints", "opponents"):
        return load_checkpoint(find_run(str(text), runs_dir))
    return load_checkpoint(Path(text))


def run_of(checkpoint: Checkpoint) -> Path:
    """The folder of the run that a checkpoint belongs to; its own where it lies in none."""
    path = checkpoint.path.resolve()  # the user may have a link to it
    if path.parent.name in ("checkpoints", "opponents"):
        return path.parents[1]
    return path.parents[2] if path.parents[1].name == "opponents" else path


def check_network_is_given(checkpoint: Checkpoint, network: nn.Module | None) -> None:
    """Refuse a checkpoint of a user's own network if `network` is None."""
    needed = checkpoint.metadata["network"]
    if needed != DEFAULT_NETWORK and network is None:
        raise CheckpointError(
            f"'{checkpoint.path}' was trained with a network of its own, {needed}; load it from Python and give it "
            f"again: network={needed.rpartition('.')[2]}(...)"
        )
