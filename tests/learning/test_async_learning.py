"""What a lag does to learning, and what V-trace does about it: on one thread, by a schedule, so that it is the same
every time."""

import json

import pytest

import scramjet
from scramjet.algorithms.ppo import PPOConfig
from scramjet.training.config.run_config import EvaluationConfig, RunConfig

pytestmark = pytest.mark.learning
NUM_UPDATES = 150


def lagging_schedule(path, lag):
    """One actor, whose weights are `lag` updates old when its steps are learned from."""
    events = []
    for update in range(NUM_UPDATES + lag):
        events.append({"play": 0, "version": max(0, update - lag)})
        events += [{"learn": [0]}] if update >= lag else []
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return str(path)


def mean_return(tmp_path, lag, advantage, seed):
    """Of the final policy. The best action is a number within its range: who goes on by old news goes past it."""
    config = RunConfig(
        env="identity_continuous",
        mode="async",
        num_actors=1,
        num_envs=32,
        num_steps=16,
        total_timesteps=32 * 16 * NUM_UPDATES,
        max_policy_lag=max(lag, 1),
        replay_schedule=lagging_schedule(tmp_path / "schedule.jsonl", lag),
        seed=seed,
        device="cpu",
        num_threads=1,
        ppo=PPOConfig(
            loss="impala", advantage=advantage, learning_rate=0.01, num_epochs=1, num_minibatches=1, gae_lambda=1.0
        ),
        eval=EvaluationConfig(every=0, final_episodes=100),
    )
    evaluation = scramjet.train(config, runs_dir=tmp_path, display="quiet").evaluation
    assert evaluation is not None
    return evaluation.mean_return


@pytest.mark.parametrize("seed", [1, 2])
def test_at_lag_8_learning_holds_with_v_trace_and_fails_without(seed, tmp_path):
    assert mean_return(tmp_path, 0, "gae", seed) > -0.1
    assert mean_return(tmp_path, 8, "vtrace", seed) > -0.1
    assert mean_return(tmp_path, 8, "gae", seed) < -0.2
