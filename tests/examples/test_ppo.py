"""The PPO in one file is the system's: same settings and seed, same weights to the last bit."""

import functools
import runpy
from types import SimpleNamespace

import pytest
import torch

import scramjet
from scramjet.cli import run
from tests.helpers import ROOT

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def example() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "ppo.py"), run_name="ppo_example"))


@pytest.mark.parametrize(("steps", "time_limit"), [pytest.param(20_000, 500, marks=pytest.mark.rest), (8_000, 20)])
def test_its_weights_are_those_of_the_train_command_without_kernels(example, monkeypatch, tmp_path, steps, time_limit):
    """A time limit of 20 steps ends most episodes, so that their last observations are valued."""
    monkeypatch.setattr(scramjet, "make", functools.partial(scramjet.make, max_episode_steps=time_limit))
    policy = example.train(total_steps=steps, seed=7)
    result = scramjet.train(
        "cartpole", seed=7, total_timesteps=steps, env_parameters={"max_episode_steps": time_limit}, fused=False,
        num_threads=1, eval={"every": 0, "final_episodes": 1}, runs_dir=tmp_path, display="quiet",
    )  # fmt: skip
    trained = result.policy.state_dict()
    assert list(policy.state_dict()) == list(trained)
    for name, weight in policy.state_dict().items():
        assert torch.equal(weight, trained[name]), name


def test_returns_rise_and_are_printed_and_another_seed_gives_other_weights(example, capsys):
    first = example.train(total_steps=24_000, seed=1).state_dict()
    returns = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(returns) == 6
    assert returns[0] < 30
    assert returns[-1] > 2 * returns[0]
    second = example.train(total_steps=4_096, seed=2).state_dict()
    assert not torch.equal(first["network.actor.0.weight"], second["network.actor.0.weight"])


def test_the_example_command_writes_it_and_says_how_to_run_it(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["example", "ppo"]) == 0
    assert "python ppo.py" in capsys.readouterr().out
    source = (ROOT / "examples" / "ppo.py").read_text()
    assert (tmp_path / "ppo.py").read_text() == source.replace("examples/ppo.py", "ppo.py")
