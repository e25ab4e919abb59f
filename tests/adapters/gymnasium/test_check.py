"""`scramjet check` and `scramjet bench` of Gymnasium envs, and how they are drawn."""

import json
from typing import Any

import gymnasium
import numpy as np
import pytest

from scramjet import cli
from scramjet.adapters.factories import register_factory
from scramjet.adapters.gymnasium import rows, worker_pool
from scramjet.adapters.gymnasium.check import check_gym_world
from scramjet.adapters.gymnasium.rendering import RenderedPool
from scramjet.adapters.library import WorkerSettings
from scramjet.adapters.make import pool_choices
from scramjet.adapters.registry import ForeignWorld
from scramjet.errors import ConfigError, WorldError
from scramjet.runtime.terminal import in_blocks


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


def coin(**changed):
    return type("Coin", (Coin,), changed)


UNSEEDED = np.random.default_rng()
FORGETFUL = coin(reward=lambda self: UNSEEDED.random() if self.steps == 4 else 0.0)  # past what the checker plays
OUTSIDE = coin(observed=lambda self: np.array([1.5 if self.steps == 4 else 0.0], np.float32))
INFINITE = coin(reward=lambda self: float("inf") if self.steps == 3 else 0.0)
OLD_STYLE = coin(reset=lambda self, *, seed=None, options=None: Coin.reset(self, seed=seed)[0])  # as before Gym 0.26


class Boundless(Coin):
    """Its space has no ends, and it keeps an object that is no plain data."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self):
        self.secret = [object()]


@pytest.fixture(autouse=True)
def any_step_is_quick(monkeypatch):
    """Whatever a step of an env takes here, `auto` steps it in this process."""
    monkeypatch.setattr(worker_pool, "QUICK_SECONDS", float("inf"))
    monkeypatch.setattr(worker_pool, "SHARE_SECONDS", float("inf"))


def findings(env):
    return list(check_gym_world(ForeignWorld(register_factory(env)), steps=60))


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


def test_what_is_wrong_with_an_env_is_named_and_ends_the_check():
    for env, words in (
        (OLD_STYLE, "Gymnasium's checker: AssertionError"),
        (OUTSIDE, "outside its observation_space"),
        (INFINITE, "gave a reward of inf at step 3; rewards must be finite"),
        (FORGETFUL, "played twice with one seed and the same actions differs at step"),
    ):
        *fine, last = findings(env)
        assert all(finding.is_fine for finding in fine), words
        assert not last.is_fine, words
        assert words in last.text


def test_warnings_of_the_checker_come_in_one_list_and_a_state_that_cannot_be_saved_is_no_mistake():
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
    monkeypatch.setattr("scramjet.adapters.make.available_cores", lambda: 1)
    assert cli.run(["bench", "gym:CartPole-v1", "--num-envs", "2", "--seconds", "0.05", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["pool"] for row in rows] == ["serial", "1 worker", "auto: serial"]
    assert all(row["env_steps_per_second_best"] >= row["env_steps_per_second"] > 0 for row in rows)


class Counter(gymnasium.Env[Any, Any]):
    """Ends with the third step; draws its count."""

    metadata = {"render_modes": ["human", "ansi"]}
    observation_space = gymnasium.spaces.Box(0, 3, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.count = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.full(1, self.count, np.float32), 1.0, self.count == 3, False, {}

    def render(self) -> Any:
        assert self.render_mode == "ansi"
        return f"count {self.count}"


def make_counter(render_mode: str | None = None) -> Counter:
    return Counter(render_mode)


def make_blind_counter() -> Counter:
    return Counter()


def test_the_last_state_of_an_episode_is_drawn_before_the_first_of_the_next():
    pool = RenderedPool(ForeignWorld(register_factory(make_counter)), as_text=True)
    pool.reset(0)
    assert pool.drawings[0][-1] == "count 0"
    drawn = []
    for _ in range(4):
        pool.drawings[0].clear()
        pool.step(np.zeros(1, np.int64))
        drawn.append(list(pool.drawings[0]))
    assert drawn == [["count 1"], ["count 2"], ["count 3", "count 0"], ["count 1"]]


def test_pools_know_in_which_modes_their_envs_can_be_drawn_here(monkeypatch):
    world = ForeignWorld(register_factory(make_counter))
    assert world.pool(1, workers=WorkerSettings(num_workers=0)).render_modes == ("human", "ansi")
    own = type("Cart", (), {"metadata": {"render_modes": ["rgb_array"]}})
    for name, module, variable, package, modes in [
        ("drawn by pygame", "classic_control.cart", "", True, ("rgb_array",)),
        ("no pygame", "classic_control.cart", "", False, ()),
        ("no screen", "mujoco.ant", "", True, ()),
        ("no screen but EGL", "mujoco.ant", "egl", True, ("rgb_array",)),
    ]:
        own.__module__ = f"gymnasium.envs.{module}"
        for each in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
            monkeypatch.delenv(each, raising=False)
        monkeypatch.setenv("MUJOCO_GL", variable)
        monkeypatch.setattr(rows, "find_spec", lambda name, package=package: package or None)
        monkeypatch.setattr(rows.sys, "platform", "linux")
        assert rows.working_render_modes(own()) == modes, name


def test_an_env_that_cannot_be_drawn_is_refused_with_what_to_do():
    with pytest.raises(WorldError, match="argument render_mode=None"):
        RenderedPool(ForeignWorld(register_factory(make_blind_counter)), as_text=True)
    with pytest.raises(ConfigError, match=r"vec:CartPole-v1 cannot be drawn as text.*leave out --render"):
        RenderedPool(ForeignWorld("vec:CartPole-v1"), as_text=True)


@pytest.mark.rest
def test_gymnasiums_own_envs_give_text_where_they_have_it_and_pictures_else():
    pytest.importorskip("pygame", reason="Gymnasium draws with pygame")
    for world, shown in (("gym:FrozenLake-v1", "FHFH"), ("gym:CartPole-v1", "▀")):
        pool = RenderedPool(ForeignWorld(world), as_text=True)
        pool.reset(0)
        drawing = pool.drawings[0][-1]
        assert shown in (drawing if isinstance(drawing, str) else in_blocks(drawing, 80, 24)), world
