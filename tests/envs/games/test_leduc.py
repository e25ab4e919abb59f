"""Leduc poker: bets, folds, pairs, and a public card that nobody sees before its round."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs.games.leduc import CALL, FOLD, RAISE, Leduc

JACKS, QUEENS, KINGS = (0, 1), (2, 3), (4, 5)
MOVES = {"f": FOLD, "c": CALL, "r": RAISE}


def deck(*first: int) -> list[int]:
    return [*first, *(card for card in range(6) if card not in first)]


def begin(env: Leduc, *cards: int):
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(0)
    s = pool.record(0)
    s.cards[:] = deck(*cards)
    return s


def legal(env: Leduc, s) -> str:
    mask = np.ones(3, bool)
    env.mask(s, mask, env.seat(s))
    return "".join(letter for letter, action in MOVES.items() if mask[action])


@pytest.mark.parametrize(
    ("cards", "line", "rewards"),
    [
        ((4, 2, 0), "cc cc", [1, -1]),  # the king is higher
        ((4, 2, 3), "cc cc", [-1, 1]),  # a pair beats it
        ((4, 5, 0), "rrc rrc", [0, 0]),  # equal ranks share
        ((0, 2, 1), "rrc rrc", [13, -13]),  # 1 + 2 * 2 + 2 * 4
        ((0, 4, 2), "rf", [1, -1]),
        ((4, 0, 2), "crf", [-1, 1]),
        ((4, 0, 2), "crrf", [3, -3]),  # the first raise was called and raised
        ((0, 4, 2), "rc rf", [3, -3]),
        ((4, 2, 0), "crc crrc", [11, -11]),
    ],
)
@pytest.mark.parametrize("backend", ["cpu", "interpreted"])
def test_lines_of_play_pay_what_the_rules_say(cards, line: str, rewards: list[int], backend) -> None:
    env = Leduc()
    pool = NativePool(env, 1, num_threads=1, backend=backend)
    pool.reset(0)
    states = pool.states()
    states["cards"][0] = deck(*cards)
    letters = line.replace(" ", "")
    for number, letter in enumerate(letters):
        states, out = pool.simulate(states, np.array([MOVES[letter]]))
        assert out.terminated[0] == (number + 1 == len(letters))
    assert out.reward[0].tolist() == rewards


def test_folding_needs_a_bet_and_a_round_has_two_raises_at_most() -> None:
    env = Leduc()
    s = begin(env, 4, 2, 0)
    expected = {"": "cr", "c": "cr", "cr": "fcr", "crr": "fc", "crrc": "cr", "crrcr": "fcr", "crrcrr": "fc"}
    played = ""
    for letter in "crrcrrc":
        assert legal(env, s) == expected[played]
        assert env.step(s, MOVES[letter], np.zeros(2)) == (played == "crrcrr")
        played += letter


def test_what_the_mask_forbids_is_a_call() -> None:
    env = Leduc()
    for illegal, line in ((FOLD, ""), (RAISE, "rr")):
        records = []
        for action in (illegal, CALL):
            s = begin(env, 4, 2, 0)
            for letter in line:
                env.step(s, MOVES[letter], np.zeros(2))
            env.step(s, action, np.zeros(2))
            records.append((s.history.tolist(), s.stakes.tolist(), s.stage, s.plies))
        assert records[0] == records[1]


def test_the_public_card_and_the_others_card_are_not_seen_before_their_time() -> None:
    env = Leduc()

    def seen(line: str, *cards: int) -> tuple[int, ...]:
        s, obs = begin(env, *cards), np.full(22, 9, np.int8)
        for letter in line:
            env.step(s, MOVES[letter], np.zeros(2))
        env.observe(s, obs, 0)
        return tuple(obs.tolist())

    hidden = [(4, other, public) for other in (0, 2, 5) for public in (1, 3)]
    for line in ("", "c", "cr"):
        assert len({seen(line, *cards) for cards in hidden}) == 1
    assert len({seen("cc", *cards) for cards in hidden}) == 2  # one for each public rank
    assert seen("crc", 4, 0, 3) == (0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, *[0] * 8)


def test_deals_are_listed_with_their_probabilities() -> None:
    env = Leduc()
    pool = NativePool(env, 6000, num_threads=1)
    pool.reset(0)
    ranks = pool.states()["cards"][:, :3] // 2
    deals = env.deals()
    assert len(deals) == 24
    assert sum(probability for probability, _ in deals) == pytest.approx(1)
    for probability, fields in deals:
        share = (ranks == np.array(fields["cards"][:3]) // 2).all(axis=1).mean()
        assert share == pytest.approx(probability, abs=5 * np.sqrt(probability / 6000))


def test_stats_and_text_tell_the_result() -> None:
    env = Leduc()
    pool = NativePool(env, 1, num_threads=1)
    pool.reset(0)
    pool.step(np.array([RAISE]))
    pool.step(np.array([FOLD]))
    stats = pool.episodes().stats
    assert {name: values.tolist() for name, values in stats.items()} == {
        "win": [1.0, 0.0],
        "draw": [0.0, 0.0],
        "pot": [4.0, 4.0],
        "folded": [0.0, 1.0],
    }
    s = begin(env, 4, 2, 0)
    assert env.ascii(s).splitlines() == ["1: K  2: Q  public: ?", "stakes 1 and 1", "1 to move"]
    assert env.ascii_for(s, 0).splitlines()[0] == "1: K  2: ?  public: ?"
    face_down = env.render(s)
    for letter in "rccr":
        env.step(s, MOVES[letter], np.zeros(2))
    assert env.ascii(s).splitlines() == [
        "1: K  2: Q  public: J",
        "stakes 3 and 7  raise, call | call, raise",
        "1 to move",
    ]
    assert (env.render(s) != face_down).any()
    env.step(s, FOLD, np.zeros(2))
    assert env.ascii(s).endswith("1 folds")
