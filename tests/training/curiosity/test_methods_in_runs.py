"""Whole runs with each method of curiosity: resumed exactly, beside masks, memory, agents and actors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scramjet.errors import ConfigError
from scramjet.policies.config import PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.training.curiosity.config import BonusConfig
from tests.helpers.run_files import last_checkpoint, lines_of, train
from tests.helpers.sessions import SMALL, begun
from tests.helpers.sessions import train as train_session

pytestmark = pytest.mark.usefixtures("one_thread")

UPDATE = 32
METHODS: dict[str, Any] = {
    "icm": {"curiosity": "icm", "bonus": BonusConfig(features=8)},
    "noveld": {"curiosity": "noveld", "bonus": BonusConfig(features=8)},
    "counts": {"curiosity": "counts", "bonus": BonusConfig()},
    "e3b": {"curiosity": "e3b", "bonus": BonusConfig(elliptical_features=4)},
    "rnd times elliptical": {
        "curiosity": "rnd",
        "bonus": BonusConfig(features=8, episodic="elliptical", elliptical_features=4),
    },
    "icm times first visits": {"curiosity": "icm", "bonus": BonusConfig(features=8, episodic="first")},
}
MAZE = replace(SMALL, env="maze")
SNAKES = replace(
    SMALL, env="snake", env_parameters={"snakes": 2}, policy=PolicyConfig(hidden=(8,), memory="gru", memory_size=4)
)
RUNS = {f"{method}, masks and a Dict": replace(MAZE, **settings) for method, settings in METHODS.items()} | {
    f"{method}, agents that die, memory": replace(SNAKES, **METHODS[method]) for method in ("noveld", "e3b")
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_that_stopped_ends_as_one_that_never_stopped(kind: str, tmp_path: Path) -> None:
    config = RUNS[kind]
    whole = train(config, tmp_path, run_name="whole")
    train(replace(config, total_timesteps=2 * UPDATE), tmp_path, run_name="parts")
    resumed = train(None, tmp_path, resume="parts", total_timesteps=5 * UPDATE)
    assert last_checkpoint(resumed.run_path) == last_checkpoint(whole.run_path)
    assert all(record["bonus/max"] > 0 for record in lines_of(whole.run_path))


@pytest.mark.parametrize("method", ["icm", "e3b"])
def test_actions_may_be_numbers(method: str, tmp_path: Path) -> None:
    records = lines_of(train(replace(SMALL, **METHODS[method], env="pendulum"), tmp_path).run_path)
    assert all(record["bonus/loss"] > 0 for record in records)


@pytest.mark.parametrize("method", ["counts", "rnd times elliptical"])
def test_actors_beside_the_learner_are_curious_too(method: str, tmp_path: Path) -> None:
    config = replace(MAZE, **METHODS[method], mode="async", num_actors=2, total_timesteps=4 * UPDATE)
    assert all(record["bonus/max"] > 0 for record in lines_of(train(config, tmp_path).run_path))


def test_a_fork_goes_on_with_what_was_learned_without_memories_of_episodes_and_with_other_envs(tmp_path: Path) -> None:
    parent = train(replace(MAZE, **METHODS["e3b"]), tmp_path)
    prefix = "curiosity/module/bonus."
    trained = load_checkpoint(parent.run_path / "checkpoints" / "latest").trainer
    assert trained[prefix + "memory.is_under_way"].any()
    for num_envs in (4, 8):
        with begun(
            None, tmp_path, fork=parent.run_path, total_timesteps=640, settings={"num_envs": num_envs}
        ) as session:
            learner: Any = session.learner
            tensors = learner.curiosity.tensors()
            assert not tensors[prefix + "memory.is_under_way"].any()
            weights = prefix + "dynamics.inverse.1.weight"
            assert torch.equal(tensors[weights], trained[weights])


def test_a_fork_may_change_the_method(tmp_path: Path) -> None:
    parent = train(replace(MAZE, **METHODS["counts"]), tmp_path)
    forked = train(None, tmp_path, fork=parent.run_path, total_timesteps=6 * UPDATE, curiosity="noveld")
    assert forked.metrics["bonus/loss"] > 0


def first_visits(obs: dict[str, Tensor], ended: Tensor, seen: list[set[bytes]]) -> int:
    """First visits in a rollout [T + 1, R], by sets of positions; each env has a set for its episode."""
    found = 0
    for t in range(len(ended)):
        for n, ends in enumerate(ended[t].tolist()):
            before, after = (
                b"".join(obs[name][when, n].numpy().tobytes() for name in ("agent", "target", "walls"))
                for when in (t, t + 1)
            )
            seen[n].add(before)
            found += not ends and after not in seen[n]
            seen[n] = set() if ends else seen[n] | {after}
    return found


def test_the_bonus_that_a_run_records_is_that_of_sets_of_positions_over_its_rollouts(tmp_path: Path) -> None:
    network = PolicyConfig(hidden=(8,), ignore=("step_count",))
    config = replace(MAZE, curiosity="counts", bonus=BonusConfig(first_visits=True), policy=network)
    seen: list[set[bytes]] = [set() for _ in range(4)]
    with begun(config, tmp_path) as session:
        for _ in range(3):
            rollout = session.collector.collect()
            expected = first_visits(rollout.obs, rollout.terminated | rollout.truncated, seen)
            metrics = session.learner.update(session.learner.prepare(rollout), 0)
            assert metrics["bonus/mean"] == pytest.approx(expected / UPDATE)
            assert 0 < expected < UPDATE
            visits = UPDATE - int((rollout.terminated | rollout.truncated).sum())
            assert session.curiosity is not None
            assert session.curiosity.revisited == pytest.approx(1 - expected / visits)


@pytest.mark.parametrize(
    ("method", "setting", "fix"),
    [
        ("rnd", {"noveld_alpha": 0.1}, "--curiosity noveld"),
        ("counts", {"features": 8}, "--curiosity rnd or icm or noveld"),
        ("rnd", {"episodic": "first", "elliptical_ridge": 1.0}, "--curiosity e3b"),
        ("e3b", {"episodic": "first"}, "--curiosity rnd or icm"),
    ],
)
def test_a_setting_of_another_method_is_refused(method: str, setting: dict[str, Any], fix: str) -> None:
    *_, (name, value) = setting.items()
    said = f"bonus.{name}={value} does nothing with curiosity='{method}'; use {fix}, or leave bonus.{name} out"
    with pytest.raises(ConfigError, match=said):
        replace(SMALL, curiosity=method, bonus=BonusConfig(**setting))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("icm_forward", 1.5),
        ("noveld_alpha", -0.1),
        ("elliptical_ridge", 1e-4),
        ("elliptical_features", 513),
        ("coef", 1e38),
        ("reward_coef", 1e38),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"bonus.{name}"):
        BonusConfig(**{name: value})


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_on_the_gpu_methods_are_recorded_and_resume_bit_for_bit(method: str, tmp_path: Path) -> None:
    config = replace(MAZE, **METHODS[method], device="cuda", total_timesteps=6 * UPDATE)
    with begun(config, tmp_path, run_name="looked-at") as session:
        train_session(session, 4)
        learner: Any = session.learner
        assert learner._preparing.is_recorded
    whole = train(config, tmp_path, run_name="whole")
    train(replace(config, total_timesteps=3 * UPDATE), tmp_path, run_name="parts")
    resumed = train(None, tmp_path, resume="parts", total_timesteps=6 * UPDATE)
    assert last_checkpoint(resumed.run_path) == last_checkpoint(whole.run_path)
