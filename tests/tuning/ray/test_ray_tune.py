"""Trials handed to Ray Tune: the same trials, in the same folder, with the same results."""

import pytest

from scramjet.errors import ConfigError
from scramjet.tuning.api import go_on
from scramjet.tuning.display import StudyDisplay
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.trials import TrialServer
from tests.helpers.studies import run_here, small_study

pytestmark = pytest.mark.rest
pytest.importorskip("ray.tune")
SPACE = {"learning_rate": "log:1e-4..1e-1"}


def test_trials_by_ray_tune_are_those_of_this_machine(tmp_path):
    settings = StudySettings(method="random", trials=2, parallel=2, seeds=0)
    with small_study(tmp_path / "here", "cartpole", SPACE, settings, total_timesteps=256) as study:
        run_here(study)
        expected = [(trial.params, trial.values) for trial in study.trials()]
    with small_study(tmp_path / "ray", "cartpole", SPACE, settings, total_timesteps=256) as study:
        result = go_on(study, StudyDisplay(), TrialServer(), ray="local")
        assert [(trial.params, trial.values) for trial in study.trials()] == expected
    assert all(trial.run_path is not None and (trial.run_path / "checkpoints").is_dir() for trial in result.trials)
    assert list((tmp_path / "ray" / "ray").glob("tune-*"))  # what Ray Tune keeps of its experiments


@pytest.mark.timeout(60)
def test_a_cluster_that_is_gone_is_named(tmp_path):
    settings = StudySettings(method="random", trials=1)
    gone = pytest.raises(ConfigError, match=r"the Ray cluster at --ray '127.0.0.1:9' cannot be used")
    with small_study(tmp_path / "study", "cartpole", SPACE, settings) as study, gone:
        go_on(study, StudyDisplay(), TrialServer(), ray="127.0.0.1:9")
