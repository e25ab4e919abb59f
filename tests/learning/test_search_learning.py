"""Search learns worlds with known answers: what pays, what a position is worth, and how not to lose a game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import scramjet
from scramjet.arena.head_to_head import play_match
from scramjet.training.result import TrainResult

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("one_thread")]

GAMMA = 0.9
SEARCHES: dict[str, dict[str, Any]] = {
    "spo": {"particles": 8, "depth": 2, "target_rate": 0.05, "replay_size": 512, "epsilon_alpha": 0.01},
    "alphazero": {"simulations": 4, "considered": 2, "replay_size": 512},
}


def learn(env: str, algorithm: str, tmp_path: Path, *, steps: int, **settings: Any) -> TrainResult:
    """Train a small network on the CPU for so many steps; `settings` are keywords of `scramjet.train`."""
    usual: dict[str, Any] = {
        "num_envs": 16, "num_steps": 8, "num_epochs": 4, "num_minibatches": 2, "learning_rate": 0.01, "seed": 1,
        "policy": {"hidden": [16], "encoder": "mlp"}, "eval": {"every": 0, "final_episodes": 100}, "device": "cpu",
        "num_threads": 1, "total_timesteps": steps, algorithm: SEARCHES[algorithm], "display": "quiet",
        "runs_dir": tmp_path,
    }  # fmt: skip
    return scramjet.train(env, algorithm=algorithm, **usual | settings)


def mean_return(result: TrainResult) -> float:
    assert result.evaluation is not None
    return result.evaluation.mean_return


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_the_policy_follows_the_observation_that_says_which_action_pays(algorithm: str, tmp_path: Path) -> None:
    assert mean_return(learn("probe_policy", algorithm, tmp_path, steps=2_560)) == 1.0


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_a_position_k_steps_before_a_reward_is_worth_it_discounted_k_times(algorithm: str, tmp_path: Path) -> None:
    result = learn(
        "probe_delay", algorithm, tmp_path, steps=3_840, gamma=GAMMA, normalize_rewards=False,
        normalize_observations=False,
    )  # fmt: skip
    with torch.no_grad():
        values = result.policy(torch.tensor([[waited / 4] for waited in (3, 2, 1, 0)])).value
    assert values.tolist() == pytest.approx([GAMMA**k for k in range(4)], abs=0.05)


def test_particles_learn_a_continuous_action_within_its_range(tmp_path: Path) -> None:
    assert mean_return(learn("identity_continuous", "spo", tmp_path, steps=5_120)) > -0.01


def test_a_network_taught_by_trees_beats_the_network_it_began_with(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "alphazero": {"simulations": 16, "considered": 9, "replay_size": 4096},
        "policy": {"hidden": [64], "encoder": "mlp"}, "eval": {"every": 0, "final_episodes": 0},
        "env_parameters": {"opening_plies": 0}, "num_envs": 128, "num_minibatches": 8,
    }  # fmt: skip
    trained = learn("tic_tac_toe", "alphazero", tmp_path, steps=25_600, run_name="trained", **given)
    untrained = learn("tic_tac_toe", "alphazero", tmp_path, steps=1, run_name="untrained", learning_rate=1e-9, **given)
    losses = [play_match(each.run_path, "random", games=200, seed=1).total.losses for each in (trained, untrained)]
    assert losses[0] < 30
    assert losses[1] > 60
