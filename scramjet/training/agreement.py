"""What the ranks of a run exchange: at first settings, rules and weights, then in each update episodes and messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from scramjet.distributed.exchange import (
    Report,
    merged_episodes,
    merged_metrics,
    packed,
    packed_tensors,
    unpacked,
    unpacked_tensors,
)
from scramjet.distributed.ranks import PrivateRun
from scramjet.engine.pool import Episodes
from scramjet.errors import ConfigError, TrainingError, shortened
from scramjet.runs.weights import optimizer_tensors
from scramjet.runs.world_files import placeless_name
from scramjet.runtime.ranks import Ranks
from scramjet.training.config import files as config_files
from scramjet.training.config.changes import changes
from scramjet.training.config.run_config import RunConfig
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.session import Session

_OF_EACH_RANK = ("num_threads", "num_workers", "time_limit", "tags", "track", "track_project", "video_every")
"""Settings that may differ between ranks: those of a machine, and those that only rank 0 obeys."""
DIGEST_EVERY = 32
"""Updates between two comparisons of the ranks' weights; the first is after the first update of a process."""


# --- before the first update: the same settings, world and weights, or none trains


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


# --- in each update


class Together:
    """The ranks of a run as its training loop sees them; alone, a process exchanges nothing."""

    def __init__(self, session: Session) -> None:
        self._session, self._ranks = session, session.ranks

    def collect(self, gives_up: Callable[[], bool] | None) -> Rollout | None:
        """The next rollout of this rank; None on all ranks if one of them was asked to stop while it waited for envs.

        Only collecting beside actors can be asked to stop.
        """
        session = self._session
        rollout = session.collector.collect(gives_up)
        if self._ranks.is_alone or session.config.mode == "sync":
            return rollout
        return rollout if all(self._ranks.gather(b"" if rollout is None else b"+")) else None

    def report(self, update: int) -> tuple[Episodes, dict[str, float]]:
        """The episodes of all ranks that ended in this update, and the metrics of collecting them.

        Now and then the weights of all ranks are compared: raises a TrainingError where they differ.
        """
        session = self._session
        episodes, metrics = session.collector.episodes(), session.collector.metrics()
        if self._ranks.is_alone:
            return episodes, metrics
        is_compared = (update - session.first_update) % DIGEST_EVERY == 1
        news = [] if self._ranks.is_first else _taken(session)
        own = Report(episodes, metrics, news, digest_of(session) if is_compared else "")
        reports = [Report.from_bytes(data) for data in self._ranks.gather(own.to_bytes())]
        self._check_digests(update, [each.digest for each in reports])
        if self._ranks.is_first:
            session.news.extend(f"rank {i}: {text}" for i, each in enumerate(reports) for text in each.news)
        merged = merged_episodes([each.episodes for each in reports], session.pool.num_envs)
        return merged, merged_metrics([each.metrics for each in reports])

    def _check_digests(self, update: int, digests: list[str]) -> None:
        others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if not others:
            return
        session = self._session
        names = f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others))}"
        error = TrainingError(
            f"after update {update:,} (step {session.step_after(update):,}) {names} had other weights than rank 0: "
            f"ranks must compute alike, on machines of one kind; go back with --resume {session.run.shared_path}"
        )
        error.is_told = not self._ranks.is_first
        raise error


def digest_of(session: Session) -> str:
    """A hash of the weights, the normalizers and the optimizer's state."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in {
        **session.policy.state_dict(),
        **optimizer_tensors(session.policy, session.learner.optimizer),
    }.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _taken(session: Session) -> list[str]:
    """The messages for the user that were not told yet; other threads may add to them."""
    news: list[str] = []
    while session.news:
        news.append(session.news.popleft())
    return news
