"""Kuhn and Leduc poker: who gets what after every line of play, and what each seat may see."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from scramjet.envs.games.kuhn import Kuhn
from scramjet.envs.games.leduc import CALL, FOLD, RAISE, Leduc
from tests.helpers.playing import begun, episode_stats, legal, observation, play

MOVES = {"f": FOLD, "c": CALL, "r": RAISE}


def kuhn(line: str, cards: tuple[int, ...], players: int = 2) -> tuple[Kuhn, Any, list[float], bool]:
    """A game after these passes and bets, with the rewards and the end of the last."""
    env = Kuhn(players=players)
    s = begun(env, cards=cards)
    return env, s, *play(env, s, ["pb".index(letter) for letter in line])


def leduc(line: str, *cards: int) -> tuple[Leduc, Any, list[float], bool]:
    """A game after these folds, calls and raises; cards of seat 0, seat 1 and the public one."""
    env = Leduc()
    s = begun(env, cards=[*cards, *(card for card in range(6) if card not in cards)])
    return env, s, *play(env, s, [MOVES[letter] for letter in line.replace(" ", "")])


# --- Kuhn -------------------------------------------------------------------------------------------------------


def payoff(cards: tuple[int, ...], line: str, players: int) -> list[int]:
    """What the players get, told from the rules: who bets or calls puts in a second chip and stays."""
    bets = [ply % players for ply, letter in enumerate(line) if letter == "b"]
    best = max(bets or range(players), key=lambda player: cards[player])
    stakes = [2 if player in bets else 1 for player in range(players)]
    return [sum(stakes) - stakes[player] if player == best else -stakes[player] for player in range(players)]


def test_in_kuhn_all_answer_a_bet_in_turn_and_the_best_card_of_those_who_stay_wins() -> None:
    for players, deals in ((2, [(2, 0, 1), (0, 2, 1)]), (3, [(0, 1, 2, 3), (3, 1, 0, 2), (1, 3, 2, 0)])):
        answers = ["".join(letters) for letters in product("pb", repeat=players - 1)]
        lines = ["p" * players, *(f"{'p' * first}b{rest}" for first in range(players) for rest in answers)]
        for cards, line in product(deals, lines):
            env, s, _, over = kuhn(line[:-1], cards, players)
            assert not over, line
            assert env.seat(s) == (len(line) - 1) % players, line
            assert play(env, s, ["pb".index(line[-1])]) == (payoff(cards, line, players), True), line
    assert payoff((2, 0), "pbp", 2) == [-1, 1]  # by hand: the king folds
    assert payoff((2, 0), "bb", 2) == [2, -2]


def test_every_deal_of_kuhn_is_as_likely_and_a_listed_one() -> None:
    for players in (2, 3):
        env = Kuhn(players=players)
        cards = np.array([begun(env, seed).cards for seed in range(2400)])
        dealt, counts = np.unique(cards, axis=0, return_counts=True)
        deals = env.deals()
        assert sorted(map(tuple, dealt.tolist())) == sorted(fields["cards"] for _, fields in deals)
        assert [probability for probability, _ in deals] == pytest.approx([1 / len(deals)] * len(deals))
        assert counts == pytest.approx(len(cards) / len(deals), abs=5 * np.sqrt(len(cards) / len(deals)))


def test_a_seat_of_kuhn_sees_its_own_card_and_the_bets_and_nothing_of_the_others() -> None:
    for cards in ((2, 0, 1), (2, 1, 0)):
        env, s, _, _ = kuhn("pb", cards)
        assert observation(env, s, 0).tolist() == [0, 0, 1, 1, 0, 0, 1, 0, 0]  # the king; pass; bet; nothing yet
        assert observation(env, s, 1)[:3].tolist() == [int(card == cards[1]) for card in range(3)]


def test_stats_and_text_of_kuhn_tell_who_won_what() -> None:
    env, s, _, _ = kuhn("", (0, 2, 1))
    assert env.ascii(s).splitlines() == ["1: J  2: K", "pot 2", "1 to move"]
    assert env.ascii_for(s, 1).splitlines()[0] == "1: ?  2: K"
    play(env, s, [0, 1])
    before = env.render(s)
    play(env, s, [0])
    assert env.ascii(s).splitlines() == ["1: J  2: K", "pot 3  1 check, 2 bet, 1 fold", "2 wins"]
    assert (env.render(s) != before).any()  # a folded hand is grey
    assert [episode_stats(env, s, seat) for seat in (0, 1)] == [{"win": 0.0, "pot": 3}, {"win": 1.0, "pot": 3}]


# --- Leduc ------------------------------------------------------------------------------------------------------


def test_lines_of_leduc_pay_what_the_rules_say() -> None:
    for cards, line, rewards in (
        ((4, 2, 0), "cc cc", [1, -1]),  # the king is higher
        ((4, 2, 3), "cc cc", [-1, 1]),  # a pair beats it
        ((4, 5, 0), "rrc rrc", [0, 0]),  # equal ranks share
        ((0, 2, 1), "rrc rrc", [13, -13]),  # 1 + 2 * 2 + 2 * 4
        ((0, 4, 2), "rf", [1, -1]),
        ((4, 0, 2), "crf", [-1, 1]),
        ((4, 0, 2), "crrf", [3, -3]),  # the first raise was called and raised
        ((0, 4, 2), "rc rf", [3, -3]),
        ((4, 2, 0), "crc crrc", [11, -11]),
    ):
        _, _, reward, over = leduc(line, *cards)  # `play` sees to it that no earlier move ends the game
        assert (reward, over) == (rewards, True), line


def test_folding_needs_a_bet_and_a_round_has_two_raises_at_most() -> None:
    env, s, _, _ = leduc("", 4, 2, 0)
    expected = {"": "cr", "c": "cr", "cr": "fcr", "crr": "fc", "crrc": "cr", "crrcr": "fcr", "crrcrr": "fc"}
    for played, letters in expected.items():
        assert "".join("fcr"[action] for action in legal(env, s, env.seat(s))) == letters, played
        assert env.step(s, MOVES["crrcrrc"[len(played)]], np.zeros(2)) == (played == "crrcrr")


def test_what_the_mask_forbids_is_a_call() -> None:
    for illegal, line in (("f", ""), ("r", "rr")):
        (_, s, *result), (_, called, *expected) = leduc(line + illegal, 4, 2, 0), leduc(f"{line}c", 4, 2, 0)
        assert result == expected
        np.testing.assert_equal(vars(s), vars(called))


def test_the_public_card_and_the_others_card_are_not_seen_before_their_time() -> None:
    def seen(line: str, *cards: int) -> tuple[int, ...]:
        env, s, _, _ = leduc(line, *cards)
        return tuple(observation(env, s, 0).tolist())

    hidden = [(4, other, public) for other in (0, 2, 5) for public in (1, 3)]
    for line in ("", "c", "cr"):
        assert len({seen(line, *cards) for cards in hidden}) == 1, line
    assert len({seen("cc", *cards) for cards in hidden}) == 2  # one for each public rank
    assert seen("crc", 4, 0, 3) == (0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, *[0] * 8)


def test_deals_of_leduc_are_listed_with_their_probabilities() -> None:
    env = Leduc()
    ranks = np.array([begun(env, seed).cards[:3] for seed in range(4000)]) // 2
    deals = env.deals()
    assert len(deals) == 24
    assert sum(probability for probability, _ in deals) == pytest.approx(1)
    for probability, fields in deals:
        share = (ranks == np.array(fields["cards"][:3]) // 2).all(axis=1).mean()
        assert share == pytest.approx(probability, abs=5 * np.sqrt(probability / len(ranks)))


def test_stats_and_text_of_leduc_tell_the_result() -> None:
    env, s, _, _ = leduc("", 4, 2, 0)
    assert env.ascii(s).splitlines() == ["1: K  2: Q  public: ?", "stakes 1 and 1", "1 to move"]
    assert env.ascii_for(s, 0).splitlines()[0] == "1: K  2: ?  public: ?"
    face_down = env.render(s)
    play(env, s, [MOVES[letter] for letter in "rccr"])
    bets = "stakes 3 and 7  raise, call | call, raise"
    assert env.ascii(s).splitlines() == ["1: K  2: Q  public: J", bets, "1 to move"]
    assert (env.render(s) != face_down).any()
    play(env, s, [FOLD])
    assert env.ascii(s).endswith("1 folds")
    assert episode_stats(env, s, 0) == {"win": 0.0, "draw": 0.0, "pot": 10, "folded": 1.0}
    assert episode_stats(env, s, 1) == {"win": 1.0, "draw": 0.0, "pot": 10, "folded": 0.0}
