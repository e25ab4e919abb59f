"""Evaluations within a run: which checkpoint they call the best, which episodes they play."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine import NativePool
from scramjet.policies import PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.runtime.metrics_log import read_metrics
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.evaluation.evaluator import Evaluator
from scramjet.training.evaluation.results import Evaluation

pytestmark = pytest.mark.usefixtures("one_thread")

UPDATE = 4 * 8


def config_of(num_updates: int, env: str = "cartpole", **settings: Any) -> RunConfig:
    """An evaluation after every update, and checkpoints only at a new best and at the end."""
    plain = {
        "num_envs": 4, "num_steps": 8, "num_threads": 1, "device": "cpu", "total_timesteps": UPDATE * num_updates,
        "policy": PolicyConfig(hidden=(8,)), "ppo": PPOConfig(num_minibatches=1, num_epochs=1),
        "eval": EvaluationConfig(every=1, episodes=3, final_episodes=0), "checkpoint": CheckpointConfig(every=0),
    }  # fmt: skip
    return RunConfig(env=env, **plain | settings)


def train(config: RunConfig | None, folder: Path, **options: Any) -> Path:
    options = {"runs_dir": folder, "run_name": None if config is None else "run", "display": "quiet"} | options
    return scramjet.train(config, **options).run_path


# --- the best checkpoint -----------------------------------------------------------------------------------------


def result(mean: float, std: float, episodes: int) -> Evaluation:
    return Evaluation(mean_return=mean, std_return=std, mean_length=1.0, episodes=episodes, stats={})


SURE = result(50.0, 10.0, 100)  # above 48.3
LUCKY = result(52.0, 10.0, 4)  # above 42.5
BETTER = result(51.0, 10.0, 100)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[Evaluation]], None]:
    """What the evaluations to come will say, whatever the policy does."""

    def tell(results: Iterable[Evaluation]) -> None:
        script = iter(results)
        monkeypatch.setattr(Evaluator, "evaluate_unless", lambda *arguments: next(script))

    return tell


@pytest.mark.parametrize(
    ("results", "best"),
    [
        ([SURE, LUCKY], 0),
        ([LUCKY, SURE], 1),
        ([SURE, BETTER], 1),
        ([BETTER, SURE], 0),
        ([SURE, SURE, SURE], 0),
        ([LUCKY, SURE, LUCKY, BETTER, BETTER], 3),
    ],
    ids=["luck does not beat it", "it beats luck", "better", "worse", "a tie is no new best", "several"],
)
def test_the_best_checkpoint_is_the_first_with_the_highest_lower_bound(results, best, told, tmp_path):
    told(results)
    run = train(config_of(len(results)), tmp_path)
    checkpoint = load_checkpoint(run / "checkpoints" / "best")
    assert checkpoint.step == UPDATE * (best + 1)
    assert checkpoint.metadata["best_return"] == results[best].mean_return
    assert checkpoint.metadata["best_lower_bound"] == results[best].lower_bound


def test_a_new_best_of_a_lower_mean_says_that_it_is_surer(told, tmp_path, capsys):
    told([LUCKY, SURE, BETTER])
    train(config_of(3), tmp_path, display="plain")
    said = capsys.readouterr().out
    assert "new best: mean return 52.000 at step 32\n" in said
    assert "new best: mean return 50.000, surer than 52.000 at step 64\n" in said
    assert "new best: mean return 51.000 at step 96\n" in said


@pytest.mark.parametrize(("later", "is_best"), [(LUCKY, False), (SURE, False), (BETTER, True)])
def test_a_resumed_run_remembers_what_a_new_best_must_exceed(later, is_best, told, tmp_path):
    told([SURE])
    run = train(config_of(1), tmp_path)
    told([later])
    train(None, tmp_path, resume=run, total_timesteps=UPDATE * 2)
    assert load_checkpoint(run / "checkpoints" / "best").step == UPDATE * (2 if is_best else 1)
    latest = load_checkpoint(run / "checkpoints" / "latest").metadata
    assert latest["best_return"] == (later if is_best else SURE).mean_return


def test_without_evaluations_the_best_is_judged_by_the_lower_bound_of_the_last_hundred_episodes(tmp_path):
    config = config_of(12, eval=EvaluationConfig(every=0, final_episodes=0), checkpoint=CheckpointConfig(every=1))
    run = train(config, tmp_path)
    metadata = load_checkpoint(run / "checkpoints" / "best").metadata
    step = load_checkpoint(run / "checkpoints" / "best").step
    (record,) = (record for record in read_metrics(run / "metrics.jsonl") if record["step"] == step)
    assert metadata["best_return"] == record["return_100"]
    assert metadata["best_lower_bound"] < metadata["best_return"]


# --- which episodes ----------------------------------------------------------------------------------------------


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """What each env shows at each reset of a compiled pool to come: four random numbers, never twice by chance."""
    shown: list[list[bytes]] = []
    reset = NativePool.reset

    def noted(self: NativePool, *arguments: Any, **options: Any) -> Any:
        out = reset(self, *arguments, **options)
        if self.backend != "interpreted":  # with which a world is tried before it is compiled
            shown.append([row.tobytes() for row in out.obs])
        return out

    monkeypatch.setattr(NativePool, "reset", noted)
    return shown


def assert_all_differ(begun: list[list[bytes]]) -> None:
    states = [state for pool in begun for state in pool]
    assert len(set(states)) == len(states)


FINAL = EvaluationConfig(every=1, episodes=3, final_episodes=5)


def test_each_evaluation_of_a_run_plays_fresh_episodes_and_none_that_are_trained_on(begun, tmp_path):
    train(config_of(4, eval=FINAL), tmp_path)
    assert [len(pool) for pool in begun] == [4, 3, 3, 3, 5]  # training, three evaluations and the last one
    assert_all_differ(begun)


def test_scramjet_eval_plays_episodes_that_no_evaluation_of_training_has_played(begun, tmp_path):
    run = train(config_of(4, eval=FINAL), tmp_path)
    for seed in (None, 1, 2):
        del begun[5:]
        scramjet.evaluate(run, episodes=20, seed=seed)
        assert [len(pool) for pool in begun] == [4, 3, 3, 3, 5, 20]
        assert_all_differ(begun)


def test_a_fork_trains_on_other_episodes_than_its_parent_began_with(begun, tmp_path):
    config = config_of(2, eval=EvaluationConfig(every=0, final_episodes=0))
    run = train(config, tmp_path)
    for name in ("one", "another"):
        train(replace(config, total_timesteps=UPDATE * 3), tmp_path, fork=run, run_name=name)
    assert begun[1] == begun[2]  # two forks of the same checkpoint are the same
    assert_all_differ(begun[:2])


def test_a_resumed_run_plays_the_evaluations_of_an_uninterrupted_one(begun, tmp_path):
    whole = train(config_of(5), tmp_path, run_name="whole")
    expected = [pool for pool in begun if len(pool) == 3]
    begun.clear()
    run = train(config_of(2), tmp_path)
    train(None, tmp_path, resume=run, total_timesteps=UPDATE * 5)
    assert [pool for pool in begun if len(pool) == 3] == expected
    one, other = (
        [{name: value for name, value in record.items() if name.startswith("eval/")} for record in read_metrics(path)]
        for path in (whole / "metrics.jsonl", run / "metrics.jsonl")
    )
    assert one == other
    assert len(one) == 5
    assert all(math.isfinite(record["eval/lower_bound"]) for record in one)
