"""Rollouts with memory: what is stored is what a replay of each player's own episodes gives, and all of it is used."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scramjet.accelerate.samples import Samples
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.advantages import seat_vtrace, vtrace
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.layout import PlayedBy
from scramjet.errors import TrainingError
from scramjet.training.batches.batch import estimate_again
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.recurrent_states import RecurrentStates, copy_rows
from scramjet.training.rollout.rollout import Rollout
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import Recorder, Replay, make_policy, play

pytestmark = pytest.mark.usefixtures("one_thread")

MEMORIES = ("lstm", "gru", "mingru")


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    action = draw(st.sampled_from(["discrete", "multi", "box"]))
    players = draw(st.sampled_from(["one", "agents", "seats"]))
    horizon = draw(st.sampled_from([1, 2, 3, 4]))
    fewest = 2 if players == "seats" and horizon == 1 else 1  # each of two seats must see what came of a turn
    return {
        "world": {
            "obs": draw(st.sampled_from(["box", "dict"])),
            "action": action,
            "players": players,
            "masked": action != "box" and draw(st.booleans()),
        },
        "limit": draw(st.sampled_from([None, 1, 2, 3, 5])),
        "shape": {
            "memory": draw(st.sampled_from(MEMORIES)),
            "memory_size": draw(st.integers(1, 9)),
            "memory_layers": draw(st.integers(1, 2)),
            "shared_trunk": draw(st.booleans()),
        },
        "num_envs": draw(st.integers(1, 4)),
        "horizon": horizon,
        "num_steps": horizon * draw(st.integers(fewest, 4)),
        "native": draw(st.booleans()),
    }


@settings(max_examples=25)
@given(cases())
def test_before_the_first_gradient_step_every_stored_number_is_what_the_policy_gives_again(case):
    env = choosing_world(**case["world"])
    type(env).max_episode_steps = case["limit"]
    policy = make_policy(env, **case["shape"])
    shape = {name: case[name] for name in ("num_envs", "num_steps", "horizon", "native")}
    _, rollout = play(policy, env, rollouts=3, **shape)
    learner = Learner.for_rollout(rollout, TorchExecutor(policy), PPOConfig(num_minibatches=1), total_steps=100, seed=0)
    batch, wanted = learner.prepare(rollout), those_that_count(rollout).flatten().nonzero().flatten()
    if not len(wanted):
        with pytest.raises(TrainingError, match=r"nothing to learn from.*cut before a seat moved twice"):
            learner.update(batch, 0)
        return
    samples = batch.samples
    with torch.no_grad():
        output = policy(samples.obs, samples.state, samples.begins)
        log_prob, _ = policy.distribution.log_prob_and_entropy(output.logits, samples.action, samples.mask)
    is_step = samples.place >= 0  # sequences of seats are filled up
    torch.testing.assert_close(log_prob[is_step], samples.log_prob[is_step], atol=3e-5, rtol=1e-4)
    torch.testing.assert_close(output.value[is_step], samples.value[is_step], atol=3e-5, rtol=1e-4)
    assert sorted(samples.counted(samples.place).tolist()) == wanted.tolist()  # each once, and no other


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


@pytest.mark.parametrize("players", ["one", "agents", "seats"])
def test_truncated_episodes_are_among_those_replayed(players):
    env = choosing_world(obs="dict", action="multi", players=players)
    type(env).max_episode_steps = 3
    pool = Recorder(env, 3, backend="interpreted")
    pool.seen = []
    policy = make_policy(env)
    player = RolloutPlayer(pool, TorchExecutor(policy), 8)
    pool.reset(7, out=player.buffers.last)
    replay = Replay(pool, policy)
    replay.check(player.play(torch.Generator().manual_seed(5)), pool.seen)
    assert replay.num_cut > 5


@pytest.mark.parametrize("players", ["one", "agents", "seats"])
def test_a_row_changes_nothing_of_another_nor_an_episode_of_the_next(players):
    env = choosing_world(obs="box", action="discrete", players=players)
    policy = make_policy(env, shared_trunk=False)
    _, rollout = play(policy, env, num_envs=3, num_steps=12, horizon=None, rollouts=1)
    samples = (
        Learner.for_rollout(rollout, TorchExecutor(policy), PPOConfig(num_minibatches=1), total_steps=1, seed=0)
        .prepare(rollout)
        .samples
    )
    length, sequences = samples.begins.shape
    disturbed = samples.obs.unflatten(0, (length, sequences)).clone()
    end = int(samples.begins[1:, 0].nonzero()[0]) + 1  # where the second episode of sequence 0 begins
    disturbed[:end, 0] += 1.0
    with torch.no_grad():
        before = policy(samples.obs, samples.state, samples.begins).logits.unflatten(0, (length, sequences))
        after = policy(disturbed.flatten(0, 1), samples.state, samples.begins).logits.unflatten(0, (length, sequences))
    assert not torch.equal(before[:end, 0], after[:end, 0])
    assert torch.equal(before[end:, 0], after[end:, 0])
    assert torch.equal(before[:, 1:], after[:, 1:])


def test_a_shorter_horizon_begins_from_stored_states_and_cuts_the_gradient_there():
    env = choosing_world(obs="box", action="discrete", players="one")
    policy = make_policy(env)
    _, rollout = play(policy, env, num_envs=2, num_steps=8, horizon=4, rollouts=2)
    assert rollout.states.shape == (2, 2, policy.state_size)
    samples = (
        Learner.for_rollout(rollout, TorchExecutor(policy), PPOConfig(num_minibatches=1), total_steps=1, seed=0)
        .prepare(rollout)
        .samples
    )
    assert samples.begins.shape == (4, 4)
    assert samples.place.view(4, 4)[:, 2].tolist() == [8, 10, 12, 14]  # env 0 from step 4 on
    assert torch.equal(samples.state, rollout.states.flatten(0, 1))
    assert not samples.state.requires_grad


@pytest.mark.parametrize("shape", [{"memory": None}, {"memory": "gru"}], ids=["none", "gru"])
@pytest.mark.parametrize("players", ["one", "agents", "seats"])
def test_vtrace_is_estimated_again_for_the_policy_as_it_is_now(players, shape, monkeypatch):
    env = choosing_world(obs="box", action="discrete", players=players)
    type(env).max_episode_steps = 4
    policy = make_policy(env, **shape)
    _, rollout = play(policy, env, num_envs=3, num_steps=8, horizon=4 if policy.state_size else None, rollouts=1)
    config = PPOConfig(
        num_minibatches=3, num_epochs=2, advantage="vtrace", gae_lambda=0.8, learning_rate=0.01, normalize_rewards=False
    )
    learner = Learner.for_rollout(rollout, TorchExecutor(policy), config, total_steps=100, seed=0)
    whole = learner.prepare(rollout)
    batch = whole.samples
    expected_first = batch.advantage.clone()
    reference = Learner.for_rollout(
        rollout, TorchExecutor(policy), replace(config, advantage="gae"), total_steps=100, seed=0
    )
    assert torch.equal(expected_first, reference.prepare(rollout).samples.advantage)  # on-policy it is GAE
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
        if not policy.state_size:
            value[:-1] = policy(rollout.obs[:-1].flatten(0, 1)).value.view(8, -1)
    assert not torch.allclose(value[-1], rollout.value[-1])
    ends = rollout.terminated, rollout.truncated, rollout.final_value
    settings = {"gamma": config.gamma, "gae_lambda": 0.8}
    if players == "seats":
        wanted, _, known = seat_vtrace(rollout.reward, value, rollout.seat, *ends, log_ratio, **settings)
        assert 3 < (~known).sum() < 20
    else:
        wanted, _ = vtrace(rollout.reward, value, *ends, log_ratio, **settings)
    place = batch.counted(batch.place)
    torch.testing.assert_close(batch.counted(batch.advantage), wanted.flatten()[place])
    assert not torch.allclose(batch.counted(batch.advantage), batch.counted(expected_first))


def test_minibatches_are_whole_sequences_and_an_epoch_sees_each_once(monkeypatch):
    env = choosing_world(obs="box", action="discrete", players="one")
    policy = make_policy(env)
    _, rollout = play(policy, env, num_envs=6, num_steps=4, horizon=2, rollouts=1)
    learner = Learner.for_rollout(
        rollout, TorchExecutor(policy), PPOConfig(num_minibatches=3, num_epochs=2), total_steps=1, seed=0
    )
    seen: list[Tensor] = []
    select = Samples.select
    monkeypatch.setattr(Samples, "select", lambda *given: (part := select(*given), seen.append(part.place))[0])
    learner.update(learner.prepare(rollout), 0)
    assert [len(places) for places in seen] == [8] * 6
    for epoch in (seen[:3], seen[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(24))
    for places in seen:  # two steps of the same env side by side
        first, second = places.view(2, 4)
        assert torch.equal(first + 6, second)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("played_by", list(PlayedBy))
def test_states_of_ended_episodes_and_dead_agents_are_reset_and_no_others(played_by, device):
    states = RecurrentStates(played_by, 5, 2, 3, device)
    states.states.fill_(1.0)
    terminated, truncated = torch.tensor([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=torch.bool, device=device)
    turn = torch.tensor([1, 1, 1, 1, 0], device=device)  # an agent's is whether it lives, a seat's its number
    kept = torch.zeros_like(states.states)
    copy_rows.on(5, truncated, states.states, kept)
    states.reset_ended(turn, terminated, truncated)
    ended = [0, 2, 4] if played_by is PlayedBy.AGENTS else [0, 2]
    expected = torch.ones(5, len(states.states) // 5, 3)
    expected[ended] = 0
    assert torch.equal(states.states.cpu(), expected.flatten(0, 1))
    assert kept.sum(1).tolist()[:5] == [0, 0, 3, 0, 0]
