"""EnvPool behind our pool: no dead steps, whole games reported, rows as they become ready."""

import warnings
from typing import Any

import numpy as np
import pytest

from scramjet.adapters.envpool import EnvPoolPool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ConfigError, WorldError
from tests.helpers.late_imports import skip_without

pytestmark = pytest.mark.rest
skip_without("envpool", reason="pip install 'scramjet[envpool]'")


def bare(task_id: str, seeds: list[int], **options: Any) -> Any:
    import envpool

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return envpool.make(task_id, env_type="gymnasium", num_envs=len(seeds), seed=seeds, num_threads=1, **options)


class Alone:
    """One env of EnvPool by itself, its resets taken out: what a row must do."""

    def __init__(self, task_id: str, seed: int, **options: Any) -> None:
        self.env = bare(task_id, [seed], **options)
        self.obs = self.env.reset()[0][0].copy()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(np.array([action]))
        last = obs[0].copy()
        self.obs = last
        if terminated[0] or truncated[0]:
            self.obs = self.env.step(np.array([action]))[0][0].copy()  # the dead step
        return last, float(reward[0]), bool(terminated[0]), bool(truncated[0]), info


@pytest.mark.parametrize(("num_envs", "most_steps"), [(4, 15), (24, 15), (24, 8)])  # 8: all end together
def test_each_episode_is_one_that_an_env_plays_alone_without_its_dead_steps(num_envs, most_steps):
    pool = EnvPoolPool("CartPole-v1", num_envs, num_threads=2, max_episode_steps=most_steps)
    out = pool.reset(21)
    seeds = EpisodeSeed.of(21).of_envs(2 * num_envs)
    playing = [Alone("CartPole-v1", seed, max_episode_steps=most_steps) for seed in seeds[:num_envs]]
    idle = [Alone("CartPole-v1", seed, max_episode_steps=most_steps) for seed in seeds[num_envs:]]
    ended, lengths, kinds = [], np.zeros(num_envs, int), set()
    for actions in np.random.default_rng(0).integers(2, size=(120, num_envs)):
        np.testing.assert_array_equal(out.obs, [env.obs for env in playing])
        out = pool.step(actions)
        lengths += 1
        for i, env in enumerate(playing):
            last, reward, terminated, truncated, _ = env.step(actions[i])
            assert (out.reward[i], out.terminated[i], out.truncated[i]) == (reward, terminated, truncated)
            if terminated or truncated:
                kinds.add(terminated)
                np.testing.assert_array_equal(out.final_obs[i], last)
                ended.append((i, float(lengths[i]), lengths[i]))
                lengths[i] = 0
                idle.append(env)
                # The row goes on with the next episode of an env that has none, whichever that is.
                (playing[i],) = (one for one in idle if np.array_equal(one.obs, out.obs[i]))
                idle.remove(playing[i])
    episodes = pool.episodes()
    assert kinds == ({True, False} if most_steps == 15 else {False})
    assert list(zip(episodes.env_ids, episodes.returns, episodes.lengths, strict=True)) == ended
    assert pool.steps_taken == 120


def test_games_end_with_lives_in_training_and_are_reported_whole():
    num_envs = 2
    pool = EnvPoolPool("Breakout-v5", num_envs, num_threads=1)
    out = pool.reset(3)
    assert out.obs.shape == (num_envs, 4, 84, 84)
    assert out.obs.dtype == np.uint8
    seeds = EpisodeSeed.of(3).of_envs(num_envs)
    envs = [Alone("Breakout-v5", seed, episodic_life=True, reward_clip=True) for seed in seeds]
    games, scores, lives_lost = [], np.zeros(num_envs), 0
    for actions in np.random.default_rng(2).integers(4, size=(400, num_envs)):
        out = pool.step(actions)
        for i, env in enumerate(envs):
            _, reward, terminated, _, info = env.step(actions[i])
            np.testing.assert_array_equal(out.obs[i], env.obs)
            assert (out.reward[i], out.terminated[i]) == (reward, terminated)
            scores[i] += info["reward"][0]
            lives_lost += terminated
            if info["terminated"][0]:
                games.append((i, scores[i]))
                scores[i] = 0
    episodes = pool.episodes()
    assert list(zip(episodes.env_ids, episodes.returns, strict=True)) == games
    assert lives_lost > 2 * len(games) > 0


def test_rows_that_are_ready_first_are_what_each_env_plays_alone():
    num_envs = 6
    pool = EnvPoolPool("CartPole-v1", num_envs, batch_size=2, num_threads=1, max_episode_steps=12)
    out = pool.reset(40)
    envs = [Alone("CartPole-v1", seed, max_episode_steps=12) for seed in EpisodeSeed.of(40).of_envs(num_envs)]
    np.testing.assert_array_equal(out.obs, [env.obs for env in envs])
    rng, counts, ended = np.random.default_rng(0), np.zeros(num_envs, int), 0
    actions = rng.integers(2, size=num_envs)
    pool.send(actions)
    while counts.min() < 40:
        batch = pool.recv()
        rows = np.arange(num_envs)[batch.rows]
        assert 1 <= len(rows) <= 2
        for k, i in enumerate(rows):
            last, reward, terminated, truncated, _ = envs[i].step(actions[i])
            got = batch.transition
            assert (got.reward[k], got.terminated[k], got.truncated[k]) == (reward, terminated, truncated)
            np.testing.assert_array_equal(got.obs[k], envs[i].obs)
            if terminated or truncated:
                ended += 1
                np.testing.assert_array_equal(got.final_obs[k], last)
        counts[rows] += 1
        actions[rows] = rng.integers(2, size=len(rows))
        pool.send(actions, rows)
    assert ended > 10
    assert abs(pool.episodes().num_ended - ended) <= num_envs  # some are being reset, and not handed over yet
    with pytest.raises(ConfigError, match="asynchronous"):
        pool.step(actions)


def test_what_envpool_cannot_wait_for_or_does_not_know_is_refused():
    pool = EnvPoolPool("CartPole-v1", 6, batch_size=2, num_threads=1)
    pool.reset(40)
    actions = np.zeros(6, np.int64)
    pool.send(actions, slice(0, 1))
    with pytest.raises(ConfigError, match=r"recv\(\) waits for 2 rows, and 1 have actions"):
        pool.recv()
    with pytest.raises(ConfigError, match="rows 0, 1 step already"):
        pool.send(actions, slice(0, 2))
    with pytest.raises(ConfigError, match="ready first: call recv"):
        pool.recv(slice(0, 1))
    with pytest.raises(WorldError, match=r"no env 'CartPol-v1'. Did you mean 'CartPole-v1'\?"):
        EnvPoolPool("CartPol-v1", 2)
    with pytest.raises(ConfigError, match=r"no parameter 'frameskip'. Did you mean 'frame_skip'\?"):
        EnvPoolPool("Pong-v5", 2, frameskip=4)
    with pytest.raises(ConfigError, match=r"batch_size=4 does not divide num_envs=6.*batch_size=2"):
        EnvPoolPool("CartPole-v1", 6, batch_size=4)


def test_all_rows_sent_without_a_batch_size_are_what_a_step_gives():
    pool, whole = (EnvPoolPool("CartPole-v1", 3, num_threads=1) for _ in range(2))
    pool.reset(4)
    whole.reset(4)
    for actions in np.random.default_rng(0).integers(2, size=(30, 3)):
        pool.send(actions)
        np.testing.assert_array_equal(pool.recv().transition.obs, whole.step(actions).obs)
    with pytest.raises(ConfigError, match="steps all its envs at once"):
        pool.send(actions, slice(0, 2))


def test_spaces_of_many_kinds_come_through_and_a_restored_pool_says_that_its_episodes_are_fresh():
    pool = EnvPoolPool("FrozenLake-v1", 3, num_threads=1)
    assert pool.reset(0).obs.shape == (3, 1)
    assert pool.step(np.zeros(3, np.int64)).obs.dtype == np.int64
    pool = EnvPoolPool("Pendulum-v1", 3, num_threads=1)
    pool.reset(0)
    assert pool.step(np.full((3, 1), 0.5, np.float32)).obs.shape == (3, 3)
    pool = EnvPoolPool("CartPole-v1", 3, num_threads=1)
    first, other = pool.reset(5).obs.copy(), pool.reset(6).obs.copy()
    assert not np.isin(first, other).any(), "another seed begins other episodes"
    np.testing.assert_array_equal(pool.reset(5).obs, first)
    np.testing.assert_array_equal(pool.reset(EpisodeSeed.of(5).part(1)).obs[:2], first[1:])
    pool.step(np.zeros(3, np.int64))
    other = EnvPoolPool("CartPole-v1", 3, num_threads=1)
    other.restore(pool.snapshot())
    assert other.steps_taken == 1
    assert other.resume_note == "envpool:CartPole-v1 cannot save its state: resumed with fresh episodes"
