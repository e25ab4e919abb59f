"""Whole runs with memory: resumed exactly, and settings that do not fit are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import scramjet
from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies import PolicyConfig
from tests.helpers.memory_training import run_config

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("world", ["cartpole", "snake", "connect_four"])
@pytest.mark.parametrize("ppo", [PPOConfig(), PPOConfig(advantage="vtrace", bptt_horizon=4)], ids=["whole", "vtrace"])
def test_a_run_with_memory_resumed_ends_bit_for_bit_as_if_it_had_never_stopped(world, ppo, tmp_path):
    config = run_config(world, ppo=ppo)
    whole = scramjet.train(config, runs_dir=tmp_path, run_name="whole", display="quiet")
    scramjet.train(replace(config, total_timesteps=4 * 8 * 3), runs_dir=tmp_path, run_name="cut", display="quiet")
    resumed = scramjet.train(resume=tmp_path / "cut", total_timesteps=4 * 8 * 6, runs_dir=tmp_path, display="quiet")
    for name, tensor in whole.policy.state_dict().items():
        assert torch.equal(tensor, resumed.policy.state_dict()[name]), name
    metrics = [{key: value for key, value in result.metrics.items() if key != "time"} for result in (whole, resumed)]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize(("trained", "wanted"), [("gru", None), (None, "lstm"), ("lstm", "gru")])
def test_a_checkpoint_with_other_memory_is_refused_with_the_setting_to_change(trained, wanted, tmp_path):
    shape = PolicyConfig(hidden=(8,), memory=trained, memory_size=5)
    result = scramjet.train(run_config("cartpole", policy=shape), runs_dir=tmp_path, run_name="a", display="quiet")
    other = replace(run_config("cartpole", policy=replace(shape, memory=wanted)), total_timesteps=10_000)
    with pytest.raises(
        CheckpointError, match=f"policy.memory={trained or 'none'}, .*--policy.memory {trained or 'none'}"
    ):
        scramjet.train(other, fork=result.run_path, runs_dir=tmp_path, display="quiet")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ppo": PPOConfig(bptt_horizon=3)}, r"bptt_horizon=3 does not divide num_steps=8; try --bptt-horizon 2"),
        ({"ppo": PPOConfig(num_minibatches=3)}, r"does not split the batch of 4 sequences of 8 steps .*-minibatches 2"),
        ({"ppo": PPOConfig(minibatch_size=4)}, r"sequences of 8 steps; try --minibatch-size 8"),
    ],
)
def test_settings_that_do_not_fit_memory_are_refused_with_one_that_does(changes, message):
    with pytest.raises(ConfigError, match=message):
        run_config("cartpole", **changes)


def test_a_horizon_without_memory_is_refused(tmp_path):
    config = run_config("cartpole", policy=PolicyConfig(), ppo=PPOConfig(bptt_horizon=4))
    with pytest.raises(ConfigError, match=r"bptt_horizon=4 .*--policy.memory lstm, or --bptt-horizon none"):
        scramjet.train(config, runs_dir=tmp_path, display="quiet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("field", "value"), [("memory_size", 0), ("memory_layers", 0), ("memory", "elephant")])
def test_impossible_memories_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=f"policy.{field}"):
        PolicyConfig(**{field: value})
