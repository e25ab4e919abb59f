"""Every pair of features trains together: each world here combines some, and its best score is known to be 1."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.random_play import random_actions
from scramjet.engine.worlds.native_pool import Backend, NativePool
from scramjet.engine.wrappers.frame_stack import FrameStackPool
from scramjet.envs import Env
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.evaluation.evaluator import Evaluator
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers.choosing import choosing_world

pytestmark = [pytest.mark.learning, pytest.mark.usefixtures("one_thread")]

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


def test_every_pair_of_features_is_among_the_cases():
    for cases in (CHOICES, NUMBERS):
        for one, other in itertools.combinations(cases[0], 2):
            values = [{case[name] for case in cases} for name in (one, other)]
            assert {(case[one], case[other]) for case in cases} == set(itertools.product(*values))


def name_of(case: dict) -> str:
    words = [value for value in case.values() if isinstance(value, str)]
    return "-".join([*words, "masked"] if case.get("masked") else words)


def pool_of(
    env: Env, num_envs: int, *, frames: int = 1, backend: Backend = "interpreted"
) -> NativePool | FrameStackPool:
    pool = NativePool(env, num_envs, num_threads=1, backend=backend)
    return pool if frames == 1 else FrameStackPool(pool, frames)


def learn(
    pool: NativePool | FrameStackPool, num_updates: int, *, num_steps: int = 12, policy_config=None, **ppo
) -> Policy:
    """Train with the pieces a run is made of."""
    plain = {"num_epochs": 4, "num_minibatches": 2, "normalize_observations": False, "normalize_rewards": False}
    settings = {"learning_rate": "0.02@0,0.002@end", "gamma": 0.5, "entropy_coef": 0.0} | plain | ppo
    shape, config = (
        PolicyConfig(**{"hidden": (32,), "log_std_init": -0.5} | (policy_config or {})),
        PPOConfig(**settings),
    )
    spaces = pool.observation_space, pool.action_space
    torch.manual_seed(1)
    policy = Policy(
        default_network(*spaces, shape), *spaces, shape, normalize_observations=config.normalize_observations
    )
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps, config.bptt_horizon)
    rollout = player.rollout
    pool.reset(10_001, out=player.buffers.last)
    steps_per_update = pool.num_envs * num_steps
    totals = {"total_steps": num_updates * steps_per_update, "seed": 1}
    learner = Learner.for_rollout(rollout, TorchExecutor(policy), config, **totals)
    generator = torch.Generator().manual_seed(1)
    for update in range(num_updates):
        player.play(generator)
        learner.update(learner.prepare(rollout), update * steps_per_update)
    return policy


def random_score(env: Env) -> float:
    """What random legal actions score."""
    pool, random = pool_of(env, 8), np.random.default_rng(0)
    out = pool.reset(0)
    for _ in range(60):
        out = pool.step(random_actions(pool, out, random))
    return float(pool.episodes().stats["score"].mean())


def score(policy: Policy, pool: NativePool | FrameStackPool) -> float:
    """What the policy's most likely actions score, of all players."""
    return Evaluator(pool, episodes=16)(policy, 0).stats["score"]


@pytest.mark.parametrize("case", CHOICES, ids=name_of)
def test_the_shown_numbers_are_chosen_however_a_world_is_seen_played_and_masked(case):
    env = choosing_world(**case)
    assert random_score(env) < 0.6
    assert score(learn(pool_of(env, 8), 12), pool_of(env, 16)) > 0.9


@pytest.mark.parametrize("case", NUMBERS, ids=name_of)
def test_the_shown_numbers_are_met_by_continuous_actions_however_a_world_is_seen_and_played(case):
    env = choosing_world(case["obs"], case["action"], case["players"])
    assert random_score(env) < 0.5
    policy = learn(pool_of(env, 8), 16, policy_config={"bounded_actions": case["bounded"]})
    assert score(policy, pool_of(env, 16)) > 0.85


EXTRAS = {
    "normalize_observations": True, "normalize_rewards": True, "normalize_advantages": "batch", "reward_clip": 0.9,
    "value_clip": 0.5, "target_kl": 0.1, "num_epochs": 6, "entropy_coef": 0.001,
}  # fmt: skip


@pytest.mark.parametrize("players", PLAYERS)
def test_compiled_players_learn_with_every_extra_of_the_learner_at_once(players):
    env = choosing_world("dict", "multi", players, masked=True)
    policy = learn(pool_of(env, 16, backend="cpu"), 20, policy_config={"shared_trunk": True}, **EXTRAS)
    assert score(policy, pool_of(env, 16, backend="cpu")) > 0.9


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("memory", ["lstm", "gru", "mingru"])
def test_memory_learns_with_masks_dicts_several_choices_players_and_every_extra_at_once(memory, players):
    env = choosing_world("dict", "multi", players, masked=True)
    shape = {"memory": memory, "memory_size": 16, "shared_trunk": True}
    extras = EXTRAS | {"advantage": "vtrace", "bptt_horizon": 6}
    policy = learn(pool_of(env, 16, backend="cpu"), 24, policy_config=shape, **extras)
    assert score(policy, pool_of(env, 16, backend="cpu")) > 0.9


@pytest.mark.parametrize("players", PLAYERS)
def test_memory_of_its_own_for_the_value_learns_continuous_actions(players):
    env = choosing_world("dict", "box", players)
    policy = learn(pool_of(env, 16, backend="cpu"), 24, policy_config={"memory": "gru", "memory_size": 16})
    assert score(policy, pool_of(env, 16, backend="cpu")) > 0.85


@pytest.mark.parametrize("players", ["one", "agents"])
@pytest.mark.parametrize("obs", OBS)
def test_the_shown_numbers_are_chosen_when_the_last_three_observations_are_seen(obs, players):
    env = choosing_world(obs, "discrete", players, masked=True)
    assert score(learn(pool_of(env, 8, frames=3), 16), pool_of(env, 16, frames=3)) > 0.9
