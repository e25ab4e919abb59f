"""Checkpoints are written while training goes on, hold the run as it was when they were due, and fail with a message.

What happens to the run's folder meanwhile is noticed before the next write.
"""

import io
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import scramjet
from scramjet.errors import CheckpointError, RunError, ScramjetError
from scramjet.runtime import checkpoints
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.runtime.metrics_log import read_metrics
from scramjet.runtime.runs import Run
from scramjet.training import loop
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.display import PlainDisplay
from scramjet.training.evaluation.evaluator import Evaluator
from scramjet.training.evaluation.results import Evaluation
from scramjet.training.learner import Learner
from scramjet.training.persistence import state


def config(**settings) -> RunConfig:
    plain = {"env": "cartpole", "num_envs": 4, "num_steps": 8, "total_timesteps": 4 * 8 * 6, "num_threads": 1}
    return RunConfig(
        **plain, checkpoint=CheckpointConfig(every=2, **settings), eval=EvaluationConfig(every=0, final_episodes=0)
    )


@pytest.fixture
def output(monkeypatch) -> io.StringIO:
    """What a plain display prints."""
    text = io.StringIO()
    monkeypatch.setattr(loop, "make_display", lambda mode: PlainDisplay(text))
    return text


def at_update(monkeypatch, number: int, act: Callable[[], None]) -> None:
    """Have something happen while a run learns for the `number`-th time."""
    update, count = Learner.update, [0]

    def noted_update(self, batch, step):
        count[0] += 1
        if count[0] == number:
            act()
        return update(self, batch, step)

    monkeypatch.setattr(Learner, "update", noted_update)


def move_when_saved(checkpoints: Path, target: Path, folder: Path | None = None) -> None:
    """Move a folder once the checkpoint before has been written."""
    while not os.path.lexists(checkpoints / "latest"):
        time.sleep(0.01)
    (folder or checkpoints).rename(target)


def failing_at(steps: list[int], error: Exception, after: float = 0.0) -> Callable[..., Path]:
    """`CheckpointStore.save`, which fails at some steps, after so many seconds."""
    save = CheckpointStore.save

    def sometimes_save(self, step, *arguments, **options):
        if step in steps:
            time.sleep(after)
            raise error
        return save(self, step, *arguments, **options)

    return sometimes_save


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


def test_one_that_cannot_be_written_is_told_and_the_next_one_tried(tmp_path, monkeypatch, output):
    monkeypatch.setattr(CheckpointStore, "save", failing_at([128], ScramjetError("no space left on the disk")))
    result = scramjet.train(config(), runs_dir=tmp_path)
    assert result.step == 192
    assert "not saved: no space left on the disk (training goes on" in output.getvalue()
    assert output.getvalue().count("not saved") == 1
    steps = sorted(load_checkpoint(folder).step for folder in result.run_path.glob("checkpoints/step_*"))
    assert steps == [64, 192]


def test_a_best_one_that_cannot_be_written_does_not_count_as_the_best(tmp_path, monkeypatch):
    results = iter([Evaluation(score, 0.0, 1.0, 4, {}) for score in (10.0, 100.0, 50.0)])
    monkeypatch.setattr(Evaluator, "evaluate_unless", lambda *arguments: next(results))
    failing = failing_at([128], ScramjetError("no space left on the disk"), after=1.0)
    monkeypatch.setattr(CheckpointStore, "save", failing)
    judged = replace(config(), eval=EvaluationConfig(every=2, episodes=4, final_episodes=0))
    result = scramjet.train(judged, runs_dir=tmp_path, display="quiet")
    best = load_checkpoint(result.run_path / "checkpoints" / "best")
    assert (best.step, best.metadata["best_return"]) == (192, 50.0)


def test_a_last_one_that_cannot_be_written_ends_the_run_with_its_message(tmp_path, monkeypatch):
    monkeypatch.setattr(CheckpointStore, "save", failing_at([192], ScramjetError("no space left on the disk")))
    with pytest.raises(ScramjetError, match="no space left"):
        scramjet.train(config(), runs_dir=tmp_path, display="quiet")
    assert load_checkpoint(tmp_path / "cartpole-1").step == 128


@pytest.mark.parametrize("where", ["gathering", "encoding"])
def test_whatever_a_save_raises_becomes_one_message_and_earlier_ones_stay(tmp_path, monkeypatch, output, where):
    encode = checkpoints.encode

    def fail(*arguments):
        raise ValueError("Out of range float values are not JSON compliant")

    def fail_later(step, *arguments):
        return encode(step, *arguments) if step == 64 else fail()

    if where == "encoding":
        monkeypatch.setattr(checkpoints, "encode", fail_later)
    else:
        at_update(monkeypatch, 3, lambda: monkeypatch.setattr(state, "trainer_tensors", fail))
    with pytest.raises(CheckpointError) as caught:
        scramjet.train(config(), runs_dir=tmp_path)
    assert str(caught.value) == (
        "the checkpoint of step 192 could not be made (ValueError: Out of range float values are not JSON compliant); "
        "earlier ones are kept"
    )
    assert "not saved: the checkpoint of step 128 could not be made" in output.getvalue()
    assert load_checkpoint(tmp_path / "cartpole-1").step == 64


def test_removing_the_lock_of_a_run_lets_no_second_writer_in(tmp_path, monkeypatch):
    refusals = []

    def intrude():
        (tmp_path / "cartpole-1" / ".lock").unlink()
        try:
            scramjet.train(resume=tmp_path / "cartpole-1", display="quiet")
        except RunError as error:
            refusals.append(str(error))

    at_update(monkeypatch, 3, intrude)
    scramjet.train(config(), runs_dir=tmp_path, display="quiet")
    assert len(refusals) == 1
    assert "is in use by" in refusals[0]
    assert [record["step"] for record in read_metrics(tmp_path / "cartpole-1" / "metrics.jsonl")][-1] == 192


def test_a_deleted_metrics_file_is_written_again_and_told_once(tmp_path, monkeypatch, output):
    at_update(monkeypatch, 3, (tmp_path / "cartpole-1" / "metrics.jsonl").unlink)
    scramjet.train(config(), runs_dir=tmp_path)
    steps = [record["step"] for record in read_metrics(tmp_path / "cartpole-1" / "metrics.jsonl")]
    assert steps == [32, 64, 96, 128, 160, 192]
    assert output.getvalue().count("metrics.jsonl was deleted or moved") == 1


def test_deleted_checkpoints_do_not_keep_the_next_one_from_being_saved(tmp_path, monkeypatch):
    folder = tmp_path / "cartpole-1" / "checkpoints"
    at_update(monkeypatch, 4, lambda: move_when_saved(folder, tmp_path / "taken"))
    result = scramjet.train(config(), runs_dir=tmp_path, display="quiet")
    assert load_checkpoint(result.run_path).step == 192


def test_a_run_that_is_moved_away_stops_and_keeps_what_it_has(tmp_path, monkeypatch):
    run = tmp_path / "cartpole-1"
    at_update(monkeypatch, 4, lambda: move_when_saved(run / "checkpoints", tmp_path / "moved", run))
    with pytest.raises(RunError, match=r"run 'cartpole-1' .* was moved or deleted while it was being written to"):
        scramjet.train(config(), runs_dir=tmp_path, display="quiet")
    assert load_checkpoint(tmp_path / "moved").step == 64
    assert not (tmp_path / "cartpole-1").exists()


def test_a_filesystem_without_locks_is_told_at_the_start(tmp_path, monkeypatch, output):
    monkeypatch.setattr(Run, "lock_note", "the filesystem has no locks: see to it")
    scramjet.train(config(), runs_dir=tmp_path)
    assert "the filesystem has no locks" in output.getvalue().splitlines()[0]
