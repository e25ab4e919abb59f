"""Rollouts of several players, with memory and without: what is stored is what each saw, did and was worth."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.advantages import seat_vtrace, vtrace
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete
from scramjet.errors import TrainingError
from scramjet.policies import Policy
from scramjet.training.batches.batch import estimate_again
from scramjet.training.learner import Learner, loss_settings
from scramjet.training.rollout.recurrent_states import RecurrentStates, copy_rows
from scramjet.training.rollout.rollout import Rollout
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import make_policy, play
from tests.helpers.player_training import Sitting, start

pytestmark = pytest.mark.usefixtures("one_thread")

CHOICES = list(itertools.product(("box", "dict"), ("discrete", "multi"), ("one", "agents", "seats"), (False, True)))
NUMBERS = list(itertools.product(("box", "dict"), ("box",), ("one", "agents", "seats"), (False,)))
CASES = [(case, "clip") for case in CHOICES] + list(itertools.product(NUMBERS, ("clip", "tanh")))
FEW = [
    (("box", "discrete", "one", False), "clip"),
    (("dict", "multi", "agents", True), "clip"),
    (("dict", "discrete", "seats", True), "clip"),
    (("dict", "box", "agents", False), "clip"),
    (("box", "box", "seats", False), "tanh"),
]
"""Cases with each way to see, act and play."""


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


@pytest.mark.parametrize("cases", [FEW, pytest.param(CASES, marks=pytest.mark.rest)], ids=["few", "all"])
def test_the_first_gradient_step_has_ratio_1_whatever_is_seen_done_and_played(cases):
    for (*world, masked), bounded in cases:
        said = f"{world}, masked {masked}, {bounded}"
        env = choosing_world(*world, masked=masked)
        _, policy, learner, rollout = start(env, bounded=bounded)
        mask = None if rollout.mask is None else rollout.mask[:-1].flatten(0, 1)
        assert (mask is not None) == masked, said
        with torch.no_grad():
            logits = policy(map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), rollout.obs)).logits
        expected = log_prob_of_torch(env, logits, rollout.action.flatten(0, 1), mask, bounded)
        assert torch.allclose(rollout.log_prob.flatten().double(), expected, rtol=1e-4, atol=1e-4), said
        assert expected.std() > 0.1, said  # else equal numbers would prove nothing
        settings = loss_settings(learner.config, clip=0.01, entropy_coef=0.0)
        terms = minibatch_loss(policy, learner.prepare(rollout).samples, settings)
        assert abs(terms.approx_kl.item()) < 1e-6, said
        assert abs(terms.approx_kl_k1.item()) < 1e-4, said
        assert terms.clip_fraction.item() == 0.0, said


def test_a_rollout_of_players_is_what_a_replay_of_its_actions_gives():
    for players, (obs, action) in itertools.product(("agents", "seats"), (("dict", "multi"), ("box", "box"))):
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


# --- with memory: what is stored is what a replay of each player's own episodes gives, and all of it is used --------


REMEMBERED = st.fixed_dictionaries(
    {
        "obs": st.sampled_from(["box", "dict"]), "action": st.sampled_from(["discrete", "multi", "box"]),
        "players": st.sampled_from(["one", "agents", "seats"]), "masked": st.booleans(),
        "limit": st.sampled_from([None, 1, 2, 3, 5]), "memory": st.sampled_from(["lstm", "gru", "mingru"]),
        "size": st.integers(1, 9), "layers": st.integers(1, 2), "shared_trunk": st.booleans(),
        "num_envs": st.integers(1, 4), "horizon": st.integers(1, 4), "stretches": st.integers(1, 4),
        "native": st.booleans(),
    }
)  # fmt: skip


@settings(max_examples=25)
@given(REMEMBERED)
def test_before_the_first_gradient_step_every_stored_number_is_what_the_policy_gives_again(case):
    obs, action, players, horizon = case["obs"], case["action"], case["players"], case["horizon"]
    env = choosing_world(obs, action, players, masked=case["masked"] and action != "box")
    type(env).max_episode_steps = case["limit"]
    shape = {"memory_size": case["size"], "memory_layers": case["layers"], "shared_trunk": case["shared_trunk"]}
    policy = make_policy(env, memory=case["memory"], **shape)
    is_short = players == "seats" and horizon == 1  # each of two seats must see what came of a turn
    num_steps = horizon * max(case["stretches"], 2 if is_short else 1)
    played = {"num_envs": case["num_envs"], "num_steps": num_steps, "horizon": horizon, "native": case["native"]}
    _, rollout = play(policy, env, rollouts=3, **played)
    learner, batch = prepared(rollout, policy)
    wanted = those_that_count(rollout).flatten().nonzero().flatten()
    if not len(wanted):
        with pytest.raises(TrainingError, match=r"nothing to learn from.*cut before a seat moved twice"):
            learner.update(batch, 0)
        return
    assert_given_again(policy, batch.samples)
    assert sorted(batch.samples.counted(batch.samples.place).tolist()) == wanted.tolist()  # each once, and no other


def assert_given_again(policy: Policy, samples: Samples) -> None:
    """From the states that were kept the policy gives the log-probabilities and values that were stored."""
    with torch.no_grad():
        output = policy(samples.obs, samples.state, samples.begins)
        log_prob, _ = policy.distribution.log_prob_and_entropy(output.logits, samples.action, samples.mask)
    is_step = samples.place >= 0  # sequences of seats are filled up
    torch.testing.assert_close(log_prob[is_step], samples.log_prob[is_step], atol=3e-5, rtol=1e-4)
    torch.testing.assert_close(output.value[is_step], samples.value[is_step], atol=3e-5, rtol=1e-4)


def those_that_count(rollout: Rollout) -> Tensor:
    """What was played and whose outcome is known: of seats, a next turn of the same game, or its end; [T, R]."""
    if rollout.seat is None:
        return torch.ones_like(rollout.terminated) if rollout.alive is None else rollout.alive[:-1].bool()
    known = torch.zeros_like(rollout.terminated)
    for t, row in itertools.product(range(rollout.num_steps), range(known.shape[1])):
        for later in range(t + 1, rollout.num_steps + 1):
            if rollout.terminated[later - 1, row]:
                known[t, row] = True
            if rollout.terminated[later - 1, row] or rollout.truncated[later - 1, row]:
                break
            if rollout.seat[later, row] == rollout.seat[t, row]:
                known[t, row] = True
                break
    return known


def prepared(rollout: Rollout, policy: Policy, config: PPOConfig | None = None) -> tuple[Learner, Any]:
    """A learner, and the batch that it makes of a rollout."""
    executor, config = TorchExecutor(policy), config or PPOConfig(num_minibatches=1)
    learner = Learner.for_rollout(rollout, executor, config, total_steps=100, seed=0)
    return learner, learner.prepare(rollout)


PLAYERS = ("one", "agents", "seats")


def test_truncated_episodes_are_among_those_replayed():
    for players in PLAYERS:
        env = choosing_world(obs="dict", action="multi", players=players)
        type(env).max_episode_steps = 3
        _, rollout = play(make_policy(env), env, num_envs=3, num_steps=8, horizon=None, rollouts=1)
        assert rollout.truncated.sum() > 5, players


def test_a_row_changes_nothing_of_another_nor_an_episode_of_the_next():
    for players in PLAYERS:
        env = choosing_world(obs="box", action="discrete", players=players)
        policy = make_policy(env, shared_trunk=False)
        _, rollout = play(policy, env, num_envs=3, num_steps=12, horizon=None, rollouts=1)
        samples = prepared(rollout, policy)[1].samples
        shape = length, _ = samples.begins.shape
        disturbed = samples.obs.unflatten(0, shape).clone()
        end = int(samples.begins[1:, 0].nonzero()[0]) + 1  # where the second episode of sequence 0 begins
        assert 0 < end < length
        disturbed[:end, 0] += 1.0
        with torch.no_grad():
            before = policy(samples.obs, samples.state, samples.begins).logits.unflatten(0, shape)
            after = policy(disturbed.flatten(0, 1), samples.state, samples.begins).logits.unflatten(0, shape)
        assert not torch.equal(before[:end, 0], after[:end, 0])
        assert torch.equal(before[end:, 0], after[end:, 0]), players
        assert torch.equal(before[:, 1:], after[:, 1:]), players


def test_a_shorter_horizon_begins_from_stored_states_and_cuts_the_gradient_there():
    env = choosing_world(obs="box", action="discrete", players="one")
    policy = make_policy(env)
    _, rollout = play(policy, env, num_envs=2, num_steps=6, horizon=3, rollouts=2)
    assert rollout.states.shape == (2, 2, policy.state_size)
    samples = prepared(rollout, policy)[1].samples
    assert samples.begins.shape == (3, 4)
    assert samples.place.view(3, 4)[:, 2].tolist() == [6, 8, 10]  # env 0 from step 3 on, in the middle of an episode
    assert torch.equal(samples.state, rollout.states.flatten(0, 1))
    assert not samples.state.requires_grad
    assert_given_again(policy, samples)


def test_vtrace_is_estimated_again_for_the_policy_as_it_is_now():
    config = PPOConfig(
        num_minibatches=3, num_epochs=2, advantage="vtrace", gae_lambda=0.8, learning_rate=0.01, normalize_rewards=False
    )
    for players, memory in itertools.product(PLAYERS, (None, "gru")):
        env = choosing_world(obs="box", action="discrete", players=players)
        type(env).max_episode_steps = 4
        policy = make_policy(env, memory=memory)
        _, rollout = play(policy, env, num_envs=3, num_steps=8, horizon=4 if memory else None, rollouts=1)
        learner, whole = prepared(rollout, policy, config)
        batch = whole.samples
        expected_first = batch.advantage.clone()
        _, by_gae = prepared(rollout, policy, replace(config, advantage="gae"))
        assert torch.equal(expected_first, by_gae.samples.advantage)  # on-policy it is GAE
        learner.update(whole, 0)
        estimate_again(policy, whole, num_minibatches=1)
        with torch.no_grad():
            output = policy(batch.obs, batch.state, batch.begins)
            log_prob, _ = policy.distribution.log_prob_and_entropy(output.logits, batch.action, batch.mask)
        value, log_ratio = rollout.value.clone(), torch.zeros(8, rollout.log_prob.shape[1])
        for sample in (batch.place >= 0).nonzero().flatten().tolist():
            t, row = divmod(int(batch.place[sample]), rollout.log_prob.shape[1])
            value[t, row], log_ratio[t, row] = output.value[sample], log_prob[sample] - rollout.log_prob[t, row]
        with torch.no_grad():  # of what comes after the rollout, and of turns that give no sample
            value[-1] = policy(rollout.obs[-1], rollout.recurrent.of_movers(rollout.turn(-1))).value
            if not memory:
                value[:-1] = policy(rollout.obs[:-1].flatten(0, 1)).value.view(8, -1)
        assert not torch.allclose(value[-1], rollout.value[-1])
        ends = rollout.terminated, rollout.truncated, rollout.final_value
        if players == "seats":
            wanted, _, known = seat_vtrace(
                rollout.reward, value, rollout.seat, *ends, log_ratio, gamma=config.gamma, gae_lambda=0.8
            )
            assert 3 < (~known).sum() < 20
        else:
            wanted, _ = vtrace(rollout.reward, value, *ends, log_ratio, gamma=config.gamma, gae_lambda=0.8)
        place = batch.counted(batch.place)
        torch.testing.assert_close(batch.counted(batch.advantage), wanted.flatten()[place])
        assert not torch.allclose(batch.counted(batch.advantage), batch.counted(expected_first)), (players, memory)


def test_minibatches_are_whole_sequences_and_an_epoch_sees_each_once(monkeypatch):
    env = choosing_world(obs="box", action="discrete", players="one")
    policy = make_policy(env)
    _, rollout = play(policy, env, num_envs=6, num_steps=4, horizon=2, rollouts=1)
    learner, batch = prepared(rollout, policy, PPOConfig(num_minibatches=3, num_epochs=2))
    seen: list[Tensor] = []
    select = Samples.select
    monkeypatch.setattr(Samples, "select", lambda *given: (part := select(*given), seen.append(part.place))[0])
    learner.update(batch, 0)
    assert [len(places) for places in seen] == [8] * 6
    for epoch in (seen[:3], seen[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(24))
    for places in seen:  # two steps of the same env side by side
        first, second = places.view(2, 4)
        assert torch.equal(first + 6, second)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_states_of_ended_episodes_and_dead_agents_are_reset_and_no_others(device):
    for played_by in PlayedBy:
        states = RecurrentStates(played_by, 5, 2, 3, device)
        states.states.fill_(1.0)
        terminated, truncated = torch.tensor([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=torch.bool, device=device)
        turn = torch.tensor([1, 1, 1, 1, 0], device=device)  # an agent's is whether it lives, a seat's its number
        kept = torch.zeros_like(states.states)
        copy_rows.on(5, truncated, states.states, kept)
        states.reset_ended(turn, terminated, truncated)
        expected = torch.ones(5, len(states.states) // 5, 3)
        expected[[0, 2, 4] if played_by is PlayedBy.AGENTS else [0, 2]] = 0
        assert torch.equal(states.states.cpu(), expected.flatten(0, 1)), played_by
        assert kept.sum(1).tolist()[:5] == [0, 0, 3, 0, 0], played_by
