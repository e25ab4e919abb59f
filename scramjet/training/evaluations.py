"""Evaluations within a run: when they are due, what ends them early, and what the user and the metrics hear of them."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import Any

from scramjet.distributed.ranks import shared
from scramjet.runs.results import Evaluation
from scramjet.training.components import make_evaluator
from scramjet.training.display.interface import Display
from scramjet.training.evaluator import Evaluator, ProgressLine, cuts_text
from scramjet.training.seeds import evaluation_episodes, strength_episodes
from scramjet.training.session import Session
from scramjet.training.stopping import SHORT_EVALUATION, GraceTime, Stopping
from scramjet.training.strength import Strength


class RunEvaluations:
    """Evaluates a run's policy every so many updates, and over more episodes after the last update."""

    def __init__(self, session: Session, display: Display, stopping: Stopping) -> None:
        self._session, self._display, self._stopping = session, display, stopping
        self._has_told_of_cuts = False

    def evaluate_if_due(self, update: int) -> Evaluation | None:
        """Evaluate if an evaluation is due after `update`; None if not, or if a signal or the time limit ended it.

        Rank 0 evaluates, and all ranks return its result.
        """
        session, settings = self._session, self._session.config.eval
        is_final = update == session.num_updates and settings.final_episodes > 0
        if not is_final and not (settings.every and update % settings.every == 0):
            return None
        return shared(session.ranks, lambda: self._evaluate(update, is_final=is_final), _to_bytes, _from_bytes)

    def _evaluate(self, update: int, *, is_final: bool) -> Evaluation | None:
        """Evaluate now; `is_final`: over the episodes after the last update."""
        session, step = self._session, self._session.step_after(update)
        with contextlib.ExitStack() as afterwards:
            evaluator = self._final_evaluator(afterwards) if is_final else session.evaluator
            # One within a run may finish if it is short, so that the run stopped in it resumes as if never stopped.
            seconds = 0.0 if is_final else SHORT_EVALUATION
            gives_up = GraceTime(self._stopping.is_signalled, self._stopping.deadline, seconds=seconds)
            report = afterwards.enter_context(contextlib.closing(ProgressLine(self._display.progress)))
            evaluation = evaluator.evaluate_unless(
                gives_up, session.policy, evaluation_episodes(session.config.seed, step), report
            )
            if evaluation is not None and session.strength is not None:
                self._measure(session.strength, step, gives_up, is_final=is_final)
        if evaluation is None:
            self._display.event(
                f"the evaluation at step {step:,} was ended before its last episode, and counts for nothing"
            )
        elif evaluation.cut_episodes and (is_final or not self._has_told_of_cuts):
            self._has_told_of_cuts = True
            self._display.event(cuts_text(evaluation, evaluator.max_steps))
        return evaluation

    def _measure(self, strength: Strength, step: int, gives_up: GraceTime, *, is_final: bool) -> None:
        """Measure how strong the policy is in a game for several, if enough was trained since the last time."""
        session, settings = self._session, self._session.config.eval
        games = strength.pool.num_players * (settings.final_episodes if is_final else settings.episodes)
        if is_final or (session.progress.is_settled and strength.is_due(step, games, session.progress.mean_length)):
            seeds = strength_episodes(session.config.seed, step)
            strength.measure(session.policy, seeds, step, games, gives_up, is_final=is_final)

    def metrics(self, evaluation: Evaluation | None) -> dict[str, Any]:
        """The metrics of an update: those of its evaluation, if it had one, and of games for several the win rates."""
        strength = self._session.strength
        return evaluation_metrics(evaluation) | ({} if strength is None else strength.metrics())

    def _final_evaluator(self, afterwards: contextlib.ExitStack) -> Evaluator:
        """An evaluator for the episodes after the last update, which `afterwards` closes."""
        session, episodes = self._session, self._session.config.eval.final_episodes
        self._display.event(f"evaluating over {episodes:,} episodes")
        evaluator = make_evaluator(session.config, episodes=episodes, beside=session.pool)
        evaluator.pool.tell(session.news.append)
        afterwards.callback(evaluator.pool.close)
        return evaluator


def _to_bytes(evaluation: Evaluation | None) -> bytes:
    """An evaluation as data for other ranks."""
    return json.dumps(None if evaluation is None else asdict(evaluation)).encode()


def _from_bytes(data: bytes) -> Evaluation | None:
    fields = json.loads(data)
    return None if fields is None else Evaluation(**fields)


def evaluation_metrics(evaluation: Evaluation | None) -> dict[str, Any]:
    """An evaluation as metrics, by keys such as "eval/mean_return" and "eval/stat/NAME"; empty without one."""
    if evaluation is None:
        return {}
    plain = evaluation.as_dict()
    stats = {f"eval/stat/{name}": value for name, value in plain.pop("stats").items()}
    return {f"eval/{name}": value for name, value in plain.items()} | stats
