"""The generator: Random123's published answers, closed forms, and statistics that a biased generator fails."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import njit

from scramjet.engine import NativePool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.envs import Box, Discrete, Env, choice, normal, randint, shuffle, uniform
from scramjet.envs.rng import draw_words, philox4x32

ALL_ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [  # Random123 1.14, tests/kat_vectors, philox4x32-10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ALL_ONES,) * 4, (ALL_ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def generator(seed: int = 0, episode: int = 0, draw: int = 0, index: int = 0) -> SimpleNamespace:
    """A record with nothing but the generator's four integers."""
    return SimpleNamespace(_seed=seed, _episode=episode, _draw=draw, _index=index)


def expected_words(seed: int, episode: int, draw: int, index: int = 0) -> tuple[int, int, int, int]:
    """Philox4x32-10 written from the paper: counter (draw, env index, episode, 0), key seed, low word first."""
    counter = [draw % 2**32, index % 2**32, episode % 2**32, 0]
    key = [seed % 2**32, (seed >> 32) % 2**32]
    for round_number in range(10):
        if round_number:
            key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
        high_0, low_0 = divmod(0xD2511F53 * counter[0], 2**32)
        high_1, low_1 = divmod(0xCD9E8D57 * counter[2], 2**32)
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0]
    return tuple(counter)


def expected_uniform(seed: int, episode: int, draw: int, index: int) -> float:
    words = expected_words(seed, episode, draw, index)
    return (((words[0] << 32) | words[1]) >> 11) / 2**53


def chi_square(counts: np.ndarray) -> float:
    """How many standard deviations the chi-square statistic lies above its mean."""
    expected = counts.sum() / len(counts)
    freedom = len(counts) - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def test_philox_gives_the_published_answers_and_the_same_compiled() -> None:
    compiled_philox = njit(philox4x32)
    for counter, key, answer in KNOWN_ANSWERS:
        assert philox4x32(*counter, *key) == compiled_philox(*counter, *key) == answer
    for words in np.random.default_rng(0).integers(2**32, size=(200, 6)).tolist():
        assert compiled_philox(*words) == philox4x32(*words), words


def test_a_draw_is_philox_of_key_env_episode_and_draw() -> None:
    for numbers in ((0, 0, 0, 0), (1, 2, 3, 4), (2**40 + 5, 2**31 - 1, 7, 2**31 - 2), (-1, 0, 0, 0)):
        seed, index, episode, draw = numbers
        s = generator(seed, episode, draw, index)
        assert draw_words(s) == expected_words(seed, episode, draw, index), numbers
        assert s._draw == draw + 1


def test_randint_of_one_is_zero_and_of_a_power_of_two_the_top_bits_of_the_word() -> None:
    for draw in range(200):
        word = expected_words(7, 0, draw)[0]
        drawn = [randint(generator(7, 0, draw), n) for n in (1, 2, 2**31)]
        assert drawn == [0, word >> 31, word >> 1]


def test_randint_rejects_exactly_the_words_that_would_make_it_biased() -> None:
    """For n = 3 * 2**29, word w maps to floor(3 w / 8), and 2**30 of the 2**32 words must be refused."""
    n, refused, total = 3 << 29, 0, 4000
    for draw in range(total):
        s = generator(11, 0, draw)
        value = randint(s, n)
        used = s._draw - 1
        assert value == expected_words(11, 0, used)[0] * 3 // 8
        refused += used != draw
    assert refused / total == pytest.approx(0.25, abs=0.03)


def test_choice_takes_the_option_that_randint_numbers() -> None:
    for draw in range(50):
        index = randint(generator(5, 0, draw), 3)
        assert choice(generator(5, 0, draw), (10, 20, 30)) == (10, 20, 30)[index]
        assert choice(generator(5, 0, draw), np.array([1.5, 2.5, 3.5])) == (1.5, 2.5, 3.5)[index]


def test_normal_is_the_box_muller_transform_of_one_block() -> None:
    for draw in range(100):
        w = expected_words(9, 4, draw)
        first = ((((w[0] << 32) | w[1]) >> 11) + 1) / 2**53
        second = (((w[2] << 32) | w[3]) >> 11) / 2**53
        expected = 3.0 + 0.5 * math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)
        assert normal(generator(9, 4, draw), 3.0, 0.5) == pytest.approx(expected, rel=1e-14)


def test_uniform_and_normal_survive_the_most_extreme_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in (0, ALL_ONES):
        monkeypatch.setattr("scramjet.envs.rng.philox4x32", lambda *_, word=word: (word, word, word, word))
        assert 0.0 <= uniform(generator()) < 1.0
        assert math.isfinite(normal(generator()))


def test_shuffle_is_a_permutation() -> None:
    for size in (0, 1, 2, 9):
        array = np.arange(size)
        shuffle(generator(1), array)
        assert sorted(array.tolist()) == list(range(size))


# --- the same draws, made by compiled rules -------------------------------------------------------------------

RANGES = (1, 2, 3, 7, 10, 3 << 29, 1 << 31)
OPTIONS = (2.5, -1.0, 8.0)
NUM_CARDS = 4
EPISODE_STEPS = 3
NUM_ENVS = 6000


class Draws(Env):
    """Each step draws once of every kind; the action says from which range the integer comes."""

    max_episode_steps = EPISODE_STEPS
    ranges = RANGES
    options = OPTIONS

    observation_space = Box(-np.inf, np.inf, (5 + NUM_CARDS,), np.float64)
    action_space = Discrete(len(RANGES))
    state = {
        "uniform": np.float64,
        "between": np.float64,
        "integer": np.int64,
        "normal": np.float64,
        "chosen": np.float64,
        "cards": (np.int8, NUM_CARDS),
    }

    def reset(self, s: Any) -> None:
        s.uniform = uniform(s)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.uniform = uniform(s)
        s.between = uniform(s, -3.0, 5.0)
        s.normal = normal(s, 10.0, 2.0)
        s.chosen = choice(s, self.options)
        for i in range(len(s.cards)):
            s.cards[i] = i
        shuffle(s, s.cards)
        s.integer = randint(s, self.ranges[action])
        return 0.0, False

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.uniform
        obs[1] = s.between
        obs[2] = s.integer
        obs[3] = s.normal
        obs[4] = s.chosen
        for i in range(len(s.cards)):
            obs[5 + i] = s.cards[i]


class Coins(Env):
    """Draws from constant ranges, where a compiler can use all it believes to know about single bits."""

    observation_space = Box(-np.inf, np.inf, (5,), np.float64)
    action_space = Discrete(2)
    state = {"coin": np.int8, "die": np.int8, "is_low": np.bool_, "half": np.int64, "is_negative": np.bool_}

    def reset(self, s: Any) -> None:
        s.coin = randint(s, 2)
        s.die = randint(s, 8)
        s.is_low = uniform(s) < 0.5
        s.half = randint(s, 1 << 31) & 1
        s.is_negative = normal(s) < 0.0

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        return 0.0, True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.coin
        obs[1] = s.die
        obs[2] = s.is_low
        obs[3] = s.half
        obs[4] = s.is_negative


def test_what_compiled_rules_draw_is_distributed_as_it_is_said() -> None:
    pool = NativePool(Draws(), NUM_ENVS, num_threads=1)
    shown = {}
    for action, n in enumerate(RANGES):
        pool.reset(10**6 * action)  # far apart: env i is keyed by seed + i
        rows = []
        for _ in range(5):
            actions = np.full(NUM_ENVS, action)
            rows += [pool.step(actions).obs.copy(), pool.step(actions).obs.copy()]
            pool.step(actions)  # the third step ends the episode: its observation is the next one's first
        shown[n] = np.concatenate(rows)
    first, between, _, deviates, chosen, *cards = np.concatenate([*shown.values()]).T

    assert 0.0 <= first.min() <= first.max() < 1.0
    tolerance = 5 / math.sqrt(len(first))
    assert first.mean() == pytest.approx(1 / 2, abs=tolerance)
    assert first.var() == pytest.approx(1 / 12, abs=tolerance / 3)
    assert abs(chi_square(np.histogram(first, 64, (0, 1))[0])) < 5
    assert -3.0 <= between.min() <= between.max() < 5.0
    assert abs(chi_square(np.histogram(between, 64, (-3, 5))[0])) < 5

    deviates = (deviates - 10.0) / 2.0
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert (deviates**power).mean() == pytest.approx(moment, abs=tolerance * math.sqrt(variance)), power
    assert (np.abs(deviates) < 1).mean() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=tolerance)

    for n, rows in shown.items():
        values = rows[:, 2].astype(np.int64)
        assert 0 <= values.min() <= values.max() < n
        if n <= 10:
            counts = np.bincount(values, minlength=n)
        else:  # both how high they lie and their residues, where a missing rejection shows (3/8, 3/8, 2/8)
            counts = np.histogram(values, 64, (0, n))[0]
            assert abs(chi_square(np.bincount(values % 3, minlength=3))) < 5, n
        assert n == 1 or abs(chi_square(counts)) < 5, n

    counts = np.array([(chosen == option).sum() for option in OPTIONS])
    assert counts.sum() == len(chosen)
    assert abs(chi_square(counts)) < 5

    places = NUM_CARDS ** np.arange(NUM_CARDS)
    numbers = places @ np.array(cards, np.int64)
    counts = np.array([(numbers == places @ order).sum() for order in itertools.permutations(range(NUM_CARDS))])
    assert counts.sum() == len(numbers)
    assert abs(chi_square(counts)) < 5


@pytest.mark.parametrize("backend", ["interpreted", "cpu"])
def test_a_record_draws_what_its_key_env_episode_and_draw_say_and_nothing_else_matters(backend) -> None:
    """Env 4 of a pool seeded 20 has the pool's key and the index 4; its k-th episode opens with draw 0 of (4, k)."""
    pool, key = NativePool(Draws(), 6, num_threads=1, backend=backend), EpisodeSeed.of(20).key
    obs = pool.reset(20).obs
    for episode in range(4):
        assert obs[:, 0].tolist() == [expected_uniform(key, episode, 0, i) for i in range(6)]
        first = pool.step(np.full(6, episode)).obs[:, 0].tolist()  # other ranges, other numbers of draws
        assert first == [expected_uniform(key, episode, 1, i) for i in range(6)]
        for _ in range(EPISODE_STEPS - 1):
            obs = pool.step(np.full(6, episode)).obs


@pytest.mark.parametrize("backend", ["interpreted", "cpu"])
def test_single_bits_of_draws_from_constant_ranges_are_right(backend) -> None:
    """The products in Philox fill 64 bits: a compiler that takes them for positive gets their top bit wrong."""
    obs = NativePool(Coins(), 500, num_threads=1, backend=backend).reset(42).obs
    blocks = np.array([[expected_words(EpisodeSeed.of(42).key, 0, draw, i) for draw in range(5)] for i in range(500)])
    first = blocks[..., 0]  # [envs, draws]
    bits = [first[:, 0] >> 31, first[:, 1] >> 29, first[:, 2] >> 31 == 0, first[:, 3] >> 1 & 1]
    np.testing.assert_array_equal(obs.T[:4], bits)
    np.testing.assert_array_equal(obs[:, 4], np.isin(blocks[:, 4, 2] >> 30, (1, 2)))
