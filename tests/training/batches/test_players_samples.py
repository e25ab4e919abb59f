"""Samples of several players: who counts, whose rewards scale what, and a perfect player's critic makes no error."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scramjet.accelerate.samples import Samples
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, load_env, randint
from scramjet.errors import ConfigError
from scramjet.policies import Policy
from scramjet.training.batches.batch import estimate_again
from scramjet.training.learner import Learner, RolloutSize
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.choosing import choosing_world
from tests.helpers.player_training import EVERY_AGENT, Sitting, start

pytestmark = pytest.mark.usefixtures("one_thread")


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
FEW = [("every", PLAIN), ("choices", BATCH), ("numbers", NORMALIZED)]
REST = [case for case in itertools.product(AGENTS, (PLAIN, BATCH, NORMALIZED)) if case not in FEW]


@pytest.mark.parametrize("cases", [FEW, pytest.param(REST, marks=pytest.mark.rest)], ids=["few", "rest"])
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


def prepared(config: PPOConfig, *, num_steps: int, time_limit: int | None = None, has_memory: bool = False):
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
        for learner, batch in prepared(config, num_steps=num_steps, time_limit=time_limit, has_memory=has_memory):
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
    for learner, batch in prepared(config, num_steps=4):
        missing = set(range(4 * 32)) - set(batch.samples.place.tolist())
        assert missing  # games go on beyond the rollout
        assert min(missing) >= 3 * 32  # seats alternate, so only the last turn can be open
        assert learner.update(batch, 0)["epochs"] == 10


def test_rollouts_in_which_no_seat_moves_twice_are_refused():
    with pytest.raises(ConfigError, match=r"num_steps=1 is too short for a game of 2 seats.*--num-steps 2 or more"):
        next(prepared(PPOConfig(num_minibatches=1), num_steps=1))
