"""Deep sea: one way of 2 ** N finds the treasure, and wind and noise are bsuite's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scramjet.envs.probes.deep_sea import DeepSea, right_action
from tests.helpers.playing import begun, interpreted


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
