"""Our Sokoban plays by the rules of Jumanji's Sokoban-v0: from the same level the same actions give the same steps.

Where Jumanji ends an episode at the time limit, ours is truncated; otherwise nothing differs but where levels are from.
"""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs.puzzles.sokoban import Sokoban
from scramjet.envs.puzzles.sokoban_levels import BOX, GOAL, WALL

jumanji = pytest.importorskip("jumanji", reason="the original of Sokoban: pip install jumanji")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jumanji.environments.routing.sokoban import constants  # noqa: E402
from jumanji.environments.routing.sokoban.generator import ToyGenerator  # noqa: E402
from jumanji.environments.routing.sokoban.types import State  # noqa: E402

NUM_LEVELS = 200
NUM_STEPS = 120


def jumanji_plays(states: np.ndarray, actions: np.ndarray):
    """Jumanji's grids, rewards and ends, each [T, N], from the levels in our records."""
    theirs = jumanji.environments.Sokoban(generator=ToyGenerator())
    grid, agents = states["grid"], np.stack([states["row"], states["column"]], axis=-1).astype(np.int32)
    fixed = np.where(grid & WALL, constants.WALL, np.where(grid & GOAL, constants.TARGET, constants.EMPTY))
    variable = np.where(grid & BOX, constants.BOX, constants.EMPTY)
    variable[np.arange(len(grid)), agents[:, 0], agents[:, 1]] = constants.AGENT

    def play(fixed, variable, agent, actions):
        start = State(
            key=jax.random.PRNGKey(0),
            fixed_grid=fixed,
            variable_grid=variable,
            agent_location=agent,
            step_count=jnp.array(0, jnp.int32),
        )
        return jax.lax.scan(theirs.step, start, actions)[1]

    instances = [jnp.asarray(fixed, jnp.uint8), jnp.asarray(variable, jnp.uint8), jnp.asarray(agents)]
    steps = jax.jit(jax.vmap(play, in_axes=(0, 0, 0, 1), out_axes=1))(*instances, jnp.asarray(actions, jnp.int32))
    return np.asarray(steps.observation.grid), np.asarray(steps.reward), np.asarray(steps.last())


def mostly_solved(states: np.ndarray) -> np.ndarray:
    """Levels with all boxes but one put on their goals; those left out whose player would be in the way."""
    easy = states[states["grid"][np.arange(len(states)), states["row"], states["column"]] & GOAL == 0].copy()
    for state in easy:
        state["grid"].flat[state["best_cells"][1:]] &= ~BOX
        state["grid"].flat[state["goal_cells"][1:]] |= BOX
    easy["num_placed"] = constants.N_BOXES - 1
    return easy


def test_the_same_level_and_actions_give_the_same_steps() -> None:
    """Some levels need but a push or two, so that random moves solve a few."""
    env = Sokoban(rows=constants.GRID_SIZE, cols=constants.GRID_SIZE, boxes=constants.N_BOXES, pulls=4)
    pool = NativePool(env, NUM_LEVELS, num_threads=1)
    pool.reset(5)
    states, random = pool.states(), np.random.default_rng(3)
    assert (states["num_placed"] == 0).all()
    easy = mostly_solved(states[: NUM_LEVELS // 2])
    states[: len(easy)] = easy
    actions = random.integers(4, size=(NUM_STEPS, NUM_LEVELS))
    grid, reward, last = jumanji_plays(states, actions)
    pool.restore({"states": states.view(np.uint8).reshape(NUM_LEVELS, -1), "tick": np.zeros(1, int)})
    is_playing = np.ones(NUM_LEVELS, bool)  # up to the end of each one's first episode
    num_solved = num_pushed = 0
    for t in range(NUM_STEPS):
        before = pool.states()["grid"]
        out = pool.step(actions[t])
        is_over = out.terminated | out.truncated
        np.testing.assert_array_equal(is_over[is_playing], last[t, is_playing], err_msg=f"ends at step {t}")
        np.testing.assert_allclose(out.reward[is_playing], reward[t, is_playing], rtol=1e-5, err_msg=f"step {t}")
        for rows, obs in ((is_playing & ~is_over, out.obs), (is_playing & is_over, out.final_obs)):
            variable, fixed = grid[t, rows, ..., 0], grid[t, rows, ..., 1]
            expected = (fixed == constants.WALL, fixed == constants.TARGET, variable == constants.BOX)
            for plane, cells in enumerate((*expected, variable == constants.AGENT)):
                np.testing.assert_array_equal(obs[rows, plane], cells, err_msg=f"plane {plane} at step {t}")
        num_pushed += int(((pool.states()["grid"] != before).any(axis=(1, 2)) & is_playing & ~is_over).sum())
        num_solved += int((out.terminated & is_playing).sum())
        is_playing &= ~is_over
    assert not is_playing.any()
    assert num_pushed > 500
    assert num_solved > 5
