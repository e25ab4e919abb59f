"""Searches as texts, what cannot be searched, and searches for rows of a pool in batches of a few sizes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from scramjet.adapters.registry import load_world
from scramjet.algorithms.config import AlphaZeroConfig, SPOConfig
from scramjet.engine import FrameStackPool, NativePool
from scramjet.engine.actions import random_actions
from scramjet.envs import Box, Env, MultiDiscrete
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.classic_control.pendulum import Pendulum
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.kuhn import Kuhn
from scramjet.envs.games.maze import Maze
from scramjet.envs.games.snake import Snake
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.envs.probes.remembering import Memory
from scramjet.envs.puzzles.game_2048 import Game2048
from scramjet.errors import ConfigError
from scramjet.search import rows as rows_module
from scramjet.search.choice import make_search
from scramjet.search.particles import ParticleSearch
from scramjet.search.requirements import check_searchable, note_on_chance
from scramjet.search.rows import RowSearch
from scramjet.search.search import Rewards
from scramjet.search.specs import SearchSpec, parse_search, split_player
from scramjet.search.tree import TreeSearch
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.search_worlds import settings, untrained

KINDS: Any = ("alphazero", "spo")
NO_SEARCHES = [
    "", "alphazero", "alphazero:", "alphazero:0", "alphazero:-3", "alphazero:many", "alphazero:6.4", "mcts:64",
    "alphazero:10001", "alphazero:99999999999999999999", "alphazero: 64", "alphazero:\u0663", "alphazero:64:8",
    "spo", "spo:16", "spo:16x", "spo:x4", "spo:0x4", "spo:16x0", "spo:16x-4", "spo:16x4x2", "spo:10001x4",
    "spo:16x1001", "AlphaZero:64", 64, ["spo:16x4"], True,
]  # fmt: skip


def test_texts_say_simulations_or_particles_and_depth_behind_the_last_at_of_a_player() -> None:
    assert parse_search("none") is None
    assert parse_search(None) is None
    for text, kind, sizes in (
        ("alphazero:64", "alphazero", (64,)), ("alphazero:1", "alphazero", (1,)), ("spo:16x4", "spo", (16, 4)),
        ("alphazero:10000", "alphazero", (10_000,)), ("spo:1x1", "spo", (1, 1)),
    ):  # fmt: skip
        spec = parse_search(text)
        assert spec == SearchSpec(kind, sizes)
        assert spec.text == text  # it is written as it was read
        assert parse_search(spec) is spec
    for no_search in NO_SEARCHES:
        with pytest.raises(ConfigError, match=r"search=.*alphazero:64 .*spo:16x4"):
            parse_search(no_search)
    assert split_player("runs/a@alphazero:64") == ("runs/a", SearchSpec("alphazero", (64,)))
    assert split_player("runs/a@b@spo:8x2") == ("runs/a@b", SearchSpec("spo", (8, 2)))
    assert split_player("runs/a@none") == ("runs/a", None)
    for name in ("runs/a", "runs/me@home", "minimax:3", "a@40960"):
        assert split_player(name) == (name, None)
    with pytest.raises(ConfigError, match="simulations"):
        split_player("runs/a@alphazero:lots")


def test_searches_are_made_with_the_sizes_of_the_text_and_the_settings_of_the_run() -> None:
    pool, rewards = NativePool(TicTacToe(), 2), Rewards(1.0, torch.ones(1))
    policy, spec = untrained(pool.env), SearchSpec("alphazero", (9,))
    tree = make_search(spec, pool, policy, 3, rewards, base=AlphaZeroConfig(simulations=2, considered=5))
    assert isinstance(tree, TreeSearch)
    assert (tree.config.simulations, tree.config.considered, tree.num_roots) == (9, 5, 3)
    spec, base = SearchSpec("spo", (8, 2)), SPOConfig(particles=3, resample_period=2)
    particles = make_search(spec, pool, policy, 3, rewards, base=base, temperature=0.25)
    assert isinstance(particles, ParticleSearch)
    assert particles.config == SPOConfig(particles=8, depth=2, resample_period=2)
    assert particles.eta.item() == 0.25
    assert tree.is_deterministic
    assert particles.is_deterministic


class TwoKnobs(Env):
    """Two choices at once."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = MultiDiscrete([2, 3])
    state = {"turned": np.int32}


def policy(state_size: int = 0, num_frames: int = 1) -> Any:
    """What the check looks at in a policy."""
    return SimpleNamespace(state_size=state_size, env_spaces=SimpleNamespace(num_frames=num_frames))


def test_worlds_for_one_and_for_two_in_turns_can_be_searched_if_alphazero_has_one_choice_among_several() -> None:
    for kind in KINDS:
        for world in (CartPole(), ConnectFour(), ConnectFour(random_opponent=True), Snake(), Duel()):
            check_searchable(world, policy(), kind)
            check_searchable(NativePool(world, 1, backend="interpreted"), None, kind)
    for world in (Pendulum(), TwoKnobs()):
        check_searchable(world, policy(), "spo")
        with pytest.raises(ConfigError, match="use spo"):
            check_searchable(world, policy(), "alphazero")


def test_other_worlds_and_policies_are_refused_by_name_with_the_reason() -> None:
    for world, problem in (
        (load_world("gym:CartPole-v1", {}), "gym:CartPole-v1: a world of another library cannot be .*scramjet list"),
        (Kuhn(), r"Kuhn: its record holds what players must not see \(hidden = True\)"),
        (Memory(), r"Memory: its record holds what players must not see"),
        (Snake(snakes=2), "Snake: its 2 agents act at once"),
        (Mortals(), ".*agents act at once"),
        (Trio(), ".*3 seats"),
    ):
        for kind in KINDS:
            with pytest.raises(ConfigError, match=f"{kind} cannot search {problem}"):
                check_searchable(world, policy(), kind)
    stacked = FrameStackPool(NativePool(CartPole(), 1, backend="interpreted"), 2)
    for refused, thinks, problem in (
        (CartPole(), policy(state_size=8), r"has memory.*without --policy\.memory"),
        (CartPole(), policy(num_frames=4), r"4 stacked frames.*--frame-stack 1"),
        (stacked, policy(), r"stacked frames.*--frame-stack 1"),
    ):
        with pytest.raises(ConfigError, match=problem):
            check_searchable(refused, thinks, "spo")


def test_a_tree_is_told_to_mislead_where_steps_draw_random_numbers() -> None:
    for world, has_chance in (
        (Game2048(), True), (ConnectFour(random_opponent=True), True), (ConnectFour(), False), (Maze(), False),
    ):  # fmt: skip
        note = note_on_chance(world, "alphazero")
        assert ("spo draws anew" in note) == bool(note) == has_chance, world
        assert note_on_chance(world, "spo") == ""


def searched(text: str, num_envs: int = 24, plies: int = 3) -> tuple[RowSearch, Any]:
    """Games after a few random moves, and a search for them."""
    pool, random = NativePool(TicTacToe(), num_envs, num_threads=1), np.random.default_rng(0)
    out = pool.reset(0)
    for _ in range(plies):
        out = pool.step(random_actions(pool, out, random))
    return RowSearch(pool, untrained(pool.env), settings(text)), out


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def test_batches_hold_every_row_once_are_at_least_half_full_and_smaller_for_large_searches() -> None:
    search, _ = searched("alphazero:2")
    for num_rows in (1, 3, 64, 65, 100, 300, 1000, 1024, 1025, 5000):
        batches = list(search._batches(np.arange(num_rows)))
        assert np.array_equal(np.concatenate([part for part, _ in batches]), np.arange(num_rows)), num_rows
        for part, size in batches:
            assert size.bit_count() == 1
            assert size // 2 < len(part) <= size <= rows_module.MOST_ROOTS, num_rows
    assert search._most_roots == rows_module.MOST_ROOTS
    assert 1 <= searched("alphazero:10000")[0]._most_roots < rows_module.MOST_ROOTS


def test_the_same_seed_gives_the_same_actions_and_the_pool_stays_as_it_is() -> None:
    for text, explores in (("alphazero:8", True), ("spo:8x2", False), ("spo:8x2", True)):
        search, out = searched(text)
        before = search.pool.state_bytes().clone()
        first, again = (search.actions(out, np.arange(24), generator(), explores=explores) for _ in range(2))
        assert np.array_equal(first, again), text
        assert torch.equal(search.pool.state_bytes(), before), text


def test_a_win_at_hand_is_taken_in_any_row() -> None:
    pool = NativePool(TicTacToe(), 5, num_threads=1)
    out = pool.reset(0)
    for moves in ([0] * 5, [3, 3, 4, 4, 3], [1] * 5, [4, 4, 3, 3, 4]):
        out = pool.step(np.array(moves))
    for text in ("alphazero:32", "spo:64x3"):
        chosen = RowSearch(pool, untrained(pool.env), settings(text)).actions(out, np.array([4, 1, 2]), generator())
        assert chosen.tolist() == [2, 2, 2], text


def test_what_a_tree_finds_depends_on_exploration_and_not_on_the_other_rows_of_its_batch() -> None:
    search, out = searched("alphazero:16")
    rows = np.arange(24)
    together = search.actions(out, rows, generator())
    apart = [search.actions(out, part, generator()) for part in (rows[:1], rows[1:6], rows[6:])]
    assert np.array_equal(together, np.concatenate(apart))
    assert out.mask[rows, together].all()
    search, out = searched("alphazero:4", plies=0)
    explored = search.actions(out, np.arange(24), generator(), explores=True)
    assert len(set(explored.tolist())) > 2
    assert len(set(search.actions(out, np.arange(24), generator()).tolist())) == 1
