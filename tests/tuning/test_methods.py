"""Methods propose, pause and promote as their papers say, repeat the best with fresh seeds, and survive a stop."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from scramjet.errors import ConfigError, RunError
from scramjet.tuning.methods.interface import Method
from scramjet.tuning.methods.searches import RepeatedSeeds, best_trials, repeats, rungs, seed_of
from scramjet.tuning.results import read_results, result_of, trial_results
from scramjet.tuning.storage import Assignment, Outcome
from scramjet.tuning.study import Study
from tests.helpers.written_trials import (
    WritingServer,
    finish_trial,
    run_written,
    write_scored_run,
    write_study,
    written_study,
)

SPACE = {"gamma": "0.5..0.99"}


def peak(settings: dict[str, Any], step: int) -> float:
    """Best at gamma 0.8, and higher with every step."""
    return step / 1000 - (settings["gamma"] - 0.8) ** 2


def test_tpe_proposes_what_optunas_own_loop_proposes_with_the_same_seeds(tmp_path):
    with written_study(tmp_path / "tpe", SPACE, trials=13) as study:
        trials = run_written(study, WritingServer(peak))
        distributions, best = study.space.distributions(), result_of(study).best
        seeds = [seed_of(study, number) for number in range(13)]
    plain = optuna.create_study(direction="maximize")
    for seed in seeds:
        plain.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        asked = plain.ask(distributions)
        plain.tell(asked, peak(asked.params, 1000))
    assert [trial.settings for trial in trials] == [trial.params for trial in plain.trials]
    assert best is not None
    assert (best.number, best.score) == (plain.best_trial.number, plain.best_value)


@pytest.mark.rest
def test_a_study_that_dies_proposes_what_it_would_have(tmp_path):
    with written_study(tmp_path / "whole", SPACE, trials=11) as study:
        whole = [(trial.state, trial.settings, trial.score) for trial in run_written(study, WritingServer(peak))]
    server = WritingServer(peak)
    server.most_requests = 4
    with written_study(tmp_path / "dying", SPACE, trials=11) as study, pytest.raises(RunError, match="dies here"):
        run_written(study, server)
    server.most_requests = None
    with Study.open(tmp_path / "dying") as study:
        assert [(trial.state, trial.settings, trial.score) for trial in run_written(study, server)] == whole


def test_halving_trains_each_trial_to_the_first_rung_and_a_third_of_them_on(tmp_path):
    server = WritingServer(peak)
    with written_study(tmp_path / "study", SPACE, total_timesteps=900, method="halving", trials=9) as study:
        assert rungs(study) == [100, 300]
        trials = run_written(study, server)
    stops = [request["stop_step"] for request in server.requests]
    assert stops.count(100) == 9
    # A trial goes on as soon as it is among the best third so far: at least 3 of 9, maybe one that was beaten later.
    promoted = {request["run_name"] for request in server.requests if request["stop_step"] == 300}
    assert 3 <= len(promoted) < 9
    best = sorted(range(9), key=lambda number: abs(trials[number].settings["gamma"] - 0.8))
    assert {f"trial-{number:04}" for number in best[:3]} <= promoted
    finished = [trial for trial in trials if trial.state == "complete"]
    assert finished[0].number in best[:3]
    assert {trial.state for trial in trials} == {"complete", "pruned"}
    assert sum(trial.steps for trial in trials) < 9 * 900 / 2
    with written_study(tmp_path / "few", SPACE, total_timesteps=900, method="halving", trials=2) as study:
        trials = run_written(study, WritingServer(peak))
    best, other = sorted(trials, key=lambda trial: abs(trial.settings["gamma"] - 0.8))
    assert (best.state, best.steps, other.state) == ("complete", 900, "pruned"), "the best of few goes to its end"


def test_pareto_keeps_the_trials_that_no_other_beats_in_score_and_cost(tmp_path):
    server = WritingServer(lambda settings, step: float(settings["num_envs"]))  # dearer is better
    with written_study(tmp_path / "study", {"num_envs": [8, 16]}, method="pareto", cost="steps", trials=6) as study:
        run_written(study, server)
        result = result_of(study)
        assert result.front[0].score == max(values.values[0] for values in study.optuna_study.best_trials)
    assert result.best is not None
    assert (result.best.score, result.best.cost) == (16.0, 1000.0)


def test_no_trial_begins_that_would_go_beyond_the_steps(tmp_path):
    with written_study(tmp_path / "study", SPACE, method="random", steps=3500) as study:
        assert [trial.steps for trial in run_written(study, WritingServer(peak))] == [1000, 1000, 1000]


def test_a_study_whose_objective_never_appears_ends_after_three_trials_or_with_its_last(tmp_path):
    with written_study(tmp_path / "study", SPACE, objective="metric:stat/win", trials=9) as study:
        with pytest.raises(ConfigError, match=r"first 3 trials .* 'stat/win' is not among the run's metrics"):
            run_written(study, WritingServer(peak))
        assert [trial.state for trial in trial_results(study)] == ["failed"] * 3
    study = written_study(tmp_path / "few", SPACE, trials=2, method="random", objective="metric:stat/nothing")
    with study, pytest.raises(ConfigError, match=r"trials? of .* failed, and the study ends: .*stat/nothing"):
        run_written(study, WritingServer(peak))


@pytest.mark.rest
def test_settings_that_do_not_fit_each_other_fail_their_trial_alone(tmp_path):
    space = {"minibatch_size": [64, 300], "num_envs": [8, 16], "num_steps": [16]}  # 300 are more than a rollout has
    with written_study(tmp_path / "study", space, method="random", trials=6) as study:
        trials = run_written(study, WritingServer(lambda settings, step: 0.0))
    assert {trial.state for trial in trials} == {"complete", "failed"}
    for trial in trials:
        assert (trial.state == "failed") == (trial.settings["minibatch_size"] == 300)
        assert ("minibatch_size=300" in trial.reason) == (trial.state == "failed")


class NothingMore(Method):
    """A search whose budget is spent."""

    def next(self, study: Study, free_slots: int) -> list[Assignment]:
        return []


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """Two seeds for the best two of three trials, that have run."""
    with write_study(tmp_path / "s", best=2, seeds=2) as made:
        for score, rate in ((100.0, 0.001), (300.0, 0.002), (200.0, 0.003)):
            finish_trial(made, score, {"learning_rate": rate, "num_envs": 64})
        yield made


def play(study: Study, method: Method, assignment: Assignment, score: float) -> None:
    """End an assignment as its process would, with a run of this score."""
    write_scored_run(study, assignment.run_name, score)
    method.told(study, Outcome(assignment, "finished", 4000, 2.0))


def test_the_best_settings_get_seeds_that_the_search_has_not_used(study):
    found = [(each.run_name, study.config_of(each).seed) for each in repeats(study)]
    assert study.base.seed == 1
    assert found == [("trial-0001-s2", 2), ("trial-0002-s2", 2), ("trial-0001-s3", 3), ("trial-0002-s3", 3)]
    assert study.config_of(repeats(study)[0]).ppo.learning_rate == 0.002


def test_equal_settings_are_repeated_once_and_infinite_scores_never(tmp_path):
    with write_study(tmp_path / "s", objective="time_to:475") as study:
        for score in (5.0, 6.0, math.inf):
            finish_trial(study, score, {"learning_rate": 0.001, "num_envs": 64})
        assert [trial.number for trial in best_trials(study, 3)] == [0]


def test_slots_are_kept_and_results_count_after_the_study_was_opened_again(study):
    method = RepeatedSeeds(NothingMore())
    first = method.next(study, 3)
    assert len(first) == 3
    assert method.next(study, 0) == []
    assert [each.run_name for each in method.next(study, 3)] == ["trial-0002-s3"]
    play(study, method, first[0], 150.0)
    study.close()
    with Study.open(study.path) as study:  # the others were killed with it
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


def test_a_seed_that_fails_is_told_and_not_tried_for_ever(study):
    method = RepeatedSeeds(NothingMore())
    for assignment in method.next(study, 4):
        method.told(study, Outcome(assignment, "failed", reason="out of memory"))
    assert method.next(study, 4) == []
    repeat = read_results(study.path).trials[1].repeats[0]
    assert (repeat.reason, repeat.score) == ("out of memory", None)


def test_seeds_wait_until_the_last_trial_of_the_search_has_ended(study):
    running = study.add({"learning_rate": 0.004, "num_envs": 64})
    study.begin(Assignment(running, "trial-0003", study.parameters(running)))
    assert RepeatedSeeds(NothingMore()).next(study, 2) == []


def test_a_search_by_the_hour_ends_in_time_for_the_repeated_seeds(tmp_path):
    class Endless(Method):
        def next(self, study: Study, free_slots: int) -> list[Assignment]:
            return [Assignment(9, "trial-0009", {})]

    with write_study(tmp_path / "s", best=1, seeds=2, hours=1.0) as study:  # two at a time: one round of repeats
        finish_trial(study, 1.0, {"learning_rate": 0.001, "num_envs": 64}, seconds=600.0)
        for spent, run in ((2300.0, "trial-0009"), (2500.0, "trial-0000-s2")):
            study.note_seconds(spent)
            assert RepeatedSeeds(Endless()).next(study, 1)[0].run_name == run
