"""Population-based training: generations of ordinary runs, whose worst go on as forks of the best."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scramjet.errors import ConfigError
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.training.config.files import load_config
from scramjet.training.config.keywords import with_keywords
from scramjet.tuning.population.generations import generations, stops
from scramjet.tuning.population.schedules import found_settings
from scramjet.tuning.report.write import write_report
from scramjet.tuning.settings import StudySettings
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


def test_each_generation_replaces_the_worst_member_by_a_fork_of_the_best(whole: Study) -> None:
    trials, told = whole.trials(), generations(whole)
    assert stops(whole) == [256, 512, 768]
    assert [len(members) for members in told] == [3, 3, 3]
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


def test_the_winner_is_a_preset_with_the_schedules_of_its_lineage(whole: Study) -> None:
    report = write_report(whole.path)
    winner = report.results.winner()
    assert winner is not None
    scores = {trial.number: trial.value for trial in whole.trials() if trial.state.name == "COMPLETE"}
    assert winner.number == max(scores, key=scores.__getitem__)
    preset = load_config(report.path / "winner.toml")
    expected = with_keywords(whole.base, found_settings(whole, winner.number))
    assert preset.ppo == expected.ppo
    assert preset.total_timesteps == 768


def test_a_population_trains_as_many_steps_as_its_members_and_counts_no_step_twice(whole: Study) -> None:
    assert whole.spent_steps() == 3 * 768


def test_a_study_that_was_killed_ends_with_the_same_runs_bit_for_bit(whole: Study, tmp_path: Path) -> None:
    with small_study(tmp_path / "killed", "cartpole", SPACE, SETTINGS) as study, pytest.raises(Killed):
        run_here(study, killed_after=4)  # a fork has trained, and the study has not heard of it
    with Study.open(tmp_path / "killed") as study:
        run_here(study)
        assert digests(study) == digests(whole)
        assert [trial.params for trial in study.trials()] == [trial.params for trial in whole.trials()]
        assert [trial.values for trial in study.trials()] == [trial.values for trial in whole.trials()]


def test_a_member_whose_run_fails_goes_on_as_a_fork_of_another(tmp_path: Path) -> None:
    settings = StudySettings(method="pbt", population=2, interval=256)
    with small_study(tmp_path / "study", "cartpole", SPACE, settings, total_timesteps=512) as study:
        run_here(study, failing=["trial-0001"])
        states = [trial.state.name for trial in study.trials()]
        assert states == ["COMPLETE", "FAIL", "COMPLETE"]
        lineage = RunFiles(study.runs_path / "trial-0002-g1").lineage()
    assert lineage is not None
    assert lineage.parent_run == "trial-0000"


def test_members_of_self_play_are_ranked_by_matches_against_each_other(tmp_path: Path) -> None:
    settings = StudySettings(method="pbt", population=3, interval=256, objective="rating")
    with small_study(
        tmp_path / "study", "tic_tac_toe", {"learning_rate": "log:1e-3..1e-1"}, settings, total_timesteps=512
    ) as study:
        run_here(study)
        trials, (first, second) = study.trials(), generations(study)
    for number, members in enumerate((first, second)):
        games = [json.loads(line) for line in (study.path / "matches" / f"generation-{number}.jsonl").open()]
        assert len(games[0]["entrants"]) == 4  # the members and the random player
        assert {each["name"].partition("@")[0] for each in games[0]["entrants"]} == {
            "random",
            *(member.run for member in members),
        }
    ratings = {member.trial: trials[member.trial].intermediate_values[256] for member in first}
    new = next(member for member in second if member.parent is not None)
    assert first[new.number].trial == min(ratings, key=ratings.__getitem__)
    assert new.parent == max(ratings, key=ratings.__getitem__)
    assert all(trials[member.trial].state.name == "COMPLETE" for member in second)


@pytest.mark.parametrize(
    ("space", "settings", "message"),
    [
        ({"policy.hidden": "choice:8,16"}, {}, "policy.hidden"),
        (SPACE, {"interval": 500}, "no second generation"),
        (SPACE, {"objective": "steps_to:100"}, "of whole runs"),
        (SPACE, {"trials": 10}, "--trials"),
        (SPACE, {"objective": "rating"}, "played by one"),
    ],
)
def test_a_study_without_a_second_generation_is_refused(
    tmp_path: Path, space: dict, settings: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        small_study(tmp_path / "study", "cartpole", space, StudySettings(method="pbt", **settings))
    assert not (tmp_path / "study").exists()
