"""Networks as players: temperature, memory by seats, searches by name, and what does not fit."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scramjet.algorithms.config import PPOConfig
from scramjet.arena.matches import Score, play_games
from scramjet.arena.network_players import NetworkPlayer, SearchPlayer, Temperature, load_player
from scramjet.engine import NativePool, Transition
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.kuhn import Kuhn
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.players.scripted import RandomPlayer, split_search
from scramjet.policies import Policy, PolicyConfig
from scramjet.training.components import policy_for
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluator import Player as TrainingPlayer
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.search_worlds import settings, untrained
from tests.helpers.small_games import four, in_turn
from tests.helpers.small_runs import train_small

pytestmark = pytest.mark.usefixtures("one_thread")


def policy_of(world: Any, memory: str | None = None) -> Policy:
    """A policy with weights that make its choices differ from state to state."""
    config = replace(RunConfig(), policy=PolicyConfig(hidden=(16,), memory=memory, memory_size=8))
    policy = policy_for(world.observation_space, world.action_space, config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return policy.eval()


def test_two_players_of_one_policy_play_as_it_plays_by_itself() -> None:
    for world, memory in ((Duel(), "lstm"), (Trio(), None), (Mortals(), "gru")):
        policy, num_envs, num_steps = policy_of(world, memory), 12, 25
        alone, shared = (pool_of(world, num_envs, backend="interpreted") for _ in range(2))
        whole, halves = TrainingPlayer(alone, policy), [NetworkPlayer(policy, name) for name in "ab"]
        seen, expected, random = shared.reset(4), alone.reset(4), np.random.default_rng(0)
        for half in halves:
            half.begin(shared)
        owner = np.arange(shared.num_rows) % 2  # with seats, who sits in seat 0; who sits in seat 1 is the other
        for _ in range(num_steps):
            movers = (owner + seen.turn) % 2 if world.num_seats > 1 else owner
            actions = whole.act(expected)
            for number, half in enumerate(halves):
                rows = np.flatnonzero(movers == number)
                assert np.array_equal(half.choose(seen, rows, random), actions[rows]), (world, memory)
            expected, seen = alone.step(actions), shared.step(actions.copy())
            whole.see(expected)
            for half in halves:
                half.see(seen)


def frequencies(temperature: Temperature, num_rows: int = 4000) -> tuple[np.ndarray, torch.Tensor, np.ndarray]:
    """How often each action is chosen in one state, the logits there, and its mask."""
    pool = pool_of(Duel(), num_rows, backend="interpreted")
    out = pool.reset(0)
    for array in (out.obs, out.mask, out.turn):
        array[:] = array[0]
    policy = policy_of(Duel())
    player = NetworkPlayer(policy, "network", temperature)
    player.begin(pool)
    actions = player.choose(out, np.arange(num_rows), np.random.default_rng(0))
    with torch.no_grad():
        logits = policy.forward(torch.from_numpy(out.obs[:1])).logits[0]
    return np.bincount(actions, minlength=6) / num_rows, logits, out.mask[0]


def test_moves_are_drawn_from_logits_divided_by_the_temperature_and_at_zero_the_likeliest() -> None:
    for temperature in (0.5, 3.0):
        shares, logits, mask = frequencies(Temperature(temperature))
        weights = np.where(mask, np.exp(logits.numpy() / temperature - logits.max().item() / temperature), 0)
        assert np.allclose(shares, weights / weights.sum(), atol=0.03), temperature
        assert shares[~mask].sum() == 0
    shares, logits, mask = frequencies(Temperature(0.0), 100)
    assert shares[np.where(mask, logits.numpy(), -np.inf).argmax()] == 1


class Recorded(NetworkPlayer):
    """Keeps the number of moves that it believes each game has had, and the truth."""

    def begin(self, pool: Any) -> None:
        super().begin(pool)
        self.pool, self.counted, self.true = pool, [], []

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        self.counted += self._moves[rows].tolist()
        steps = self.pool.states()["_steps"]
        self.true += steps[rows * self.pool.num_envs // self.pool.num_rows].tolist()
        return super().choose(seen, rows, generator)


def test_the_moves_of_a_game_are_counted_from_its_beginning_and_after_the_cutoff_the_final_temperature_holds() -> None:
    for world in (Duel(), Mortals()):
        player = Recorded(policy_of(world), "network", Temperature(1.0))
        seats = max(world.num_seats, world.num_agents)
        play_games(pool_of(world, 4, backend="interpreted"), [player], np.zeros((30, seats), int), seed=1)
        assert player.counted == player.true
        assert max(player.true) > 2
    assert Temperature(1.0, 0.0, 6).at(np.array([0, 5, 6, 40])).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert Temperature(0.5).at(np.array([0, 100])).tolist() == [0.5, 0.5]


def test_drawn_openings_make_games_differ_and_a_final_zero_makes_them_end_alike() -> None:
    policy = policy_of(Duel())
    pool = pool_of(Duel(), 8, backend="interpreted")

    def distinct(temperature: Temperature) -> int:
        player = NetworkPlayer(policy, "network", temperature)
        return play_games(pool, [player], np.zeros((64, 2), int), seed=1).num_distinct

    most_likely, opening, drawn = map(distinct, (Temperature(), Temperature(5.0, 0.0, 1), Temperature(5.0)))
    assert most_likely < opening < drawn


def mine(view: Any) -> int:
    return 0


def test_players_are_made_from_what_the_user_gives(tmp_path: Path) -> None:
    config, given = RunConfig(env="connect_four"), RandomPlayer()
    assert load_player(given, config) is given
    assert load_player("minimax:2", config).name == "minimax:2"
    assert isinstance(load_player(policy_of(Duel()), config), NetworkPlayer)
    assert load_player(mine, config).name == "mine"
    with pytest.raises(ConfigError, match="there is no player 'nobody': give a run or checkpoint"):
        load_player("nobody", config, runs_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"6 rows, 7 columns and four in a line, not for .*rows=5"):
        load_player("perfect", RunConfig(env="connect_four", env_parameters={"rows": 5}))
    stranger = NetworkPlayer(policy_of(Duel()), "stranger")
    with pytest.raises(ConfigError, match="player stranger was trained with other observations than ConnectFour has"):
        play_games(four(1), [stranger, RandomPlayer()], in_turn(2), seed=1)


def score(env: Any, first: Player, second: Player, games: int = 60, seed: int = 1) -> Score:
    """How the first player did, in either seat equally often."""
    pool = NativePool(env, games, num_threads=1)
    return play_games(pool, [first, second], np.array([[0, 1], [1, 0]] * (games // 2)), seed=seed).score(0)


def test_a_network_that_knows_nothing_beats_random_play_and_itself_by_search_the_same_for_the_same_seed() -> None:
    for text, env in itertools.product(("alphazero:32", "spo:16x4"), (TicTacToe(), ConnectFour())):
        policy = untrained(env)
        plain = NetworkPlayer(policy, "plain", Temperature(1.0)) if isinstance(env, ConnectFour) else RandomPlayer()
        found = score(env, SearchPlayer(policy, "net", settings(text)), plain)
        assert found.wins - found.losses > 15, (text, env)
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


def test_temperatures_that_are_none_and_hidden_cards_are_refused() -> None:
    for given, problem in (
        ((-1.0,), "temperature=-1.0"),
        ((float("nan"),), "temperature=nan"),
        ((1.0, float("inf"), 3), "temperature_final=inf"),
        ((1.0, 0.0), "need each other"),
        ((1.0, None, 4), "need each other"),
        ((1.0, 0.0, -1), "temperature_cutoff=-1"),
    ):
        with pytest.raises(ConfigError, match=problem):
            Temperature(*given)
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
    monkeypatch.setattr("scramjet.training.playing.reward_divisor_of", lambda checkpoint: None)
    with pytest.raises(ConfigError, match="does not say how its rewards were scaled"):
        load_player(f"{run}@alphazero:8", config)
