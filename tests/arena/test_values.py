"""What games are worth: results counted, games solved by looking at every position, and exploitability in poker."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from scramjet.algorithms.intervals import NORMAL_95, wilson_interval
from scramjet.arena.exploitability import (
    GameTree,
    best_play,
    card_game,
    exploitability,
    game_tree,
    policy_probabilities,
    responses,
    worst_returns,
)
from scramjet.arena.matches import GameResults, Score
from scramjet.envs import load_env
from scramjet.errors import ConfigError
from scramjet.policies import Policy, PolicyConfig, default_network
from tests.helpers.small_games import best_result, cells


def results_of(returns: list[list[float]], seating: list[list[int]], forfeits: list[list[bool]] | None = None):
    shape = np.shape(returns)
    return GameResults(
        seating=np.array(seating),
        returns=np.array(returns, float),
        lengths=np.ones(shape[0], np.int64),
        forfeits=np.zeros(shape, np.bool_) if forfeits is None else np.array(forfeits),
        is_cut=np.zeros(shape[0], np.bool_),
        sequences=np.arange(shape[0], dtype=np.uint64),
    )


def test_a_win_is_the_first_place_alone_and_those_who_forfeit_come_last() -> None:
    returns = [[3, 1, 2], [1, 1, 0], [0, 0, 0], [5, 1, 2]]
    forfeits = [[False] * 3, [False] * 3, [False] * 3, [True, False, False]]
    places = results_of(returns, [[0, 1, 2]] * 4, forfeits).places
    assert places.tolist() == [[1, 3, 2], [1, 1, 3], [1, 1, 1], [3, 2, 1]]
    results = results_of([[1, -1], [-1, 1], [0, 0], [1, -1]], [[0, 1], [0, 1], [1, 0], [1, 0]])
    assert results.score(0) == Score(wins=1, draws=1, losses=2)
    assert results.score(1) == Score(wins=2, draws=1, losses=1)
    assert results.score(0, seat=1) == Score(wins=0, draws=1, losses=1)
    assert results.score(0).points == 1.5 / 4
    three = results_of([[2, 2, 1], [3, 2, 1]], [[0, 1, 2]] * 2)
    assert [three.score(player) for player in range(3)] == [Score(1, 1, 0), Score(0, 1, 1), Score(0, 0, 2)]


def test_the_ends_of_the_interval_are_where_the_share_is_just_as_far_as_chance_goes() -> None:
    for successes, trials in ((0, 10), (3, 10), (10, 10), (480, 1000), (999, 1000)):
        share = successes / trials
        for end in wilson_interval(successes, trials):
            deviation = np.sqrt(end * (1 - end) / trials)  # the definition: |share - p| = z sqrt(p (1 - p) / n)
            assert abs(share - end) == pytest.approx(NORMAL_95 * deviation, abs=1e-12), (successes, trials)
    assert wilson_interval(0, 0) == (0.0, 1.0)  # nothing is known without games
    assert Score(0, 0, 0).as_dict()["wins_interval"] == [0.0, 1.0]


@pytest.fixture(scope="module")
def tree() -> GameTree:
    return game_tree(load_env("tic_tac_toe"))


def test_tic_tac_toe_is_solved_as_another_search_solves_it(tree: GameTree) -> None:
    found = best_play(tree)
    assert len(tree.seat) == 5478 - 958  # all positions but those in which the game is over
    assert found.values[0].tolist() == [0, 0]
    for place in range(0, len(tree.seat), 7):
        own, other = map(cells, tree.obs[place])
        assert found.values[place, tree.seat[place]] == best_result(own, other)
        for cell in np.flatnonzero(tree.mask[place]):
            assert found.moves[place, cell] == -best_result(other, own | 1 << int(cell))
    assert (found.moves[~tree.mask] == -np.inf).all()


def test_best_play_never_loses_and_one_mistake_is_found(tree: GameTree) -> None:
    found = best_play(tree)
    actions = found.moves.argmax(axis=1)
    assert worst_returns(tree, actions).tolist() == [0, 0]
    assert found.keeps_value[np.arange(len(actions)), actions].all()
    corner = next(  # seat 0 has begun in a corner: only the centre saves seat 1
        place for place in range(*tree.levels[1].indices(len(actions))) if tree.obs[place, 1, 0, 0] == 1
    )
    assert np.flatnonzero(found.keeps_value[corner]).tolist() == [4]
    actions[corner] = 1
    assert worst_returns(tree, actions).tolist() == [0, -1]
    small = game_tree(load_env("connect_four", rows=2, cols=3, connect=2), backend="interpreted")
    assert best_play(small).values[0].tolist() == [1, -1]  # the second piece of the first side makes a pair


def test_games_that_cannot_be_listed_are_refused() -> None:
    for world, parameters, message in (
        ("cartpole", {}, "CartPole cannot be listed: that needs seats"),
        ("tic_tac_toe", {"opening_plies": 3}, "TicTacToe begins at random; set its parameters"),
        ("connect_four", {"random_opponent": True}, "ConnectFour begins at random"),
    ):
        with pytest.raises(ConfigError, match=message):
            game_tree(load_env(world, **parameters), backend="interpreted")


def uniform(obs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return mask / mask.sum(axis=1, keepdims=True)


def test_random_play_is_exploited_by_the_published_amount() -> None:
    for world, parameters, nash_conv, num_info_sets in (
        ("kuhn", {}, 11 / 12, 12), ("kuhn", {"players": 3}, 2.0625, 48), ("leduc", {}, 4.747222222222222, 288),
    ):  # fmt: skip
        env = load_env(world, **parameters)
        assert len(card_game(env).first) == num_info_sets
        assert exploitability(uniform, env) == pytest.approx(nash_conv / env.num_seats), (world, parameters)


def kuhn_equilibrium(alpha: float, calls: float = 1 / 3):
    """Kuhn's equilibria: the first player bluffs with the jack with probability alpha from 0 to 1/3, and the second
    calls with the queen with probability 1/3."""
    bets = {  # probability of betting or calling by (card, history)
        (0, ""): alpha, (1, ""): 0.0, (2, ""): 3 * alpha,
        (0, "pb"): 0.0, (1, "pb"): alpha + 1 / 3, (2, "pb"): 1.0,
        (0, "p"): 1 / 3, (1, "p"): 0.0, (2, "p"): 1.0,
        (0, "b"): 0.0, (1, "b"): calls, (2, "b"): 1.0,
    }  # fmt: skip

    def probabilities(obs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        rows = []
        for seen in obs:
            plies = seen[3:].reshape(3, 2)
            history = "".join("pb"[ply.argmax()] for ply in plies if ply.any())
            bet = bets[int(seen[:3].argmax()), history]
            rows.append([1 - bet, bet])
        return np.array(rows)

    return probabilities


def test_the_equilibria_of_kuhn_poker_cannot_be_exploited_and_cost_the_first_player_an_eighteenth() -> None:
    game = card_game(load_env("kuhn"))
    for alpha in (0.0, 0.2, 1 / 3):
        result = responses(game, game.probabilities(kuhn_equilibrium(alpha)))
        assert result.exploitability == pytest.approx(0, abs=1e-12), alpha
        assert result.values == pytest.approx([-1 / 18, 1 / 18]), alpha
    for calls in (0.2, 0.5):  # too seldom or too often
        result = responses(game, game.probabilities(kuhn_equilibrium(0.2, calls)))
        assert result.best[0] > result.values[0] + 0.01  # by the first player, who need not be balanced any more


def test_a_best_response_is_the_best_of_all_pure_strategies() -> None:
    """All 64 pure strategies of each seat in Kuhn poker, tried one after the other."""
    game = card_game(load_env("kuhn"))
    random = np.random.default_rng(0)
    bet = random.random(12)
    policy = np.stack([1 - bet, bet], axis=1)
    result = responses(game, policy)
    for seat in range(2):
        own = np.flatnonzero(game.tree.seat[game.first] == seat)
        returns = []
        for choices in product((0, 1), repeat=len(own)):
            tried = policy.copy()
            tried[own] = np.eye(2)[list(choices)]
            returns.append(responses(game, tried).values[seat])
        assert result.best[seat] == pytest.approx(max(returns))


def test_a_network_is_asked_for_the_probabilities_that_it_draws_actions_with() -> None:
    env = load_env("leduc")
    network = default_network(env.observation_space, env.action_space, PolicyConfig(hidden=(16,)))
    policy = Policy(network, env.observation_space, env.action_space)
    game = card_game(env)
    probabilities = game.probabilities(policy)
    assert (probabilities[~game.tree.mask[game.first]] == 0).all()
    assert 0 < responses(game, probabilities).exploitability < 5
    obs, mask = game.tree.obs[game.first][:1], game.tree.mask[game.first][:1]
    drawn = policy.act(np.repeat(obs, 4000, 0), mask=np.repeat(mask, 4000, 0), generator=torch.Generator())
    shares = np.bincount(drawn.numpy(), minlength=3) / 4000
    assert policy_probabilities(policy, obs, mask)[0] == pytest.approx(shares, abs=0.05)
    with pytest.raises(ConfigError, match=r"must be \[288, 3\], add up to 1 in each row and be 0 where an action"):
        game.probabilities(lambda obs, mask: np.full(mask.shape, 1 / 3))
