"""What `scramjet.train` returns shows itself in one line, and the commands it ends with work where they are typed."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import scramjet
from scramjet.envs import Box, Discrete, Env
from scramjet.envs.registry import _REGISTRY
from scramjet.training.display.interface import Summary
from scramjet.training.display.text import next_commands
from scramjet.training.start import name_of

TINY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 4,
    "total_timesteps": 16,
    "policy": {"hidden": [8]},
    "display": "plain",
}


class Coin(Env):
    """Guess."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"position": np.int32}
    max_episode_steps = 4

    def reset(self, s): ...

    def step(self, s, action):
        return float(action), True

    def observe(self, s, obs):
        obs[0] = 0.0


@pytest.fixture
def coin():
    scramjet.register("coin_of_a_test", Coin)
    yield "coin_of_a_test"
    del _REGISTRY["coin_of_a_test"]


def test_it_shows_the_run_and_what_it_reached_in_one_line(tmp_path: Path):
    off = {"every": 0, "final_episodes": 3}
    result = scramjet.train("bandit", runs_dir=tmp_path, eval=off, **{**TINY, "display": "quiet"})
    text = repr(result)
    assert text.startswith(f"TrainResult('{result.run_path}', step=16, return_100=")
    assert "evaluation=" in text
    assert "over 3 episodes" in text
    assert len(text.splitlines()) == 1
    assert len(text) < 200 + len(str(result.run_path))
    stopped = replace(result, stopped_by="callback", stop_reason="enough", evaluation=None, metrics={})
    assert repr(stopped) == f"TrainResult('{result.run_path}', step=16, stopped_by='callback' (enough))"


def test_a_world_registered_in_python_is_gone_on_with_from_python(tmp_path, coin, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scramjet.train(coin, **TINY)
    told = capsys.readouterr().out
    assert "scramjet eval" not in told
    assert "from Python after scramjet.register('coin_of_a_test', ...)" in told
    lines = [line.strip() for line in told.splitlines() if line.startswith("  scramjet.")]
    assert len(lines) == 2
    for line in lines:
        eval(line.replace("total_timesteps", "display='quiet', total_timesteps"))  # as printed


def test_an_env_registered_with_gymnasium_by_the_program_is_gone_on_with_from_python():
    gymnasium.register("OfATest-v0", "gymnasium.envs.classic_control:CartPoleEnv")
    assert all("scramjet.eval" not in command for command in commands("gym:OfATest-v0"))  # any program may make it
    gymnasium.registry["OfATest-v0"].entry_point = make_cartpole
    try:
        purpose, command = next_commands(summary_of("gym:OfATest-v0"))[0]
    finally:
        del gymnasium.registry["OfATest-v0"]
    assert purpose == "evaluate it, from Python after gymnasium.register('OfATest-v0', ...)"
    assert command == "scramjet.evaluate('runs/x')"


def make_cartpole(limit: int = 500) -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=limit)


class Maker:
    def __call__(self) -> gymnasium.Env:
        return make_cartpole()

    def make(self) -> gymnasium.Env:
        return make_cartpole()


@pytest.mark.parametrize(
    ("factory", "is_found"),
    [
        (make_cartpole, True),
        (partial(make_cartpole, 7), False),
        (Maker(), False),
        (Maker().make, False),
        (lambda: make_cartpole(), False),
    ],
    ids=["function", "partial", "object", "method", "lambda"],
)
def test_a_factory_that_no_name_leads_back_to_is_gone_on_with_from_python(factory: Any, is_found: bool):
    told = commands(name_of(factory))
    assert any(command.startswith("scramjet eval") for command in told) == is_found
    assert any("env=..." in command for command in told) != is_found


def commands(env: str) -> list[str]:
    return [command for _, command in next_commands(summary_of(env))]


def summary_of(env: str) -> Summary:
    return Summary(
        run_path="runs/x",
        run_name="x",
        step=16,
        trained=16,
        seconds=1.0,
        steps_per_second=16.0,
        return_100=None,
        recent_episodes=0,
        best_return=None,
        evaluation=None,
        stopped_by=None,
        env=env,
    )
