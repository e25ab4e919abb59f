"""Squared: where targets stand, what moves pay, and when a game ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.engine import NativePool
from scramjet.envs.probes.squared import COL_STEP, ROW_STEP, Squared

MOVES = list(zip(ROW_STEP, COL_STEP, strict=True))
UP, UP_RIGHT, RIGHT, DOWN_RIGHT, DOWN, DOWN_LEFT, LEFT, UP_LEFT = range(8)


@st.composite
def games(draw):
    distance = draw(st.integers(1, 4))
    targets = draw(st.integers(0, 8 * distance))
    return NativePool(Squared(distance=distance, targets=targets), 1, backend="interpreted"), draw(
        st.integers(0, 2**40)
    )


def grid(pool: NativePool, obs: np.ndarray) -> np.ndarray:
    return obs[0].reshape(pool.env.size, pool.env.size)


def cells(board: np.ndarray, value: float) -> set[tuple[int, int]]:
    return {(int(row), int(col)) for row, col in np.argwhere(board == value)}


def towards(start: tuple[int, int], target: tuple[int, int]) -> int:
    """The action of a king's move from `start` towards `target`."""
    return MOVES.index((int(np.sign(target[0] - start[0])), int(np.sign(target[1] - start[1]))))


def with_targets(env: Squared, targets: list[tuple[int, int]]) -> NativePool:
    """A pool of one env with its targets where they are wanted."""
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(0)
    s = pool.record(0)
    assert s.remaining == len(targets)
    for i, (row, col) in enumerate(targets):
        s.rim_rows[i], s.rim_cols[i] = row, col
    return pool


@settings(max_examples=60)
@given(games())
def test_a_game_begins_at_the_centre_with_all_targets_on_different_cells_of_the_rim(game) -> None:
    pool, seed = game
    env = pool.env
    board = grid(pool, pool.reset(seed).obs)
    targets = cells(board, 1.0)
    assert cells(board, -1.0) == {(env.distance, env.distance)}
    assert len(targets) == env.num_targets == (env.targets or 4 * env.distance)
    assert {max(abs(row - env.distance), abs(col - env.distance)) for row, col in targets} == {env.distance}


@settings(max_examples=30)
@given(games(), st.integers(0, 2**32))
def test_a_move_pays_by_the_distance_to_the_nearest_target_left_and_the_rim_leads_home(game, actions_seed) -> None:
    pool, seed = game
    env, random = pool.env, np.random.default_rng(actions_seed)
    board = grid(pool, pool.reset(seed).obs).copy()
    position, targets = (env.distance, env.distance), cells(board, 1.0)
    num_targets, length = len(targets), len(targets) * env.distance
    for step in range(1, length + 1):
        action = int(random.integers(8))
        row, col = position[0] + MOVES[action][0], position[1] + MOVES[action][1]
        nearest = min(max(abs(row - r), abs(col - c)) for r, c in targets)
        targets -= {(row, col)}
        is_inside = 0 < row < env.size - 1 and 0 < col < env.size - 1
        position = (row, col) if is_inside else (env.distance, env.distance)
        out = pool.step(np.array([action]))
        assert out.reward[0] == pytest.approx(1 - nearest / env.distance)
        assert out.terminated[0] == (step == length)
        assert not out.truncated[0]
        board = grid(pool, out.final_obs if step == length else out.obs)
        assert cells(board, 1.0) == targets
        assert cells(board, -1.0) == {position}
    episodes = pool.episodes()
    assert episodes.lengths.tolist() == [length]
    assert episodes.stats["hit"].tolist() == [(num_targets - len(targets)) / num_targets]


@settings(max_examples=30)
@given(games())
def test_there_is_time_to_hit_every_target_and_for_no_move_more(game) -> None:
    pool, seed = game
    env = pool.env
    out = pool.reset(seed)
    for _ in range(env.num_targets):
        target = min(cells(grid(pool, out.obs), 1.0))
        position = (env.distance, env.distance)
        for _ in range(env.distance):
            assert not out.terminated[0]
            action = towards(position, target)
            position = position[0] + MOVES[action][0], position[1] + MOVES[action][1]
            out = pool.step(np.array([action]))
    assert out.terminated[0]
    assert pool.episodes().stats["hit"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("action", "place"),
    [
        (UP, (1, 2)),
        (UP_RIGHT, (1, 3)),
        (RIGHT, (2, 3)),
        (DOWN_RIGHT, (3, 3)),
        (DOWN, (3, 2)),
        (DOWN_LEFT, (3, 1)),
        (LEFT, (2, 1)),
        (UP_LEFT, (1, 1)),
    ],
)
def test_actions_run_clockwise_from_up(action: int, place: tuple[int, int]) -> None:
    pool = NativePool(Squared(distance=2), 1, backend="interpreted")
    pool.reset(0)
    board = grid(pool, pool.step(np.array([action])).obs)
    assert cells(board, -1.0) == {place}


def test_rewards_of_a_game_by_hand() -> None:
    pool = with_targets(Squared(distance=2, targets=2), [(0, 2), (4, 4)])
    rewards = [float(pool.step(np.array([action])).reward[0]) for action in (UP, UP, DOWN, RIGHT)]
    # one away; hit, and home again; two away from the target left; one away
    assert rewards == [0.5, 1.0, 0.0, 0.5]
    assert pool.episodes().stats["hit"].tolist() == [0.5]


def test_a_hit_target_pays_once_only() -> None:
    pool = with_targets(Squared(distance=1, targets=2), [(0, 1), (2, 1)])
    assert pool.step(np.array([UP])).reward[0] == 1.0
    assert pool.step(np.array([UP])).reward[0] == -1.0


def test_every_cell_of_the_rim_is_as_likely_to_be_a_target() -> None:
    pool = NativePool(Squared(distance=2, targets=4), 2000, backend="interpreted")
    shares = (pool.reset(3).obs == 1.0).mean(axis=0).reshape(5, 5)
    rim = np.ones((5, 5), bool)
    rim[1:-1, 1:-1] = False
    assert not shares[~rim].any()
    np.testing.assert_allclose(shares[rim], 4 / 16, atol=5 * np.sqrt(0.25 * 0.75 / 2000))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"distance": 0}, "distance=0 must be in 1 .. 1000"),
        ({"targets": 25}, "targets=25 must be in 1 .. 24, the cells of the rim at distance=3, or 0 for 12"),
        ({"distance": 1, "targets": -1}, "targets=-1 must be in 1 .. 8, .* or 0 for 4"),
    ],
)
def test_impossible_parameters_are_refused_with_the_range(parameters, message) -> None:
    with pytest.raises(ValueError, match=message):
        Squared(**parameters)


def test_the_pictures_show_agent_and_targets() -> None:
    pool = with_targets(Squared(distance=1, targets=2), [(0, 1), (2, 2)])
    s = pool.record(0)
    assert pool.env.ascii(s) == ". $ .\n. @ .\n. . $"
    picture = pool.env.render(s)
    cell = picture.shape[0] // 3
    colors = [[tuple(picture[cell * r + cell // 2, cell * c + cell // 2]) for c in range(3)] for r in range(3)]
    assert colors[0][1] == colors[2][2] != colors[0][0] == colors[2][1]
    assert colors[1][1] not in (colors[0][0], colors[0][1])
