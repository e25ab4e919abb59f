"""The state of a session goes into a checkpoint and comes back, every tensor of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import CheckpointError
from scramjet.policies import PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.training.evaluation.best import Best
from scramjet.training.persistence import state
from scramjet.training.persistence.metadata import best_of
from scramjet.training.persistence.weights import check_weights
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


def test_a_checkpoint_holds_the_session_as_it_was_when_it_was_made_and_not_when_it_is_written(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        weights = {name: tensor.clone() for name, tensor in session.policy.state_dict().items()}
        save = state.checkpoint_of(session, update=0, step=0, elapsed_seconds=0.0)
        train(session, 1)
        for name, tensor in load_checkpoint(save()).model.items():
            assert torch.equal(tensor, weights[name]), name


@pytest.mark.parametrize(
    ("best", "expected"), [(None, None), (Best(10.0, 8.0), Best(10.0, 8.0))], ids=["none", "chosen"]
)
def test_what_chose_the_best_checkpoint_is_known_again(best: Best | None, expected: Best | None, tmp_path) -> None:
    with begun(SMALL, tmp_path) as session:
        session.best = best
        saved = load_checkpoint(state.checkpoint_of(session, update=1, step=32, elapsed_seconds=0.0)())
    assert best_of(saved) == expected


def test_a_fork_takes_weights_and_optimizer_along_and_no_episode(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        train(session, 2)
        saved = load_checkpoint(state.checkpoint_of(session, update=2, step=64, elapsed_seconds=0.0)())
        optimizer = state.optimizer_tensors(session.learner)
    with begun(SMALL, tmp_path) as fork:
        episodes = fork.pool.snapshot()["states"].copy()
        state.restore_learning(fork.policy, fork.learner, saved)
        for name, tensor in optimizer.items():
            assert torch.equal(state.optimizer_tensors(fork.learner)[name], tensor), name
        assert (fork.pool.snapshot()["states"] == episodes).all()


def test_weights_of_another_network_are_refused_by_the_first_that_differs(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        saved = load_checkpoint(state.checkpoint_of(session, update=0, step=0, elapsed_seconds=0.0)())
        own = {**session.policy.state_dict(), "extra": torch.zeros(3)}
    with pytest.raises(CheckpointError, match=r"extra is absent there and \[3\] here"):
        check_weights(own, saved)
