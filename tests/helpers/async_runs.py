"""Small asynchronous runs of every kind of policy and world, and what they leave in their folder."""

import sys
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest
from safetensors.numpy import load_file

from scramjet.algorithms.config import PPOConfig
from scramjet.policies.config import PolicyConfig
from scramjet.training.config.run_config import RunConfig
from tests.helpers.run_files import NO_EVALUATION

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


class Corridor(gymnasium.Env):
    """Says at the start which way to turn at its end; a user's own env."""

    observation_space = gymnasium.spaces.Dict(
        {"sign": gymnasium.spaces.Box(-1, 1, (1,), np.float32), "at": gymnasium.spaces.Discrete(4)}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.way, self.at = int(self.np_random.integers(2)), 0
        return self.seen(2 * self.way - 1), {}

    def seen(self, sign=0):
        return {"sign": np.array([sign], np.float32), "at": self.at}

    def step(self, action):
        self.at += 1
        is_over = self.at == 3
        return self.seen(), float(is_over and action == self.way), is_over, False, {}


UPDATE = 8 * 16


def settings(env="cartpole", **changes):
    given = {
        "num_envs": 8, "num_steps": 16, "total_timesteps": 6 * UPDATE, "eval": NO_EVALUATION, "device": "cpu",
        "mode": "async", "num_actors": 2, "ppo": PPOConfig(num_epochs=2),
    }  # fmt: skip
    return RunConfig(env=env, **{**given, **changes})


def weights_of(run_path):
    [newest] = sorted((run_path / "checkpoints").glob("step_*"))[-1:]
    return {path.name: load_file(path) for path in newest.glob("*.safetensors")}


RECURRENT = {"policy": PolicyConfig(memory="lstm", memory_size=8, hidden=(16,)), "ppo": PPOConfig(bptt_horizon=8)}
NORMALIZED = PPOConfig(normalize_observations=True, normalize_rewards=True)

CASES = {
    "a choice": ("cartpole", {}),
    "numbers": ("pendulum", {"ppo": NORMALIZED}),
    "masks": ("maze", {"policy": PolicyConfig(hidden=(16,))}),
    "agents": ("snake", {"policy": PolicyConfig(hidden=(16,))}),
    "seats": ("tic_tac_toe", {"policy": PolicyConfig(hidden=(16,))}),
    "memory": ("tmaze", RECURRENT),
    "memory and masks": ("maze", RECURRENT),
    "memory and agents": ("snake", {**RECURRENT, "num_envs": 4, "total_timesteps": 4 * 16 * 4}),
    "one trunk": ("cartpole", {"policy": PolicyConfig(shared_trunk=True)}),
    "torch's operators": ("cartpole", {"fused": False}),
    "frames": ("masked_cartpole", {"frame_stack": 3}),
    "impala": ("cartpole", {"ppo": PPOConfig(loss="impala", num_epochs=1, num_minibatches=1)}),
    "games": (
        "ale:Pong",
        {
            "policy": PolicyConfig(encoder="nature_cnn", hidden=(8,)), "num_envs": 2, "total_timesteps": 2 * 16 * 3,
            "env_parameters": {"img_height": 36, "img_width": 36, "stack_num": 2},
        },
    ),
    "processes": (Corridor, {}),
    "processes, memory": (Corridor, RECURRENT),
    "processes, one trunk, normalized": (Corridor, {"policy": PolicyConfig(shared_trunk=True), "ppo": NORMALIZED}),
}  # fmt: skip


def of_case(case, **changes):
    """A config, and the factory that goes with it."""
    env, given = CASES[case]
    if env == "ale:Pong":
        pytest.importorskip("ale_py")
    if isinstance(env, str):
        return settings(env, **{**given, **changes}), {}
    return settings(**{**given, **changes}), {"env": env}


def processes():
    """Parent and command line of every process of this machine, by its number; of Linux."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, command = (folder / "stat").read_text(), (folder / "cmdline").read_text(errors="replace")
        except OSError:  # it has ended
            continue
        found[int(folder.name)] = int(stat.rpartition(")")[2].split()[1]), command
    return found
