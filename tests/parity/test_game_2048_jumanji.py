"""Our 2048 is Jumanji's Game2048-v1: of any board, each action gives the same slide, reward, mask and end.

New tiles are drawn by different generators: what falls where is compared in distribution, all else exactly.
"""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.engine.random_play import random_actions
from scramjet.envs.puzzles.game_2048 import Game2048, can_slide, slide

jumanji = pytest.importorskip("jumanji", reason="the original of 2048: pip install jumanji")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jumanji.environments.logic.game_2048.types import State  # noqa: E402
from jumanji.environments.logic.game_2048.utils import can_move, move  # noqa: E402

SIZES = [4, 3]

sizes = pytest.mark.parametrize("size", SIZES)


def played_boards(size: int) -> np.ndarray:
    """Boards of every stage of our own games under random moves, and some that few would reach, [N, size, size]."""
    pool = NativePool(Game2048(size=size), 8, num_threads=1)
    out, random = pool.reset(1), np.random.default_rng(2)
    boards = [pool.states()["board"]]
    for _ in range(120):
        out = pool.step(random_actions(pool, out, random))
        boards.append(pool.states()["board"])
    strange = random.integers(0, 4, (300, size, size)) * random.integers(0, 2, (300, size, size))
    full = random.integers(1, 9, (300, size, size))
    return np.concatenate([*boards, strange, full]).astype(np.int8)


def their_steps(size: int, boards: np.ndarray, actions: np.ndarray):
    """Jumanji's boards, rewards, masks and ends after one step from each board."""
    theirs = jumanji.environments.Game2048(board_size=size)

    def play(board, action, key):
        mask = theirs._get_action_mask(board)
        start = State(board=board, step_count=jnp.array(0), action_mask=mask, key=key, score=jnp.array(0.0))
        state, step = theirs.step(start, action)
        return state.board, step.reward, step.observation.action_mask, step.last()

    keys = jax.random.split(jax.random.PRNGKey(0), len(boards))
    after = jax.jit(jax.vmap(play))(jnp.asarray(boards, jnp.int32), jnp.asarray(actions), keys)
    return [np.asarray(value) for value in after]


@sizes
def test_every_board_slides_pays_and_is_masked_alike(size) -> None:
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


def test_a_step_pays_ends_and_masks_alike_and_adds_as_many_tiles() -> None:
    """Where both draw the same tile, the whole transition is the same."""
    size = 3
    env, boards = Game2048(size=size), played_boards(size)
    actions = np.random.default_rng(3).integers(4, size=len(boards))
    board, reward, mask, last = their_steps(size, boards, actions)
    pool = NativePool(env, len(boards), num_threads=1)
    pool.reset(0)
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


def test_games_of_random_moves_come_as_far_in_both() -> None:
    """The mean score and length of a game, which tell whether new tiles fall alike."""
    size, count, most_steps = 3, 400, 150
    theirs = jumanji.environments.Game2048(board_size=size)

    def play(key):
        def move_on(carry, key):
            state, is_over, score, length = carry
            action = jax.random.categorical(key, jnp.where(state.action_mask, 0.0, -jnp.inf))
            after, step = theirs.step(state, action)
            score = score + jnp.where(is_over, 0.0, step.reward)
            return (after, is_over | step.last(), score, length + ~is_over), None

        state, _ = theirs.reset(key)
        start = (state, jnp.array(False), jnp.array(0.0), jnp.array(0))
        (_, is_over, score, length), _ = jax.lax.scan(move_on, start, jax.random.split(key, most_steps))
        return is_over, score, length

    is_over, scores, lengths = map(np.asarray, jax.jit(jax.vmap(play))(jax.random.split(jax.random.PRNGKey(1), count)))
    assert is_over.all()
    pool, random = NativePool(Game2048(size=size), count, num_threads=1), np.random.default_rng(4)
    out = pool.reset(9)
    for _ in range(most_steps):
        out = pool.step(random_actions(pool, out, random))
    ended = pool.episodes()
    is_first = np.array([env_id not in ended.env_ids[:i] for i, env_id in enumerate(ended.env_ids)])
    for ours, others in ((ended.returns[is_first], scores), (ended.lengths[is_first], lengths)):
        assert len(ours) == count
        assert abs(ours.mean() - others.mean()) < 5 * np.sqrt((ours.var() + others.var()) / count)
