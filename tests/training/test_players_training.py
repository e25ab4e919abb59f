"""Training of several players: what is stored, what reaches the loss, how they are evaluated and resumed."""

from __future__ import annotations

import itertools
import runpy
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

import scramjet
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, load_env
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.evaluation.evaluator import Evaluator
from scramjet.training.learner import Learner
from scramjet.training.rollout.rollout import Rollout, allocate_rollout, collect

pytestmark = pytest.mark.usefixtures("one_thread")

TESTS = Path(__file__).parents[1]
EVERY_AGENT = f"{TESTS}/parity/worlds/everything.py:EveryAgent"
choosing_world = runpy.run_path(str(TESTS / "learning" / "choosing.py"))["choosing_world"]

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


def start(env, *, num_envs=4, num_steps=10, config=None, bounded="clip"):
    """A pool, a policy away from uniform, a learner and a rollout of it."""
    config = PPOConfig(num_minibatches=2, learning_rate=0.01) if config is None else config
    pool = NativePool(env, num_envs, backend="interpreted")
    shape, spaces = PolicyConfig(hidden=(8,), bounded_actions=bounded), (env.observation_space, env.action_space)
    torch.manual_seed(0)
    policy = Policy(
        default_network(*spaces, shape), *spaces, shape, normalize_observations=config.normalize_observations
    )
    with torch.no_grad():
        for weight in policy.network.actor_head.parameters():
            weight.mul_(50 if weight.dim() == 2 else 1)
    rollout = allocate_rollout(pool, policy, num_steps)
    pool.reset(100, out=rollout.rows[-1])
    learner = Learner(
        policy,
        config,
        num_rewards=rollout.reward[0].numel(),
        batch_size=rollout.value[:-1].numel(),
        total_steps=10_000,
        seed=3,
    )
    return pool, policy, learner, collect(pool, policy, rollout, torch.Generator().manual_seed(5))


def flat_obs(rollout: Rollout):
    return map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), rollout.obs)


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten().double() for tensor in policy.state_dict().values()])


# --- what the policy thought of it -----------------------------------------------------------------------------------


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
    terms = learner.loss(learner.prepare(rollout), clip=0.01, entropy_coef=0.0)
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
        for ours, theirs in zip(leaves(rollout.steps_obs[t]), leaves(out.obs), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal((rollout.alive if players == "agents" else rollout.seat)[t], out.turn)
        out = replay.step(policy.distribution.env_action(rollout.action[t]).numpy().copy())
        np.testing.assert_array_equal(rollout.reward[t], out.reward)
        np.testing.assert_array_equal(rollout.terminated[t], out.terminated)
    assert rollout.terminated.any()
    assert rollout.reward.shape == ((15, 8) if players == "agents" else (15, 4, 2))


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


# --- what reaches the loss -------------------------------------------------------------------------------------------

CONFIGS = {
    "plain": PPOConfig(num_minibatches=2, learning_rate=0.01),
    "batch": PPOConfig(num_minibatches=5, learning_rate=0.01, normalize_advantages="batch", value_clip=0.2),
    "normalized": PPOConfig(
        num_minibatches=2, learning_rate=0.01, normalize_observations=True, normalize_rewards=True, reward_clip=0.7
    ),
}


AGENTS = {
    "every": load_env(EVERY_AGENT),
    "choices": choosing_world("dict", "multi", "agents", masked=True),
    "numbers": choosing_world("box", "box", "agents"),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("world", AGENTS)
def test_nothing_stored_of_the_dead_reaches_the_weights_or_the_statistics(world, config):
    def update(perturb):
        _, policy, learner, rollout = start(AGENTS[world], num_steps=20, config=CONFIGS[config])
        dead = ~rollout.alive[:-1]
        assert 10 < dead.sum() < dead.numel() // 2
        if perturb:
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

    plain, perturbed = update(False), update(True)
    assert torch.equal(plain[0], perturbed[0])
    assert plain[1:] == perturbed[1:]


def test_what_is_stored_of_the_living_does_reach_the_weights():
    """Else the test above would prove nothing."""

    def update(name):
        _, policy, learner, rollout = start(load_env(EVERY_AGENT), num_steps=20)
        t, row = rollout.alive[:-1].nonzero()[-1].tolist()
        if name == "obs":
            rollout.obs["number"][t, row] = 9
        elif name == "reward":
            rollout.reward[t, row] += 1
        return learner.update(learner.prepare(rollout), 0) and weights(policy)

    plain = update(None)
    assert not torch.equal(plain, update("obs"))
    assert not torch.equal(plain, update("reward"))


def test_a_lone_number_among_the_observations_is_normalized_like_any_other():
    config = PPOConfig(num_minibatches=2, normalize_observations=True)
    _, policy, learner, rollout = start(load_env(EVERY_AGENT), num_steps=20, config=config)
    learner.update(learner.prepare(rollout), 0)
    seen = rollout.obs["number"][:-1][rollout.alive[:-1]].double()
    obs = map_leaves(lambda leaf: leaf[0], rollout.obs)
    expected = (obs["number"].double() - seen.mean()) / (seen.var(unbiased=False) + 1e-8).sqrt()
    torch.testing.assert_close(policy.normalizer(obs)["number"].double(), expected, rtol=1e-4, atol=1e-4)


class Watching(Learner):
    """Remembers which samples each gradient step saw, by the number in their observation."""

    seen: list

    def loss(self, minibatch, **numbers):
        self.seen.append(minibatch.obs[:, 0].tolist())
        return super().loss(minibatch, **numbers)


@pytest.mark.parametrize("split", [{"num_minibatches": 4}, {"minibatch_size": 8}, {"num_minibatches": 80}])
def test_every_epoch_sees_each_living_sample_once_and_no_other(split):
    env = choosing_world("box", "multi", "agents", masked=True)
    _, policy, _, rollout = start(env, num_envs=4, num_steps=10)
    numbers = torch.arange(80, dtype=torch.float32).reshape(10, 8)
    rollout.obs[:-1, :, 0] = numbers
    config = PPOConfig(num_epochs=3, **split)
    learner = Watching(policy, config, num_rewards=8, batch_size=80, total_steps=1000, seed=1)
    learner.seen = []
    learner.update(learner.prepare(rollout), 0)
    living = sorted(numbers[rollout.alive[:-1]].tolist())
    assert 40 <= len(living) < 80
    steps = len(learner.seen) // 3
    assert steps == min(split.get("num_minibatches", 10), len(living))
    sizes = Counter(len(part) for part in learner.seen)
    assert max(sizes) - min(sizes) <= 1
    for epoch in range(3):
        assert sorted(itertools.chain(*learner.seen[epoch * steps : (epoch + 1) * steps])) == living


def test_samples_of_the_living_keep_their_own_numbers_together():
    env = choosing_world("dict", "multi", "agents", masked=True)
    _, _, learner, rollout = start(env)
    number = torch.arange(80, dtype=torch.float32).reshape(10, 8)
    rollout.obs["clock"][:-1, :, 0] = number
    rollout.log_prob, rollout.value[:-1], rollout.action[..., 1] = number.clone(), number, number.long()
    samples = learner.prepare(rollout)
    living = rollout.alive[:-1].flatten().nonzero().squeeze(1)
    for column in (samples.obs["clock"][:, 0], samples.log_prob, samples.value, samples.action[:, 1]):
        assert column.long().tolist() == living.tolist()
    assert torch.equal(samples.mask, rollout.mask[:-1].flatten(0, 1)[living])
    assert torch.equal(samples.obs["inner"]["numbers"], rollout.obs["inner"]["numbers"][:-1].flatten(0, 1)[living])


# --- rewards of seats ------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("clip", [None, 2.0])
@pytest.mark.parametrize("scale", [False, True])
def test_rewards_of_seats_are_clipped_and_scaled_by_all_of_their_discounted_returns(clip, scale):
    config = PPOConfig(num_minibatches=2, gamma=0.9, gae_lambda=0.8, reward_clip=clip, normalize_rewards=scale)
    pool, policy, learner, rollout = start(Sitting(), num_steps=13, config=config)
    running, seen = np.zeros((4, 2)), []
    generator = torch.Generator().manual_seed(8)
    for _ in range(3):
        stored = rollout.reward.clone()
        samples = learner.prepare(rollout)
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
        collect(pool, policy, rollout, generator)


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


# --- evaluation ------------------------------------------------------------------------------------------------------


class Staggered(Env):
    """Agent k of env i lives 1 + k + i % 3 steps and earns 10 ** k a step; an endless one never dies."""

    endless: bool = False
    num_agents = 3
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"age": np.int32}
    stat_names = ("agent",)

    def reset(self, s):
        pass

    def step(self, s, action, reward):
        s.age += 1
        for k in range(3):
            reward[k] = 10.0**k
        return False

    def alive(self, s, player):
        return s.age < 1 + player + s._index % 3 or (self.endless and player == 2)

    def observe(self, s, obs, player):
        obs[0] = 0.0

    def stats(self, s, stats, player):
        stats.agent = player


class Rounds(Staggered):
    """Two seats in turn; a game of env i lasts 1 + i % 4 turns, the one to move earns 1 and the other loses 2."""

    num_agents = 1
    num_seats = 2

    def seat(self, s):
        return s.age % 2

    def step(self, s, action, reward):
        mover = s.age % 2
        s.age += 1
        reward[mover] = 1.0
        reward[1 - mover] = -2.0
        return s.age > s._index % 4 and not self.endless


def policy_of(env):
    torch.manual_seed(0)
    spaces = env.observation_space, env.action_space
    return Policy(default_network(*spaces, PolicyConfig(hidden=(4,))), *spaces)


def evaluate(env, episodes, num_envs, max_steps=None):
    pool = NativePool(env, num_envs, backend="interpreted")
    return Evaluator(pool, episodes=episodes, max_steps=max_steps)(policy_of(env), 1)


@pytest.mark.parametrize(("episodes", "num_envs"), [(6, 6), (7, 3), (1, 1), (10, 4)])
def test_each_agent_of_each_env_is_judged_by_its_own_share_of_episodes(episodes, num_envs):
    result = evaluate(Staggered(), episodes, num_envs)
    lengths, returns = [], []
    for i in range(num_envs):
        share = episodes // num_envs + (i < episodes % num_envs)
        for k in range(3):
            lengths += [1 + k + i % 3] * share
            returns += [10.0**k * lengths[-1]] * share
    assert (result.episodes, len(returns)) == (episodes, 3 * episodes)  # a game of three is one episode
    assert result.mean_return == pytest.approx(np.mean(returns))
    assert result.std_return == pytest.approx(np.std(returns))
    assert result.mean_length == pytest.approx(np.mean(lengths))
    assert result.stats == {"agent": 1.0}


@pytest.mark.parametrize(("episodes", "num_envs"), [(8, 8), (7, 3), (1, 1)])
def test_each_seat_of_each_env_is_judged_by_its_own_share_of_games(episodes, num_envs):
    result = evaluate(Rounds(), episodes, num_envs)
    returns = []
    for i in range(num_envs):
        turns = 1 + i % 4
        first, second = (turns + 1) // 2, turns // 2
        share = episodes // num_envs + (i < episodes % num_envs)
        returns += [first - 2.0 * second, second - 2.0 * first] * share
    assert (result.episodes, len(returns)) == (episodes, 2 * episodes)
    assert result.mean_return == pytest.approx(np.mean(returns))
    assert result.std_return == pytest.approx(np.std(returns))
    assert result.stats == {"agent": 0.5}


@pytest.mark.parametrize("episodes", [1, 2])
def test_of_a_game_that_never_ends_each_agents_episode_counts_once_a_game(episodes):
    """Agents 0 and 1 die, agent 2 does not, so that only a cut begins a second game."""
    result = evaluate(Staggered(endless=True), episodes, 1, max_steps=30)
    lives = [1, 2]
    returns = [1.0 * lives[0], 10.0 * lives[1], 100.0 * 30]
    assert (result.episodes, result.cut_episodes) == (episodes, episodes)
    assert result.mean_return == pytest.approx(np.mean(returns))
    assert result.mean_length == pytest.approx(np.mean([*lives, 30]))


def test_a_game_of_seats_that_never_ends_counts_as_it_stands_for_each_of_them():
    result = evaluate(Rounds(endless=True), 1, 1, max_steps=31)
    assert (result.episodes, result.cut_episodes) == (1, 1)
    assert result.mean_return == pytest.approx(np.mean([16 - 2.0 * 15, 15 - 2.0 * 16]))


# --- a whole run -----------------------------------------------------------------------------------------------------

SEATS = f"{TESTS}/engine/player_worlds.py:Trio"


@pytest.mark.parametrize("world", [EVERY_AGENT, SEATS], ids=["agents", "seats"])
def test_a_run_of_players_resumed_from_a_checkpoint_ends_bit_for_bit_as_if_it_had_never_stopped(world, tmp_path):
    whole = RunConfig(
        env=world, num_envs=6, num_steps=10, num_threads=1, total_timesteps=60 * 4,
        ppo=PPOConfig(num_minibatches=3, normalize_rewards=True, learning_rate=0.005),
        policy=PolicyConfig(hidden=(8,)),
        eval=EvaluationConfig(every=1, episodes=2, final_episodes=0), checkpoint=CheckpointConfig(every=0),
    )  # fmt: skip
    scramjet.train(whole, runs_dir=tmp_path, run_name="whole", display="quiet")
    half = replace(whole, total_timesteps=60 * 2)
    stopped = scramjet.train(half, runs_dir=tmp_path, run_name="half", display="quiet")
    assert stopped.step == 120
    scramjet.train(resume=tmp_path / "half", total_timesteps=60 * 4, display="quiet")
    for name in ("model.safetensors", "trainer.safetensors"):
        ours, theirs = ((tmp_path / run / "checkpoints/step_00000240" / name).read_bytes() for run in ("half", "whole"))
        assert ours == theirs, name
