"""What the training loop exchanges with other ranks in each update."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from scramjet.engine.pool import Episodes
from scramjet.errors import TrainingError
from scramjet.training.parallel.reports import Report, merged_episodes, merged_metrics
from scramjet.training.persistence.optimizer_state import optimizer_tensors
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.session import Session

DIGEST_EVERY = 32
"""Updates between two comparisons of the ranks' weights; the first is after the first update of a process."""


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
