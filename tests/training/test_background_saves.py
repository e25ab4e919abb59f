"""Checkpoints are written while training goes on, and hold the run as it was when they were due."""

import threading
from pathlib import Path

import pytest
import torch

import scramjet
from scramjet.errors import ScramjetError
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.training.config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.learner import Learner


def config(**settings) -> RunConfig:
    plain = {"env": "cartpole", "num_envs": 4, "num_steps": 8, "total_timesteps": 4 * 8 * 6, "num_threads": 1}
    return RunConfig(
        **plain, checkpoint=CheckpointConfig(every=2, **settings), eval=EvaluationConfig(every=0, final_episodes=0)
    )


def test_training_goes_on_while_one_is_written_and_it_holds_what_was_due(tmp_path, monkeypatch):
    save, update, gate = CheckpointStore.save, Learner.update, threading.Event()
    weights, updates = [], []

    def slow_save(self, step, *arguments, **options):
        assert gate.wait(30)
        return save(self, step, *arguments, **options)

    def noted_update(self, batch, step):
        metrics = update(self, batch, step)
        weights.append({name: tensor.clone() for name, tensor in self.policy.state_dict().items()})
        updates.append(step)
        if len(updates) == 3:  # the first checkpoint, of update 2, has not been written yet
            assert not list(Path(tmp_path).glob("*/checkpoints/step_*"))
            gate.set()
        return metrics

    monkeypatch.setattr(CheckpointStore, "save", slow_save)
    monkeypatch.setattr(Learner, "update", noted_update)
    result = scramjet.train(config(), runs_dir=tmp_path, display="quiet")
    folders = sorted(result.run_path.glob("checkpoints/step_*"))
    assert [load_checkpoint(folder).step for folder in folders] == [64, 128, 192]
    for folder, expected in zip(folders, weights[1::2], strict=True):
        found = load_checkpoint(folder).model
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_disk_that_fills_up_meanwhile_stops_the_run_with_its_message(tmp_path, monkeypatch):
    def failing_save(self, step, *arguments, **options):
        raise ScramjetError("no space left on the disk")

    monkeypatch.setattr(CheckpointStore, "save", failing_save)
    with pytest.raises(ScramjetError, match="no space left"):
        scramjet.train(config(), runs_dir=tmp_path, display="quiet")
