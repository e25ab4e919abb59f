"""Memory and T-maze: what is to be remembered is shown once, and nothing later tells it."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.envs.probes.remembering import EAST, NORTH, SOUTH, WEST, Memory, TMaze
from tests.helpers.playing import assert_as_likely, begun, episode_stats, interpreted, observation

# --- Memory -----------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(st.integers(1, 6), st.integers(0, 5), st.integers(0, 2**40), st.none() | st.integers(0, 2**32))
def test_an_answer_is_paid_just_when_it_is_the_bit_asked_for_and_bits_are_seen_once(
    length, delay, seed, guesses
) -> None:
    """Guesses are drawn from a seed; a player without one remembers."""
    env, steps = Memory(length=length, delay=delay), 2 * length + delay
    s, bits, num_right = begun(env, seed), [], 0
    guessed = None if guesses is None else np.random.default_rng(guesses).integers(2, size=steps).tolist()
    for step in range(steps):
        seen = observation(env, s)[0]
        assert abs(seen) == (1 if step < length else 0)
        bits.append(int(seen > 0))
        asked = step - length - delay
        right = bits[asked] if asked >= 0 else None
        action = guessed[step] if guessed else right or 0
        assert env.step(s, action) == (float(action == right), step == steps - 1)
        num_right += action == right
    assert observation(env, s)[0] == 0
    assert guessed or num_right == length
    assert episode_stats(env, s) == {"all_right": float(num_right == length)}


def test_all_rows_of_bits_are_as_likely() -> None:
    env = Memory(length=3)
    assert_as_likely(np.bincount([int(begun(env, seed).bits @ (1, 2, 4)) for seed in range(4000)], minlength=8))


def test_the_pictures_of_memory_show_bits_answers_and_the_moment() -> None:
    env = Memory(length=2, delay=1)
    s = begun(env, bits=(1, 0))
    for action in (0, 0, 0, 1):
        env.step(s, action)
    assert env.ascii(s) == "1 0 . 1 ?\n        ^"
    picture = env.render(s)
    cell = picture.shape[1] // 5
    first_bit, second_bit = picture[cell, cell // 2], picture[cell, 3 * cell // 2]
    assert (first_bit == picture[2 * cell, 7 * cell // 2]).all()  # the answer
    assert (first_bit != second_bit).any()


# --- T-maze -----------------------------------------------------------------------------------------------------

SIGNS = {NORTH: [0, 1, 1], SOUTH: [1, 1, 0]}
CORRIDOR, JUNCTION = [1, 0, 1], [0, 1, 0]


def at_the_sign(length: int, goal: int) -> tuple[TMaze, SimpleNamespace]:
    """A game at its first step, the goal as wanted."""
    env = TMaze(length=length)
    return env, begun(env, goal=goal)


def test_who_follows_the_sign_gets_four_and_who_does_not_a_fine() -> None:
    for length in (1, 2, 10):
        for goal, turn in ((NORTH, NORTH), (NORTH, SOUTH), (SOUTH, SOUTH), (SOUTH, NORTH)):
            env, s = at_the_sign(length, goal)
            assert [env.step(s, EAST) for _ in range(length)] == [(0.0, False)] * length
            assert env.step(s, turn) == (4.0 if turn == goal else -0.1, True)
            assert episode_stats(env, s) == {"right": float(turn == goal)}


def test_the_first_observation_tells_the_goal() -> None:
    games = [begun(TMaze(), seed) for seed in range(200)]
    assert [observation(TMaze(), s).tolist() for s in games] == [SIGNS[s.goal] for s in games]
    assert 60 < [s.goal for s in games].count(NORTH) < 140


@settings(max_examples=80)
@given(st.integers(1, 6), st.lists(st.sampled_from([NORTH, EAST, EAST, EAST, SOUTH, WEST]), max_size=60))
def test_after_the_first_step_nothing_depends_on_the_goal_until_a_turn(length, actions) -> None:
    """Two games that differ in the goal alone look and pay alike, so no way of walking can ask for the sign again."""
    (env, north), (_, south) = at_the_sign(length, NORTH), at_the_sign(length, SOUTH)
    position = 0
    for action in actions:
        results = env.step(north, action), env.step(south, action)
        if position == length and action in (NORTH, SOUTH):
            assert [terminated for _, terminated in results] == [True, True]
            return
        before, position = position, min(length, max(0, position + {EAST: 1, WEST: -1}.get(action, 0)))
        for s, result in zip((north, south), results, strict=True):
            assert result == (-0.1 if position == before else 0.0, False)  # walls hold, standing still costs
            assert observation(env, s).tolist() == (JUNCTION if position == length else CORRIDOR)
            assert s.position == position


def test_a_player_who_never_turns_is_stopped_after_ten_steps_a_cell() -> None:
    pool, _ = interpreted(TMaze(length=3))
    for step in range(1, 31):
        assert pool.step(np.array([EAST])).truncated[0] == (step == 30)
    assert pool.episodes().stats["right"].tolist() == [0.0]


def test_the_pictures_of_the_t_maze_show_the_sign_at_the_first_step_only() -> None:
    env, s = at_the_sign(3, SOUTH)
    assert env.ascii(s) == "   .\n@...\n   $\nsign: south"
    before = env.render(s)
    env.step(s, NORTH)  # stands still
    assert env.ascii(s) == "   .\n@...\n   $\nthe sign is gone"
    after = env.render(s)
    assert before.shape == after.shape
    changed = np.argwhere((before != after).any(axis=2))
    assert len(changed) > 0
    assert changed[:, 1].max() < before.shape[1] / 2
