"""`policy.save` and `scramjet.load_policy` are a pair: what was saved is what is loaded, wherever it lies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import scramjet
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies import Policy, PolicyConfig, default_network

SMALL: dict[str, Any] = {
    "total_timesteps": 256, "num_envs": 4, "num_steps": 32, "minibatch_size": 64, "num_epochs": 1, "display": "quiet",
    "policy": {"hidden": (8,)}, "eval": {"every": 0, "final_episodes": 0},
}  # fmt: skip
OBS = torch.linspace(-1, 1, 12).reshape(3, 4)


def values_of(policy: Policy) -> list[torch.Tensor]:
    output = policy(OBS)
    return [output.logits.detach(), output.value.detach()]


def test_a_trained_policy_is_saved_and_loaded_with_its_normalizers_and_saved_again(tmp_path: Path) -> None:
    for value_scale in ("none", "popart", "symlog"):
        result = scramjet.train("cartpole", value_scale=value_scale, runs_dir=tmp_path, **SMALL)
        of_run = scramjet.load_policy(result.run_path)
        saved = result.policy.save(tmp_path / "mine")  # over the one before
        loaded = scramjet.load_policy(saved)
        again = scramjet.load_policy(loaded.save(str(tmp_path / "again")))
        for policy in (loaded, again):
            assert all(map(torch.equal, values_of(policy), values_of(of_run))), value_scale
        assert loaded.predict(np.zeros(4, np.float32))[0] in (0, 1)
    before = scramjet.evaluate(result.run_path, episodes=2, seed=3)
    assert scramjet.evaluate(saved, episodes=2, seed=3) == before
    assert sorted(os.listdir(tmp_path / "again")) == ["metadata.json", "model.safetensors", "trainer.safetensors"]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_nothing_but_a_saved_policy_is_replaced_and_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    result = scramjet.train("cartpole", runs_dir=tmp_path, **SMALL)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("kept")
    (tmp_path / "file").write_text("kept")
    for place in ("notes", "file", result.run_path.name):
        with pytest.raises(CheckpointError, match="is no saved policy; choose another name"):
            result.policy.save(tmp_path / place)
    assert (tmp_path / "notes" / "mine.txt").read_text() == (tmp_path / "file").read_text() == "kept"
    space, config = Box(-1, 1, (4,), np.float32), PolicyConfig(hidden=(8,))
    own = Policy(default_network(space, Discrete(2), config), space, Discrete(2), config)
    with pytest.raises(ConfigError, match=r"neither trained nor loaded .*torch.save"):
        own.save(tmp_path / "own")
