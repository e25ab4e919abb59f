"""Our Maze is Jumanji's Maze-v0: from the same instance the same actions, legal or not, give the same transitions.

Where Jumanji ends an episode at the time limit, ours is truncated; otherwise nothing differs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.engine.layout import state_dtype
from scramjet.envs.games.maze import Maze, shortest_path

jumanji = pytest.importorskip("jumanji", reason="the original of Maze: pip install jumanji")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jumanji.environments.routing.maze.generator import RandomGenerator  # noqa: E402
from jumanji.environments.routing.maze.types import Position, State  # noqa: E402

SIZES = [(10, 10), (4, 7)]
NUM_MAZES = 2000
NUM_PLAYED = 128

sizes = pytest.mark.parametrize("size", SIZES)


@cache
def our_mazes(size: tuple[int, int]) -> np.ndarray:
    """Records of new games of ours."""
    pool = NativePool(Maze(rows=size[0], cols=size[1]), NUM_MAZES, num_threads=1)
    pool.reset(5)
    return pool.states()


@cache
def their_mazes(size: tuple[int, int]) -> np.ndarray:
    """Records of new games of theirs."""
    generator = RandomGenerator(num_rows=size[0], num_cols=size[1])
    games = jax.jit(jax.vmap(generator))(jax.random.split(jax.random.PRNGKey(7), NUM_MAZES))
    states = np.zeros(NUM_MAZES, state_dtype(Maze(rows=size[0], cols=size[1])))
    states["walls"] = games.walls
    states["row"], states["col"] = games.agent_position
    states["target_row"], states["target_col"] = games.target_position
    return states


def jumanji_plays(size: tuple[int, int], states: np.ndarray, actions: np.ndarray):
    """Jumanji's states, masks, rewards and ends, each [T, N], from the instances in our records."""
    theirs = jumanji.environments.Maze(generator=RandomGenerator(num_rows=size[0], num_cols=size[1]))

    def play(row, col, target_row, target_col, walls, actions):
        agent = Position(row=row, col=col)
        start = State(
            agent_position=agent,
            target_position=Position(row=target_row, col=target_col),
            walls=walls,
            action_mask=theirs._compute_action_mask(walls, agent),
            step_count=jnp.array(0, jnp.int32),
            key=jax.random.PRNGKey(0),
        )
        return jax.lax.scan(theirs.step, start, actions)[1]

    instances = [jnp.asarray(states[name]) for name in ("row", "col", "target_row", "target_col")]
    walls = jnp.asarray(states["walls"].astype(bool))
    steps = jax.jit(jax.vmap(play, in_axes=(0, 0, 0, 0, 0, 1), out_axes=1))(*instances, walls, jnp.asarray(actions))
    observation = {
        "agent": np.stack(steps.observation.agent_position, axis=-1),
        "target": np.stack(steps.observation.target_position, axis=-1),
        "walls": np.asarray(steps.observation.walls),
        "step_count": np.asarray(steps.observation.step_count),
    }
    return observation, np.asarray(steps.observation.action_mask), np.asarray(steps.reward), np.asarray(steps.last())


@pytest.mark.parametrize(("size", "mazes"), [(SIZES[0], our_mazes), (SIZES[1], their_mazes)])
def test_the_same_maze_and_actions_give_the_same_transitions(size, mazes) -> None:
    env, instances = Maze(rows=size[0], cols=size[1]), mazes(size)[:NUM_PLAYED]
    actions = np.random.default_rng(3).integers(4, size=(env.max_episode_steps, NUM_PLAYED))
    observation, mask, reward, last = jumanji_plays(size, instances, actions)
    pool = NativePool(env, NUM_PLAYED, num_threads=1)
    pool.reset(0)
    legal = pool.restore({"states": instances.view(np.uint8).reshape(NUM_PLAYED, -1), "tick": np.zeros(1, int)}).mask
    is_playing = np.ones(NUM_PLAYED, bool)  # up to the end of each one's first episode
    num_illegal = num_solved = 0
    for t in range(env.max_episode_steps):
        num_illegal += int((~legal[np.arange(NUM_PLAYED), actions[t]] & is_playing).sum())
        out = pool.step(actions[t])
        is_over = out.terminated | out.truncated
        np.testing.assert_array_equal(is_over[is_playing], last[t, is_playing], err_msg=f"ends at step {t}")
        np.testing.assert_array_equal(out.reward[is_playing], reward[t, is_playing], err_msg=f"rewards at step {t}")
        np.testing.assert_array_equal(out.terminated, out.reward == 1.0)
        for rows, obs in ((is_playing & ~is_over, out.obs), (is_playing & is_over, out.final_obs)):
            for name, expected in observation.items():
                got = obs[name].reshape(expected[t].shape)
                np.testing.assert_array_equal(got[rows], expected[t, rows], err_msg=f"{name} at step {t}")
        num_solved += int((out.terminated & is_playing).sum())
        is_playing &= ~is_over
        np.testing.assert_array_equal(out.mask[is_playing], mask[t, is_playing], err_msg=f"masks at step {t}")
        legal = out.mask.copy()
    assert not is_playing.any()
    assert num_illegal > 1000
    assert 20 < num_solved < NUM_PLAYED - 20


@sizes
def test_both_make_mazes_of_one_family(size) -> None:
    """How often each cell is a wall, and how many walls there are."""
    ours, theirs = our_mazes(size)["walls"].astype(float), their_mazes(size)["walls"].astype(float)
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=5 * np.sqrt(2 * 0.25 / NUM_MAZES))
    our_totals, their_totals = ours.sum(axis=(1, 2)), theirs.sum(axis=(1, 2))
    error = np.sqrt((our_totals.var() + their_totals.var()) / NUM_MAZES)
    assert abs(our_totals.mean() - their_totals.mean()) < 5 * error
    assert our_totals.var() == pytest.approx(their_totals.var(), rel=0.2)


@sizes
def test_the_target_is_as_far_away_in_both(size) -> None:
    count, pool = 300, NativePool(Maze(rows=size[0], cols=size[1]), 1, backend="interpreted")
    ours = our_mazes(size)["shortest"][:count]
    theirs = np.array([shortest_path(pool.as_record(state)) for state in their_mazes(size)[:count].copy()])
    assert theirs.min() > 0  # every one of theirs can be solved too
    assert abs(ours.mean() - theirs.mean()) < 5 * np.sqrt((ours.var() + theirs.var()) / count)
