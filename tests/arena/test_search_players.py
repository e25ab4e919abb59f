"""Players that search: stronger than the network alone, by name, and refused where they cannot search."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scramjet.algorithms.ppo import PPOConfig
from scramjet.arena.matches import play_games
from scramjet.arena.players import NetworkPlayer, SearchPlayer, Temperature, load_player, split_search
from scramjet.arena.results import Score
from scramjet.engine import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.kuhn import Kuhn
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.players.scripted import RandomPlayer
from scramjet.policies.config import PolicyConfig
from scramjet.training.config.run_config import RunConfig
from tests.helpers.search_worlds import settings, untrained
from tests.helpers.small_runs import train_small

pytestmark = pytest.mark.usefixtures("one_thread")


def score(env: Any, first: Player, second: Player, games: int = 60, seed: int = 1) -> Score:
    """How the first player did, in either seat equally often."""
    pool = NativePool(env, games, num_threads=1)
    return play_games(pool, [first, second], np.array([[0, 1], [1, 0]] * (games // 2)), seed=seed).score(0)


def test_a_network_that_knows_nothing_beats_random_play_and_itself_by_search() -> None:
    for text, env in itertools.product(("alphazero:32", "spo:16x4"), (TicTacToe(), ConnectFour())):
        policy = untrained(env)
        plain = NetworkPlayer(policy, "plain", Temperature(1.0)) if isinstance(env, ConnectFour) else RandomPlayer()
        found = score(env, SearchPlayer(policy, "net", settings(text)), plain)
        assert found.wins - found.losses > 15, (text, env)


def test_games_are_the_same_for_the_same_seed() -> None:
    env = TicTacToe()
    player = SearchPlayer(untrained(env), "net", settings("spo:4x2"), Temperature(1.0))
    scores = [score(env, player, RandomPlayer(), seed=seed) for seed in (1, 1, 2)]
    assert scores[0] == scores[1] != scores[2]


def test_moves_are_explored_until_the_cutoff_only() -> None:
    env = TicTacToe()
    player = SearchPlayer(untrained(env), "net", settings("alphazero:4"), Temperature(1.0, 0.0, 1))
    pool = NativePool(env, 32, num_threads=1)
    out, generator = pool.reset(0), np.random.default_rng(0)
    player.begin(pool)
    assert len(set(player.choose(out, np.arange(32), generator).tolist())) > 2
    out = pool.step(np.full(32, 4))
    player.see(out)
    assert len(set(player.choose(out, np.arange(32), generator).tolist())) == 1


def test_other_temperatures_and_hidden_cards_are_refused() -> None:
    policy, search = untrained(Kuhn()), settings("spo:4x2")
    with pytest.raises(ConfigError, match=r"temperature=0\.5, but net@spo:4x2 chooses by search"):
        SearchPlayer(policy, "net", search, Temperature(0.5))
    with pytest.raises(ConfigError, match="hidden = True"):
        SearchPlayer(policy, "net", search).begin(NativePool(Kuhn(), 2))


def test_a_misspelled_search_is_told_and_runs_may_have_an_at_in_their_names(tmp_path: Path) -> None:
    for name in ("home", "home@spo16"):
        (tmp_path / name).mkdir()
    for text in ("home@alphazero64", "home@az:64", "home@", "nowhere@spo16x4", f"{tmp_path}/home@mcts"):
        with pytest.raises(ConfigError, match=r"search=.*names no search; use alphazero:64 .*spo:16x4"):
            split_search(text, tmp_path)
    for text in ("home@spo16", "away@home", f"{tmp_path}/home@spo16"):
        assert split_search(text, tmp_path) == (text, None)


def test_a_run_is_loaded_with_the_search_behind_its_name_and_nothing_else_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"policy": PolicyConfig(hidden=(8,), encoder="mlp"), "ppo": PPOConfig(gamma=0.9), "total_timesteps": 64}
    run = train_small(tmp_path, "home", "tic_tac_toe", **changes)
    config = RunConfig(env="tic_tac_toe")
    player = load_player(f"{run}@alphazero:8", config)
    assert isinstance(player, SearchPlayer)
    assert player.name == f"{run}@alphazero:8"
    assert 0.0 < player.search.rewards.scale.item() != 1.0  # what its rewards were divided by
    assert player.search.rewards.gamma == 0.9
    for text in (str(run), f"{run}@none"):
        assert type(load_player(text, config)) is NetworkPlayer
    assert isinstance(load_player("home@spo:4x2", config, runs_dir=tmp_path), SearchPlayer)
    for text in ("random@alphazero:8", "minimax:2@spo:4x2", "perfect@spo:4x2", "bot.py@spo:4x2"):
        with pytest.raises(ConfigError, match="only networks search"):
            load_player(text, config)
    monkeypatch.setattr("scramjet.training.evaluation.searching.reward_divisor_of", lambda checkpoint: None)
    with pytest.raises(ConfigError, match="does not say how its rewards were scaled"):
        load_player(f"{run}@alphazero:8", config)
