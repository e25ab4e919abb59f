"""Vector envs of others: their spaces, infos, what they leave out, and what cannot be taken."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordVectorStatistics

from scramjet.adapters.vector import VectorPool
from scramjet.algorithms.advantages import gae
from scramjet.engine.layout import PlayedBy
from scramjet.errors import ConfigError, WorldError
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.batches.samples import lay_out
from scramjet.training.rollout.player import RolloutPlayer


class Mixed(gymnasium.Env[Any, Any]):
    """Three steps an episode; observes and acts in spaces of several parts that begin anywhere."""

    observation_space = Dict({"place": Discrete(5, start=2), "pair": Tuple((Box(0, 9, (2,)), Discrete(3)))})
    action_space = MultiDiscrete([2, 3], start=[1, 5])

    def _seen(self) -> dict[str, Any]:
        return {"place": np.int64(2 + self.count), "pair": (np.full(2, self.count, np.float64), np.int64(1))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.count += 1
        return self._seen(), float(action.sum()), self.count == 3, self.count == 3, {"won": self.count == 3}


def test_spaces_of_several_parts_arrive_from_zero_in_rows():
    for mode in AutoresetMode:
        pool = VectorPool("Mixed", lambda n, mode=mode: SyncVectorEnv([Mixed] * n, autoreset_mode=mode), 2)
        out = pool.reset(0)
        assert out.obs["place"].tolist() == [[0], [0]], mode
        for count in (1, 2, 3):
            out = pool.step(np.array([[0, 0], [1, 2]]))
            assert out.reward.tolist() == [6, 9], mode
            shown = out.final_obs if count == 3 else out.obs
            assert shown["place"].tolist() == [[count], [count]], mode
            assert shown["pair"]["item0"].tolist() == [[count] * 2] * 2, mode
            assert out.obs["place"].tolist() == [[count % 3]] * 2, mode
        assert out.terminated.all(), mode
        assert not out.truncated.any(), "both were set: termination wins"
        episodes = pool.episodes()
        assert episodes.returns.tolist() == [18, 27], mode
        assert episodes.stats["won"].tolist() == [1, 1], mode


class Scaled(gymnasium.RewardWrapper):
    def reward(self, reward: Any) -> float:
        return float(reward) / 100


def test_recorded_episode_statistics_are_the_score():
    for mode in AutoresetMode:

        def inside(n: int, mode: AutoresetMode = mode) -> VectorEnv:
            return SyncVectorEnv([lambda: Scaled(RecordEpisodeStatistics(Mixed()))] * n, autoreset_mode=mode)

        def outside(n: int, mode: AutoresetMode = mode) -> VectorEnv:
            return RecordVectorStatistics(SyncVectorEnv([Mixed] * n, autoreset_mode=mode))

        for make, reward in ((inside, 0.06), (outside, 6)):
            pool = VectorPool("Mixed", make, 2)
            pool.reset(0)
            for _ in range(3):
                out = pool.step(np.array([[0, 0], [1, 2]]))
            assert out.reward[0] == pytest.approx(reward), mode
            episodes = pool.episodes()
            assert episodes.returns.tolist() == [18, 27], mode
            assert episodes.lengths.tolist() == [3, 3], mode


class Terse(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Counts to 3, is cut short and begins anew in the same step, without a word on what was seen last."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Box(0, 9, (1,)), Discrete(2)
        self.observation_space, self.action_space = Box(0, 9, (num_envs, 1)), MultiDiscrete([2] * num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.count = np.zeros((self.num_envs, 1), np.float32)
        return self.count.copy(), {}

    def step(self, actions: np.ndarray) -> Any:
        self.count = (self.count + 1) % 3
        ended = self.count[:, 0] == 0
        return self.count.copy(), np.ones(self.num_envs), np.zeros_like(ended), ended, {}


def test_where_no_last_observation_is_given_the_one_before_stands_in():
    pool = VectorPool("Terse", Terse, 2)
    pool.reset(0)
    for _ in range(3):
        out = pool.step(np.zeros(2, np.int64))
    assert out.truncated.all()
    assert out.final_obs.tolist() == [[2], [2]]
    assert out.obs.tolist() == [[0], [0]]


class Strict(SyncVectorEnv):
    """Not Gymnasium's own class: its style stays, and dead steps are marked."""


@pytest.mark.parametrize("memory", [None, pytest.param("gru", marks=pytest.mark.rest)])
def test_a_marked_dead_step_is_no_sample_and_no_advantage_reaches_over_it(memory):
    """A plain loop over what is left estimates the same advantages (GAE, eq. 16) from the same values."""
    pool = VectorPool("CartPole", lambda n: Strict([lambda: gymnasium.make("CartPole-v1")] * n), 4)
    assert (pool.played_by, pool.num_rows) == (PlayedBy.AGENTS, 4)
    torch.manual_seed(0)
    config = PolicyConfig(hidden=(8,), memory=memory, memory_size=8)
    spaces = pool.observation_space, pool.action_space
    policy = Policy(default_network(*spaces, config), *spaces, config)
    player = RolloutPlayer(pool, TorchExecutor(policy), 64)
    rollout = player.rollout
    pool.reset(0, out=player.buffers.last)
    player.play(torch.Generator().manual_seed(1))
    advantage, returns = gae(
        rollout.reward, rollout.value, rollout.terminated, rollout.truncated, rollout.final_value, gamma=0.9,
        gae_lambda=0.8,
    )  # fmt: skip
    samples = lay_out(rollout, advantage, returns)
    alive = rollout.alive[:-1].bool()
    place = samples.counted(samples.place)
    assert sorted(place.tolist()) == alive.flatten().nonzero().squeeze(1).tolist()
    assert 4 < (~alive).sum() < 40
    assert not rollout.terminated[~alive].any()
    for row in range(4):
        following = 0.0
        steps = alive[:, row].nonzero().squeeze(1).tolist()
        for t in reversed(steps):
            is_over = bool(rollout.terminated[t, row])
            after = 0.0 if is_over else float(rollout.value[t + 1, row])
            delta = float(rollout.reward[t, row]) + 0.9 * after - float(rollout.value[t, row])
            following = delta + (0.0 if is_over else 0.72 * following)
            assert float(advantage[t, row]) == pytest.approx(following, abs=1e-4)
    pool.reset(0)
    for _ in range(40):
        pool.step(np.zeros(4, np.int64))
    episodes = pool.episodes()
    assert episodes.lengths.tolist() == episodes.returns.tolist() != [], "CartPole pays 1 a step"


def test_what_is_no_vector_env_of_so_many_envs_with_a_style_is_refused():
    class Silent(Terse):
        metadata = {}

    for make, message in (
        (lambda n: gymnasium.Env, "which is no gymnasium.vector.VectorEnv"),
        (lambda n: None, "which is no gymnasium.vector.VectorEnv"),
        (lambda n: Terse(3), "asked for 2 envs, the factory made 3"),
        (Silent, r"metadata\['autoreset_mode'\] is None.*SAME_STEP"),
    ):
        with pytest.raises(WorldError, match=message):
            VectorPool("Odd", make, 2)
    with pytest.raises(ConfigError, match="num_envs=0"):
        VectorPool("Terse", Terse, 0)


def test_rewards_that_are_no_numbers_and_observations_of_another_shape_are_refused():
    class Wordy(Terse):
        def step(self, actions: np.ndarray) -> Any:
            obs, _, *rest = super().step(actions)
            return obs, ["good", "bad"], *rest

    pool = VectorPool("Wordy", Wordy, 2)
    pool.reset(0)
    with pytest.raises(WorldError, match=r"rewards \['good', 'bad'\]"):
        pool.step(np.zeros(2, np.int64))

    class Wide(Terse):
        def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
            return np.zeros((self.num_envs, 3), np.float32), {}

    with pytest.raises(WorldError, match=r"Wide observed \[2, 3\]"):
        VectorPool("Wide", Wide, 2).reset(0)
