"""Before the first update: all ranks have the same settings, world and weights, or none of them trains."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from scramjet.errors import ConfigError, shortened
from scramjet.runtime.ranks.interface import Ranks
from scramjet.training.config import files as config_files
from scramjet.training.config.changes import changes
from scramjet.training.config.run_config import RunConfig
from scramjet.training.parallel.folder import PrivateRun
from scramjet.training.parallel.parcels import packed, packed_tensors, unpacked, unpacked_tensors
from scramjet.training.session import Session
from scramjet.training.worlds.world_files import placeless_name

_OF_EACH_RANK = ("num_threads", "num_workers", "time_limit", "tags", "track", "track_project", "video_every")
"""Settings that may differ between ranks: those of a machine, and those that only rank 0 obeys."""


def for_ranks(config: RunConfig, ranks: Ranks) -> RunConfig:
    """The config with as many processes as there are ranks; refuses one that asks for others which were not started."""
    number = config.num_processes
    if ranks.is_alone and number > 1:
        raise ConfigError(
            f"num_processes={number}, and this process is alone; start the run with `scramjet train --num-processes "
            f"{number}`, or a script by torchrun --nproc-per-node {number}"
        )
    config = replace(config, num_processes=ranks.size)
    return config if ranks.is_first else replace(config, track=(), video_every=0)


def agree(session: Session) -> None:
    """Refuse ranks whose settings or rules differ, then give all ranks the weights of rank 0 and its folder's path."""
    ranks = session.ranks
    if ranks.is_alone:
        return
    facts = [json.loads(each) for each in ranks.gather(json.dumps(_facts(session)).encode())]
    for rank, theirs in enumerate(facts):
        for key, (first, other) in changes(facts[0], theirs).items():
            raise ConfigError(
                f"rank {rank} has {key} = {shortened(other)}, and rank 0 has {shortened(first)}; start all ranks with "
                f"the same command, on the same files"
            )
    policy = session.policy
    path = str(session.run.path).encode()
    parts = unpacked(ranks.from_first(packed({"path": path, "weights": packed_tensors(policy.state_dict())})))
    if isinstance(session.run, PrivateRun):
        session.run.stands_for(Path(parts["path"].decode()))
        policy.load_state_dict(unpacked_tensors(parts["weights"]))
    ranks.began(session.run.shared_path)


def _facts(session: Session) -> dict[str, Any]:
    """What must be the same on all ranks, by names that a user knows."""
    data = config_files.to_dict(session.config)
    settings = {key: value for key, value in data.items() if key not in _OF_EACH_RANK}
    settings["env"] = {**data["env"], "name": placeless_name(session.config.env)}
    shapes = {name: list(tensor.shape) for name, tensor in session.policy.state_dict().items()}
    return {**settings, "the world's rules": session.rules, "the network": shapes}
