"""Population-based training: generations of ordinary runs, whose worst go on as forks of the best."""

import json
import math
from collections import Counter

import numpy as np
import pytest

from scramjet.errors import ConfigError
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.training.config.files import load_config
from scramjet.training.config.keywords import with_keywords
from scramjet.tuning.methods.generations import (
    explored,
    first_settings,
    found_settings,
    generations,
    moved,
    next_generation,
    stops,
)
from scramjet.tuning.report import write_report
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import parse_dimension
from scramjet.tuning.study import Study
from tests.helpers.studies import Killed, run_here, small_study

SPACE = {"learning_rate": "log:1e-4..1e-1", "gamma": "0.9..0.999"}
SETTINGS = StudySettings(method="pbt", population=3, interval=256, parallel=2)


def digests(study: Study) -> dict[str, str]:
    """The newest checkpoint of every run, by a hash of its tensors."""
    return {path.name: load_checkpoint(path).state_digest for path in sorted(study.runs_path.iterdir())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of three members and three generations that was never stopped."""
    study = small_study(tmp_path_factory.mktemp("studies") / "whole", "cartpole", SPACE, SETTINGS)
    with study:
        run_here(study)
    return study


def test_each_generation_replaces_the_worst_member_by_a_fork_of_the_best(whole):
    trials, told = whole.trials(), generations(whole)
    assert stops(whole) == [256, 512, 768]
    assert [len(members) for members in told] == [3, 3, 3]
    assert whole.spent_steps() == 3 * 768, "no step is counted twice"
    for number, stop in enumerate(stops(whole)[:-1]):
        scores = {each.trial: trials[each.trial].intermediate_values[stop] for each in told[number]}
        worst, best = min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)
        new = next(member for member in told[number + 1] if member.trial not in scores)
        assert told[number][new.number].trial == worst
        assert trials[worst].state.name == "PRUNED"
        assert trials[new.trial].params == new.parameters
        lineage = RunFiles(whole.runs_path / new.run).lineage()
        assert lineage is not None
        assert (lineage.parent_run.removesuffix("-g1"), lineage.parent_step) == (f"trial-{best:04}", stop)
        assert new.run == f"trial-{new.trial:04}-g{number + 1}"
        assert {"learning_rate", "gamma"} <= set(lineage.changed)
    finished = {trial.number for trial in trials if trial.state.name == "COMPLETE"}
    assert finished == {member.trial for member in told[-1]}


def test_the_winner_is_a_preset_with_the_schedules_of_its_lineage(whole):
    report = write_report(whole.path)
    winner = report.results.winner()
    assert winner is not None
    scores = {trial.number: trial.value for trial in whole.trials() if trial.state.name == "COMPLETE"}
    assert winner.number == max(scores, key=scores.__getitem__)
    preset = load_config(report.path / "winner.toml")
    expected = with_keywords(whole.base, found_settings(whole, winner.number))
    assert preset.ppo == expected.ppo
    assert preset.total_timesteps == 768


@pytest.mark.rest
def test_a_study_that_was_killed_ends_with_the_same_runs_bit_for_bit(whole, tmp_path):
    with small_study(tmp_path / "killed", "cartpole", SPACE, SETTINGS) as study, pytest.raises(Killed):
        run_here(study, killed_after=4)  # a fork has trained, and the study has not heard of it
    with Study.open(tmp_path / "killed") as study:
        run_here(study)
        assert digests(study) == digests(whole)
        ours, theirs = study.trials(), whole.trials()
        assert [(trial.params, trial.values) for trial in ours] == [(trial.params, trial.values) for trial in theirs]


def test_a_member_whose_run_fails_goes_on_as_a_fork_of_another(tmp_path):
    settings = StudySettings(method="pbt", population=2, interval=256)
    with small_study(tmp_path / "study", "cartpole", SPACE, settings, total_timesteps=512) as study:
        run_here(study, failing=["trial-0001"])
        states = [trial.state.name for trial in study.trials()]
        assert states == ["COMPLETE", "FAIL", "COMPLETE"]
        lineage = RunFiles(study.runs_path / "trial-0002-g1").lineage()
    assert lineage is not None
    assert lineage.parent_run == "trial-0000"


@pytest.mark.rest
def test_members_of_self_play_are_ranked_by_matches_against_each_other(tmp_path):
    settings = StudySettings(method="pbt", population=3, interval=256, objective="rating")
    space = {"learning_rate": "log:1e-3..1e-1"}
    with small_study(tmp_path / "study", "tic_tac_toe", space, settings, total_timesteps=512) as study:
        run_here(study)
        trials, (first, second) = study.trials(), generations(study)
    for number, members in enumerate((first, second)):
        games = [json.loads(line) for line in (study.path / "matches" / f"generation-{number}.jsonl").open()]
        assert len(games[0]["entrants"]) == 4  # the members and the random player
        names = {each["name"].partition("@")[0] for each in games[0]["entrants"]}
        assert names == {"random", *(member.run for member in members)}
    ratings = {member.trial: trials[member.trial].intermediate_values[256] for member in first}
    new = next(member for member in second if member.parent is not None)
    assert first[new.number].trial == min(ratings, key=ratings.__getitem__)
    assert new.parent == max(ratings, key=ratings.__getitem__)
    assert all(trials[member.trial].state.name == "COMPLETE" for member in second)


def test_a_study_without_a_second_generation_is_refused(tmp_path):
    for space, settings, message in (
        ({"policy.hidden": "choice:8,16"}, {}, "policy.hidden"),
        (SPACE, {"interval": 500}, "no second generation"),
        (SPACE, {"objective": "steps_to:100"}, "of whole runs"),
        (SPACE, {"trials": 10}, "--trials"),
        (SPACE, {"objective": "rating"}, "played by one"),
    ):
        with pytest.raises(ConfigError, match=message):
            small_study(tmp_path / "study", "cartpole", space, StudySettings(method="pbt", **settings))
        assert not (tmp_path / "study").exists(), message


RATE = parse_dimension("rate", "log:1e-4..1e-1")


def test_the_worst_quarter_goes_on_from_the_best_quarter_and_nobody_else_changes():
    scores = [5.0, 1.0, 8.0, 4.0, 7.0, 2.0, 6.0, 3.0]
    settings = [{"rate": 0.001 * (1 + member)} for member in range(8)]
    successors = next_generation(scores, settings, [RATE], seed=3, generation=2)
    assert {member for member, each in enumerate(successors) if each.parent != member} == {1, 5}
    assert {successors[1].parent, successors[5].parent} <= {2, 4}
    assert [each.settings for member, each in enumerate(successors) if member not in (1, 5)] == [
        each for member, each in enumerate(settings) if member not in (1, 5)
    ]


def test_members_without_a_score_are_replaced_by_one_that_has_a_score():
    successors = next_generation([None, math.nan, 1.0, None], [{}] * 4, [], seed=0, generation=1)
    assert [each.parent for each in successors] == [2, 2, 2, 2]
    assert [each.parent for each in next_generation([None, None], [{}] * 2, [], seed=0, generation=1)] == [0, 1]


def test_every_number_moves_by_its_factor_or_step_within_its_range():
    generator = np.random.default_rng(0)
    written = {"gamma": "0.9..1.0", "epochs": "int:1..10", "size": "choice:64,128,256"}
    space = [RATE, *(parse_dimension(name, text) for name, text in written.items())]
    settings = {"rate": 0.01, "gamma": 0.95, "epochs": 2, "size": 128}
    seen = [explored(settings, space, generator, resample=0.0) for _ in range(100)]
    assert {round(each["rate"], 9) for each in seen} == {0.008, 0.012}
    assert {round(each["gamma"], 9) for each in seen} == {0.94, 0.96}
    assert {each["epochs"] for each in seen} == {1, 3}
    assert {each["size"] for each in seen} == {64, 256}
    assert moved(RATE, 0.099, up=True) == 0.1
    assert moved(RATE, 1.1e-4, up=False) == 1e-4
    assert moved(space[3], 256, up=True) == 256


def test_drawn_anew_a_setting_comes_from_the_whole_domain_as_often_as_asked_for():
    generator = np.random.default_rng(0)
    drawn = [explored({"rate": 0.01}, [RATE], generator, resample=0.25)["rate"] for _ in range(4000)]
    anew = [rate for rate in drawn if round(rate, 9) not in (0.008, 0.012)]
    assert len(anew) / len(drawn) == pytest.approx(0.25, abs=0.03)  # four standard errors
    decades = Counter(math.floor(math.log10(rate)) for rate in anew)
    assert all(decades[decade] / len(anew) == pytest.approx(1 / 3, abs=0.06) for decade in (-4, -3, -2))


def test_first_settings_have_one_member_in_each_equal_part_of_each_domain():
    members = first_settings([RATE, parse_dimension("size", "choice:a,b")], size=6, seed=9)
    parts = sorted(int(6 * math.log10(each["rate"] / 1e-4) / 3) for each in members)
    assert parts == list(range(6))
    assert Counter(each["size"] for each in members) == {"a": 3, "b": 3}


def test_decisions_are_the_same_again_and_others_with_another_seed_generation_or_member():
    scores, settings = [float(member) for member in range(16)], [{"rate": 0.01}] * 16

    def rates(seed: int, generation: int) -> list[object]:
        after = next_generation(scores, settings, [RATE], seed=seed, generation=generation, resample=1.0)
        return [each.settings["rate"] for each in after]

    assert rates(1, 2) == rates(1, 2)
    assert len({*rates(1, 2)[:4], *rates(1, 3)[:4], *rates(2, 2)[:4]}) == 12


def test_the_learning_rate_follows_the_known_optimum_of_a_noisy_quadratic():
    """SGD on x²/2 with gradient noise of variance 1: E[x²] becomes (1 - rate)² E[x²] + rate².

    The best rate of each step is E[x²] / (E[x²] + 1), with which 1 / E[x²] grows by 1 a step (Robbins and Monro 1951;
    the gain of Kalman 1960): from 1, the rate after t steps is 1 / (t + 2).
    """
    steps, size, space = 200, 16, [parse_dimension("rate", "log:1e-3..1")]

    def stepped(variance, rate):
        return (1 - rate) ** 2 * variance + rate**2

    settings = first_settings(space, size=size, seed=5)
    variances, followed = [1.0] * size, []
    for step in range(1, steps + 1):
        variances = [stepped(*pair) for pair in zip(variances, (each["rate"] for each in settings), strict=True)]
        followed.append(settings[int(np.argmin(variances))]["rate"] * (step + 1))
        successors = next_generation([-each for each in variances], settings, space, seed=5, generation=step)
        variances, settings = [variances[each.parent] for each in successors], [each.settings for each in successors]
    assert 0.8 < min(followed[20:]) < max(followed[20:]) < 1.25  # the best member's rate over the optimum
    constants = np.ones(200)
    for _ in range(steps):
        constants = stepped(constants, np.geomspace(1e-3, 1.0, 200))
    assert min(variances) < 1.1 / (steps + 1)
    assert min(constants) > 1.8 / (steps + 1)
