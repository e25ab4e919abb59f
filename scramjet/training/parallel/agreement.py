"""How the ranks of a run act as one: same settings and weights at first, errors raised on all, reports each update."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from scramjet.engine.pool import Episodes
from scramjet.errors import ConfigError, RankError, ScramjetError, TrainingError, shortened
from scramjet.runtime.files import is_folder, remove_tree
from scramjet.runtime.ranks import Ranks
from scramjet.runtime.runs import Run
from scramjet.training.config import files as config_files
from scramjet.training.config.changes import changes
from scramjet.training.config.run_config import RunConfig
from scramjet.training.parallel.exchange import (
    Report,
    merged_episodes,
    merged_metrics,
    packed,
    packed_tensors,
    unpacked,
    unpacked_tensors,
)
from scramjet.training.persistence.weights import optimizer_tensors
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.session import Session
from scramjet.training.worlds.world_files import placeless_name

_OF_EACH_RANK = ("num_threads", "num_workers", "time_limit", "tags", "track", "track_project", "video_every")
"""Settings that may differ between ranks: those of a machine, and those that only rank 0 obeys."""
DIGEST_EVERY = 32
"""Updates between two comparisons of the ranks' weights; the first is after the first update of a process."""
_PREFIX = "scramjet-rank-"
_NAME = re.compile(rf"{_PREFIX}([0-9]{{1,9}})-.*")
Value = TypeVar("Value")
_DONE, _FAILED = b"+", b"-"


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


# --- one rank's error ends all, with one message that names the rank


@contextmanager
def failing_together(ranks: Ranks) -> Iterator[None]:
    """Leave the body when all ranks have left it; if it raised on one of them, raise on all. It calls no other rank."""
    if ranks.is_alone:
        yield
        return
    problem: Exception | None = None
    try:
        yield
    except Exception as error:
        problem = error
    told = ranks.gather(_DONE if problem is None else _text(problem))
    if problem is not None:
        raise _as_told(problem, ranks)
    failed = next((i for i, text in enumerate(told) if text != _DONE), None)
    if failed is not None:
        raise _as_told(RankError(f"rank {failed}: {_read(told[failed])}"), ranks)


def shared(
    ranks: Ranks, make: Callable[[], Value], encode: Callable[[Value], bytes], decode: Callable[[bytes], Value]
) -> Value:
    """What `make` returns on rank 0, on all ranks: it is only called there. What it raises there is raised on all."""
    if ranks.is_alone:
        return make()
    if not ranks.is_first:
        data = ranks.from_first(b"")
        if data[:1] == _FAILED:
            raise _as_told(RankError(f"rank 0: {_read(data)}"), ranks)
        return decode(data[1:])
    try:
        value = make()
    except Exception as error:
        ranks.from_first(_text(error))
        raise
    ranks.from_first(_DONE + encode(value))
    return value


def _as_told(error: Exception, ranks: Ranks) -> Exception:
    """The error, which rank 0 shows to the user, other ranks only where it is a bug of ours."""
    if isinstance(error, ScramjetError) and not ranks.is_first:
        error.is_told = True
    return error


def _text(error: Exception) -> bytes:
    text = str(error) if isinstance(error, ScramjetError) else f"{type(error).__name__}: {error}"
    return _FAILED + text.encode(errors="backslashreplace")


def _read(data: bytes) -> str:
    return data[1:].decode(errors="replace")


# --- what the training loop exchanges in each update


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
    for name, tensor in {**session.policy.state_dict(), **optimizer_tensors(session.learner)}.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _taken(session: Session) -> list[str]:
    """The messages for the user that were not told yet; other threads may add to them."""
    news: list[str] = []
    while session.news:
        news.append(session.news.popleft())
    return news


# --- the folder of a rank that is not the first, which stands in for the run's where an object needs a path


class PrivateRun(Run):
    """A run whose folder is this process's own and is removed when it is released; rank 0 has the real one."""

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        super().__init__(Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")))
        self._shared_path = self.path

    @property
    def shared_path(self) -> Path:
        return self._shared_path

    def stands_for(self, path: Path) -> None:
        """Learn where rank 0 has the run's folder."""
        self._shared_path = path

    def release(self) -> None:
        super().release()
        remove_tree(self.path, self.path.parent)

    def discard(self) -> None:
        self.release()


def _remove_abandoned(folder: Path) -> None:
    """Remove the folders of this user's processes that were killed and could not do it themselves."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{_PREFIX}*"):
            name = _NAME.fullmatch(path.name)
            if name and is_folder(path) and path.lstat().st_uid == os.geteuid() and not _is_alive(int(name[1])):
                remove_tree(path, folder)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
