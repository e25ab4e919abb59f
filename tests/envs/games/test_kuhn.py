"""Kuhn poker: who gets what after every line of play, and what each seat may see."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.envs.games.kuhn import Kuhn
from scramjet.errors import WorldError


def begin(env: Kuhn, cards: tuple[int, ...] | None = None):
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(0)
    s = pool.record(0)
    if cards is not None:
        s.cards[:] = cards
    return s


@pytest.mark.parametrize(
    ("line", "rewards"),  # seat 0 has the king, seat 1 the jack
    [
        ("pp", [1, -1]),
        ("pbp", [-1, 1]),
        ("pbb", [2, -2]),
        ("bp", [1, -1]),
        ("bb", [2, -2]),
    ],
)
def test_every_line_of_play_of_two_pays_what_the_rules_say(line: str, rewards: list[int]) -> None:
    env = Kuhn()
    for cards, sign in (((2, 0, 1), 1), ((0, 2, 1), -1)):
        s, reward = begin(env, cards), np.zeros(2)
        for ply, letter in enumerate(line):
            assert env.seat(s) == ply % 2
            assert env.step(s, "pb".index(letter), reward) == (ply + 1 == len(line))
        folds = line.endswith("bp")
        assert reward.tolist() == (rewards if folds or sign == 1 else [-each for each in rewards])


def payoff(cards: tuple[int, ...], line: str) -> list[int]:
    """What three players get, told from the rules: who bets or calls puts in a second chip and stays."""
    bets = [player for ply, player in enumerate((0, 1, 2, 0, 1)[: len(line)]) if line[ply] == "b"]
    staying = bets or [0, 1, 2]
    best = max(staying, key=lambda player: cards[player])
    stakes = [2 if player in bets else 1 for player in range(3)]
    return [sum(stakes) - stakes[player] if player == best else -stakes[player] for player in range(3)]


def test_three_players_answer_a_bet_in_turn_and_the_best_card_of_those_who_stay_wins() -> None:
    lines = ["ppp"] + [f"{'p' * first}b{''.join(answers)}" for first in range(3) for answers in product("pb", repeat=2)]
    env = Kuhn(players=3)
    for cards in ((0, 1, 2, 3), (3, 1, 0, 2), (1, 3, 2, 0)):
        for line in lines:
            s, reward = begin(env, cards), np.zeros(3)
            ends = [env.step(s, "pb".index(letter), reward) for letter in line]
            assert ends == [False] * (len(line) - 1) + [True], line
            assert reward.tolist() == payoff(cards, line), line
            assert reward.sum() == 0


@pytest.mark.parametrize("players", [2, 3])
def test_every_deal_is_as_likely_and_a_listed_one(players: int) -> None:
    env = Kuhn(players=players)
    pool = NativePool(env, 4800, num_threads=1)
    pool.reset(0)
    dealt, counts = np.unique(pool.states()["cards"], axis=0, return_counts=True)
    deals = env.deals()
    assert sorted(map(tuple, dealt.tolist())) == sorted(fields["cards"] for _, fields in deals)
    assert sum(probability for probability, _ in deals) == pytest.approx(1)
    assert counts == pytest.approx(4800 / len(deals), abs=5 * np.sqrt(4800 / len(deals)))


def test_a_seat_sees_its_own_card_and_the_bets_and_nothing_of_the_others() -> None:
    env = Kuhn()
    seen = set()
    for cards in ((2, 0, 1), (2, 1, 0)):
        s = begin(env, cards)
        env.step(s, 0, np.zeros(2))
        env.step(s, 1, np.zeros(2))
        obs = np.full(9, 9, np.int8)
        env.observe(s, obs, 0)
        seen.add(tuple(obs.tolist()))
        env.observe(s, obs, 1)
        assert obs[:3].tolist() == [int(card == cards[1]) for card in range(3)]
    assert seen == {(0, 0, 1, 1, 0, 0, 1, 0, 0)}  # the king; pass; bet; nothing yet


def test_stats_and_text_tell_who_won_what() -> None:
    env = Kuhn()
    pool = NativePool(env, 1, num_threads=1)
    pool.reset(0)
    pool.step(np.array([1]))
    pool.step(np.array([0]))
    episodes = pool.episodes()
    assert episodes.stats["win"].tolist() == [1.0, 0.0]
    assert episodes.stats["pot"].tolist() == [3.0, 3.0]
    s = begin(env, (0, 2, 1))
    assert env.ascii(s).splitlines() == ["1: J  2: K", "pot 2", "1 to move"]
    assert env.ascii_for(s, 1).splitlines()[0] == "1: ?  2: K"
    env.step(s, 0, np.zeros(2))
    env.step(s, 1, np.zeros(2))
    before = env.render(s)
    env.step(s, 0, np.zeros(2))
    assert env.ascii(s).splitlines() == ["1: J  2: K", "pot 3  1 check, 2 bet, 1 fold", "2 wins"]
    assert (env.render(s) != before).any()  # a folded hand is grey


def test_only_two_or_three_can_play() -> None:
    with pytest.raises(WorldError, match="players=4 must be from 2 to 3"):
        load_env("kuhn", players=4)
