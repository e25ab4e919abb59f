"""What checkpoints hold, every tensor of it; how they are written while training goes on, or fail with a message."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.errors import CheckpointError, RunError, ScramjetError
from scramjet.policies import PolicyConfig
from scramjet.runs.results import Evaluation
from scramjet.runs.weights import check_weights, optimizer_tensors
from scramjet.runtime import checkpoints
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.runtime.runs import Run
from scramjet.training import state
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.evaluator import Evaluator
from scramjet.training.learner import Learner
from tests.helpers.run_files import lines_of
from tests.helpers.sessions import SMALL, begun, train

pytestmark = pytest.mark.usefixtures("one_thread")

EVERYTHING = replace(
    SMALL,
    policy=PolicyConfig(hidden=(8,), memory="gru", memory_size=4),
    ppo=PPOConfig(num_epochs=1, num_minibatches=1, normalize_observations=True, normalize_rewards=True),
)
"""A run with all that a state can hold: an optimizer, normalizers, a scaler of rewards and memory."""


def test_a_session_that_takes_a_checkpoint_in_holds_every_tensor_of_the_one_that_saved_it(tmp_path: Path) -> None:
    with begun(EVERYTHING, tmp_path) as session:
        train(session, 3)
        saved = load_checkpoint(state.checkpoint_of(session, update=3, step=96, elapsed_seconds=1.5)())
        weights = {name: tensor.clone() for name, tensor in session.policy.state_dict().items()}
        others = {name: tensor.clone() for name, tensor in state.trainer_tensors(session).items()}
    with begun(replace(EVERYTHING, seed=2), tmp_path) as fresh:
        before = state.trainer_tensors(fresh)
        assert any(not torch.equal(tensor, before.get(name, tensor)) for name, tensor in others.items())
        state.restore_everything(fresh, saved, is_own=True)
        for ours, theirs in ((fresh.policy.state_dict(), weights), (state.trainer_tensors(fresh), others)):
            assert set(ours) == set(theirs)
            for name, tensor in theirs.items():
                torch.testing.assert_close(ours[name], tensor, rtol=0, atol=0, equal_nan=True, msg=name)
    assert {"memory", "reward_scaler/moments", "rng/action", "rng/shuffle"} <= set(others)


def test_a_fork_takes_weights_and_optimizer_along_and_no_episode(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        train(session, 2)
        saved = load_checkpoint(state.checkpoint_of(session, update=2, step=64, elapsed_seconds=0.0)())
        optimizer = optimizer_tensors(session.policy, session.learner.optimizer)
    with begun(SMALL, tmp_path) as fork:
        episodes = fork.pool.snapshot()["states"].copy()
        state.restore_learning(fork.policy, fork.learner, saved)
        taken = optimizer_tensors(fork.policy, fork.learner.optimizer)
        assert all(torch.equal(taken[name], tensor) for name, tensor in optimizer.items())
        assert (fork.pool.snapshot()["states"] == episodes).all()


def test_weights_of_another_network_are_refused_by_the_first_that_differs(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        saved = load_checkpoint(state.checkpoint_of(session, update=0, step=0, elapsed_seconds=0.0)())
        own = {**session.policy.state_dict(), "extra": torch.zeros(3)}
    with pytest.raises(CheckpointError, match=r"extra is absent there and \[3\] here"):
        check_weights(own, saved)


# --- written in the background


CONFIG = replace(SMALL, total_timesteps=4 * 8 * 6, checkpoint=CheckpointConfig(every=2))
"""Checkpoints at the steps 64, 128 and 192, the last."""


def trained(runs_dir: Path, config: RunConfig = CONFIG, display: str = "plain") -> Path:
    return scramjet.train(config, runs_dir=runs_dir, display=display).run_path


def steps_of(run: Path) -> list[int]:
    return sorted(load_checkpoint(folder).step for folder in run.glob("checkpoints/step_*"))


def at_update(monkeypatch, number: int, act: Callable[[], None]) -> None:
    update, count = Learner.update, [0]

    def noted_update(self, batch, step):
        count[0] += 1
        if count[0] == number:
            act()
        return update(self, batch, step)

    monkeypatch.setattr(Learner, "update", noted_update)


def move_when_saved(checkpoints: Path, target: Path, folder: Path | None = None) -> None:
    """Move a folder once the checkpoint before has been written."""
    deadline = time.monotonic() + 30
    while not os.path.lexists(checkpoints / "latest"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (folder or checkpoints).rename(target)


@pytest.fixture
def failing_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have checkpoints of a step fail, after waiting for what is given."""

    def fail(failing: int, wait: Callable[[], Any] = lambda: None) -> None:
        def sometimes_save(self, step, *arguments, **options):
            if step == failing:
                wait()
                raise ScramjetError("no space left on the disk")
            return save(self, step, *arguments, **options)

        save = CheckpointStore.save
        monkeypatch.setattr(CheckpointStore, "save", sometimes_save)

    return fail


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
    run = trained(tmp_path)
    assert steps_of(run) == [64, 128, 192]
    for folder, expected in zip(sorted(run.glob("checkpoints/step_*")), weights[1::2], strict=True):
        found = load_checkpoint(folder).model
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_one_that_cannot_be_written_is_told_and_the_next_one_tried(tmp_path, failing_at, capsys):
    failing_at(128)
    assert steps_of(trained(tmp_path)) == [64, 192]
    said = capsys.readouterr().out
    assert "not saved: no space left on the disk (training goes on" in said
    assert said.count("not saved") == 1


def test_a_best_one_that_cannot_be_written_does_not_count_as_the_best(tmp_path, failing_at, monkeypatch):
    judged, results = threading.Event(), iter([10.0, 100.0, 50.0])

    def evaluation(*arguments):
        score = next(results)
        if score == 50.0:
            judged.set()
        return Evaluation(score, 0.0, 1.0, 4, {})

    monkeypatch.setattr(Evaluator, "evaluate_unless", evaluation)
    failing_at(128, wait=lambda: judged.wait(30))  # it fails only after the next has been judged
    run = trained(tmp_path, replace(CONFIG, eval=EvaluationConfig(every=2, episodes=4, final_episodes=0)))
    best = load_checkpoint(run / "checkpoints" / "best")
    assert (best.step, best.metadata["best_return"]) == (192, 50.0)


@pytest.mark.parametrize("where", ["gathering", "encoding"])
def test_whatever_a_save_raises_becomes_one_message_and_earlier_ones_stay(tmp_path, monkeypatch, capsys, where):
    encode = checkpoints.encode

    def fail(*arguments):
        raise ValueError("Out of range float values are not JSON compliant")

    if where == "encoding":
        monkeypatch.setattr(checkpoints, "encode", lambda step, *more: encode(step, *more) if step == 64 else fail())
    else:
        at_update(monkeypatch, 3, lambda: monkeypatch.setattr(state, "trainer_tensors", fail))
    with pytest.raises(CheckpointError) as caught:
        trained(tmp_path)
    assert str(caught.value) == (
        "the checkpoint of step 192 could not be made (ValueError: Out of range float values are not JSON compliant); "
        "earlier ones are kept"
    )
    assert "not saved: the checkpoint of step 128 could not be made" in capsys.readouterr().out
    assert load_checkpoint(tmp_path / "cartpole-1").step == 64


def test_removing_the_lock_of_a_run_lets_no_second_writer_in(tmp_path, monkeypatch):
    run, refusals = tmp_path / "cartpole-1", []

    def intrude():
        (run / ".lock").unlink()
        with pytest.raises(RunError, match="is in use by") as refusal:
            scramjet.train(resume=run, display="quiet")
        refusals.append(refusal)

    at_update(monkeypatch, 3, intrude)
    trained(tmp_path)
    assert len(refusals) == 1
    assert lines_of(run)[-1]["step"] == 192


def test_a_deleted_metrics_file_is_written_again_and_told_once(tmp_path, monkeypatch, capsys):
    at_update(monkeypatch, 3, lambda: (tmp_path / "cartpole-1" / "metrics.jsonl").unlink())
    assert [record["step"] for record in lines_of(trained(tmp_path))] == [32, 64, 96, 128, 160, 192]
    assert capsys.readouterr().out.count("metrics.jsonl was deleted or moved") == 1


def test_deleted_checkpoints_do_not_keep_the_next_one_from_being_saved(tmp_path, monkeypatch):
    folder = tmp_path / "cartpole-1" / "checkpoints"
    at_update(monkeypatch, 4, lambda: move_when_saved(folder, tmp_path / "taken"))
    assert load_checkpoint(trained(tmp_path)).step == 192


def test_a_run_that_is_moved_away_stops_and_keeps_what_it_has(tmp_path, monkeypatch):
    run = tmp_path / "cartpole-1"
    at_update(monkeypatch, 4, lambda: move_when_saved(run / "checkpoints", tmp_path / "moved", run))
    with pytest.raises(RunError, match=r"run 'cartpole-1' .* was moved or deleted while it was being written to"):
        trained(tmp_path)
    assert load_checkpoint(tmp_path / "moved").step == 64
    assert not run.exists()


def test_a_filesystem_without_locks_is_told_at_the_start(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Run, "lock_note", "the filesystem has no locks: see to it")
    trained(tmp_path)
    assert "the filesystem has no locks" in capsys.readouterr().out.splitlines()[0]
