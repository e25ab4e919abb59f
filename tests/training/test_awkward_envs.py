"""Envs that exit, do not close, change the working directory, draw or talk are trained all the same."""

import os
import sys
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest

import scramjet
from scramjet.errors import WorldError
from scramjet.policies import PolicyConfig
from scramjet.training.config.run_config import EvaluationConfig
from tests.helpers.run_files import lines_of, train
from tests.helpers.staircase import Staircase, settings

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


class Departing(Staircase):
    """Ends its process, or tries to, wherever it is told to."""

    def __init__(self, where="", how=SystemExit):
        super().__init__()
        self.where, self.how = where, how
        self.leave("made")

    def leave(self, where):
        if self.where == where:
            raise self.how(0)

    def reset(self, *, seed=None, options=None):
        self.leave("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.leave("step")
        return super().step(action)

    def close(self):
        self.leave("close")


@pytest.mark.parametrize("where", ["made", "reset", "step"])
def test_an_env_that_leaves_does_not_end_the_run_as_if_it_were_done(where, tmp_path):
    with pytest.raises(WorldError, match="SystemExit"):
        train(settings("cartpole"), tmp_path, env=lambda: Departing(where))


@pytest.mark.parametrize("how", [SystemExit, ValueError])
def test_an_env_that_does_not_close_trains(how, tmp_path):
    assert train(settings("cartpole"), tmp_path, env=lambda: Departing("close", how)).step == 512


def test_an_env_that_changes_the_working_directory_does_not_take_the_run_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    class Wandering(Staircase):
        def __init__(self):
            super().__init__()
            os.chdir(tmp_path / "elsewhere")

    result = train(settings("cartpole", num_workers=0), Path("here"), env=Wandering)
    assert result.run_path.parent == tmp_path / "here"
    assert (tmp_path / "here" / result.run_path.name / "metrics.jsonl").exists()
    assert list((tmp_path / "here" / result.run_path.name / "checkpoints").glob("step_*"))
    assert not list((tmp_path / "elsewhere").iterdir())


class Leaving(Staircase):
    """Ends the process in the middle of an episode, as a script would."""

    def step(self, action):
        if self.at == 2:
            raise SystemExit(0)
        return super().step(action)


def test_an_env_that_leaves_is_an_error_and_not_the_end(tmp_path):
    with pytest.raises(WorldError, match="SystemExit"):
        train(settings("cartpole", num_workers=0), tmp_path, env=Leaving)


class Chatty(Staircase):
    """Says strange things in its info."""

    def step(self, action):
        *result, _ = super().step(action)
        return *result, {3: 2, "huge": 10**400, "flat": np.array(2.5), "odd": 1j, "fine": np.int8(4)}


def test_what_is_no_number_in_info_is_left_out(tmp_path):
    told = lines_of(train(settings("cartpole", num_workers=0), tmp_path, env=Chatty).run_path)
    stats = {name: line[name] for line in told for name in line if name.startswith("stat/")}
    assert stats == {"stat/flat": 2.5, "stat/fine": 4.0}


def test_an_env_that_draws_every_step_is_trained_with_one_warning(tmp_path, capsys):
    class Drawn(Staircase):
        render_mode = "human"

    config = settings("cartpole", num_workers=0, eval=EvaluationConfig(every=1, episodes=1, final_episodes=1))
    scramjet.train(config, env=Drawn, runs_dir=tmp_path, display="plain")
    assert capsys.readouterr().out.count("has render_mode='human' and draws every step in a window") == 1


class Told(Staircase):
    """Says in words what to do, which no policy reads."""

    observation_space = gymnasium.spaces.Dict(
        {"view": gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8), "mission": gymnasium.spaces.Text(40)}
    )

    def _seen(self):
        return {"view": np.full((7, 7, 3), self.at, np.uint8), "mission": "climb"}

    def reset(self, *, seed=None, options=None):
        return self._seen(), super().reset(seed=seed)[1]

    def step(self, action):
        return self._seen(), *super().step(action)[1:]


def test_text_in_observations_is_left_out_and_told_and_small_images_get_the_network_of_boards(tmp_path, capsys):
    config = settings("cartpole", total_timesteps=128, num_workers=0, policy=PolicyConfig(hidden=(8,)))
    result = scramjet.train(config, env=Told, runs_dir=tmp_path, display="plain")
    assert "mission: text, which the policy does not see" in capsys.readouterr().out
    assert [type(each).__name__ for each in result.policy.network.actor_encoder.entries.values()] == ["GridCNN"]
