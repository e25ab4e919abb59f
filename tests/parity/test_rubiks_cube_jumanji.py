"""Our Rubik's cube is Jumanji's: from the same stickers the same turns give the same stickers, rewards and ends.

Jumanji's observation counts the steps too, and where it ends an episode at the time limit, ours is truncated. It may
begin with a solved cube, ours never does.
"""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env

jumanji = pytest.importorskip("jumanji", reason="the original of RubiksCube: pip install jumanji")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jumanji.environments.logic.rubiks_cube.generator import ScramblingGenerator  # noqa: E402
from jumanji.environments.logic.rubiks_cube.types import State  # noqa: E402

NUM_GAMES = 100
"""Of each kind."""
TIME_LIMIT = 20


def their_cubes(scrambles: int) -> np.ndarray:
    """Stickers of new games of theirs, [N, 54]."""
    generator = ScramblingGenerator(cube_size=3, num_scrambles_on_reset=scrambles)
    keys = jax.random.split(jax.random.PRNGKey(7), NUM_GAMES)
    return np.asarray(jax.jit(jax.vmap(generator))(keys).cube).reshape(NUM_GAMES, 54)


def our_cubes(scrambles: int) -> np.ndarray:
    """Stickers of new games of ours, [N, 54]."""
    pool = NativePool(load_env("rubiks_cube", scrambles=scrambles), NUM_GAMES, backend="interpreted")
    pool.reset(5)
    return pool.states()["cube"]


def jumanji_plays(cubes: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Jumanji's stickers [T, N, 54], rewards and ends [T, N] from the stickers [N, 54]; flat actions [T, N]."""
    theirs = jumanji.environments.RubiksCube(time_limit=TIME_LIMIT)

    def play(cube, actions):
        start = State(cube=cube, step_count=jnp.array(0, jnp.int32), key=jax.random.PRNGKey(0))
        return jax.lax.scan(theirs.step, start, actions)[1]

    parts = np.stack([actions // 3, np.zeros_like(actions), actions % 3], axis=-1)  # face, depth, direction
    games = jnp.asarray(cubes.reshape(-1, 6, 3, 3), jnp.int8)
    steps = jax.jit(jax.vmap(play, in_axes=(0, 1), out_axes=1))(games, jnp.asarray(parts))
    stickers = np.asarray(steps.observation.cube).reshape(*actions.shape, 54)
    return stickers, np.asarray(steps.reward), np.asarray(steps.last())


def test_the_same_stickers_and_turns_give_the_same_transitions() -> None:
    solved = np.tile(np.repeat(np.arange(6, dtype=np.int8), 9), (NUM_GAMES, 1))
    cubes = np.concatenate([our_cubes(1), our_cubes(2), our_cubes(7), their_cubes(100), solved])
    actions = np.random.default_rng(3).integers(18, size=(TIME_LIMIT, len(cubes)))
    stickers, reward, last = jumanji_plays(cubes, actions)
    pool = NativePool(load_env("rubiks_cube", max_episode_steps=TIME_LIMIT), len(cubes), num_threads=1)
    pool.reset(1)
    states = pool.states()
    states["cube"] = cubes
    pool.restore({"states": states.view(np.uint8).reshape(len(cubes), -1), "tick": np.zeros(1, int)})
    is_playing, num_solved = np.ones(len(cubes), bool), 0  # up to the end of each one's first episode
    for t in range(TIME_LIMIT):
        out = pool.step(actions[t])
        is_over = out.terminated | out.truncated
        np.testing.assert_array_equal(is_over[is_playing], last[t, is_playing], err_msg=f"ends at step {t}")
        np.testing.assert_array_equal(out.reward[is_playing], reward[t, is_playing], err_msg=f"rewards at step {t}")
        np.testing.assert_array_equal(out.terminated, out.reward == 1.0)
        for rows, obs in ((is_playing & ~is_over, out.obs), (is_playing & is_over, out.final_obs)):
            np.testing.assert_array_equal(obs.argmax(axis=-1)[rows], stickers[t, rows], err_msg=f"stickers at step {t}")
        num_solved += int((out.terminated & is_playing).sum())
        is_playing &= ~is_over
    assert not is_playing.any()
    assert num_solved > 10
