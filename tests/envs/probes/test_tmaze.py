"""T-maze: the sign is seen once and tells the way; nothing later does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.engine import NativePool
from scramjet.engine.layout import state_dtype
from scramjet.envs.probes.tmaze import EAST, NORTH, SOUTH, WEST, TMaze

SIGNS = {NORTH: [0, 1, 1], SOUTH: [1, 1, 0]}
CORRIDOR, JUNCTION = [1, 0, 1], [0, 1, 0]
actions_lists = st.lists(st.sampled_from([NORTH, EAST, EAST, EAST, SOUTH, WEST]), max_size=60)


def start(length: int, goal: int) -> NativePool:
    """A pool of one env at the first step, its goal as wanted."""
    pool = NativePool(TMaze(length=length), 1, backend="interpreted")
    pool.reset(0)
    snapshot = pool.snapshot()
    snapshot["states"].view(state_dtype(pool.env))["goal"] = goal
    pool.restore(snapshot)
    return pool


def walk(pool: NativePool, *actions: int):
    for action in actions:
        out = pool.step(np.array([action]))
    return out


@pytest.mark.parametrize("goal", [NORTH, SOUTH])
@pytest.mark.parametrize("length", [1, 2, 10])
def test_who_follows_the_sign_gets_four_and_who_does_not_a_fine(length: int, goal: int) -> None:
    for turn, reward in [(goal, 4.0), (NORTH + SOUTH - goal, -0.1)]:
        pool = start(length, goal)
        assert not walk(pool, *[EAST] * length).terminated[0]
        out = walk(pool, turn)
        assert out.terminated[0]
        assert out.reward[0] == np.float32(reward)
        episodes = pool.episodes()
        assert episodes.lengths.tolist() == [length + 1]
        assert episodes.stats["right"].tolist() == [float(turn == goal)]


def test_the_first_observation_tells_the_goal() -> None:
    pool = NativePool(TMaze(), 200, backend="interpreted")
    obs = pool.reset(2).obs
    goals = [pool.record(i).goal for i in range(200)]
    assert obs.tolist() == [SIGNS[goal] for goal in goals]
    assert 60 < goals.count(NORTH) < 140


@settings(max_examples=80)
@given(st.integers(1, 6), actions_lists)
def test_after_the_first_step_nothing_depends_on_the_goal_until_a_turn(length, actions) -> None:
    """Two games that differ in the goal alone look and pay alike, so no way of walking can ask for the sign again."""
    north, south = start(length, NORTH), start(length, SOUTH)
    position = 0
    for action in actions[: 10 * length]:
        one, other = north.step(np.array([action])), south.step(np.array([action]))
        if one.terminated[0] or other.terminated[0]:
            assert position == length
            assert action in (NORTH, SOUTH)
            assert one.terminated[0]
            assert other.terminated[0]
            return
        before, position = position, min(length, max(0, position + {EAST: 1, WEST: -1}.get(action, 0)))
        for out in (one, other):
            obs = out.final_obs if out.truncated[0] else out.obs
            assert obs[0].tolist() == (JUNCTION if position == length else CORRIDOR)
            assert out.reward[0] == np.float32(-0.1 if position == before else 0.0)


def test_the_walls_of_the_corridor_hold_and_standing_still_costs() -> None:
    pool = start(2, NORTH)
    ways = [
        (NORTH, -0.1),
        (WEST, -0.1),
        (EAST, 0.0),
        (SOUTH, -0.1),
        (EAST, 0.0),
        (EAST, -0.1),
        (WEST, 0.0),
        (EAST, 0.0),
    ]
    for action, reward in ways:
        out = walk(pool, action)
        assert out.reward[0] == np.float32(reward)
        assert not out.terminated[0]
    assert pool.record(0).position == 2


def test_a_player_who_never_turns_is_stopped_after_ten_steps_a_cell() -> None:
    pool = start(3, SOUTH)
    for step in range(1, 31):
        out = walk(pool, EAST)
        assert out.truncated[0] == (step == 30)
    assert pool.episodes().stats["right"].tolist() == [0.0]


def test_a_corridor_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="length=0 must be at least 1"):
        TMaze(length=0)


def test_the_pictures_show_the_sign_at_the_first_step_only() -> None:
    pool = start(3, SOUTH)
    assert pool.env.ascii(pool.record(0)) == "   .\n@...\n   $\nsign: south"
    before = pool.env.render(pool.record(0))
    walk(pool, NORTH)  # stands still
    assert pool.env.ascii(pool.record(0)) == "   .\n@...\n   $\nthe sign is gone"
    after = pool.env.render(pool.record(0))
    assert before.shape == after.shape
    changed = np.argwhere((before != after).any(axis=2))
    assert len(changed) > 0
    assert changed[:, 1].max() < before.shape[1] / 2
