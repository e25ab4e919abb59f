"""Rollouts of several players: what is stored is what each player saw, did and was worth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

from scramjet.accelerate.losses import minibatch_loss
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete
from scramjet.training.learner import loss_settings
from scramjet.training.rollout.rollout import Rollout
from tests.helpers.choosing import choosing_world
from tests.helpers.player_training import Sitting, start

pytestmark = pytest.mark.usefixtures("one_thread")

CHOICES = [
    {"obs": obs, "action": action, "players": players, "masked": masked}
    for obs, action, players, masked in itertools.product(
        ("box", "dict"), ("discrete", "multi"), ("one", "agents", "seats"), (False, True)
    )
]

NUMBERS = [
    {"obs": obs, "action": "box", "players": players}
    for obs, players in itertools.product(("box", "dict"), ("one", "agents", "seats"))
]

CASES = [(case, "clip") for case in CHOICES] + [
    (case, bounded) for case, bounded in itertools.product(NUMBERS, ("clip", "tanh"))
]


def name_of(part):
    """A readable name of a case, or of one of its parts."""
    return "-".join(map(str, part.values())) if isinstance(part, dict) else part


def flat_obs(rollout: Rollout):
    return map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), rollout.obs)


def log_prob_of_torch(env, logits, action, mask, bounded):
    """The log-probability of stored actions by torch's own distributions."""
    if isinstance(env.action_space, Box):
        mean, log_std = logits.double().chunk(2, dim=-1)
        normal = Normal(mean, log_std.exp())
        if bounded == "clip":
            return normal.log_prob(action.double()).sum(-1)
        low, high = torch.from_numpy(env.action_space.low).double(), torch.from_numpy(env.action_space.high).double()
        squashed = TransformedDistribution(
            normal, [TanhTransform(), AffineTransform((low + high) / 2, (high - low) / 2)]
        )
        played = (low + high) / 2 + (high - low) / 2 * action.double().tanh()
        return squashed.log_prob(played).sum(-1)
    legal = logits.double() if mask is None else torch.where(mask, logits.double(), -torch.inf)
    sizes = [env.action_space.n] if isinstance(env.action_space, Discrete) else env.action_space.nvec.tolist()
    chosen = action.reshape(len(action), -1).unbind(-1)
    return sum(
        Categorical(logits=part, validate_args=False).log_prob(choice)
        for part, choice in zip(legal.split(sizes, -1), chosen, strict=True)
    )


@pytest.mark.parametrize(("case", "bounded"), CASES, ids=name_of)
def test_the_first_gradient_step_has_ratio_1_whatever_is_seen_done_and_played(case, bounded):
    env = choosing_world(**case)
    _, policy, learner, rollout = start(env, bounded=bounded)
    mask = None if rollout.mask is None else rollout.mask[:-1].flatten(0, 1)
    assert (mask is not None) == case.get("masked", False)
    action = rollout.action.flatten(0, 1)
    with torch.no_grad():
        logits = policy(flat_obs(rollout)).logits
    expected = log_prob_of_torch(env, logits, action, mask, bounded)
    torch.testing.assert_close(rollout.log_prob.flatten().double(), expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.1  # else equal numbers would prove nothing
    terms = minibatch_loss(
        policy, learner.prepare(rollout).samples, loss_settings(learner.config, clip=0.01, entropy_coef=0.0)
    )
    assert abs(terms.approx_kl.item()) < 1e-6
    assert abs(terms.approx_kl_k1.item()) < 1e-4
    assert terms.clip_fraction.item() == 0.0


@pytest.mark.parametrize("players", ["agents", "seats"])
@pytest.mark.parametrize(("action", "obs"), [("multi", "dict"), ("box", "box")])
def test_a_rollout_of_players_is_what_a_replay_of_its_actions_gives(players, action, obs):
    env = choosing_world(obs, action, players)
    _, policy, _, rollout = start(env, num_steps=15)
    replay = NativePool(env, 4, backend="interpreted")
    out = replay.reset(100)
    for t in range(15):
        for ours, theirs in zip(leaves(rollout.obs_at(t)), leaves(out.obs), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal((rollout.alive if players == "agents" else rollout.seat)[t], out.turn)
        out = replay.step(policy.distribution.env_action(rollout.action[t]).numpy().copy())
        np.testing.assert_array_equal(rollout.reward[t], out.reward)
        np.testing.assert_array_equal(rollout.terminated[t], out.terminated)
    assert rollout.terminated.any()
    assert rollout.reward.shape == ((15, 8) if players == "agents" else (15, 4, 2))


def test_values_of_seats_are_of_the_movers_own_view_after_the_rollout_too_and_no_last_view_is_valued():
    _, policy, _, rollout = start(Sitting(), num_steps=11)
    replay = NativePool(Sitting(), 4, backend="interpreted")
    replay.reset(100)
    for t in range(12):
        turn = replay.states()["turn"]
        seat = np.array(Sitting.order)[turn % 5]
        with torch.no_grad():
            own, others = (
                policy.value(torch.from_numpy(np.stack([who, turn], 1).astype(np.float32))) for who in (seat, 1 - seat)
            )
        assert rollout.seat[t].tolist() == seat.tolist()
        torch.testing.assert_close(rollout.value[t], own)
        assert (own - others).abs().min() > 1e-3  # else it would not matter whose view it is
        if t < 11:
            replay.step(rollout.action[t].numpy().copy())
    assert set(seat.tolist()) == {0, 1}
    assert rollout.truncated.sum() >= 4
    assert not rollout.final_value.any()
    assert rollout.final_value.shape == (11, 4)
