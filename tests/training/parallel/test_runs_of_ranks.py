"""Runs of several ranks, from start to end: one folder, the weights of one process, resumed and forked."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import ConfigError, ScramjetError, TrainingError
from scramjet.policies import PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.training.display import QuietDisplay
from scramjet.training.parallel import together
from scramjet.training.resume import resume_run
from tests.helpers.rank_sessions import SMALL, STEPS, train_on_ranks

MEMORY = replace(SMALL, policy=PolicyConfig(memory="gru", memory_size=8, hidden=(8,)), ppo=PPOConfig(num_minibatches=2))


class Header(QuietDisplay):
    """Keeps the remarks in a run's header."""

    def start(self, info):
        self.note = info.note


def records_of(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]


def assert_close(one: list[dict], other: list[dict]) -> None:
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        assert list(mine) == list(theirs)
        assert {key for key in mine if mine[key] is None} == {key for key in theirs if theirs[key] is None}
        numbers = [{key: value for key, value in line.items() if value is not None} for line in (mine, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=1e-5)


def assert_same_state(one: Path, other: Path) -> None:
    first, second = load_checkpoint(one), load_checkpoint(other)
    assert first.step == second.step
    for name in ("model", "trainer"):
        mine, theirs = getattr(first, name), getattr(second, name)
        assert list(mine) == list(theirs)
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.parametrize("config", [SMALL, MEMORY, replace(SMALL, env="gym:CartPole-v1", num_workers=0)])
def test_two_and_four_ranks_train_what_one_process_trains(tmp_path, config):
    (alone,) = train_on_ranks(1, tmp_path, config)
    for size in (2, 4):
        results = train_on_ranks(size, tmp_path, config, run_name=f"by-{size}")
        assert {result.run_path for result in results} == {tmp_path / f"by-{size}"}
        assert_close(records_of(results[0].run_path), records_of(alone.run_path))
        for name, weights in alone.policy.state_dict().items():
            for result in results:
                torch.testing.assert_close(result.policy.state_dict()[name], weights, rtol=1e-3, atol=1e-5)
        assert all(result.evaluation == results[0].evaluation for result in results)


@pytest.mark.parametrize("config", [SMALL, MEMORY])
def test_a_resumed_run_of_two_ranks_goes_on_bit_for_bit(tmp_path, config):
    (whole, _) = train_on_ranks(2, tmp_path, config, run_name="whole")
    train_on_ranks(2, tmp_path, replace(config, total_timesteps=2 * STEPS), run_name="parts")
    request = {"like": config, "resume": tmp_path / "parts", "total_timesteps": config.total_timesteps}
    (result, _) = train_on_ranks(2, tmp_path, **request)
    assert_same_state(whole.run_path, result.run_path)
    # The first part ended with an evaluation over other episodes, at the same step.
    without_evaluations = [
        [{key: value for key, value in line.items() if "eval" not in key} for line in records_of(run)]
        for run in (whole.run_path, result.run_path)
    ]
    assert without_evaluations[0] == without_evaluations[1]


def test_a_checkpoint_holds_the_envs_and_generators_of_every_rank(tmp_path):
    (result, *_) = train_on_ranks(4, tmp_path, SMALL)
    trainer = load_checkpoint(result.run_path).trainer
    for name in ("pool/states", "rng/action", "rng/shuffle"):
        assert {name, *(f"rank{rank}/{name}" for rank in (1, 2, 3))} <= set(trainer)
    assert not any(name.startswith("rank1/optimizer") for name in trainer)


def test_another_number_of_ranks_is_refused_for_a_resume_and_taken_for_a_fork(tmp_path):
    (result, _) = train_on_ranks(2, tmp_path, SMALL, run_name="two")
    with pytest.raises(ConfigError, match=r"by 2 processes, and here is 1; .*--resume .*/two`.*per-node 2.*--fork"):
        resume_run(str(result.run_path), tmp_path, None, {"total_timesteps": 8 * STEPS})
    with pytest.raises(ScramjetError, match="trained by 2 processes, and here are 4"):
        train_on_ranks(4, tmp_path, resume=result.run_path, total_timesteps=8 * STEPS)
    for size in (1, 4):
        given = {"fork": result.run_path, "total_timesteps": 6 * STEPS, "run_name": f"fork-{size}"}
        header = Header()
        forked = train_on_ranks(size, tmp_path, display=header, **given)[0]
        assert forked.step == 6 * STEPS
        assert f"it was trained by 2 processes, and goes on with {size}" in header.note
        assert f"num_processes = {size}\n" in (forked.run_path / "config.toml").read_text()


def test_ranks_whose_weights_differ_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(together, "DIGEST_EVERY", 2)

    class Tampers:
        def on_update(self, record, session):
            if record["update"] == 2:
                with torch.no_grad():
                    next(session.policy.parameters()).view(-1)[0] += 1e-6

    with pytest.raises(TrainingError, match=r"after update 3 \(step 384\) rank 1 had other weights than rank 0"):
        train_on_ranks(2, tmp_path, SMALL, callbacks=lambda: [Tampers()])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(SMALL, ppo=replace(SMALL.ppo, gamma=0.9)), "rank 1 has gamma = 0.9, and rank 0 has 0.99"),
        (replace(SMALL, env_parameters={"gravity": 12.0}), "rank 1 has env.gravity = 12.0, and rank 0 has 9.8"),
    ],
)
def test_ranks_with_other_settings_are_named_and_leave_nothing_behind(tmp_path, other, message):
    with pytest.raises(ConfigError, match=message):
        train_on_ranks(2, tmp_path, lambda rank: other if rank else SMALL)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_a_callback_that_stops_the_run_stops_all_ranks_after_that_update(tmp_path):
    class Stops:
        def on_update(self, record, session):
            if record["update"] == 2:
                session.stop("enough")

    results = train_on_ranks(2, tmp_path, SMALL, callbacks=lambda: [Stops()])
    assert [(each.step, each.stopped_by, each.stop_reason) for each in results] == [
        (2 * STEPS, "callback", "enough")
    ] * 2


def test_actors_of_two_ranks_train_together(tmp_path):
    config = replace(SMALL, mode="async", num_actors=2)
    results = train_on_ranks(2, tmp_path, config)
    weights = [result.policy.state_dict() for result in results]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert results[0].metrics["async/policy_lag_max"] <= config.max_policy_lag
