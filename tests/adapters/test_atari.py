"""Atari: what is seen, what is learned from and what is reported."""

import select
from typing import Any

import numpy as np
import pytest

from scramjet.adapters.atari import AtariConfig, AtariPool, PollableAtariPool, rom_name
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ConfigError, WorldError
from tests.helpers.pool_transitions import assert_equal

pytestmark = pytest.mark.rest
pytest.importorskip("ale_py", reason="pip install 'scramjet[atari]'")


def bare(game: str, num_envs: int, **options: Any) -> Any:
    """ALE's own vector env, plain: whole games, own rewards."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(game, num_envs, autoreset_mode="SameStep", reward_clipping=False, **options)


def test_a_training_pool_ends_lives_and_clips_rewards_and_reports_whole_games():
    num_envs = 3
    pool, plain = AtariPool("Breakout", num_envs, num_threads=1), bare("breakout", num_envs, num_threads=1)
    out = pool.reset(5)
    obs, info = plain.reset(seed=np.array(EpisodeSeed.of(5).of_envs(num_envs)))
    assert out.obs.shape == (num_envs, 4, 84, 84)
    assert out.obs.dtype == np.uint8
    np.testing.assert_array_equal(out.obs, obs)
    lives, scores, lengths = info["lives"], np.zeros(num_envs), np.zeros(num_envs, int)
    games, lives_lost = [], 0
    for actions in np.random.default_rng(1).integers(4, size=(400, num_envs)):
        out = pool.step(actions)
        obs, reward, over, cut, info = plain.step(actions)
        scores, lengths = scores + reward, lengths + 1
        lost = ~over & (info["lives"] < lives)
        np.testing.assert_array_equal(out.obs, obs)
        np.testing.assert_array_equal(out.reward, np.sign(reward))
        np.testing.assert_array_equal(out.terminated, over | lost)
        assert not out.truncated.any()
        assert not cut.any()
        np.testing.assert_array_equal(out.final_obs[lost], obs[lost])
        if over.any():
            np.testing.assert_array_equal(out.final_obs[over], info["final_obs"][over])
        for i in np.flatnonzero(over):
            games.append((i, scores[i], lengths[i]))
            scores[i] = lengths[i] = 0
        lives, lives_lost = info["lives"], lives_lost + int(lost.sum())
    episodes = pool.episodes()
    assert list(zip(episodes.env_ids, episodes.returns, episodes.lengths, strict=True)) == games
    assert len(games) >= 3
    assert lives_lost > 2 * len(games)
    assert max(score for _, score, _ in games) > 0


def test_halves_that_step_beside_each_other_give_what_all_give_together():
    num_envs, middle = 3, 1
    settings = {"max_num_frames_per_episode": 160, "num_threads": 1}  # forty steps: some are cut short
    whole, apart = (AtariPool("Breakout", num_envs, **settings) for _ in range(2))
    rows = [slice(0, middle), slice(middle, num_envs)]
    expected, out = whole.reset(3), apart.allocate()
    apart.reset(3, out=out)
    actions = np.random.default_rng(1).integers(4, size=(100, num_envs))
    for part in rows:
        apart.send(actions[0], part)
    for t in range(len(actions)):
        expected = whole.step(actions[t])
        for part in rows:
            apart.recv(part, out)
            if t + 1 < len(actions):
                apart.send(actions[t + 1], part)
        assert_equal(out, expected)
    assert apart.steps_taken == len(actions)
    ours, theirs = apart.episodes(), whole.episodes()
    assert len(ours) >= 3
    for name in ("returns", "lengths", "env_ids"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_halves_are_refused_out_of_turn_and_a_reset_waits_for_them():
    pool, actions = AtariPool("Pong", 3, num_threads=1), np.zeros(3, np.int64)
    out, first = pool.allocate(), slice(0, 1)
    begun = pool.reset(0).obs.copy()
    twin = AtariPool("Pong", 3, num_threads=1)
    twin.reset(0)
    with pytest.raises(ConfigError, match="rows 0 to 1 were not sent together"):
        pool.recv(first, out)
    with pytest.raises(ConfigError, match=r"no half of this pool; its games step in rows 0 to 1 or 1 to 3"):
        pool.send(actions, slice(0, 2))
    pool.send(actions, first)
    with pytest.raises(ConfigError, match=r"step\(\) while envs step"):
        pool.step(actions)
    with pytest.raises(ConfigError, match=r"rows 0 to 1 step already: call recv\(\) first"):
        pool.send(actions, first)
    np.testing.assert_array_equal(pool.reset(0).obs, begun)
    pool.send(actions)  # both halves
    np.testing.assert_array_equal(pool.recv().transition.obs, twin.step(actions).obs)
    assert pool.steps_taken == 1


def test_without_training_lives_end_nothing_and_rewards_are_the_games_own():
    # Bricks of the lower rows give 1; in Space Invaders every hit gives more.
    pool, plain = AtariPool("SpaceInvaders", 2, training=False, num_threads=1), bare("space_invaders", 2, num_threads=1)
    pool.reset(0)
    plain.reset(seed=np.array(EpisodeSeed.of(0).of_envs(2)))
    most = 0.0
    for actions in np.random.default_rng(0).integers(6, size=(250, 2)):
        out = pool.step(actions)
        _, reward, over, _, _ = plain.step(actions)
        np.testing.assert_array_equal(out.reward, reward)
        np.testing.assert_array_equal(out.terminated, over)
        most = max(most, float(reward.max()))
    assert most > 1


def test_the_time_limit_truncates_and_shows_the_last_picture_and_a_restored_pool_has_fresh_episodes():
    pool = AtariPool("Pong", 2, max_num_frames_per_episode=40, num_threads=1)
    before = pool.reset(0).obs.copy()
    for _ in range(10):
        shown = before
        out = pool.step(np.array([2, 3]))
        before = out.obs.copy()
    assert out.truncated.all()
    assert not out.terminated.any()
    np.testing.assert_array_equal(out.final_obs[:, :3], shown[:, 1:])
    assert (out.obs[:, :3] == 0).all()
    assert (out.obs[:, 3] != 0).any()
    assert pool.episodes().lengths.tolist() == [10, 10]
    other = AtariPool("Pong", 2, num_threads=1)
    out = other.restore(pool.snapshot())
    assert out.obs.any()
    assert other.resume_note == "ale:Pong cannot save its state: resumed with fresh episodes"
    assert (other.steps_taken, pool.resume_note) == (10, None)
    assert not other.unfinished()[1].any()
    other.step(np.zeros(2, np.int64))


def test_games_are_known_by_their_usual_names_and_what_cannot_be_is_refused_with_the_nearest():
    for game in ("MsPacman", "ms_pacman", "mspacman", "ALE/MsPacman-v5"):
        assert rom_name(game) == "ms_pacman"
    with pytest.raises(WorldError, match=r"no Atari game 'Brakeout'. Did you mean 'Breakout'"):
        AtariPool("Brakeout", 1)
    with pytest.raises(ConfigError, match=r"ale:Pong has no parameter 'frame_skip'. Did you mean 'frameskip'\?"):
        AtariPool("Pong", 1, frame_skip=4)
    wrong = {"frameskip": 0, "noop_max": -1, "repeat_action_probability": 1.5, "maxpool": 1, "stack_num": 2.0}
    for parameter, value in wrong.items():
        with pytest.raises(ConfigError, match=parameter):
            AtariConfig(**{parameter: value})  # type: ignore[arg-type]


def test_a_pollable_pool_steps_as_another_does_and_says_when_it_has():
    polled, pool = PollableAtariPool("Breakout", 3, num_threads=1), AtariPool("Breakout", 3, num_threads=1)
    mine, its = polled.reset(5), pool.reset(5)
    np.testing.assert_array_equal(mine.obs, its.obs)
    for actions in np.random.default_rng(0).integers(4, size=(60, 3)):
        assert polled.waiting == []
        polled.send(actions)
        [(readable, _)] = polled.waiting
        assert select.select([readable], [], [], 10.0)[0] == [readable]
        polled.recv(out=mine)
        pool.step(actions, out=its)
        assert_equal(mine, its)
    polled.send(actions)
    polled.reset(5)  # also while they step
    assert polled.waiting == []
    polled.send(actions)
    for each in (polled, polled, pool):  # closed twice, and while they step
        each.close()
