"""Population-based training (Jaderberg et al. 2017): members train side by side, the worst go on as copies of the best.

A generation is trained by every member before the next one begins. Exploiting is a fork, with its lineage; exploring
changes the fork's settings; all other members resume their runs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.arena.network_players import Temperature
from scramjet.arena.tournaments.preparation import (
    RANDOM,
    TournamentSettings,
    entrants_of_run,
    gather_entrants,
    prepare_tournament,
)
from scramjet.arena.tournaments.ratings import rating_table
from scramjet.errors import ConfigError, RunError
from scramjet.reports.metrics_table import MetricsTable
from scramjet.runtime.checkpoints import checkpoints_of
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.methods.generations import (
    MAX_GENERATIONS,
    USUAL_GENERATIONS,
    Member,
    generations,
    has_ended,
    stops,
)
from scramjet.tuning.methods.interface import Method
from scramjet.tuning.objective import Objective
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import Space
from scramjet.tuning.storage import ASSIGNMENT, REACHED, SECONDS, Assignment, Outcome
from scramjet.tuning.study import Study, is_running

_KEPT_BY_FORKS = ("algorithm", "frame_stack", "policy.")
"""Settings with which the weights of another member could not be taken over."""


class Population(Method):
    """Trains members for one interval after the other, and replaces the worst by changed copies of the best."""

    repeats_seeds = False  # what a member learned with is a schedule of settings

    @classmethod
    def prepared(cls, base: RunConfig, space: Space, settings: StudySettings) -> tuple[RunConfig, StudySettings]:
        """The study with an interval of whole updates and an evaluation at the end of each; refuses what cannot be."""
        for dimension in space.dimensions:
            if dimension.name.startswith(_KEPT_BY_FORKS):
                raise ConfigError(
                    f"the space varies {dimension.name}, and members of a population copy each other's weights; give "
                    f"it one value, or use --method tpe"
                )
        for name in ("trials", "steps"):
            if getattr(settings, name) is not None:
                raise ConfigError(
                    f"--{name} is no budget of a population: it trains --population members for --total-timesteps; "
                    f"leave it out"
                )
        kind = Objective.parse(settings, base).kind
        if kind in ("time_to", "steps_to"):
            raise ConfigError(
                f"objective={settings.objective!r} is of whole runs, and members copy each other; use area"
            )
        if kind == "rating":
            for_several(base)
        updates, interval = _interval(base, settings)
        evaluation = replace(base.eval, every=0 if kind == "rating" else updates)
        return replace(base, eval=evaluation), replace(settings, interval=interval)

    def next(self, study: Study, free_slots: int) -> list[Assignment]:
        """Stretches of the present generation: forks first, then members that go on."""
        if study.objective.kind == "rating":
            _rate(study)
        present = generations(study)
        _prune_replaced(study, present)
        chosen: list[Assignment] = []
        for member in _waiting(study, present) if free_slots else ():
            if member.trial == len(study.trials()):
                study.add(member.parameters)
            chosen.append(_assignment(study, member, len(present) - 1))
            study.begin(chosen[-1])
            if len(chosen) == free_slots:
                break
        return chosen

    def first(self, study: Study, trial: int) -> Assignment:
        """The first stretch of a trial that was added and never begun."""
        present = generations(study)
        return _assignment(study, next(member for member in present[-1] if member.trial == trial), len(present) - 1)

    def told(self, study: Study, outcome: Outcome) -> None:
        """Keep the score of a member at the end of its generation; its steps are its own, without its parent's."""
        outcome = replace(outcome, step=max(0, outcome.step - _first_step(study, outcome.assignment)))
        stop = outcome.assignment.stop_step
        if outcome.ending == "failed":
            super().told(study, outcome)
        elif study.objective.kind == "rating":
            study.note(outcome.assignment.trial, REACHED, stop or study.base.total_timesteps)
            study.pause(outcome.assignment.trial, outcome, None)
        elif outcome.ending == "paused":
            assert stop is not None
            score = _score(study, study.runs_path / outcome.assignment.run_name, stop)
            study.pause(outcome.assignment.trial, outcome, math.nan if score is None else score)
        else:
            super().told(study, outcome)


def _interval(base: RunConfig, settings: StudySettings) -> tuple[int, int]:
    """The updates and the env steps of a generation."""
    total, batch = base.total_timesteps, resolve(base).batch_size
    wanted = settings.interval or max(1, total // USUAL_GENERATIONS)
    updates = -(-wanted // batch)
    if 2 * updates * batch > total:
        raise ConfigError(
            f"interval={wanted:,}, in updates of {batch:,} steps, leaves no second generation in "
            f"total_timesteps={total:,}; shorten it, or train for --total-timesteps {20 * updates * batch}"
        )
    if total > MAX_GENERATIONS * updates * batch:
        raise ConfigError(
            f"interval={wanted:,} divides total_timesteps={total:,} into more than {MAX_GENERATIONS:,} generations; "
            f"give --interval {total // USUAL_GENERATIONS}, or leave it out"
        )
    return updates, updates * batch


def _waiting(study: Study, present: list[list[Member]]) -> Iterator[Member]:
    """The members whose stretch of the present generation may begin now, in this order.

    A member goes on only when all forks have a checkpoint of their own: it may delete the one they begin from.
    """
    trials, members = study.trials(), present[-1]
    stop = stops(study)[len(present) - 1]
    for member in members:
        if member.trial >= len(trials):
            yield member
    forks = [member for member in members if member.parent is not None and member.born == len(present) - 1]
    if not all(checkpoints_of(study.runs_path / fork.run) or _has_failed(trials, fork) for fork in forks):
        return
    for member in members:
        trial = trials[member.trial] if member.trial < len(trials) else None
        is_idle = trial is not None and is_running(trial) and trial.user_attrs.get(ASSIGNMENT) is None
        if is_idle and not has_ended(trials, member, stop) and trial.user_attrs.get(REACHED) != stop:  # type: ignore[union-attr]
            yield member


def _has_failed(trials: list[Any], member: Member) -> bool:
    return member.trial < len(trials) and trials[member.trial].state.name == "FAIL"


def _assignment(study: Study, member: Member, generation: int) -> Assignment:
    """A member's stretch of a generation: a new run, a fork, or the run it has."""
    stop = stops(study)[generation]
    fork = None
    if member.parent is not None and member.born == generation:
        parent = next(each for each in generations(study)[generation - 1] if each.trial == member.parent)
        newest = checkpoints_of(study.runs_path / parent.run)
        if not newest:
            raise RunError(f"{study.runs_path / parent.run} has no checkpoint to fork; put back a copy of the study")
        fork = str(newest[-1].relative_to(study.path))
    return Assignment(
        member.trial,
        member.run,
        member.parameters,
        stop if stop < study.base.total_timesteps else None,
        fork,
        study.base.seed + member.number,
    )


def _first_step(study: Study, assignment: Assignment) -> int:
    """The step at which a run began: that of the checkpoint that it is a fork of."""
    member = _member_of(study, assignment.trial)
    return 0 if member is None or member.born == 0 else stops(study)[member.born - 1]


def _member_of(study: Study, trial: int) -> Member | None:
    return next((each for members in generations(study) for each in members if each.trial == trial), None)


def _score(study: Study, run: Path, stop: int) -> float | None:
    """The score of a member at the end of a generation: of its last evaluation, or by the area of this generation."""
    table = MetricsTable(run / "metrics.jsonl")
    table.update()
    curve = table.curve(study.objective.metric)
    if study.objective.kind != "area":
        return float(curve.y[-1]) if len(curve.y) else None
    ends = [0, *stops(study)]
    recent = curve.y[curve.x > ends[ends.index(stop) - 1]]
    return float(recent.mean()) if len(recent) else None


def _prune_replaced(study: Study, present: list[list[Member]]) -> None:
    """Note of members that were replaced that they do not go on."""
    alive = {member.trial for member in present[-1]}
    for trial in study.trials():
        if is_running(trial) and trial.number not in alive and trial.user_attrs.get(ASSIGNMENT) is None:
            study.prune(trial.number)


def _rate(study: Study) -> None:
    """Have the members of a generation play each other as soon as all have reached its end, and keep their ratings."""
    present, trials = generations(study), study.trials()
    stop, members = stops(study)[len(present) - 1], present[-1]
    if any(member.trial >= len(trials) for member in members):
        return
    rated = [member for member in members if is_running(trials[member.trial])]
    if not rated or not all(_waits_at(trials[member.trial], stop) for member in rated):
        return
    ratings = ratings_by_matches(
        [study.runs_path / member.run for member in rated],
        study.base,
        study.path / "matches" / f"generation-{len(present) - 1}.jsonl",
        seed=study.settings.study_seed,
    )
    for member, rating in zip(rated, ratings, strict=True):
        trial = trials[member.trial]
        stretch = Assignment(member.trial, member.run, member.parameters, stop)
        outcome = Outcome(stretch, "paused", study.steps_of(trial), float(trial.user_attrs.get(SECONDS, 0.0)))
        if stop == study.base.total_timesteps:
            study.complete(member.trial, [rating], outcome)
        else:
            study.pause(member.trial, outcome, rating)


def _waits_at(trial: Any, stop: int) -> bool:
    return bool(trial.user_attrs.get(REACHED) == stop and trial.user_attrs.get(ASSIGNMENT) is None)


# --- ratings by matches: everybody plays everybody, and the random player, which is rated 1000


GAMES = 100
"""Games of each pair."""


def ratings_by_matches(runs: Sequence[Path], base: RunConfig, out: Path, *, seed: int) -> list[float]:
    """The ratings of the newest checkpoints of these runs, after they have played each other and the random player.

    `base` has the world; games are kept in the file `out`, from which an interrupted tournament goes on. Networks draw
    their moves as in training.
    """
    entrants = gather_entrants([str(run) for run in runs], [RANDOM], runs_dir=runs[0].parent, limit_per_run=1)
    tournament = prepare_tournament(
        entrants, _world(base), TournamentSettings(Temperature(1.0), games=GAMES, seed=seed), out=out
    )
    with contextlib.closing(tournament.pool), contextlib.closing(tournament.log):
        tournament.play(max_steps=base.eval.max_steps)
        table = rating_table(entrants, tournament.log.batches, seed=seed)
    by_digest = {row.entrant.digest: row.rating for row in table.rows}
    return [by_digest[entrants_of_run(run, 1)[0].digest] for run in runs]


def _world(base: RunConfig) -> RunConfig:
    """The config with the world for several players, from the start of the game, on the CPU."""
    config, _ = for_several(resolve(replace(base, device="cpu", env_device="cpu", precision="auto")))
    return from_the_start(config, ())[0]
