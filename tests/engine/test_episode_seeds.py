"""Episodes of different seeds, purposes and envs are different ones."""

import gymnasium
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env
from scramjet.training import seeds

NUM_ENVS = 1000


def first_states(seed: EpisodeSeed | int) -> list[bytes]:
    """What each env of a CartPole pool shows first: four random numbers, so that no two are alike by chance."""
    obs = NativePool(load_env("cartpole"), NUM_ENVS, num_threads=1).reset(seed).obs
    return [row.tobytes() for row in obs]


PURPOSES = {
    "a pool of one's own": lambda seed: seed,
    "training": seeds.training_episodes,
    "an evaluation": lambda seed: seeds.evaluation_episodes(seed, 4096),
    "the next evaluation": lambda seed: seeds.evaluation_episodes(seed, 8192),
    "scramjet eval": seeds.unseen_episodes,
    "a fork": lambda seed: seeds.training_episodes(seeds.seed_of_fork(seed, "ab" * 32)),
    "another fork": lambda seed: seeds.training_episodes(seeds.seed_of_fork(seed, "cd" * 32)),
}


def test_no_two_seeds_purposes_or_envs_begin_with_the_same_state():
    """Seeds beside each other, and those that the fixed offsets of training and evaluation would bring together."""
    shown = [
        state
        for seed in (1, 2, 3, 1 + 999, 1 + 10_000, 12_345)
        for purpose in PURPOSES.values()
        for state in first_states(purpose(seed))
    ]
    assert len(set(shown)) == len(shown)


def test_the_same_seed_is_the_same_episodes_whatever_is_beside_an_env():
    whole = NativePool(load_env("cartpole"), 300, num_threads=1).reset(7).obs
    few = NativePool(load_env("cartpole"), 3, num_threads=1)
    np.testing.assert_array_equal(few.reset(7).obs, whole[:3])
    np.testing.assert_array_equal(few.reset(EpisodeSeed.of(7).part(5)).obs, whole[5:8])


def test_gymnasium_envs_of_neighbouring_seeds_share_no_episode_and_none_within_a_pool_is_played_twice():
    seen = set()
    for seed in range(3):
        pool = SerialPool("CartPole", lambda: gymnasium.make("CartPole-v1"), 20)
        seen |= {row.tobytes() for row in pool.reset(seed).obs}
        pool.close()
    assert len(seen) == 60


@given(key=st.integers(-(2**63), 2**63 - 1), first=st.integers(0, 2**29), count=st.integers(2, 40))
def test_seeds_for_other_libraries_are_below_2_to_the_30_and_all_different(key, first, count):
    each = EpisodeSeed(key, first).of_envs(count)
    assert len(set(each)) == count
    assert all(0 <= seed < 2**30 for seed in each)
    assert each[1:] == EpisodeSeed(key, first + 1).of_envs(count - 1)


def test_seeds_for_other_libraries_are_spread_evenly_and_do_not_count_up():
    each = np.array(EpisodeSeed.of(1).of_envs(20_000))
    counts, _ = np.histogram(each, bins=50, range=(0, 2**30))
    assert abs(counts - 400).max() < 5 * 20  # five standard deviations
    assert abs(np.corrcoef(each[:-1], each[1:])[0, 1]) < 5 / np.sqrt(len(each))


def test_what_happens_later_gives_fresh_episodes_and_the_same_event_the_same_ones():
    seed = EpisodeSeed.of(1)
    assert seed.after("restarted", 5) == seed.after("restarted", 5)
    assert len({seed.key, seed.after("restarted", 5).key, seed.after("restarted", 6).key, seed.after("x", 5).key}) == 4
