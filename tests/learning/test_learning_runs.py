"""Whole runs to known results: presets, memory, search, and a lag that V-trace makes up for."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.arena.head_to_head import play_match
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from scramjet.runs.results import Evaluation
from scramjet.training.config.files import starting_config
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.result import TrainResult
from tests.helpers import ROOT

pytestmark = [pytest.mark.rest, pytest.mark.learning, pytest.mark.usefixtures("one_thread")]


def evaluation_of(result: TrainResult) -> Evaluation:
    assert result.evaluation is not None
    return result.evaluation


class Bilinear(nn.Module):
    """A network of a user's own, unlike ours in every way the protocol leaves open."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(2, 3))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = torch.cat([obs, torch.ones_like(obs)], dim=1) @ self.table
        return out[:, :2], out[:, 2]


def test_a_users_own_module_learns_in_a_whole_run(tmp_path: Path) -> None:
    config = RunConfig(
        env="probe_policy", num_envs=16, num_steps=8, num_threads=1, total_timesteps=128 * 100,
        ppo=PPOConfig(learning_rate=0.03, num_epochs=4, num_minibatches=2, entropy_coef=0.0),
        eval=EvaluationConfig(every=0), checkpoint=CheckpointConfig(every=0),
    )  # fmt: skip
    network = Bilinear()
    result = scramjet.train(config, runs_dir=tmp_path, network=network, display="quiet")
    assert result.policy.network is network
    assert evaluation_of(result).mean_return == 1.0
    with torch.no_grad():
        chances = torch.softmax(result.policy(torch.tensor([[-1.0], [1.0]])).logits, 1)
    assert chances.diag().min() > 0.95


def test_the_corridor_example_is_walked_straight_to_its_end(tmp_path: Path) -> None:
    config = RunConfig(
        env=str(ROOT / "examples" / "corridor.py"), num_envs=16, num_steps=32, num_threads=1, total_timesteps=40_000,
        ppo=PPOConfig(learning_rate="0.003@0,0@end", num_epochs=4), eval=EvaluationConfig(every=0, final_episodes=64),
    )  # fmt: skip
    result = scramjet.train(config, runs_dir=tmp_path, display="quiet")
    assert result.policy.act(torch.arange(8).unsqueeze(1) / 8).tolist() == [1] * 8
    # Walking right from a start of 0 to 3 takes 8 to 5 steps, each but the last at a cost of 0.01.
    evaluation = evaluation_of(result)
    assert 5 <= evaluation.mean_length <= 8
    assert evaluation.mean_return == pytest.approx(1 - 0.01 * (evaluation.mean_length - 1))


def test_cartpole_with_its_preset_holds_the_pole_for_475_steps_or_more_over_100_episodes(tmp_path: Path) -> None:
    config = replace(starting_config("cartpole"), seed=1, num_threads=1)
    evaluation = evaluation_of(scramjet.train(config, runs_dir=tmp_path, display="quiet"))
    assert evaluation.episodes == 100
    assert evaluation.mean_return >= 475


# --- memory: worlds that cannot be played well without it ----------------------------------------------------

NOTHING_TO_REMEMBER_WITH = {"memory": None, "hidden": (64, 64)}


def remembered(
    tmp_path: Path, world: str, steps: int, parameters: dict[str, Any], policy: dict[str, Any]
) -> Evaluation:
    """The last evaluation of a run with a world's preset, other memory and fewer steps."""
    config = starting_config(world)
    config = replace(
        config, env_parameters=parameters, total_timesteps=steps, num_threads=1,
        policy=replace(config.policy, **policy), eval=EvaluationConfig(every=0, final_episodes=400),
    )  # fmt: skip
    return evaluation_of(scramjet.train(config, runs_dir=tmp_path, display="quiet"))


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ({"memory": "lstm"}, {"length": 2, "delay": 3}),
        ({"memory": "gru"}, {"length": 3, "delay": 0}),
        ({"memory": "mingru", "memory_layers": 2}, {"length": 1, "delay": 5}),
    ],
    ids=["lstm", "gru", "mingru"],
)
def test_bits_are_repeated_with_memory(policy: dict, parameters: dict, tmp_path: Path) -> None:
    assert remembered(tmp_path, "memory", 80_000, parameters, policy).stats["all_right"] == 1.0


def test_bits_are_guessed_without_memory(tmp_path: Path) -> None:
    """Answers are asked for while a blank is shown: whatever a policy does then, it is right half the time."""
    env = load_env("memory", length=2)
    for answer in (0, 1):
        pool, rewards = NativePool(env, 4096, num_threads=1), np.zeros(4096)
        out = pool.reset(0)
        bits = [out.obs.copy()]
        for tick in range(4):
            out = pool.step(np.full(4096, answer))
            bits.append(out.obs.copy())
            rewards += out.reward
            assert tick in (0, 3) or not out.obs.any()  # all that is seen when answers are asked for
        of_pattern = [
            rewards[(bits[0][:, 0] == pattern[0]) & (bits[1][:, 0] == pattern[1])].mean()
            for pattern in itertools.product((-1, 1), repeat=2)
        ]
        assert np.mean(of_pattern) == 1.0  # of 2: the ceiling, over all patterns
    evaluation = remembered(tmp_path, "memory", 40_000, {"length": 2}, NOTHING_TO_REMEMBER_WITH)
    assert evaluation.mean_return == pytest.approx(1.0, abs=4 * 0.71 / 400**0.5)


def test_the_sign_of_the_t_maze_is_remembered_and_without_memory_guessed(tmp_path: Path) -> None:
    """The junction looks the same whatever the sign said, so half the turns are wrong: 1.95 at most."""
    assert remembered(tmp_path, "tmaze", 130_000, {"length": 10}, {}).mean_return == pytest.approx(4.0)
    evaluation = remembered(tmp_path, "tmaze", 60_000, {"length": 10}, NOTHING_TO_REMEMBER_WITH)
    ceiling = 0.5 * 4.0 + 0.5 * -0.1
    assert evaluation.mean_return <= ceiling + 4 * 2.05 / 400**0.5
    assert evaluation.stats["right"] <= 0.5 + 4 * 0.5 / 400**0.5


# --- search --------------------------------------------------------------------------------------------------

SEARCHES: dict[str, dict[str, Any]] = {
    "spo": {"particles": 8, "depth": 2, "target_rate": 0.05, "replay_size": 512, "epsilon_alpha": 0.01},
    "alphazero": {"simulations": 4, "considered": 2, "replay_size": 512},
}


def search(env: str, algorithm: str, tmp_path: Path, *, steps: int, **settings: Any) -> TrainResult:
    """Train a small network on the CPU for so many steps; `settings` are keywords of `scramjet.train`."""
    usual: dict[str, Any] = {
        "num_envs": 16, "num_steps": 8, "num_epochs": 4, "num_minibatches": 2, "learning_rate": 0.01, "seed": 1,
        "policy": {"hidden": [16], "encoder": "mlp"}, "eval": {"every": 0, "final_episodes": 100}, "device": "cpu",
        "num_threads": 1, "total_timesteps": steps, algorithm: SEARCHES[algorithm], "display": "quiet",
        "runs_dir": tmp_path,
    }  # fmt: skip
    return scramjet.train(env, algorithm=algorithm, **usual | settings)


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_search_learns_what_pays_and_what_a_position_before_a_reward_is_worth(algorithm: str, tmp_path: Path) -> None:
    assert evaluation_of(search("probe_policy", algorithm, tmp_path, steps=2_560)).mean_return == 1.0
    plain = {"gamma": 0.9, "normalize_rewards": False, "normalize_observations": False}
    result = search("probe_delay", algorithm, tmp_path, steps=3_840, **plain)
    with torch.no_grad():
        values = result.policy(torch.tensor([[waited / 4] for waited in (3, 2, 1, 0)])).value
    assert values.tolist() == pytest.approx([0.9**k for k in range(4)], abs=0.05)


def test_particles_learn_a_continuous_action_within_its_range(tmp_path: Path) -> None:
    assert evaluation_of(search("identity_continuous", "spo", tmp_path, steps=5_120)).mean_return > -0.01


def test_a_network_taught_by_trees_beats_the_network_it_began_with(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "alphazero": {"simulations": 16, "considered": 9, "replay_size": 4096},
        "policy": {"hidden": [64], "encoder": "mlp"}, "eval": {"every": 0, "final_episodes": 0},
        "env_parameters": {"opening_plies": 0}, "num_envs": 128, "num_minibatches": 8,
    }  # fmt: skip
    trained = search("tic_tac_toe", "alphazero", tmp_path, steps=25_600, run_name="trained", **given)
    untrained = search("tic_tac_toe", "alphazero", tmp_path, steps=1, run_name="untrained", learning_rate=1e-9, **given)
    losses = [play_match(each.run_path, "random", games=200, seed=1).total.losses for each in (trained, untrained)]
    assert losses[0] < 30
    assert losses[1] > 60


# --- a lag ---------------------------------------------------------------------------------------------------


def lagging_schedule(path: Path, lag: int, num_updates: int) -> str:
    """One actor, whose weights are `lag` updates old when its steps are learned from."""
    events: list[dict[str, Any]] = []
    for update in range(num_updates + lag):
        events.append({"play": 0, "version": max(0, update - lag)})
        events += [{"learn": [0]}] if update >= lag else []
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return str(path)


@pytest.mark.parametrize("seed", [1, 2])
def test_at_lag_8_learning_holds_with_v_trace_and_fails_without(seed: int, tmp_path: Path) -> None:
    """The best action is a number within its range: who goes on by old news goes past it. On one thread, by a schedule,
    so that it is the same every time."""
    returns = []
    for lag, advantage in ((0, "gae"), (8, "vtrace"), (8, "gae")):
        config = RunConfig(
            env="identity_continuous", mode="async", num_actors=1, num_envs=32, num_steps=16,
            total_timesteps=32 * 16 * 150, max_policy_lag=max(lag, 1), seed=seed, device="cpu", num_threads=1,
            replay_schedule=lagging_schedule(tmp_path / "schedule.jsonl", lag, 150),
            ppo=PPOConfig(
                loss="impala", advantage=advantage, learning_rate=0.01, num_epochs=1, num_minibatches=1, gae_lambda=1.0
            ),
            eval=EvaluationConfig(every=0, final_episodes=100),
        )  # fmt: skip
        returns.append(evaluation_of(scramjet.train(config, runs_dir=tmp_path, display="quiet")).mean_return)
    assert min(returns[:2]) > -0.1
    assert returns[2] < -0.2
