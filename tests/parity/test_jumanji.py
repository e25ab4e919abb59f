"""Worlds of ours that are Jumanji's: from the same instance the same actions, legal or not, give the same transitions.

Where Jumanji ends an episode at the time limit, ours is truncated. Instances are drawn by different generators: they
are compared in distribution, all else exactly. Jumanji's observations of the cube and of sliding tiles count the steps
too; it may begin with a solved cube, and its random walk from the solved tiles may turn back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jumanji", reason="the original of these worlds: pip install jumanji")

import jax
import jax.numpy as jnp
import jumanji
from jumanji.environments.logic.game_2048 import types as types_2048
from jumanji.environments.logic.game_2048.utils import can_move, move
from jumanji.environments.logic.rubiks_cube import types as cube_types
from jumanji.environments.logic.rubiks_cube.generator import ScramblingGenerator
from jumanji.environments.logic.sliding_tile_puzzle.generator import RandomWalkGenerator
from jumanji.environments.logic.sliding_tile_puzzle.reward import DenseRewardFn, SparseRewardFn
from jumanji.environments.packing.bin_pack import generator as generators
from jumanji.environments.packing.bin_pack import types as bin_types
from jumanji.environments.routing.maze import types as maze_types
from jumanji.environments.routing.maze.generator import RandomGenerator
from jumanji.environments.routing.sokoban import constants
from jumanji.environments.routing.sokoban import types as sokoban_types
from jumanji.environments.routing.sokoban.generator import ToyGenerator

from scramjet.engine import NativePool, Transition
from scramjet.engine.actions import random_actions
from scramjet.engine.layout import state_dtype
from scramjet.envs import load_env
from scramjet.envs.games.maze import Maze, shortest_path
from scramjet.envs.puzzles.game_2048 import Game2048, can_slide, slide
from scramjet.envs.puzzles.sliding_tiles import SlidingTiles
from scramjet.envs.puzzles.sokoban import BOX, GOAL, WALL, Sokoban
from tests.helpers.playing import compiled, interpreted, largest_gap, restored

pytestmark = pytest.mark.rest


def scanned(env: Any, starts: Any, actions: np.ndarray) -> Any:
    """Jumanji's steps [T, N] from its states [N] by actions [T, N, ...]."""
    play = jax.vmap(lambda start, ways: jax.lax.scan(env.step, start, ways)[1], in_axes=(0, 1), out_axes=1)
    return jax.jit(play)(starts, jnp.asarray(actions))


def assert_same_first_episodes(
    pool: NativePool,
    out: Transition,
    actions: Iterable[np.ndarray],
    theirs: Any,
    assert_seen: Callable[[Any, np.ndarray, int], None],
    mask: np.ndarray | None = None,
) -> tuple[int, int]:
    """Step our pool beside Jumanji's steps up to the end of each one's first episode.

    `assert_seen` compares our observations with theirs for some rows at a step. Returns how many actions were illegal
    and how many episodes were won.
    """
    last, reward = np.asarray(theirs.last()), np.asarray(theirs.reward)
    is_playing, legal = np.ones(pool.num_envs, bool), out.mask.copy()
    num_illegal = num_won = 0
    for t, ways in enumerate(actions):
        if mask is not None:
            num_illegal += int((~legal[np.arange(pool.num_envs), ways] & is_playing).sum())
        out = pool.step(ways)
        is_over = out.terminated | out.truncated
        np.testing.assert_array_equal(is_over[is_playing], last[t, is_playing], err_msg=f"ends at step {t}")
        np.testing.assert_allclose(
            out.reward[is_playing], reward[t, is_playing], rtol=1e-5, err_msg=f"rewards at step {t}"
        )
        assert_seen(out.obs, is_playing & ~is_over, t)
        assert_seen(out.final_obs, is_playing & is_over, t)
        num_won += int((out.terminated & is_playing).sum())
        is_playing &= ~is_over
        if mask is not None:
            np.testing.assert_array_equal(out.mask[is_playing], mask[t, is_playing], err_msg=f"masks at step {t}")
            legal = out.mask.copy()
    assert not is_playing.any()
    return num_illegal, num_won


def assert_same_mean(first: np.ndarray, second: np.ndarray) -> None:
    """Within five standard errors."""
    error = np.sqrt(first.var() / len(first) + second.var() / len(second))
    assert abs(first.mean() - second.mean()) < 5 * error


# --- 2048 -------------------------------------------------------------------------------------------------------


def played_boards(size: int) -> np.ndarray:
    """Boards of every stage of our own games under random moves, and some that few would reach, [N, size, size]."""
    (pool, out), random = compiled(Game2048(size=size), 8, seed=1), np.random.default_rng(2)
    boards = [pool.states()["board"]]
    for _ in range(120):
        out = pool.step(random_actions(pool, out, random))
        boards.append(pool.states()["board"])
    strange = random.integers(0, 4, (300, size, size)) * random.integers(0, 2, (300, size, size))
    full = random.integers(1, 9, (300, size, size))
    return np.concatenate([*boards, strange, full]).astype(np.int8)


@pytest.mark.parametrize("size", [4, 3])
def test_2048_slides_pays_and_masks_every_board_alike(size: int) -> None:
    boards = played_boards(size)
    both = jax.jit(jax.vmap(lambda board, action: (*move(board, action), can_move(board, action)), in_axes=(0, None)))
    for action in range(4):
        moved, reward, allowed = map(np.asarray, both(jnp.asarray(boards, jnp.int32), action))
        assert 100 < allowed.sum() < len(boards) - 100
        for i, board in enumerate(boards):
            ours = board.copy()
            assert can_slide(ours, action) == allowed[i]
            assert slide(ours, action) == reward[i]
            np.testing.assert_array_equal(ours, moved[i])


def test_a_step_of_2048_pays_ends_and_masks_alike_and_adds_as_many_tiles() -> None:
    """Where both draw the same tile, the whole transition is the same."""
    size = 3
    boards, theirs = played_boards(size), jumanji.environments.Game2048(board_size=size)
    actions = np.random.default_rng(3).integers(4, size=len(boards))

    def play(board, action, key):
        mask = theirs._get_action_mask(board)
        start = types_2048.State(board=board, step_count=jnp.array(0), action_mask=mask, key=key, score=jnp.array(0.0))
        state, step = theirs.step(start, action)
        return state.board, step.reward, step.observation.action_mask, step.last()

    keys = jax.random.split(jax.random.PRNGKey(0), len(boards))
    steps = jax.jit(jax.vmap(play))(jnp.asarray(boards, jnp.int32), jnp.asarray(actions), keys)
    board, reward, mask, last = map(np.asarray, steps)
    pool, _ = compiled(Game2048(size=size), len(boards))
    states = pool.states()
    states["board"] = boards
    after, out = pool.simulate(states, actions)
    np.testing.assert_array_equal(out.reward, reward)
    np.testing.assert_array_equal((after["board"] > 0).sum(axis=(1, 2)), (board > 0).sum(axis=(1, 2)))
    same = (after["board"] == board).all(axis=(1, 2))
    np.testing.assert_array_equal(out.terminated[same], last[same])
    going_on = same & ~last
    np.testing.assert_array_equal(out.mask[going_on], mask[going_on])
    assert going_on.sum() > 100
    assert (same & last).sum() > 10


# --- Maze -------------------------------------------------------------------------------------------------------

NUM_MAZES, NUM_PLAYED = 2000, 128
Size = tuple[int, int]


@cache
def our_mazes(size: Size) -> np.ndarray:
    """Records of new games of ours."""
    return compiled(Maze(rows=size[0], cols=size[1]), NUM_MAZES, seed=5)[0].states()


@cache
def their_mazes(size: Size) -> np.ndarray:
    """Records of new games of theirs."""
    generator = RandomGenerator(num_rows=size[0], num_cols=size[1])
    games = jax.jit(jax.vmap(generator))(jax.random.split(jax.random.PRNGKey(7), NUM_MAZES))
    states = np.zeros(NUM_MAZES, state_dtype(Maze(rows=size[0], cols=size[1])))
    states["walls"] = games.walls
    states["row"], states["col"] = games.agent_position
    states["target_row"], states["target_col"] = games.target_position
    return states


@pytest.mark.parametrize(("size", "mazes"), [((10, 10), our_mazes), ((4, 7), their_mazes)])
def test_the_same_maze_and_actions_give_the_same_transitions(size: Size, mazes: Callable[[Size], np.ndarray]) -> None:
    env, states = Maze(rows=size[0], cols=size[1]), mazes(size)[:NUM_PLAYED]
    actions = np.random.default_rng(3).integers(4, size=(env.max_episode_steps, NUM_PLAYED))
    theirs = jumanji.environments.Maze(generator=RandomGenerator(num_rows=size[0], num_cols=size[1]))

    def start(row, col, target_row, target_col, walls):
        agent = maze_types.Position(row=row, col=col)
        return maze_types.State(
            agent_position=agent,
            target_position=maze_types.Position(row=target_row, col=target_col),
            walls=walls,
            action_mask=theirs._compute_action_mask(walls, agent),
            step_count=jnp.array(0, jnp.int32),
            key=jax.random.PRNGKey(0),
        )

    places = [jnp.asarray(states[name]) for name in ("row", "col", "target_row", "target_col")]
    steps = scanned(theirs, jax.vmap(start)(*places, jnp.asarray(states["walls"].astype(bool))), actions)
    seen = {
        "agent": np.stack(steps.observation.agent_position, axis=-1),
        "target": np.stack(steps.observation.target_position, axis=-1),
        "walls": np.asarray(steps.observation.walls),
        "step_count": np.asarray(steps.observation.step_count),
    }

    def assert_seen(obs: Any, rows: np.ndarray, t: int) -> None:
        for name, expected in seen.items():
            got = obs[name].reshape(expected[t].shape)
            np.testing.assert_array_equal(got[rows], expected[t, rows], err_msg=f"{name} at step {t}")

    pool, _ = compiled(env, NUM_PLAYED)
    mask = np.asarray(steps.observation.action_mask)
    num_illegal, num_won = assert_same_first_episodes(pool, restored(pool, states), actions, steps, assert_seen, mask)
    assert num_illegal > 1000
    assert 20 < num_won < NUM_PLAYED - 20


@pytest.mark.parametrize("size", [(10, 10), (4, 7)])
def test_both_make_mazes_of_one_family_with_the_target_as_far_away(size: Size) -> None:
    ours, theirs = our_mazes(size)["walls"].astype(float), their_mazes(size)["walls"].astype(float)
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=5 * np.sqrt(2 * 0.25 / NUM_MAZES))
    our_totals, their_totals = ours.sum(axis=(1, 2)), theirs.sum(axis=(1, 2))
    assert_same_mean(our_totals, their_totals)
    assert our_totals.var() == pytest.approx(their_totals.var(), rel=0.2)
    pool, _ = interpreted(Maze(rows=size[0], cols=size[1]))
    far = np.array([shortest_path(pool.as_record(state)) for state in their_mazes(size)[:300].copy()])
    assert far.min() > 0  # every one of theirs can be solved too
    assert_same_mean(our_mazes(size)["shortest"][:300], far)


# --- Rubik's cube and sliding tiles -----------------------------------------------------------------------------


def one_hot_is(theirs: np.ndarray) -> Callable[[Any, np.ndarray, int], None]:
    """Our one-hot observations show the numbers [T, N, places] of theirs."""

    def assert_seen(obs: Any, rows: np.ndarray, t: int) -> None:
        np.testing.assert_array_equal(obs.argmax(axis=-1)[rows], theirs[t, rows], err_msg=f"step {t}")

    return assert_seen


def test_the_same_stickers_and_turns_give_the_same_transitions() -> None:
    num_games, limit = 100, 20  # games of each kind
    solved = np.tile(np.repeat(np.arange(6, dtype=np.int8), 9), (num_games, 1))
    ours = [
        interpreted(load_env("rubiks_cube", scrambles=count), num_games, seed=5)[0].states()["cube"]
        for count in (1, 2, 7)
    ]
    generator = ScramblingGenerator(cube_size=3, num_scrambles_on_reset=100)
    new = jax.jit(jax.vmap(generator))(jax.random.split(jax.random.PRNGKey(7), num_games)).cube
    cubes = np.concatenate([*ours, np.asarray(new).reshape(num_games, 54), solved])
    actions = np.random.default_rng(3).integers(18, size=(limit, len(cubes)))
    parts = np.stack([actions // 3, np.zeros_like(actions), actions % 3], axis=-1)  # face, depth, direction
    starts = jax.vmap(
        lambda cube: cube_types.State(cube=cube, step_count=jnp.array(0, jnp.int32), key=jax.random.PRNGKey(0))
    )(jnp.asarray(cubes.reshape(-1, 6, 3, 3), jnp.int8))
    steps = scanned(jumanji.environments.RubiksCube(time_limit=limit), starts, parts)
    pool, _ = compiled(load_env("rubiks_cube", max_episode_steps=limit), len(cubes), seed=1)
    states = pool.states()
    states["cube"] = cubes
    stickers = np.asarray(steps.observation.cube).reshape(*actions.shape, 54)
    _, num_won = assert_same_first_episodes(pool, restored(pool, states), actions, steps, one_hot_is(stickers))
    assert num_won > 10


@pytest.mark.parametrize(("size", "is_dense"), [(3, False), (4, True)])
def test_the_same_tiles_and_moves_give_the_same_transitions(size: int, is_dense: bool) -> None:
    num_games, limit = 200, SlidingTiles.max_episode_steps
    env = SlidingTiles(size=size, dense_reward=is_dense, varied_scrambles=is_dense)  # which `test_back_ends` compiles
    actions = np.random.default_rng(3).integers(4, size=(limit, num_games))
    theirs = jumanji.environments.SlidingTilePuzzle(
        generator=RandomWalkGenerator(grid_size=size, num_random_moves=5),
        reward_fn=DenseRewardFn() if is_dense else SparseRewardFn(),
        time_limit=limit,
    )
    starts, _ = jax.jit(jax.vmap(theirs.reset))(jax.random.split(jax.random.PRNGKey(7), num_games))
    steps = scanned(theirs, starts, actions)
    pool, _ = compiled(env, num_games, seed=1)
    states, games = pool.states(), np.asarray(starts.puzzle).reshape(num_games, -1)
    states["tiles"], states["gap"] = games, games.argmin(axis=1)
    assert_seen = one_hot_is(np.asarray(steps.observation.puzzle).reshape(*actions.shape, -1))
    mask = np.asarray(steps.observation.action_mask)
    num_illegal, num_won = assert_same_first_episodes(pool, restored(pool, states), actions, steps, assert_seen, mask)
    assert num_illegal > 500
    assert 5 < num_won < num_games - 5


# --- Sokoban ----------------------------------------------------------------------------------------------------


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
    num_levels, num_steps = 200, 120
    env = Sokoban(rows=constants.GRID_SIZE, cols=constants.GRID_SIZE, boxes=constants.N_BOXES, pulls=4)
    pool, _ = compiled(env, num_levels, seed=5)
    states = pool.states()
    assert (states["num_placed"] == 0).all()
    easy = mostly_solved(states[: num_levels // 2])
    states[: len(easy)] = easy
    actions = np.random.default_rng(3).integers(4, size=(num_steps, num_levels))
    grid, agents = states["grid"], np.stack([states["row"], states["column"]], axis=-1).astype(np.int32)
    fixed = np.where(grid & WALL, constants.WALL, np.where(grid & GOAL, constants.TARGET, constants.EMPTY))
    variable = np.where(grid & BOX, constants.BOX, constants.EMPTY)
    variable[np.arange(num_levels), agents[:, 0], agents[:, 1]] = constants.AGENT
    starts = jax.vmap(
        lambda fixed, variable, agent: sokoban_types.State(
            key=jax.random.PRNGKey(0),
            fixed_grid=fixed,
            variable_grid=variable,
            agent_location=agent,
            step_count=jnp.array(0, jnp.int32),
        )
    )(jnp.asarray(fixed, jnp.uint8), jnp.asarray(variable, jnp.uint8), jnp.asarray(agents))
    steps = scanned(jumanji.environments.Sokoban(generator=ToyGenerator()), starts, actions.astype(np.int32))
    variables, fixtures = np.moveaxis(np.asarray(steps.observation.grid), -1, 0)  # [T, N, rows, cols] each
    planes = [fixtures == constants.WALL, fixtures == constants.TARGET]
    planes += [variables == constants.BOX, variables == constants.AGENT]

    def assert_seen(obs: Any, rows: np.ndarray, t: int) -> None:
        for plane, cells in enumerate(planes):
            np.testing.assert_array_equal(obs[rows, plane], cells[t, rows], err_msg=f"plane {plane} at step {t}")

    _, num_won = assert_same_first_episodes(pool, restored(pool, states), actions, steps, assert_seen)
    assert (np.diff(planes[2], axis=0) != 0).any(axis=(2, 3)).sum() > 500  # pushes
    assert num_won > 5


# --- BinPack ----------------------------------------------------------------------------------------------------


MAX_ITEMS, MAX_SPACES = 20, 40
EDGES = ("x1", "x2", "y1", "y2", "z1", "z2")


class GivenItems(generators.Generator):
    """Instances of given items; they come in place of the random key."""

    def __init__(self) -> None:
        super().__init__(MAX_ITEMS, MAX_SPACES, generators.TWENTY_FOOT_DIMS)

    def __call__(self, key: Any) -> bin_types.State:
        lengths, exists = key  # [max_items, 3], [max_items]
        nowhere = jnp.zeros(MAX_ITEMS, jnp.int32)
        container = generators.make_container(self.container_dims)
        spaces = {edge: jnp.zeros(MAX_SPACES, jnp.int32).at[0].set(getattr(container, edge)) for edge in EDGES}
        return bin_types.State(
            container=container,
            ems=bin_types.EMS(**spaces),
            ems_mask=jnp.arange(MAX_SPACES) == 0,
            items=bin_types.Item(lengths[:, 0], lengths[:, 1], lengths[:, 2]),
            items_mask=exists,
            items_placed=jnp.zeros(MAX_ITEMS, bool),
            items_location=bin_types.Location(nowhere, nowhere, nowhere),
            action_mask=None,
            sorted_ems_indexes=jnp.arange(MAX_SPACES),
            key=jnp.zeros(2, jnp.uint32),
        )


def test_binpack_equals_jumanji_transition_for_transition() -> None:
    """Jumanji keeps its spaces in 40 slots, fills the first free one, and writes to the first of all when none is free;
    it shows them by volume. Ours does the same, so actions need no translation."""
    num_envs, num_steps = 256, MAX_ITEMS
    pool, out = compiled(load_env("binpack"), num_envs, seed=3)
    begin, random, actions = pool.states(), np.random.default_rng(0), []
    for _ in range(num_steps):  # now and then any action at all, most of which are illegal
        wild, is_wild = random.integers(out.mask.shape[1], size=num_envs), random.random(num_envs) < 0.02
        actions.append(np.where(is_wild, wild, random_actions(pool, out, random)))
        out = pool.step(actions[-1])
    theirs = jumanji.environments.BinPack(GivenItems(), obs_num_ems=MAX_SPACES)
    exists = np.arange(MAX_ITEMS) < begin["num_items"][:, None]
    starts, first_step = jax.jit(jax.vmap(theirs.reset))((begin["lengths"], exists))
    pairs = np.stack(np.divmod(np.array(actions), MAX_ITEMS), axis=-1).astype(np.int32)
    steps = scanned(theirs, starts, pairs)
    seen = {name: np.asarray(getattr(steps.observation, name)) for name in ("ems_mask", "items_mask", "items_placed")}
    edges = [np.asarray(getattr(steps.observation.ems, edge)) for edge in EDGES]
    lengths = [np.asarray(axis) for axis in steps.observation.items]
    seen["ems"] = np.stack(edges, axis=-1) * seen["ems_mask"][..., None]  # theirs are not 0 beyond the mask
    seen["items"] = np.stack(lengths, axis=-1) * seen["items_mask"][..., None]

    def assert_seen(obs: Any, rows: np.ndarray, t: int) -> None:
        for name, expected in seen.items():
            np.testing.assert_allclose(obs[name][rows], expected[t, rows], rtol=2e-7, err_msg=f"{name} at step {t}")

    pool.episodes()
    out = restored(pool, begin)
    np.testing.assert_array_equal(out.mask, np.asarray(first_step.observation.action_mask).reshape(num_envs, -1))
    mask = np.asarray(steps.observation.action_mask).reshape(num_steps, num_envs, -1)
    num_illegal, _ = assert_same_first_episodes(pool, out, actions, steps, assert_seen, mask)
    assert num_illegal > 20
    episodes, last = pool.episodes(), np.asarray(steps.last()).argmax(axis=0)
    _, first = np.unique(episodes.env_ids, return_index=True)
    told = {name: np.asarray(values) for name, values in steps.extras.items()}
    for ours, name in (("volume_used", "volume_utilization"), ("items_placed", "packed_items")):
        np.testing.assert_allclose(episodes.stats[ours][first], told[name][last, np.arange(num_envs)], rtol=1e-6)
    is_playing = np.arange(num_steps)[:, None] <= last
    assert (is_playing & (told["active_ems"] == MAX_SPACES)).sum() > 10  # slots run out, the first is written over


def summaries(lengths: np.ndarray, exists: np.ndarray) -> dict[str, np.ndarray]:
    """One number an instance for each of several views of it."""
    volumes = lengths.prod(axis=-1, dtype=np.float64)
    count = exists.sum(axis=1)
    return {
        "items": count,
        "largest": np.where(exists, volumes, 0).max(axis=1),
        "smallest": np.where(exists, volumes, np.inf).min(axis=1),
        "first": volumes[:, 0],
        "last": volumes[np.arange(len(count)), count - 1],
        "mean x": (lengths[..., 0] * exists).sum(axis=1) / count,
        "mean y": (lengths[..., 1] * exists).sum(axis=1) / count,
        "flattest": np.where(exists, lengths[..., 2], np.inf).min(axis=1),
    }


def test_instances_are_distributed_as_those_of_jumanji() -> None:
    count = 2000
    ours = compiled(load_env("binpack"), count)[0].states()
    generator = generators.RandomGenerator(MAX_ITEMS, MAX_SPACES)
    theirs = jax.jit(jax.vmap(generator))(jax.random.split(jax.random.PRNGKey(0), count))
    first = summaries(ours["lengths"], np.arange(MAX_ITEMS) < ours["num_items"][:, None])
    second = summaries(np.stack([np.asarray(x) for x in theirs.items], axis=-1), np.asarray(theirs.items_mask))
    for name in first:
        assert largest_gap(first[name], second[name]) < 2.2 * np.sqrt(2 / count), name  # 1 in 10 000 by chance


def test_the_defaults_are_those_of_jumanji() -> None:
    ours, theirs = load_env("binpack"), jumanji.make("BinPack-v2")
    assert (ours.max_items, ours.max_spaces) == (theirs.generator.max_num_items, theirs.generator.max_num_ems)
    assert ours.max_spaces == theirs.obs_num_ems
    assert ours.container == theirs.generator.container_dims
    assert ours.action_space.n == np.prod(theirs.action_spec.num_values)
    defaults = vars(generators.RandomGenerator(MAX_ITEMS, MAX_SPACES))
    for name in ("split_eps", "prob_split_one_item", "split_num_same_items"):
        assert getattr(ours, name) == defaults[f"_{name}"], name
