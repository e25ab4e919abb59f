"""Asynchronous training for every kind of policy and world: a recorded run is replayed bit for bit."""

import sys
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest

import scramjet
from scramjet.algorithms.ppo import PPOConfig
from tests.helpers.async_runs import CASES, of_case, settings, weights_of
from tests.helpers.run_files import lines_of, train

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


def record_and_replay(case, tmp_path, near=2e-5, **changes):
    """What the two runs told, and their weights; checks what the learner found in the first."""
    config, options = of_case(case, record_schedule=True, **changes)
    first = train(config, tmp_path, run_name="first", **options)
    told = lines_of(first.run_path)
    # Before the first update the learner's weights are the actors': every ratio must be 1, whatever the policy is.
    assert told[0]["async/policy_lag_max"] == 0
    assert told[0]["async/ratio_max"] == pytest.approx(1.0, abs=10 * near)
    assert told[0]["async/ratio_mean"] == pytest.approx(1.0, abs=near)
    assert all(0 <= line["async/policy_lag_mean"] <= line["async/policy_lag_max"] <= 8 for line in told)
    assert first.step == config.total_timesteps
    again = replace(config, record_schedule=False, replay_schedule=str(first.run_path / "schedule.jsonl"))
    second = train(again, tmp_path, run_name="second", **options)
    kept = ("policy_loss", "value_loss", "grad_norm", "return_100", "async/ratio_mean", "async/policy_lag_mean")
    return [
        ([[line[name] for name in kept] for line in lines_of(path)], weights_of(path)["model.safetensors"])
        for path in (first.run_path, second.run_path)
    ]


@pytest.mark.parametrize("case", CASES)
def test_what_actors_stored_is_what_the_learner_finds_and_a_recorded_run_is_replayed_bit_for_bit(case, tmp_path):
    (told, weights), (told_again, weights_again) = record_and_replay(case, tmp_path)
    assert told == told_again
    assert all(np.array_equal(weights[name], weights_again[name]) for name in weights)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_the_same_on_the_gpu(case, tmp_path, capsys):
    on_gpu = {"device": "cuda", "precision": "float32", "total_timesteps": 8 * 16 * 12}
    (told, weights), (told_again, weights_again) = record_and_replay(case, tmp_path, near=1e-3, **on_gpu)
    assert "cannot be recorded" not in capsys.readouterr().out  # actors are at work while the update is
    for mine, its in zip(told_again, told, strict=True):
        assert [number or 0.0 for number in mine] == pytest.approx(
            [number or 0.0 for number in its], rel=1e-2, abs=1e-3
        )
    for name, kept in weights.items():
        np.testing.assert_allclose(weights_again[name], kept, rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("env", "loss"), [("cartpole", "ppo"), ("gym:CartPole-v1", "ppo"), ("gym:CartPole-v1", "impala")]
)
def test_actors_beside_a_learner_on_the_gpu_learn_and_a_resumed_run_goes_on(env, loss, tmp_path):
    ppo = PPOConfig(learning_rate="0.001", loss=loss, num_epochs=4 if loss == "ppo" else 1)
    config = settings(env, num_envs=16, num_steps=64, total_timesteps=60_000, device="cuda", ppo=ppo)
    half = train(config, tmp_path, run_name="run")
    whole = scramjet.train(resume=half.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=120_000)
    assert whole.step >= 120_000
    assert lines_of(whole.run_path)[-1]["return_100"] > 100
