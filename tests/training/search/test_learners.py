"""The learners of SPO and AlphaZero, step by step against sums written out by hand."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scramjet.algorithms.reward_scaling import SCALED_CLIP
from scramjet.errors import CheckpointError
from scramjet.search.search import Rewards
from scramjet.training.search.alphazero_learner import AlphaZeroLearner
from scramjet.training.search.spo_learner import SPOLearner
from scramjet.training.session import Session
from tests.helpers.search_training import normalized, searching_config
from tests.helpers.sessions import begun
from tests.helpers.sessions import train as train_session

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def spo(tmp_path: Path) -> Iterator[SPOLearner]:
    """A learner of SPO on games with masks and two seats, after one update."""
    with begun(searching_config("tic_tac_toe", "spo"), tmp_path) as session:
        train_session(session, 1)
        assert isinstance(session.learner, SPOLearner)
        yield session.learner


@pytest.fixture
def alphazero(tmp_path: Path) -> Iterator[Session]:
    """A session of AlphaZero whose gradients are not clipped, with one rollout of games in its replay."""
    config = searching_config("tic_tac_toe", "alphazero")
    config = replace(config, ppo=replace(config.ppo, max_grad_norm=None, num_minibatches=config.batch_size))
    with begun(config, tmp_path) as session:
        assert isinstance(session.learner, AlphaZeroLearner)
        session.learner.prepare(session.collector.collect())
        yield session


def without_action(learner: SPOLearner, action: int, instead: int) -> None:
    """Make `action` illegal in all that the replay holds; particles took `instead`, which is legal."""
    record = learner.replay.record
    assert record.mask is not None
    record.mask[..., action], record.mask[..., instead] = False, True
    record.root_actions[record.root_actions == action] = instead


def test_the_loss_of_particles_never_touches_the_logit_of_an_illegal_action(spo: SPOLearner) -> None:
    without_action(spo, 4, instead=3)
    bias = spo.policy.get_parameter("network.actor_head.bias")
    for _ in range(3):  # from the second step on, the policy differs from the target policy
        spo._draw()
        spo._recorded_step()
        assert bias.grad is not None
        assert float(bias.grad[4]) == 0.0
        assert float(bias.grad[3].abs()) > 0.0


def test_the_target_network_moves_by_its_rate_towards_the_network_after_each_step(spo: SPOLearner) -> None:
    before = [weight.clone() for weight in spo.target.parameters()]
    spo._draw()
    spo._recorded_step()
    rate = spo.spo.target_rate
    for old, now, weight in zip(before, spo.target.parameters(), spo.policy.parameters(), strict=True):
        torch.testing.assert_close(now, (1 - rate) * old + rate * weight)


def test_the_search_uses_the_temperature_that_its_dual_has_learned(spo: SPOLearner) -> None:
    eta = float(torch.nn.functional.softplus(spo.duals.detach()[0]))
    assert eta != spo.spo.temperature
    assert float(spo._search.eta) == pytest.approx(eta, abs=2e-6)


def test_the_temperature_falls_where_particles_differ_less_than_epsilon_allows(spo: SPOLearner) -> None:
    spo.replay.record.advantages.zero_()  # no divergence at all
    before = spo.duals.detach()[0].clone()
    spo._draw()
    spo._recorded_step()
    assert spo.duals.detach()[0] < before


@pytest.mark.parametrize("action", [-1, 9])
def test_a_replay_with_actions_that_the_world_does_not_have_is_refused(spo: SPOLearner, action: int) -> None:
    saved = {name: tensor.clone() for name, tensor in spo.tensors().items()}
    spo.restore(saved)
    saved["replay/root_actions"][0, 0, 0] = action
    with pytest.raises(CheckpointError, match="actions that the world does not have"):
        spo.restore(saved)


def hand_written_loss(session: Session, sample: Any) -> Tensor:
    """Cross-entropy to the improved policy over legal actions, and half the squared error of the value."""
    output = session.policy(sample.obs)
    assert sample.mask is not None
    legal = sample.mask[0]
    log_prob = output.logits[0, legal] - output.logits[0, legal].exp().sum().log()
    error = output.value[0] - sample.returns[0]
    return -(sample.policy[0, legal] * log_prob).sum() + session.config.ppo.value_coef * 0.5 * error**2


def test_a_gradient_step_of_alphazero_follows_the_gradient_of_the_loss_written_out(alphazero: Session) -> None:
    learner: Any = alphazero.learner
    for _ in range(5):
        learner._draw()
        sample = learner.replay.samples(learner._steps, learner._numbers)
        assert len(sample.returns) == 1
        weights = list(alphazero.policy.parameters())
        expected = torch.autograd.grad(hand_written_loss(alphazero, sample), weights)
        learner._gradient_step()
        for weight, gradient in zip(weights, expected, strict=True):
            torch.testing.assert_close(weight.grad, gradient, rtol=1e-4, atol=1e-5)


def test_targets_of_the_policy_are_distributions_over_legal_actions(alphazero: Session) -> None:
    record: Any = alphazero.learner.replay.record  # type: ignore[attr-defined]
    played = record.policy[:, : alphazero.config.num_envs]
    legal = record.mask[:, : alphazero.config.num_envs]
    assert float(played[~legal].abs().max()) == 0.0
    torch.testing.assert_close(played.sum(-1), torch.ones(played.shape[:-1]))


def test_rewards_are_clipped_scaled_and_clipped_again_for_search_and_learner_alike() -> None:
    config = searching_config("cartpole", "spo").ppo
    scale = torch.tensor([4.0])
    reward = torch.tensor([-9.0, -1.0, 0.5, 2.0, 100.0])
    scaled = Rewards.of(replace(config, normalize_rewards=True, reward_clip=5.0), scale)
    assert scaled.counted(reward).tolist() == [-SCALED_CLIP, -4.0, 2.0, 8.0, SCALED_CLIP]
    assert Rewards.of(config, torch.ones(1)).counted(reward).tolist() == reward.tolist()


def test_the_target_network_sees_observations_as_the_network_does(tmp_path: Path) -> None:
    with begun(normalized(searching_config("pendulum", "spo")), tmp_path) as session:
        learner: Any = session.learner
        before = [each.clone() for each in session.policy.buffers()]
        train_session(session, 1)
        after = list(session.policy.buffers())
        assert not all(torch.equal(mine, other) for mine, other in zip(before, after, strict=True))
        for mine, other in zip(learner.target.buffers(), after, strict=True):
            assert torch.equal(mine, other)


def test_returns_in_the_replay_are_scaled_by_the_newest_statistics(tmp_path: Path) -> None:
    with begun(normalized(searching_config("pendulum", "spo")), tmp_path) as session:
        learner: Any = session.learner
        train_session(session, 1)
        value = copy.deepcopy(learner.replay.record.final_value)
        zeros = torch.zeros(value.shape[0] + 1, value.shape[1]).flatten()
        batch = learner.replay.record
        batch.final_value.zero_()
        learner._rewards.scale.fill_(0.01)
        small = learner._returns(batch, zeros)
        learner._rewards.scale.fill_(0.02)
        torch.testing.assert_close(learner._returns(batch, zeros), 2 * small)
        assert float(small.abs().max()) > 0
        train_session(session, 1)
        assert torch.equal(learner._rewards.scale, learner.reward_scaler.factor)
