"""Several players: what each saw, did and was worth is stored; who counts in samples, and whose rewards scale what."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Categorical, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

from scramjet.algorithms.advantages import seat_vtrace, vtrace
from scramjet.algorithms.config import PPOConfig
from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, load_env, randint
from scramjet.errors import ConfigError, TrainingError
from scramjet.executors.losses import minibatch_loss
from scramjet.executors.samples import Samples
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.batches.batch import estimate_again
from scramjet.training.learner import Learner, RolloutSize, loss_settings
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.recurrent_states import RecurrentStates, copy_rows
from scramjet.training.rollout.rollout import Rollout
from tests.helpers import HELPERS
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import make_policy, play

pytestmark = pytest.mark.usefixtures("one_thread")

EVERY_AGENT = f"{HELPERS}/worlds/everything.py:EveryAgent"


def start(env, *, num_envs=4, num_steps=10, config=None, bounded="clip"):
    """What plays a pool, a policy away from uniform, a learner and a rollout of it."""
    config = PPOConfig(num_minibatches=2, learning_rate=0.01) if config is None else config
    pool = NativePool(env, num_envs, backend="interpreted")
    shape, spaces = PolicyConfig(hidden=(8,), bounded_actions=bounded), (env.observation_space, env.action_space)
    torch.manual_seed(0)
    network, normalizes = default_network(*spaces, shape), config.normalize_observations
    policy = Policy(network, *spaces, shape, normalize_observations=normalizes)
    with torch.no_grad():
        for weight in policy.network.actor_head.parameters():
            weight.mul_(50 if weight.dim() == 2 else 1)
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps)
    pool.reset(100, out=player.buffers.last)
    learner = Learner.for_rollout(player.rollout, player.executor, config, total_steps=10_000, seed=3)
    return player, policy, learner, player.play(torch.Generator().manual_seed(5))


class Sitting(Env):
    """Two seats, three turns in five the first's; cut short after 4 turns. Each sees who it is and the turn."""

    num_seats = 2
    max_episode_steps = 4
    observation_space = Box(0, 10, (2,), np.float32)
    action_space = Discrete(3)
    state = {"turn": np.int32}
    order = (0, 0, 1, 0, 1)

    def reset(self, s):
        s.turn = s._index % 5

    def seat(self, s):
        return self.order[s.turn % 5]

    def step(self, s, action, reward):
        reward[0] = 1.0 + s.turn
        reward[1] = -3.0 * action
        s.turn += 1
        return s.turn % 7 == 0

    def observe(self, s, obs, player):
        obs[0] = player
        obs[1] = s.turn


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
        onto_box = AffineTransform((low + high) / 2, (high - low) / 2)
        squashed = TransformedDistribution(normal, [TanhTransform(), onto_box])
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


# --- samples: who counts, whose rewards scale what -------------------------------------------------------------------


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten().double() for tensor in policy.state_dict().values()])


PLAIN = PPOConfig(num_minibatches=2, learning_rate=0.01)
BATCH = PPOConfig(num_minibatches=5, learning_rate=0.01, normalize_advantages="batch", value_clip=0.2)
NORMALIZED = PPOConfig(
    num_minibatches=2, learning_rate=0.01, normalize_observations=True, normalize_rewards=True, reward_clip=0.7
)


AGENTS = {
    "every": load_env(EVERY_AGENT),
    "choices": choosing_world("dict", "multi", "agents", masked=True),
    "numbers": choosing_world("box", "box", "agents"),
}
FEW_UPDATES = [("every", PLAIN), ("choices", BATCH), ("numbers", NORMALIZED)]
REST = [case for case in itertools.product(AGENTS, (PLAIN, BATCH, NORMALIZED)) if case not in FEW_UPDATES]


@pytest.mark.parametrize("cases", [FEW_UPDATES, pytest.param(REST, marks=pytest.mark.rest)], ids=["few", "rest"])
def test_nothing_stored_of_the_dead_reaches_the_weights_or_the_statistics_and_of_the_living_everything(cases):
    def update(world, config, perturbed=None):
        _, policy, learner, rollout = start(AGENTS[world], num_steps=20, config=config)
        dead = ~rollout.alive[:-1]
        assert 10 < dead.sum() < dead.numel() // 2
        t, row = rollout.alive[:-1].nonzero()[-1].tolist()
        if perturbed == "obs":
            rollout.obs["number"][t, row] = 9
        elif perturbed == "reward":
            rollout.reward[t, row] += 1
        elif perturbed == "dead":
            for leaf in leaves(rollout.obs):
                leaf[:-1][dead] = 1
            for tensor in (rollout.reward, rollout.log_prob, rollout.value[:-1], rollout.final_value):
                tensor[dead] += 1000.0
            rollout.action[dead] = 1
            if rollout.mask is not None:
                rollout.mask[:-1][dead] = True
        before = weights(policy)
        metrics = learner.update(learner.prepare(rollout), 0)
        scaler = learner.reward_scaler
        assert not torch.equal(before, weights(policy))
        return weights(policy), metrics, None if scaler is None else scaler.moments.tolist()

    for world, config in cases:
        plain, perturbed = update(world, config), update(world, config, "dead")
        assert torch.equal(plain[0], perturbed[0]), (world, config)
        assert plain[1:] == perturbed[1:], (world, config)
    for part in ("obs", "reward"):
        assert not torch.equal(update("every", PLAIN)[0], update("every", PLAIN, part)[0])


def test_a_lone_number_among_the_observations_is_normalized_like_any_other():
    config = PPOConfig(num_minibatches=2, normalize_observations=True)
    _, policy, learner, rollout = start(load_env(EVERY_AGENT), num_steps=20, config=config)
    learner.update(learner.prepare(rollout), 0)
    seen = rollout.obs["number"][:-1][rollout.alive[:-1]].double()
    obs = map_leaves(lambda leaf: leaf[0], rollout.obs)
    expected = (obs["number"].double() - seen.mean()) / (seen.var(unbiased=False) + 1e-8).sqrt()
    torch.testing.assert_close(policy.normalizer(obs)["number"].double(), expected, rtol=1e-4, atol=1e-4)


def test_every_epoch_sees_each_living_sample_once_and_no_other(monkeypatch):
    seen: list[list[int]] = []
    select = Samples.select
    monkeypatch.setattr(Samples, "select", lambda *g: (part := select(*g), seen.append(part.place.tolist()))[0])
    for split in ({"num_minibatches": 4}, {"minibatch_size": 8}, {"num_minibatches": 80}):
        env = choosing_world("box", "multi", "agents", masked=True)
        _, policy, _, rollout = start(env, num_envs=4, num_steps=10)
        config = PPOConfig(num_epochs=3, **split)
        learner = Learner(TorchExecutor(policy), config, RolloutSize(8, 80), total_steps=1000, seed=1)
        seen.clear()
        learner.update(learner.prepare(rollout), 0)
        living = rollout.alive[:-1].flatten().nonzero().squeeze(1).tolist()
        assert 40 <= len(living) < 80
        steps = len(seen) // 3
        assert steps == min(split.get("num_minibatches", 10), len(living))
        sizes = [len(part) for part in seen]
        assert max(sizes) - min(sizes) <= 1, split
        for epoch in range(3):
            assert sorted(itertools.chain(*seen[epoch * steps : (epoch + 1) * steps])) == living, split


# --- rewards --------------------------------------------------------------------------------------------------------


def seat_returns(reward, rollout, gamma, gae_lambda):
    """GAE over each seat's own turns, forwards from the definition: returns [T, N], NaN where the next turn of a seat
    is not known."""
    num_steps, num_envs, _ = reward.shape
    value, seat = rollout.value.double(), rollout.seat
    expected = torch.zeros(num_steps, num_envs, dtype=torch.float64)
    for n in range(num_envs):
        for t in range(num_steps):
            mover, weight, last, total, earned = int(seat[t, n]), 1.0, t, 0.0, 0.0
            for later in range(t, num_steps + 1):
                if later > t and seat[later, n] == mover:
                    total += weight * (earned + gamma * float(value[later, n]) - float(value[last, n]))
                    weight, last, earned = weight * gamma * gae_lambda, later, 0.0
                if later == num_steps:
                    break
                earned += float(reward[later, n, mover])
                if rollout.terminated[later, n]:
                    total += weight * (earned - float(value[last, n]))
                    last = num_steps  # known to the end
                if rollout.terminated[later, n] or rollout.truncated[later, n]:
                    break
            expected[t, n] = torch.nan if last == t else total + value[t, n]
    return expected


def test_rewards_of_seats_are_clipped_and_scaled_by_all_of_their_discounted_returns():
    for clip, scale in itertools.product((None, 2.0), (False, True)):
        config = PPOConfig(num_minibatches=2, gamma=0.9, gae_lambda=0.8, reward_clip=clip, normalize_rewards=scale)
        player, _, learner, rollout = start(Sitting(), num_steps=13, config=config)
        running, seen = np.zeros((4, 2)), []
        generator = torch.Generator().manual_seed(8)
        for _ in range(3):
            stored = rollout.reward.clone()
            samples = learner.prepare(rollout).samples
            assert torch.equal(rollout.reward, stored)
            reward = stored.double().numpy()
            if clip is not None:
                assert (np.abs(reward) > clip).any()
                reward = np.clip(reward, -clip, clip)
            if scale:
                for t in range(13):
                    running = 0.9 * running + reward[t]
                    seen += running.flatten().tolist()
                    ended = (rollout.terminated[t] | rollout.truncated[t]).numpy()
                    running[ended] = 0.0
                reward = np.clip(reward / np.sqrt(np.var(seen) + 1e-8), -10, 10)
            expected = seat_returns(reward, rollout, 0.9, 0.8).flatten()
            known = expected.isfinite()
            assert 4 < (~known).sum() < 26
            assert samples.place.tolist() == known.nonzero().squeeze(1).tolist()
            np.testing.assert_allclose(samples.returns.numpy(), expected[known], rtol=1e-4, atol=1e-4)
            advantage = (expected - rollout.value[:-1].flatten())[known]
            torch.testing.assert_close(samples.advantage.double(), advantage, rtol=0, atol=1e-4)
            player.play(generator)


def test_rewards_of_agents_are_scaled_by_the_returns_of_the_living_alone():
    config = PPOConfig(num_minibatches=2, gamma=0.9, gae_lambda=0.0, normalize_rewards=True)
    _, _, learner, rollout = start(load_env(EVERY_AGENT), num_steps=20, config=config)
    running, seen = np.zeros(12), []
    for t, row in itertools.product(range(20), range(12)):
        if rollout.alive[t, row]:
            running[row] = 0.9 * running[row] + float(rollout.reward[t, row])
            seen.append(running[row])
            if rollout.terminated[t, row] or rollout.truncated[t, row]:
                running[row] = 0.0
    learner.prepare(rollout)
    assert len(seen) < 240
    count, mean, squares = learner.reward_scaler.moments.tolist()
    assert (count, mean) == (len(seen), pytest.approx(np.mean(seen)))
    assert squares / count == pytest.approx(np.var(seen))
    np.testing.assert_allclose(learner.reward_scaler.running_return.numpy(), running)


# --- an exact critic -------------------------------------------------------------------------------------------------


class Nim(Env):
    """Take 1 to 3 of the stones in turn; who takes the last one wins.

    It shows the pile and not whose turn it is, so a critic that has learned what a pile is worth to the seat to move
    says the opposite of the truth to the other seat. No target may ask it.
    """

    most: int = 12
    max_episode_steps: int | None = None

    num_seats = 2
    observation_space = Box(0, 20, (1,), np.float32)
    action_space = Discrete(3)
    state = {"stones": np.int32, "mover": np.int32}

    def reset(self, s):
        s.stones = 1 + randint(s, self.most)

    def seat(self, s):
        return s.mover

    def mask(self, s, mask, player):
        for action in range(3):
            mask[action] = action < s.stones

    def step(self, s, action, reward):
        s.stones -= 1 + action
        done = s.stones <= 0
        if done:
            reward[s.mover] = 1.0
            reward[1 - s.mover] = -1.0
        s.mover = 1 - s.mover
        return done

    def observe(self, s, obs, player):
        obs[0] = s.stones


class Perfect(nn.Module):
    """Takes what leaves a multiple of four, and knows that only a multiple of four is lost for the seat to move.

    With memory it counts its own turns since the episode began, and nothing depends on that.
    """

    def __init__(self, has_memory: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.state_size = 1 if has_memory else 0

    def forward(self, obs: Tensor, state: Tensor | None = None, begins: Tensor | None = None) -> tuple[Tensor, ...]:
        stones = obs[:, 0].round().long()
        best = (stones - 1) % 4  # 3 where every move loses: any will do
        logits = torch.where(best.unsqueeze(1) == torch.arange(3), 30.0, 0.0) + 0 * self.weight
        value = torch.where(stones % 4 == 0, -1.0, 1.0) + 0 * self.weight
        if state is None:
            return logits, value
        for t in range(len(obs) // len(state)):
            fresh = torch.zeros(len(state), 1, dtype=torch.bool) if begins is None else begins[t].unsqueeze(1)
            state = torch.where(fresh, 0.0, state) + 1
        return logits, value, state


def nim_batches(config: PPOConfig, *, num_steps: int, time_limit: int | None = None, has_memory: bool = False):
    """A learner and the batch of each of some rollouts of perfect play."""
    env = Nim(max_episode_steps=time_limit)
    pool = NativePool(env, 32, backend="interpreted")
    policy = Policy(Perfect(has_memory), env.observation_space, env.action_space)
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps, config.bptt_horizon)
    rollout = player.rollout
    learner = Learner.for_rollout(rollout, TorchExecutor(policy), config, total_steps=1000, seed=0)
    pool.reset(3, out=player.buffers.last)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        player.play(generator)
        yield learner, learner.prepare(rollout)


@pytest.mark.parametrize("lengths", [(2, 4), pytest.param((3, 8, 16), marks=pytest.mark.rest)])
def test_an_exact_critic_is_never_wrong_about_a_perfect_player(lengths):
    for case in itertools.product(lengths, ("gae", "vtrace"), (None, 3), (False, True)):
        num_steps, advantage, time_limit, has_memory = case
        config = PPOConfig(
            normalize_rewards=False, gamma=1.0, gae_lambda=0.9, advantage=advantage, num_minibatches=1,
            normalize_advantages="off", num_epochs=2,
        )  # fmt: skip
        counted = 0
        for learner, batch in nim_batches(config, num_steps=num_steps, time_limit=time_limit, has_memory=has_memory):
            if advantage == "vtrace":  # as before a second epoch, with the same policy
                estimate_again(learner.policy, batch, learner.num_minibatches)
            samples = batch.samples
            error = samples.counted(samples.returns - samples.value)
            assert error.abs().max() < 1e-5, case
            assert samples.counted(samples.advantage).abs().max() < 1e-5, case
            counted += len(error)
        played = 6 * 32 * num_steps
        if time_limit is None:  # all but the open turn of the seat that is not to move, at the most
            assert counted >= played * (num_steps - 1) / num_steps, case


def test_the_turns_that_do_not_count_are_those_whose_outcome_is_not_known():
    config = PPOConfig(gamma=1.0, advantage="gae", num_minibatches=1, normalize_rewards=False)
    for learner, batch in nim_batches(config, num_steps=4):
        missing = set(range(4 * 32)) - set(batch.samples.place.tolist())
        assert missing  # games go on beyond the rollout
        assert min(missing) >= 3 * 32  # seats alternate, so only the last turn can be open
        assert learner.update(batch, 0)["epochs"] == 10


def test_rollouts_in_which_no_seat_moves_twice_are_refused():
    with pytest.raises(ConfigError, match=r"num_steps=1 is too short for a game of 2 seats.*--num-steps 2 or more"):
        next(nim_batches(PPOConfig(num_minibatches=1), num_steps=1))
