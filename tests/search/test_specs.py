"""Searches as texts: what they mean, what they cost, and what is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scramjet.algorithms.alphazero import AlphaZeroConfig
from scramjet.algorithms.spo import SPOConfig
from scramjet.engine import NativePool
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.errors import ConfigError
from scramjet.search.particles import ParticleSearch
from scramjet.search.search import Rewards
from scramjet.search.specs import SearchSpec, make_search, parse_search, split_player
from scramjet.search.tree import TreeSearch
from tests.helpers.search_players import untrained


def test_texts_say_simulations_or_particles_and_depth() -> None:
    assert parse_search("alphazero:64") == SearchSpec("alphazero", (64,))
    assert parse_search("spo:16x4") == SearchSpec("spo", (16, 4))
    assert parse_search("none") is None
    assert parse_search(None) is None


@pytest.mark.parametrize("text", ["alphazero:1", "alphazero:10000", "spo:16x4", "spo:1x1"])
def test_a_search_is_written_as_it_was_read(text: str) -> None:
    spec = parse_search(text)
    assert spec is not None
    assert spec.text == text
    assert parse_search(spec) is spec


@pytest.mark.parametrize(
    "text",
    [
        "", "alphazero", "alphazero:", "alphazero:0", "alphazero:-3", "alphazero:many", "alphazero:6.4", "alphazero:64:8",
        "alphazero:10001", "alphazero:99999999999999999999", "alphazero: 64", "alphazero:\u0663", "spo", "spo:16", "spo:16x",
        "spo:x4", "spo:0x4", "spo:16x0", "spo:16x-4", "spo:16x4x2", "spo:10001x4", "spo:16x1001", "mcts:64", "AlphaZero:64",
        64, ["spo:16x4"], True,
    ],
)  # fmt: skip
def test_what_is_no_search_is_refused_with_examples(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"search=.*alphazero:64 .*spo:16x4"):
        parse_search(text)


def test_the_search_of_a_player_stands_behind_its_last_at() -> None:
    assert split_player("runs/a@alphazero:64") == ("runs/a", SearchSpec("alphazero", (64,)))
    assert split_player("runs/a@b@spo:8x2") == ("runs/a@b", SearchSpec("spo", (8, 2)))
    assert split_player("runs/a@none") == ("runs/a", None)
    for name in ("runs/a", "runs/me@home", "minimax:3", "a@40960"):
        assert split_player(name) == (name, None)
    with pytest.raises(ConfigError, match="simulations"):
        split_player("runs/a@alphazero:lots")


def test_searches_are_made_with_the_sizes_of_the_text_and_the_settings_of_the_run() -> None:
    pool, rewards = NativePool(TicTacToe(), 2), Rewards(1.0, torch.ones(1))
    policy = untrained(pool.env)
    spec = SearchSpec("alphazero", (9,))
    tree = make_search(spec, pool, policy, 3, rewards, base=AlphaZeroConfig(simulations=2, considered=5))
    assert isinstance(tree, TreeSearch)
    assert (tree.config.simulations, tree.config.considered, tree.num_roots) == (9, 5, 3)
    spec = SearchSpec("spo", (8, 2))
    base = SPOConfig(particles=3, resample_period=2)
    particles = make_search(spec, pool, policy, 3, rewards, base=base, temperature=0.25)
    assert isinstance(particles, ParticleSearch)
    assert particles.config == SPOConfig(particles=8, depth=2, resample_period=2)
    assert particles.eta.item() == 0.25
    assert tree.is_deterministic
    assert particles.is_deterministic
