"""`scramjet check` and `scramjet bench` of Gymnasium envs."""

import json

import gymnasium
import numpy as np
import pytest

from scramjet import cli
from scramjet.adapters import pool_choices as pool_choices_module
from scramjet.adapters.factories import register_factory
from scramjet.adapters.gymnasium.check import check_gym_world
from scramjet.adapters.pool_choices import pool_choices
from scramjet.adapters.registry import ForeignWorld
from scramjet.errors import ConfigError


class Coin(gymnasium.Env):
    """Shows a fair coin; ends after five steps."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observed(), {}

    def step(self, action):
        self.steps += 1
        return self.observed(), self.reward(), self.steps == 5, False, {}

    def observed(self):
        return np.array([self.np_random.integers(2)], np.float32)

    def reward(self):
        return 0.0


class Forgetful(Coin):
    """Draws late rewards from a generator that no seed reaches, past what Gymnasium's checker plays."""

    random = np.random.default_rng()

    def reward(self):
        return float(self.random.random()) if self.steps == 4 else 0.0


class Outside(Coin):
    """Observes more than its space says, now and then."""

    def observed(self):
        return np.array([1.5 if self.steps == 4 else 0.0], np.float32)


class Infinite(Coin):
    """Pays without end."""

    def reward(self):
        return float("inf") if self.steps == 3 else 0.0


class OldStyle(Coin):
    """Resets as Gym did before 0.26."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class Secretive(Coin):
    """Keeps an object that is no plain data."""

    def __init__(self):
        self.secret = [object()]


def findings(env, **options):
    world = ForeignWorld(register_factory(env))
    return list(check_gym_world(world, steps=60, **options))


def test_an_env_without_mistakes_is_told_its_seeds_saving_speed_and_pool(capsys):
    assert cli.run(["check", "gym:CartPole-v1", "--steps", "60", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["is_fine"] is True
    texts = [finding["text"] for finding in told["findings"]]
    assert texts[0].startswith("gym:CartPole-v1: observes Box(")
    assert "Gymnasium's checker finds no" in texts[1]
    assert "60 steps with random actions: observations inside their space" in texts[2]
    assert texts[3] == "the same seed gives the same episodes"
    assert texts[4] == "its state can be saved: a resumed run goes on bit for bit"
    assert "steps/s in one process; 8 envs train best in this process alone" in texts[5]


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (OldStyle, "Gymnasium's checker: AssertionError"),
        (Outside, "outside its observation_space"),
        (Infinite, "gave a reward of inf at step 3; rewards must be finite"),
        (Forgetful, "played twice with one seed and the same actions differs at step"),
    ],
)
def test_what_is_wrong_with_an_env_is_named_and_ends_the_check(env, words):
    *fine, last = findings(env)
    assert all(finding.is_fine for finding in fine)
    assert not last.is_fine
    assert words in last.text


def test_warnings_of_the_checker_come_in_one_list_and_a_state_that_cannot_be_saved_is_no_mistake():
    class Boundless(Secretive):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    found = findings(Boundless)
    assert all(finding.is_fine for finding in found)
    (listed,) = (finding.text for finding in found if "and warns:" in finding.text)
    assert listed.count("\n         - ") >= 2  # no least and no greatest value
    assert "\x1b" not in listed
    (saving,) = (finding.text for finding in found if finding.text.startswith("its state"))
    assert saving.startswith("its state cannot be saved (Boundless.secret is a object)")


def test_worlds_that_make_many_envs_at_once_are_measured_and_not_checked():
    with pytest.raises(ConfigError, match=r"vec:CartPole-v1 makes many at once; `scramjet bench vec:CartPole-v1`"):
        cli.run(["check", "vec:CartPole-v1"])
    labels = [label for label, _ in pool_choices(ForeignWorld("vec:CartPole-v1"), 2)]
    assert labels == ["its own"]


def test_bench_compares_the_pools_that_can_step_an_env(capsys, monkeypatch):
    monkeypatch.setattr(pool_choices_module, "available_cores", lambda: 1)
    assert cli.run(["bench", "gym:CartPole-v1", "--num-envs", "2", "--seconds", "0.05", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["pool"] for row in rows] == ["serial", "1 worker", "auto: serial"]
    assert all(row["env_steps_per_second_best"] >= row["env_steps_per_second"] > 0 for row in rows)
