"""Players that search: stronger than the network alone, by name, and refused where they cannot search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
from scramjet.training.config.run_config import RunConfig
from tests.helpers.command_calls import call
from tests.helpers.search_players import settings, untrained

pytestmark = pytest.mark.usefixtures("one_thread")


def score(env: Any, first: Player, second: Player, games: int = 60, seed: int = 1) -> Score:
    """How the first player did, in either seat equally often."""
    pool = NativePool(env, games, num_threads=1)
    return play_games(pool, [first, second], np.array([[0, 1], [1, 0]] * (games // 2)), seed=seed).score(0)


@pytest.mark.parametrize("text", ["alphazero:32", "spo:16x4"])
def test_a_network_that_knows_nothing_beats_random_play_by_search(text: str) -> None:
    env = TicTacToe()
    found = score(env, SearchPlayer(untrained(env), "net", settings(text)), RandomPlayer())
    assert found.wins - found.losses > 15


@pytest.mark.parametrize("text", ["alphazero:32", "spo:16x4"])
def test_a_network_beats_itself_by_search(text: str) -> None:
    env = ConnectFour()
    policy = untrained(env)
    plain = NetworkPlayer(policy, "plain", Temperature(1.0))
    found = score(env, SearchPlayer(policy, "net", settings(text)), plain)
    assert found.wins - found.losses > 15


def test_games_are_the_same_for_the_same_seed() -> None:
    env = TicTacToe()
    player = SearchPlayer(untrained(env), "net", settings("spo:4x2"), Temperature(1.0))
    scores = [score(env, player, RandomPlayer(), seed=seed) for seed in (1, 1, 2)]
    assert scores[0] == scores[1]
    assert scores[0] != scores[2]


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


@pytest.mark.parametrize("text", ["home@alphazero64", "home@az:64", "home@", "nowhere@spo16x4", "{}/home@mcts"])
def test_a_misspelled_search_is_told_with_examples(tmp_path: Path, text: str) -> None:
    (tmp_path / "home").mkdir()
    with pytest.raises(ConfigError, match=r"search=.*names no search; use alphazero:64 .*spo:16x4"):
        split_search(text.format(tmp_path), tmp_path)


def test_runs_may_have_an_at_in_their_names(tmp_path: Path) -> None:
    (tmp_path / "home@spo16").mkdir()
    for text in ("home@spo16", "away@home", f"{tmp_path}/home@spo16"):
        assert split_search(text, tmp_path) == (text, None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of tic_tac_toe, called `home`."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["--num-envs", 8, "--num-steps", 16, "--total-timesteps", 256, "--minibatch-size", 64, "--policy.hidden", 8]
    words += ["--self-play.pool-fraction", 0, "--eval.every", 0, "--eval.final-episodes", 0]
    words += ["--normalize-rewards", "--gamma", 0.9]
    assert call("train", "tic_tac_toe", *words, "--runs-dir", folder, "--run-name", "home", "--display", "quiet") == 0
    return folder / "home"


def test_a_run_is_loaded_with_the_search_behind_its_name(run: Path) -> None:
    config = RunConfig(env="tic_tac_toe")
    player = load_player(f"{run}@alphazero:8", config)
    assert isinstance(player, SearchPlayer)
    assert player.name == f"{run}@alphazero:8"
    assert 0.0 < player.search.rewards.scale.item() != 1.0  # what its rewards were divided by
    assert player.search.rewards.gamma == 0.9
    for text in (str(run), f"{run}@none"):
        plain = load_player(text, config)
        assert isinstance(plain, NetworkPlayer)
        assert not isinstance(plain, SearchPlayer)
    assert isinstance(load_player("home@spo:4x2", config, runs_dir=run.parent), SearchPlayer)


@pytest.mark.parametrize("text", ["random@alphazero:8", "minimax:2@spo:4x2", "perfect@spo:4x2", "bot.py@spo:4x2"])
def test_only_networks_search(text: str) -> None:
    with pytest.raises(ConfigError, match="only networks search"):
        load_player(text, RunConfig(env="tic_tac_toe"))


def test_the_scale_of_rewards_must_be_known(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scramjet.training.evaluation.searching.reward_divisor_of", lambda checkpoint: None)
    with pytest.raises(ConfigError, match="does not say how its rewards were scaled"):
        load_player(f"{run}@alphazero:8", RunConfig(env="tic_tac_toe"))
