"""Checkpoints within a run: when one is due, whether it is the best so far, and how it is written meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from scramjet.errors import ScramjetError
from scramjet.runtime.checkpoints import Background
from scramjet.telemetry.progress import PhaseClock
from scramjet.training.display.interface import Display
from scramjet.training.evaluation.results import Best, Evaluation, is_new_best
from scramjet.training.parallel.agreement import failing_together
from scramjet.training.persistence.state import checkpoint_of
from scramjet.training.session import Session


class Saver:
    """Saves a run's checkpoints: every so many updates, at a new best, and at the end.

    Their contents are copied at once and written on a thread while training goes on. One that cannot be written is told
    to the user, and the next one tried when it is due; the last one of a run must be written.
    """

    def __init__(self, session: Session, display: Display, clock: PhaseClock) -> None:
        """`clock` knows how long the run has trained, which a checkpoint records."""
        self._session, self._display, self._clock = session, display, clock
        self._writing = Background[str]()
        self._best_before: Best | None = None  # the one that the newest best replaced

    def save_if_due(self, update: int, evaluation: Evaluation | None, *, is_last: bool) -> None:
        """Save the session as it is after `update`, if that is due; returns once the last checkpoint is written."""
        session, step = self._session, self._session.step_after(update)
        every, is_first = session.config.checkpoint.every, session.ranks.is_first
        is_due = is_last or (every > 0 and update % every == 0)
        is_best = is_first and self._choose_best(step, evaluation, is_due=is_due)
        self._tell(self._writing.finished())
        if is_due or self._all_save(evaluation, is_best=is_best):
            elapsed = self._clock.elapsed
            save = checkpoint_of(session, update=update, step=step, elapsed_seconds=elapsed, is_best=is_best)
            if is_first:
                self._tell(self._writing.start(lambda: self._written(save, is_best=is_best, is_last=is_last)))
        if is_last:
            with failing_together(session.ranks):
                self._tell(self._writing.wait())

    def _all_save(self, evaluation: Evaluation | None, *, is_best: bool) -> bool:
        """Whether rank 0 found a new best in the evaluation, which all ranks then save together."""
        if evaluation is None:
            return False
        return self._session.ranks.from_first(b"+" if is_best else b"-") == b"+"

    def _tell(self, texts: list[str]) -> None:
        """Show how earlier saves went, before a later one may raise."""
        for text in texts:
            self._display.event(text)

    def _choose_best(self, step: int, evaluation: Evaluation | None, *, is_due: bool) -> bool:
        """Whether the policy now is the best so far, which the session then remembers.

        It is judged by the evaluation of this update; in a run that never evaluates by its last hundred episodes, when
        a checkpoint is due. In games for several returns do not tell strength: with a pool of opponents it is judged by
        its rating, else by its games against random moves and its first self.
        """
        session, progress = self._session, self._session.progress
        if session.league is not None:
            strength = session.league.strength if is_due or evaluation is not None else None
            return strength is not None and self._is_new_best(strength, step, f"rating {strength.mean_return:.0f}")
        if session.strength is not None:
            won = session.strength.latest if session.strength.measured_at == step else None
            text = "" if won is None else f"win rate {won.random:.2f} vs random, {won.first:.2f} vs its first self"
            return won is not None and self._is_new_best(won.as_best, step, text)
        by_episodes = session.config.eval.every == 0 and is_due and progress.is_settled
        judged = evaluation or (progress if by_episodes else None)
        if judged is None:
            return False
        candidate = Best(judged.mean_return, judged.lower_bound)
        return self._is_new_best(candidate, step, f"mean return {candidate.mean_text}")

    def _is_new_best(self, candidate: Best, step: int, text: str) -> bool:
        """Whether this is better than the best so far, which the session then remembers; `text` is for the message."""
        session = self._session
        self._tell(self._writing.wait())  # the best before counts only if it could be written
        before = session.best
        if not is_new_best(candidate, before):
            return False
        self._best_before, session.best = before, candidate
        why = ""
        if before is not None and candidate.mean_return < before.mean_return:  # the last best may have had luck
            why = f" (exceeds {candidate.bound_text} with 95 % confidence, {before.bound_text} before)"
        self._display.event(f"new best: {text} at step {step:,}{why}")
        return True

    def _written(self, save: Callable[[], Path], *, is_best: bool, is_last: bool) -> str:
        """Write a checkpoint, on the thread, and say how it went; one that could not be written is not the best."""
        session = self._session
        try:
            path = save()
            session.saved.append(path)
            return f"saved {path.name}"
        except ScramjetError as error:
            if is_last:
                raise
            if is_best:
                session.best = self._best_before  # no checkpoint holds the new one
            return f"not saved: {error} (training goes on, and the next checkpoint is tried when it is due)"

    def __enter__(self) -> Saver:
        self._writing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writing.__exit__(kind, error, trace)
