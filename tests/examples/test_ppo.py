"""The PPO in one file is the system's: same settings and seed, same weights to the last bit."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import scramjet

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ppo_example", ROOT / "examples" / "ppo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("seed", "time_limit"), [(1, 500), (7, 20)])
def test_its_weights_are_those_of_the_train_command_without_kernels(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int, time_limit: int
) -> None:
    """A time limit of 20 steps ends most episodes, so that their last observations are valued."""
    monkeypatch.setattr(scramjet, "make", functools.partial(scramjet.make, max_episode_steps=time_limit))
    policy = example.train(total_steps=20_000, seed=seed)
    result = scramjet.train(
        "cartpole",
        seed=seed,
        total_timesteps=20_000,
        env_parameters={"max_episode_steps": time_limit},
        fused=False,
        num_threads=1,
        eval={"every": 0, "final_episodes": 1},
        runs_dir=tmp_path,
        display="quiet",
    )
    trained = result.policy.state_dict()
    assert list(policy.state_dict()) == list(trained)
    for name, weight in policy.state_dict().items():
        assert torch.equal(weight, trained[name]), name


def test_another_seed_gives_other_weights(example: ModuleType) -> None:
    first, second = (example.train(total_steps=4_096, seed=seed).state_dict() for seed in (1, 2))
    assert not torch.equal(first["network.actor.0.weight"], second["network.actor.0.weight"])


def test_returns_rise_and_are_printed(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.train(total_steps=24_000, seed=1)
    returns = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(returns) == 6
    assert returns[0] < 30
    assert returns[-1] > 2 * returns[0]
