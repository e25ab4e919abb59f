"""Whole runs of several players are resumed bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

import scramjet
from scramjet.algorithms.ppo import PPOConfig
from scramjet.policies import PolicyConfig
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from tests.helpers import HELPERS
from tests.helpers.player_training import EVERY_AGENT

pytestmark = pytest.mark.usefixtures("one_thread")

SEATS = f"{HELPERS}/player_worlds.py:Trio"


@pytest.mark.parametrize("world", [EVERY_AGENT, SEATS], ids=["agents", "seats"])
def test_a_run_of_players_resumed_from_a_checkpoint_ends_bit_for_bit_as_if_it_had_never_stopped(world, tmp_path):
    whole = RunConfig(
        env=world, num_envs=6, num_steps=10, num_threads=1, total_timesteps=60 * 4,
        ppo=PPOConfig(num_minibatches=3, normalize_rewards=True, learning_rate=0.005),
        policy=PolicyConfig(hidden=(8,)),
        eval=EvaluationConfig(every=1, episodes=2, final_episodes=0), checkpoint=CheckpointConfig(every=0),
    )  # fmt: skip
    scramjet.train(whole, runs_dir=tmp_path, run_name="whole", display="quiet")
    half = replace(whole, total_timesteps=60 * 2)
    stopped = scramjet.train(half, runs_dir=tmp_path, run_name="half", display="quiet")
    assert stopped.step == 120
    scramjet.train(resume=tmp_path / "half", total_timesteps=60 * 4, display="quiet")
    for name in ("model.safetensors", "trainer.safetensors"):
        ours, theirs = ((tmp_path / run / "checkpoints/step_00000240" / name).read_bytes() for run in ("half", "whole"))
        assert ours == theirs, name
