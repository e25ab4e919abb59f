"""Fresh seeds for the best settings: which are run, when, and that results survive a stop."""

from __future__ import annotations

import math
from pathlib import Path

from scramjet.tuning.assignments import Assignment, Outcome
from scramjet.tuning.methods.interface import Method
from scramjet.tuning.methods.repeats import RepeatedSeeds, best_trials, repeats
from scramjet.tuning.report.reading import read_results
from scramjet.tuning.study import Study
from tests.helpers.written_studies import finish_trial, write_scored_run, write_study


class NothingMore(Method):
    """A search whose budget is spent."""

    def next(self, study: Study, free_slots: int) -> list[Assignment]:
        return []


def three_trials(study: Study) -> None:
    for score, rate in ((100.0, 0.001), (300.0, 0.002), (200.0, 0.003)):
        finish_trial(study, score, {"learning_rate": rate, "num_envs": 64})


def play(study: Study, method: Method, assignment: Assignment, score: float) -> None:
    """End an assignment as its process would, with a run of this score."""
    write_scored_run(study, assignment.run_name, score)
    method.told(study, Outcome(assignment, "finished", 4000, 2.0))


def test_the_best_settings_get_seeds_that_the_search_has_not_used(tmp_path: Path) -> None:
    with write_study(tmp_path / "s", best=2, seeds=2) as study:
        three_trials(study)
        found = [(each.run_name, study.config_of(each).seed) for each in repeats(study)]
        assert study.base.seed == 1
        assert found == [
            ("trial-0001-s2", 2), ("trial-0002-s2", 2), ("trial-0001-s3", 3), ("trial-0002-s3", 3),
        ]  # fmt: skip
        assert study.config_of(repeats(study)[0]).ppo.learning_rate == 0.002


def test_equal_settings_are_repeated_once_and_infinite_scores_never(tmp_path: Path) -> None:
    with write_study(tmp_path / "s", objective="time_to:475") as study:
        for score in (5.0, 6.0, math.inf):
            finish_trial(study, score, {"learning_rate": 0.001, "num_envs": 64})
        assert [trial.number for trial in best_trials(study, 3)] == [0]


def test_slots_are_kept_and_results_count_after_the_study_was_opened_again(tmp_path: Path) -> None:
    with write_study(tmp_path / "s", best=2, seeds=2) as study:
        three_trials(study)
        method = RepeatedSeeds(NothingMore())
        first = method.next(study, 3)
        assert len(first) == 3
        assert method.next(study, 0) == []
        assert [each.run_name for each in method.next(study, 3)] == ["trial-0002-s3"]
        play(study, method, first[0], 150.0)
    with Study.open(tmp_path / "s") as study:  # the others were killed with it
        method = RepeatedSeeds(NothingMore())
        again = method.next(study, 9)
        assert [each.run_name for each in again] == ["trial-0002-s2", "trial-0001-s3", "trial-0002-s3"]
        for assignment, score in zip(again, (250.0, 160.0, 240.0), strict=True):
            play(study, method, assignment, score)
        assert method.next(study, 9) == []
        winner = read_results(study.path).winner()
        assert winner is not None
        assert winner.repeated is not None
        assert (winner.number, winner.score, winner.repeated.mean) == (2, 200.0, 245.0)


def test_a_seed_that_fails_is_told_and_not_tried_for_ever(tmp_path: Path) -> None:
    with write_study(tmp_path / "s", best=1, seeds=1) as study:
        three_trials(study)
        method = RepeatedSeeds(NothingMore())
        (assignment,) = method.next(study, 1)
        method.told(study, Outcome(assignment, "failed", reason="out of memory"))
        assert method.next(study, 1) == []
        (repeat,) = read_results(study.path).trials[1].repeats
        assert (repeat.reason, repeat.score) == ("out of memory", None)


def test_seeds_wait_until_the_last_trial_of_the_search_has_ended(tmp_path: Path) -> None:
    with write_study(tmp_path / "s", best=1, seeds=1) as study:
        three_trials(study)
        running = study.add({"learning_rate": 0.004, "num_envs": 64})
        study.begin(Assignment(running, "trial-0003", study.parameters(running)))
        assert RepeatedSeeds(NothingMore()).next(study, 2) == []


def test_a_search_by_the_hour_ends_in_time_for_the_repeated_seeds(tmp_path: Path) -> None:
    class Endless(Method):
        def next(self, study: Study, free_slots: int) -> list[Assignment]:
            return [Assignment(9, "trial-0009", {})]

    with write_study(tmp_path / "s", best=1, seeds=2, hours=1.0) as study:  # two at a time: one round of repeats
        finish_trial(study, 1.0, {"learning_rate": 0.001, "num_envs": 64}, seconds=600.0)
        study.note_seconds(2300.0)
        assert RepeatedSeeds(Endless()).next(study, 1)[0].run_name == "trial-0009"
        study.note_seconds(2500.0)
        assert RepeatedSeeds(Endless()).next(study, 1)[0].run_name == "trial-0000-s2"
