"""Squared and DeepSea: where targets and treasures lie, what moves pay, and when a game ends; wind is bsuite's."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.envs.probes.walks import COL_STEP, ROW_STEP, DeepSea, Squared, right_action
from tests.helpers.playing import begun, episode_stats, interpreted, observation

MOVES = list(zip(ROW_STEP, COL_STEP, strict=True))
Cells = set[tuple[int, int]]


def seen(env: Squared, s) -> tuple[Cells, tuple[int, int]]:
    """The targets and the agent of an observation."""
    board = observation(env, s).reshape(env.size, env.size)
    assert set(np.unique(board)) <= {-1.0, 0.0, 1.0}
    targets, agents = ({(int(row), int(col)) for row, col in np.argwhere(board == value)} for value in (1.0, -1.0))
    (agent,) = agents
    return targets, agent


def towards(start: tuple[int, int], target: tuple[int, int]) -> int:
    """The action of a king's move from `start` towards `target`."""
    return MOVES.index((int(np.sign(target[0] - start[0])), int(np.sign(target[1] - start[1]))))


@settings(max_examples=60)
@given(st.data(), st.integers(1, 4), st.integers(0, 2**40), st.none() | st.integers(0, 2**32))
def test_moves_pay_by_the_distance_to_the_nearest_target_left_and_the_rim_leads_home(
    data, distance, seed, moves
) -> None:
    """Moves are drawn from a seed; a player without one never errs and hits every target, with no move to spare."""
    env = Squared(distance=distance, targets=data.draw(st.integers(0, 8 * distance)))
    s, home, random = begun(env, seed), (distance, distance), np.random.default_rng(moves)
    targets, position = seen(env, s)
    assert position == home
    assert len(targets) == env.num_targets == (env.targets or 4 * distance)
    assert {max(abs(row - distance), abs(col - distance)) for row, col in targets} == {distance}
    num_targets, length = len(targets), len(targets) * distance
    for step in range(1, length + 1):
        action = towards(position, min(targets)) if moves is None else int(random.integers(8))
        row, col = position[0] + MOVES[action][0], position[1] + MOVES[action][1]
        nearest = min(max(abs(row - r), abs(col - c)) for r, c in targets)
        targets -= {(row, col)}
        position = (row, col) if 0 < row < env.size - 1 and 0 < col < env.size - 1 else home
        reward, terminated = env.step(s, action)
        assert reward == pytest.approx(1 - nearest / distance)
        assert terminated == (step == length)
        assert seen(env, s) == (targets, position)
    assert moves is not None or not targets
    assert episode_stats(env, s) == {"hit": (num_targets - len(targets)) / num_targets}


def test_actions_run_clockwise_from_up() -> None:
    env = Squared(distance=2)
    for action, place in enumerate([(1, 2), (1, 3), (2, 3), (3, 3), (3, 2), (3, 1), (2, 1), (1, 1)]):
        s = begun(env)
        env.step(s, action)
        assert seen(env, s)[1] == place, action


def test_every_cell_of_the_rim_is_as_likely_to_be_a_target() -> None:
    shares = (interpreted(Squared(distance=2, targets=4), 2000)[1].obs == 1.0).mean(axis=0).reshape(5, 5)
    rim = np.ones((5, 5), bool)
    rim[1:-1, 1:-1] = False
    assert not shares[~rim].any()
    np.testing.assert_allclose(shares[rim], 4 / 16, atol=5 * np.sqrt(0.25 * 0.75 / 2000))


def test_the_pictures_show_agent_and_targets() -> None:
    env = Squared(distance=1, targets=2)
    s = begun(env)
    s.rim_rows[:2], s.rim_cols[:2] = (0, 2), (1, 2)
    assert env.ascii(s) == ". $ .\n. @ .\n. . $"
    picture = env.render(s)
    cell = picture.shape[0] // 3
    colors = [[tuple(picture[cell * r + cell // 2, cell * c + cell // 2]) for c in range(3)] for r in range(3)]
    assert colors[0][1] == colors[2][2] != colors[0][0] == colors[2][1]
    assert colors[1][1] not in (colors[0][0], colors[0][1])


# --- DeepSea ----------------------------------------------------------------------------------------------------


def play_all(env: DeepSea, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Play a sequence of actions ([envs, size]) in each env; returns, treasures found, columns seen ([size, envs])."""
    (pool, out), columns = interpreted(env, len(actions), seed=7), []
    obs = out.obs
    for step, chosen in enumerate(actions.T):
        assert (obs.sum(axis=(1, 2)) == 1).all()
        assert (obs[:, step].sum(axis=1) == 1).all()
        columns.append(obs[:, step].argmax(axis=1))
        out = pool.step(chosen.copy())
        assert (out.terminated == (step == env.size - 1)).all()
        obs = out.obs
    episodes = pool.episodes()
    return episodes.returns, episodes.stats["found"], np.array(columns)


def all_sequences(size: int) -> np.ndarray:
    """Every sequence of `size` actions, [2 ** size, size]."""
    return (np.arange(2**size)[:, None] >> np.arange(size) & 1).astype(np.int64)


def test_of_all_ways_one_finds_the_treasure_and_each_pays_by_its_moves_to_the_right() -> None:
    """Whatever the cells' actions mean, ways and sequences of actions correspond: C(N, k) of them go right k times."""
    for size, mapping_seed in ((1, 0), (2, 1), (3, 12345), (6, 0), (9, 1)):
        returns, found, _ = play_all(DeepSea(size=size, mapping_seed=mapping_seed), all_sequences(size))
        assert found.sum() == 1  # the chance of a uniform policy is 2 ** -size
        expected = [(k == size) - 0.01 * k / size for k in range(size + 1) for _ in range(math.comb(size, k))]
        np.testing.assert_allclose(np.sort(returns), np.sort(expected), atol=1e-6, err_msg=f"size {size}")
        assert returns[found == 1] == pytest.approx(0.99) == returns.max()


def test_a_move_leads_to_a_neighbouring_column_and_stops_at_the_left_wall() -> None:
    _, _, columns = play_all(DeepSea(size=6, randomize_actions=False), all_sequences(6))
    expected = np.zeros(64, int)
    for step, actions in enumerate(all_sequences(6).T):
        assert columns[step].tolist() == expected.tolist()
        expected = np.maximum(expected + 2 * actions - 1, 0)


def way_to_the_treasure(size: int, mapping_seed: int) -> tuple[int, ...]:
    """The actions that find it: those of the cells on the diagonal."""
    sequences = all_sequences(size)
    _, found, _ = play_all(DeepSea(size=size, mapping_seed=mapping_seed), sequences)
    return tuple(sequences[found == 1][0])


def test_a_seed_draws_each_cells_action_fairly_and_for_good() -> None:
    assert way_to_the_treasure(8, 3) == way_to_the_treasure(8, 3)
    assert len({way_to_the_treasure(8, seed) for seed in (3, 4, 5)}) == 3
    actions = np.array(
        [[[right_action(row, column, seed, True) for column in range(60)] for row in range(60)] for seed in range(3)]
    )
    for axis in range(3):  # the next seed's, the row below, the column beside
        is_like_its_neighbour = np.diff(actions, axis=axis) == 0
        assert abs(is_like_its_neighbour.mean() - 0.5) < 5 * 0.5 / is_like_its_neighbour.size**0.5
    assert abs(actions.mean() - 0.5) < 5 * 0.5 / actions.size**0.5


def test_in_the_wind_who_always_goes_right_gets_what_bsuite_says_and_noise_comes_at_the_ends_alone() -> None:
    size, episodes = 5, 3000
    env = DeepSea(size=size, deterministic=False, randomize_actions=False)
    returns, found, columns = play_all(env, np.ones((episodes, size), np.int64))
    share = (1 - 1 / size) ** (size - 1)
    assert found.mean() == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / episodes))
    noise = returns - (found - 0.01)
    at_an_end = (columns[-1] == 0) | (columns[-1] == size - 1)
    np.testing.assert_allclose(noise[~at_an_end], 0, atol=1e-6)
    assert noise[at_an_end].std() == pytest.approx(1, abs=0.09)
    assert noise[at_an_end].mean() == pytest.approx(0, abs=0.13)


def test_the_picture_shows_the_sea_the_treasure_and_the_diver() -> None:
    env = DeepSea(size=3, randomize_actions=False)
    s = begun(env)
    env.step(s, 1)
    assert env.ascii(s) == ".\n. @\n. . $"
    pixels = env.render(s)
    assert pixels[pixels.shape[0] // 2, pixels.shape[1] // 2].tolist() == [76, 100, 200]
