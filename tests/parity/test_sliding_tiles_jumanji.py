"""Our sliding tiles are Jumanji's: from the same tiles the same moves, legal or not, give the same transitions.

Jumanji's observation counts the steps too, and where it ends an episode at the time limit, ours is truncated. Its
random walk from the goal may turn back; ours may not.
"""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs.puzzles.sliding_tiles import SlidingTiles

jumanji = pytest.importorskip("jumanji", reason="the original of SlidingTiles: pip install jumanji")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jumanji.environments.logic.sliding_tile_puzzle.generator import RandomWalkGenerator  # noqa: E402
from jumanji.environments.logic.sliding_tile_puzzle.reward import DenseRewardFn, SparseRewardFn  # noqa: E402

NUM_GAMES = 200
TIME_LIMIT = SlidingTiles.max_episode_steps


def jumanji_plays(size: int, is_dense: bool, actions: np.ndarray):
    """Tiles of Jumanji's own games [N, cells], then tiles [T, N, cells], masks, rewards and ends while it plays."""
    theirs = jumanji.environments.SlidingTilePuzzle(
        generator=RandomWalkGenerator(grid_size=size, num_random_moves=5),
        reward_fn=DenseRewardFn() if is_dense else SparseRewardFn(),
        time_limit=TIME_LIMIT,
    )

    def play(key, actions):
        start, _ = theirs.reset(key)
        return start.puzzle, jax.lax.scan(theirs.step, start, actions)[1]

    keys = jax.random.split(jax.random.PRNGKey(7), NUM_GAMES)
    games, steps = jax.jit(jax.vmap(play, in_axes=(0, 1), out_axes=(0, 1)))(keys, jnp.asarray(actions))
    tiles = np.asarray(steps.observation.puzzle).reshape(*actions.shape, -1)
    parts = steps.observation.action_mask, steps.reward, steps.last()
    return np.asarray(games).reshape(NUM_GAMES, -1), tiles, *map(np.asarray, parts)


@pytest.mark.parametrize(("size", "is_dense"), [(3, False), (4, True)])
def test_the_same_tiles_and_moves_give_the_same_transitions(size: int, is_dense: bool) -> None:
    env = SlidingTiles(size=size, dense_reward=is_dense, varied_scrambles=is_dense)  # which `test_back_ends` compiles
    actions = np.random.default_rng(3).integers(4, size=(TIME_LIMIT, NUM_GAMES))
    games, tiles, mask, reward, last = jumanji_plays(size, is_dense, actions)
    pool = NativePool(env, NUM_GAMES, num_threads=1)
    pool.reset(1)
    states = pool.states()
    states["tiles"], states["gap"] = games, games.argmin(axis=1)
    legal = pool.restore({"states": states.view(np.uint8).reshape(NUM_GAMES, -1), "tick": np.zeros(1, int)}).mask
    is_playing = np.ones(NUM_GAMES, bool)  # up to the end of each one's first episode
    num_illegal = num_solved = 0
    for t in range(TIME_LIMIT):
        num_illegal += int((~legal[np.arange(NUM_GAMES), actions[t]] & is_playing).sum())
        out = pool.step(actions[t])
        is_over = out.terminated | out.truncated
        np.testing.assert_array_equal(is_over[is_playing], last[t, is_playing], err_msg=f"ends at step {t}")
        np.testing.assert_array_equal(out.reward[is_playing], reward[t, is_playing], err_msg=f"rewards at step {t}")
        for rows, obs in ((is_playing & ~is_over, out.obs), (is_playing & is_over, out.final_obs)):
            np.testing.assert_array_equal(obs.argmax(axis=-1)[rows], tiles[t, rows], err_msg=f"tiles at step {t}")
        num_solved += int((out.terminated & is_playing).sum())
        is_playing &= ~is_over
        np.testing.assert_array_equal(out.mask[is_playing], mask[t, is_playing], err_msg=f"masks at step {t}")
        legal = out.mask.copy()
    assert not is_playing.any()
    assert num_illegal > 500
    assert 5 < num_solved < NUM_GAMES - 5
