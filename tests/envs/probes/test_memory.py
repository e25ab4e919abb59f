"""Memory: bits are shown once, then asked for; nothing else is paid or seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.engine import NativePool
from scramjet.envs.probes.memory import Memory

lengths, delays, seeds = st.integers(1, 6), st.integers(0, 5), st.integers(0, 2**40)


def play(length: int, delay: int, seed: int, answer) -> tuple[list[float], list[float], NativePool]:
    """One episode; `answer(seen, step)` gives each action from what was seen so far. Observations and rewards."""
    pool = NativePool(Memory(length=length, delay=delay), 1, backend="interpreted")
    seen, rewards = [float(pool.reset(seed).obs[0, 0])], []
    for step in range(2 * length + delay):
        out = pool.step(np.array([answer(seen, step)]))
        rewards.append(float(out.reward[0]))
        assert not out.truncated[0]
        assert out.terminated[0] == (step == 2 * length + delay - 1)
        seen.append(float(out.final_obs[0, 0] if out.terminated[0] else out.obs[0, 0]))
    return seen, rewards, pool


@settings(max_examples=50)
@given(lengths, delays, seeds)
def test_a_player_who_remembers_gets_one_for_each_bit(length, delay, seed) -> None:
    def remember(seen, step):
        return int(step >= length + delay and seen[step - length - delay] > 0)

    seen, rewards, pool = play(length, delay, seed, remember)
    assert all(abs(value) == 1 for value in seen[:length])
    assert rewards == [0.0] * (length + delay) + [1.0] * length
    assert pool.episodes().stats["all_right"].tolist() == [1.0]


@settings(max_examples=50)
@given(lengths, delays, seeds, st.integers(0, 2**32))
def test_an_answer_is_paid_just_when_it_is_the_bit_asked_for(length, delay, seed, actions_seed) -> None:
    actions = np.random.default_rng(actions_seed).integers(2, size=2 * length + delay).tolist()
    seen, rewards, pool = play(length, delay, seed, lambda seen, step: actions[step])
    is_right = [actions[length + delay + i] == (seen[i] > 0) for i in range(length)]
    assert rewards == [0.0] * (length + delay) + [float(right) for right in is_right]
    assert pool.episodes().stats["all_right"].tolist() == [float(all(is_right))]


@settings(max_examples=50)
@given(lengths, delays, seeds)
def test_once_the_bits_were_shown_everything_looks_the_same(length, delay, seed) -> None:
    seen, _, _ = play(length, delay, seed, lambda seen, step: step % 2)
    assert seen[length:] == [0.0] * (length + delay + 1)


def test_all_rows_of_bits_are_as_likely() -> None:
    pool = NativePool(Memory(length=3), 4000, backend="interpreted")
    pool.reset(1)
    rows = np.bincount([int(pool.record(i).bits @ np.array([1, 2, 4])) for i in range(4000)], minlength=8)
    assert ((rows - 500) ** 2 / 500).sum() < 29.9  # chi squared, 7 degrees, p = 1e-4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"length": 0}, "length=0 must be at least 1: there is nothing to remember"),
        ({"delay": -1}, "delay=-1 must be at least 0"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message) -> None:
    with pytest.raises(ValueError, match=message):
        Memory(**parameters)


def test_the_pictures_show_bits_answers_and_the_moment() -> None:
    pool = NativePool(Memory(length=2, delay=1), 1, backend="interpreted")
    pool.reset(0)
    pool.record(0).bits[:] = (1, 0)
    for action in (0, 0, 0, 1):
        pool.step(np.array([action]))
    assert pool.env.ascii(pool.record(0)) == "1 0 . 1 ?\n        ^"
    picture = pool.env.render(pool.record(0))
    cell = picture.shape[1] // 5
    first_bit, second_bit, answer = (
        picture[cell, cell // 2],
        picture[cell, 3 * cell // 2],
        picture[2 * cell, 7 * cell // 2],
    )
    assert (first_bit == answer).all()
    assert (first_bit != second_bit).any()
