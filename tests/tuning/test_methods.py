"""Methods propose, pause and promote as their papers say, and a study that dies goes on as it would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scramjet.errors import ConfigError, RunError
from scramjet.tuning.methods.halving import rungs
from scramjet.tuning.methods.sampled import seed_of
from scramjet.tuning.results import result_of, trial_results
from scramjet.tuning.study import Study
from tests.helpers.written_trials import WritingServer, run_written, written_study

optuna = pytest.importorskip("optuna")

SPACE = {"gamma": "0.5..0.99"}


def peak(settings: dict[str, Any], step: int) -> float:
    """Best at gamma 0.8, and higher with every step."""
    return step / 1000 - (settings["gamma"] - 0.8) ** 2


def test_tpe_proposes_what_optunas_own_loop_proposes_with_the_same_seeds(tmp_path: Path) -> None:
    with written_study(tmp_path / "tpe", SPACE, trials=13) as study:
        run_written(study, WritingServer(peak))
        trials = trial_results(study)
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


def test_a_study_that_dies_proposes_what_it_would_have(tmp_path: Path) -> None:
    with written_study(tmp_path / "whole", SPACE, trials=12) as study:
        run_written(study, WritingServer(peak))
        whole = [(trial.state, trial.settings, trial.score) for trial in trial_results(study)]
    server = WritingServer(peak)
    study = written_study(tmp_path / "dying", SPACE, trials=12)
    for requests in (3, 11):
        server.most_requests = requests
        with study, pytest.raises(RunError, match="dies here"):
            run_written(study, server)
        study = Study.open(tmp_path / "dying")
    server.most_requests = None
    with study:
        run_written(study, server)
        assert [(trial.state, trial.settings, trial.score) for trial in trial_results(study)] == whole


def test_halving_trains_each_trial_to_the_first_rung_and_a_third_of_them_on(tmp_path: Path) -> None:
    server = WritingServer(peak)
    with written_study(tmp_path / "study", SPACE, total_timesteps=900, method="halving", trials=9) as study:
        assert rungs(study) == [100, 300]
        run_written(study, server)
        trials = trial_results(study)
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


def test_the_best_of_few_trials_is_trained_to_its_end(tmp_path: Path) -> None:
    with written_study(tmp_path / "study", SPACE, total_timesteps=900, method="halving", trials=2) as study:
        run_written(study, WritingServer(peak))
        trials = trial_results(study)
    best, other = sorted(trials, key=lambda trial: abs(trial.settings["gamma"] - 0.8))
    assert (best.state, best.steps, other.state) == ("complete", 900, "pruned")


def test_pareto_keeps_the_trials_that_no_other_beats_in_score_and_cost(tmp_path: Path) -> None:
    def dearer_is_better(settings: dict[str, Any], step: int) -> float:
        return float(settings["num_envs"])

    server = WritingServer(dearer_is_better)
    with written_study(tmp_path / "study", {"num_envs": [8, 16]}, method="pareto", cost="steps", trials=6) as study:
        run_written(study, server)
        result = result_of(study)
        assert [trial.number for trial in study.optuna_study.best_trials] != []
        assert result.front[0].score == max(values.values[0] for values in study.optuna_study.best_trials)
    assert result.best is not None
    assert (result.best.score, result.best.cost) == (16.0, 1000.0)


def test_no_trial_begins_that_would_go_beyond_the_steps(tmp_path: Path) -> None:
    with written_study(tmp_path / "study", SPACE, method="random", steps=3500) as study:
        run_written(study, WritingServer(peak))
        assert [trial.steps for trial in trial_results(study)] == [1000, 1000, 1000]


def test_a_study_whose_objective_never_appears_ends_after_three_trials(tmp_path: Path) -> None:
    with written_study(tmp_path / "study", SPACE, objective="metric:stat/win", trials=9) as study:
        with pytest.raises(ConfigError, match=r"first 3 trials .* 'stat/win' is not among the run's metrics"):
            run_written(study, WritingServer(peak))
        assert [trial.state for trial in trial_results(study)] == ["failed"] * 3


def test_settings_that_do_not_fit_each_other_fail_their_trial_alone(tmp_path: Path) -> None:
    space = {"minibatch_size": [64, 300], "num_envs": [8, 16], "num_steps": [16]}  # 300 are more than a rollout has
    with written_study(tmp_path / "study", space, method="random", trials=6) as study:
        run_written(study, WritingServer(lambda settings, step: 0.0))
        trials = trial_results(study)
    assert {trial.state for trial in trials} == {"complete", "failed"}
    for trial in trials:
        assert (trial.state == "failed") == (trial.settings["minibatch_size"] == 300)
        assert ("minibatch_size=300" in trial.reason) == (trial.state == "failed")


def test_a_study_of_which_no_trial_has_a_score_ends_with_the_reason(tmp_path: Path) -> None:
    study = written_study(tmp_path / "study", SPACE, trials=2, method="random", objective="metric:stat/nothing")
    with study, pytest.raises(ConfigError, match=r"trials? of .* failed, and the study ends: .*stat/nothing"):
        run_written(study, WritingServer(lambda settings, step: 1.0))
