"""Agents trained to known answers: each world catches one class of mistake in the learner, alone and in pairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from scramjet.algorithms.config import PPOConfig
from scramjet.engine import Backend, FrameStackPool, NativePool
from scramjet.engine.actions import random_actions
from scramjet.envs import Box, Discrete, Env, load_env, randint
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.evaluator import Evaluator
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout
from tests.helpers.cases import rest
from tests.helpers.choosing import choosing_world

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("one_thread")]

GAMMA = 0.9
Pool = NativePool | FrameStackPool


def pool_of(env: Env, num_envs: int, *, frames: int = 1, backend: Backend = "cpu") -> Pool:
    pool = NativePool(env, num_envs, num_threads=1, backend=backend)
    return pool if frames == 1 else FrameStackPool(pool, frames)


def learn(
    pool: Pool, num_updates: int, *, num_steps: int = 8, network: nn.Module | None = None, shape: PolicyConfig,
    watch: Callable[[Rollout], object] = lambda rollout: None, **ppo: Any,
) -> Policy:  # fmt: skip
    """Train with the pieces a run is made of; returns the policy."""
    plain = {"num_epochs": 4, "num_minibatches": 2, "normalize_observations": False, "normalize_rewards": False}
    config = PPOConfig(**{"learning_rate": "0.01@0,0@end", "gamma": GAMMA, "entropy_coef": 0.0} | plain | ppo)
    spaces = pool.observation_space, pool.action_space
    torch.manual_seed(1)
    network = network or default_network(*spaces, shape)
    policy = Policy(network, *spaces, shape, normalize_observations=config.normalize_observations)
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps, config.bptt_horizon)
    pool.reset(10_001, out=player.buffers.last)
    batch = pool.num_envs * num_steps
    totals = {"total_steps": num_updates * batch, "seed": 1}
    learner = Learner.for_rollout(player.rollout, TorchExecutor(policy), config, **totals)
    generator = torch.Generator().manual_seed(1)
    for update in range(num_updates):
        player.play(generator)
        watch(player.rollout)
        learner.update(learner.prepare(player.rollout), update * batch)
    return policy


def probe(env: Env | str, num_updates: int, *, shared_trunk: bool = False, **options: Any) -> Policy:
    """What is learned from a small world by 16 envs."""
    pool = pool_of(load_env(env) if isinstance(env, str) else env, 16)
    return learn(pool, num_updates, shape=PolicyConfig(hidden=(32, 32), shared_trunk=shared_trunk), **options)


@torch.no_grad()
def values(policy: Policy, *observations: list[float]) -> list[float]:
    return policy(torch.tensor(observations, dtype=torch.float32)).value.tolist()


@torch.no_grad()
def probabilities(policy: Policy, *observations: list[float]) -> list[list[float]]:
    return torch.softmax(policy(torch.tensor(observations, dtype=torch.float32)).logits, 1).tolist()


# --- the probes --------------------------------------------------------------------------------------------


@pytest.mark.rest
@pytest.mark.parametrize("options", [{}, {"value_clip": 0.2}], ids=["plain", "value clipping"])
def test_the_value_of_a_constant_reward_is_that_reward(options: dict) -> None:
    assert values(probe("probe_constant", 60, **options), [0.0]) == pytest.approx([1.0], abs=0.02)


@pytest.mark.rest
def test_the_value_follows_what_is_observed() -> None:
    assert values(probe("probe_observation", 80), [-1.0], [1.0]) == pytest.approx([-1.0, 1.0], abs=0.05)


@pytest.mark.parametrize("gae_lambda", [rest(0.0), 0.95, rest(1.0)])
def test_the_value_k_steps_before_a_reward_is_gamma_to_the_k(gae_lambda: float) -> None:
    before = [[waited / 4] for waited in (3, 2, 1, 0)]
    learned = values(probe("probe_delay", 150, gae_lambda=gae_lambda), *before)
    assert learned == pytest.approx([GAMMA**k for k in range(4)], abs=0.04)


@pytest.mark.rest
def test_the_action_that_pays_is_always_chosen() -> None:
    assert probabilities(probe("probe_action", 60), [0.0])[0][1] > 0.97


@pytest.mark.parametrize(
    "options",
    [rest({}), rest({"shared_trunk": True}), {"normalize_observations": True, "normalize_rewards": True}],
    ids=["separate", "shared", "normalized"],
)
def test_the_action_follows_what_is_observed(options: dict) -> None:
    (at_minus, at_plus) = probabilities(probe("probe_policy", 80, **options), [-1.0], [1.0])
    assert min(at_minus[0], at_plus[1]) > 0.97


class CutShort(Env):
    """Pays 1 each step and never ends; the engine cuts it after 5 steps, which must not lower its value."""

    max_episode_steps = 5

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {}

    def reset(self, s):
        pass

    def step(self, s, action):
        return 1.0, False

    def observe(self, s, obs):
        obs[0] = 1.0


class EndsShort(CutShort):
    """The same, but the rules themselves end the episode: now there is no more to come."""

    max_episode_steps = None
    state = {"count": np.int32}

    def step(self, s, action):
        s.count += 1
        return 1.0, s.count == 5


def test_a_truncated_episode_is_worth_its_whole_future() -> None:
    learned = values(probe(CutShort(), 250, num_minibatches=1), [1.0])
    assert learned == pytest.approx([1 / (1 - GAMMA)], abs=0.3)


@pytest.mark.rest
def test_a_terminated_episode_is_worth_what_is_left_of_it() -> None:
    one_to_five_steps_left = [(1 - GAMMA**k) / (1 - GAMMA) for k in range(1, 6)]
    learned = values(probe(EndsShort(), 100, gae_lambda=1.0), [1.0])
    assert learned == pytest.approx([np.mean(one_to_five_steps_left)], abs=0.3)


@pytest.mark.rest
def test_the_lucky_arm_of_a_noisy_bandit_is_found() -> None:
    env = load_env("bandit", arms=5, lucky_arm=3, noise=0.5)
    policy = probe(env, 80)
    assert probabilities(policy, [1.0])[0][3] > 0.95
    result = Evaluator(NativePool(env, 32), episodes=64)(policy, 0)
    assert result.stats["lucky"] == 1.0
    assert result.mean_return == pytest.approx(1.0, abs=0.2)


class ForbiddenFruit(Env):
    """The number shown is the action that pays most, and is forbidden; the next one pays 1, the third nothing."""

    observation_space = Box(0, 1, (3,), np.float32)
    action_space = Discrete(3)
    state = {"shown": np.int8}
    stat_names = ("forbidden",)

    def reset(self, s):
        s.shown = randint(s, 3)

    def step(self, s, action):
        if action == s.shown:
            s.shown = 9
            return 100.0, True
        return (1.0 if action == (s.shown + 1) % 3 else 0.0), True

    def observe(self, s, obs):
        for i in range(3):
            obs[i] = 1.0 if s.shown == i else 0.0

    def mask(self, s, mask):
        mask[s.shown % 3] = s.shown == 9

    def stats(self, s, stats):
        stats.forbidden = 1.0 if s.shown == 9 else 0.0


def test_a_forbidden_action_is_never_taken_however_well_it_pays_and_the_best_legal_one_is_learned() -> None:
    rewards: list[float] = []
    policy = probe(ForbiddenFruit(), 80, watch=lambda rollout: rewards.append(rollout.reward.max().item()))
    assert max(rewards) == 1.0
    result = Evaluator(NativePool(ForbiddenFruit(), 32), episodes=64)(policy, 0)
    assert (result.stats, result.mean_return) == ({"forbidden": 0.0}, 1.0)
    for shown, row in enumerate(np.eye(3).tolist()):
        with torch.no_grad():
            logits = policy(torch.tensor([row])).logits[0]
        assert logits[(shown + 1) % 3] - logits[(shown + 2) % 3] > 3  # at least 20 times as likely


# --- every pair of features trains together: each world here combines some, and its best score is known to be 1 -----

OBS, PLAYERS = ("box", "dict"), ("one", "agents", "seats")
CHOICES = [
    {"obs": obs, "action": action, "players": players, "masked": masked}
    for obs, action, players, masked in (
        ("box", "discrete", "one", False),
        ("dict", "multi", "one", True),
        ("box", "multi", "agents", True),
        ("dict", "discrete", "agents", False),
        ("box", "discrete", "seats", True),
        ("dict", "multi", "seats", False),
        ("dict", "discrete", "one", True),
        ("box", "multi", "one", False),
    )
]
NUMBERS = [
    {"obs": obs, "action": "box", "players": players, "bounded": ("clip", "tanh")[(i + j) % 2]}
    for (i, obs), (j, players) in itertools.product(enumerate(OBS), enumerate(PLAYERS))
]
EXTRAS = {
    "normalize_observations": True, "normalize_rewards": True, "normalize_advantages": "batch", "reward_clip": 0.9,
    "value_clip": 0.5, "target_kl": 0.1, "num_epochs": 6, "entropy_coef": 0.001,
}  # fmt: skip


def test_every_pair_of_features_is_among_the_cases() -> None:
    for cases in (CHOICES, NUMBERS):
        for one, other in itertools.combinations(cases[0], 2):
            alone = [{case[name] for case in cases} for name in (one, other)]
            assert {(case[one], case[other]) for case in cases} == set(itertools.product(*alone))


def score_learned(
    env: Env, num_updates: int, *, num_envs: int = 8, frames: int = 1, backend: Backend = "interpreted",
    policy: dict[str, Any] | None = None, **ppo: Any,
) -> float:  # fmt: skip
    """What the most likely actions of a trained policy score, of all players."""
    shape = PolicyConfig(**{"hidden": (32,), "log_std_init": -0.5} | (policy or {}))
    pool = pool_of(env, num_envs, frames=frames, backend=backend)
    usual = {"num_steps": 12, "learning_rate": "0.02@0,0.002@end", "gamma": 0.5}
    trained = learn(pool, num_updates, shape=shape, **usual | ppo)
    return Evaluator(pool_of(env, 16, frames=frames, backend=backend), episodes=16)(trained, 0).stats["score"]


def random_score(env: Env) -> float:
    """What random legal actions score."""
    pool, random = pool_of(env, 8, backend="interpreted"), np.random.default_rng(0)
    out = pool.reset(0)
    for _ in range(60):
        out = pool.step(random_actions(pool, out, random))
    return float(pool.episodes().stats["score"].mean())


@pytest.mark.parametrize("case", [CHOICES[2], *map(rest, [*CHOICES[:2], *CHOICES[3:]])], ids=str)
def test_the_shown_numbers_are_chosen_however_a_world_is_seen_played_and_masked(case: dict) -> None:
    env = choosing_world(**case)
    assert random_score(env) < 0.6
    assert score_learned(env, 12) > 0.9


@pytest.mark.parametrize("case", [NUMBERS[5], *map(rest, NUMBERS[:5])], ids=str)
def test_the_shown_numbers_are_met_by_continuous_actions_however_a_world_is_seen_and_played(case: dict) -> None:
    env = choosing_world(case["obs"], case["action"], case["players"])
    assert random_score(env) < 0.5
    assert score_learned(env, 16, policy={"bounded_actions": case["bounded"]}) > 0.85


@pytest.mark.rest
@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("memory", [None, "lstm", "gru", "mingru"])
def test_masks_dicts_and_several_choices_are_learned_with_every_extra_at_once(memory: str | None, players: str) -> None:
    env = choosing_world("dict", "multi", players, masked=True)
    remembering = {"memory": memory, "memory_size": 16} if memory else {}
    extras = EXTRAS | ({"advantage": "vtrace", "bptt_horizon": 6} if memory else {})
    policy, updates = {"shared_trunk": True, **remembering}, 24 if memory else 20
    assert score_learned(env, updates, num_envs=16, backend="cpu", policy=policy, **extras) > 0.9


@pytest.mark.rest
@pytest.mark.parametrize("players", PLAYERS)
def test_memory_of_its_own_for_the_value_learns_continuous_actions(players: str) -> None:
    policy = {"memory": "gru", "memory_size": 16}
    env = choosing_world("dict", "box", players)
    assert score_learned(env, 24, num_envs=16, backend="cpu", policy=policy) > 0.85


@pytest.mark.rest
@pytest.mark.parametrize("players", ["one", "agents"])
@pytest.mark.parametrize("obs", OBS)
def test_the_shown_numbers_are_chosen_when_the_last_three_observations_are_seen(obs: str, players: str) -> None:
    assert score_learned(choosing_world(obs, "discrete", players, masked=True), 16, frames=3) > 0.9
