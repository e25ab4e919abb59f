"""Leduc poker: six cards, two rounds of bets, and a public card between them.

Southey et al. (2005), "Bayes' Bluff: Opponent Modelling in Poker".
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import permutations
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.games.card_drawing import CARD_HEIGHT, CARD_WIDTH, TABLE, draw_card, draw_chips
from scramjet.envs.rng import shuffle

FOLD, CALL, RAISE = 0, 1, 2  # actions; a call where there is nothing to call is a check
NOT_YET = 0  # in the history; else 1 + action
NOBODY = 0  # who folded is written as 1 + seat
NUM_RANKS, NUM_CARDS = 3, 6
PUBLIC = 2  # where in the deck the public card lies, after those of the seats
MOST_PLIES = 4  # of a round: check, raise, raise, call
MOST_RAISES = 2  # of a round
RAISES = (2, 4)  # chips, by round
RANKS = "JQK"


def rank(card: int) -> int:
    """The rank of a card: there are two of each."""
    return card // 2


def num_raises(s: Any) -> int:
    """How often somebody has raised in this round."""
    count = 0
    for ply in range(MOST_PLIES):
        count += s.history[s.stage, ply] == 1 + RAISE
    return count


def may_fold(s: Any, seat: int) -> bool:
    """Whether there is something to call."""
    return s.stakes[1 - seat] > s.stakes[seat]


def strength(s: Any, seat: int) -> int:
    """What a hand is worth at the end: a pair beats everything, else the higher rank."""
    own, public = rank(s.cards[seat]), rank(s.cards[PUBLIC])
    return own + (NUM_RANKS if own == public else 0)


def lead(s: Any) -> int:
    """Above 0 where seat 0 has won, below where seat 1 has; 0 where they share the pot."""
    if s.folded != NOBODY:
        return 1 if s.folded == 2 else -1
    return strength(s, 0) - strength(s, 1)


def bet(s: Any, action: int) -> bool:
    """The seat to move bets; True where that ends the game. What is not allowed is a call."""
    seat = s.plies % 2
    if (action == FOLD and not may_fold(s, seat)) or (action == RAISE and num_raises(s) == MOST_RAISES):
        action = CALL
    s.history[s.stage, s.plies] = 1 + action
    s.plies += 1
    if action == FOLD:
        s.folded = 1 + seat
        return True
    s.stakes[seat] = s.stakes[1 - seat]
    if action == RAISE:
        s.stakes[seat] += RAISES[s.stage]
        return False
    if s.plies < 2:
        return False
    if s.stage == 0:
        s.stage = 1
        s.plies = 0
        return False
    return True


class Leduc(Env):
    """Poker with six cards, two rounds of bets and a public card. Two seats; rewards are chips."""

    num_seats = 2
    hidden = True  # the other's card, and the public one before it is turned
    # own rank and the public one, one-hot; then for each ply of each round whether it was a call or a raise
    observation_space = Box(0, 1, (2 * NUM_RANKS + 2 * MOST_PLIES * 2,), np.int8)
    action_space = Discrete(3)
    action_names = ("fold", "call", "raise")
    stat_names = ("win", "draw", "pot", "folded")
    state = {
        "cards": (np.int8, NUM_CARDS),  # of seat 0, of seat 1, the public one, and what nobody gets
        "history": (np.int8, (2, MOST_PLIES)),  # by round; NOT_YET, or 1 + action
        "stage": np.int8,  # the round, 0 or 1
        "plies": np.int8,  # of this round
        "stakes": (np.int8, 2),  # chips that each seat has put in
        "folded": np.int8,  # NOBODY, or 1 + seat
    }
    state_bounds = {
        "cards": (0, NUM_CARDS - 1),
        "history": (NOT_YET, 1 + RAISE),
        "stage": (0, 1),
        "plies": (0, MOST_PLIES - 1),
        "stakes": (1, 13),
        "folded": (NOBODY, 2),
    }

    def reset(self, s: Any) -> None:
        for card in range(NUM_CARDS):
            s.cards[card] = card
        shuffle(s, s.cards)
        s.stakes[0] = 1
        s.stakes[1] = 1

    def deals(self) -> list[tuple[float, dict[str, Any]]]:
        """Every deal of ranks with its probability; which of two equal cards it is makes no difference."""
        decks: dict[tuple[int, ...], tuple[int, ...]] = {}
        counts: dict[tuple[int, ...], int] = {}
        for deck in permutations(range(NUM_CARDS)):
            ranks = tuple(rank(card) for card in deck[: PUBLIC + 1])
            decks.setdefault(ranks, deck)
            counts[ranks] = counts.get(ranks, 0) + 1
        total = sum(counts.values())
        return [(counts[ranks] / total, {"cards": deck}) for ranks, deck in decks.items()]

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        if not bet(s, action):
            return False
        if lead(s) != 0:
            winner = 0 if lead(s) > 0 else 1
            reward[winner] = s.stakes[1 - winner]
            reward[1 - winner] = -s.stakes[1 - winner]
        return True

    def seat(self, s: Any) -> int:
        return s.plies % 2

    def observe(self, s: Any, obs: Any, player: int) -> None:
        obs[:] = 0
        obs[rank(s.cards[player])] = 1
        if s.stage == 1:
            obs[NUM_RANKS + rank(s.cards[PUBLIC])] = 1
        for stage in range(2):
            for ply in range(MOST_PLIES):
                if s.history[stage, ply] > 1 + FOLD:
                    place = 2 * (MOST_PLIES * stage + ply) + s.history[stage, ply] - 1 - CALL
                    obs[2 * NUM_RANKS + place] = 1

    def mask(self, s: Any, mask: Any, player: int) -> None:
        mask[FOLD] = may_fold(s, player)
        mask[RAISE] = num_raises(s) < MOST_RAISES

    def stats(self, s: Any, stats: Any, player: int) -> None:
        result = lead(s) * (1 - 2 * player)
        stats.win = 1.0 if result > 0 else 0.0
        stats.draw = 1.0 if result == 0 else 0.0
        stats.pot = s.stakes[0] + s.stakes[1]
        stats.folded = 1.0 if s.folded == 1 + player else 0.0

    def render(self, s: Any) -> np.ndarray:
        return self._picture(s, (0, 1))

    def render_for(self, s: Any, player: int) -> np.ndarray:
        return self._picture(s, (player,))

    def _picture(self, s: Any, open_hands: Collection[int]) -> np.ndarray:
        """The table with the cards of these seats face up."""
        canvas = Canvas(40 + 3 * (CARD_WIDTH + 20), CARD_HEIGHT + 70, TABLE)
        for seat in range(2):
            left = 20 + seat * 2 * (CARD_WIDTH + 30)
            card = rank(s.cards[seat]) if seat in open_hands else None
            draw_card(canvas, left, 20, card, s.folded == 1 + seat)
            draw_chips(canvas, left, CARD_HEIGHT + 45, s.stakes[seat])
        draw_card(canvas, 50 + CARD_WIDTH, 20, rank(s.cards[PUBLIC]) if s.stage == 1 else None)
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        return self._text(s, (0, 1))

    def ascii_for(self, s: Any, player: int) -> str:
        return self._text(s, (player,))

    def _text(self, s: Any, open_hands: Collection[int]) -> str:
        """The table as text, with the cards of these seats."""
        words = ("fold", "call", "raise")
        rounds = [", ".join(words[code - 1] for code in line if code != NOT_YET) for line in s.history[: 1 + s.stage]]
        public = RANKS[rank(s.cards[PUBLIC])] if s.stage == 1 else "?"
        cards = [RANKS[rank(s.cards[seat])] if seat in open_hands else "?" for seat in range(2)]
        hands = f"1: {cards[0]}  2: {cards[1]}  public: {public}"
        bets = f"stakes {s.stakes[0]} and {s.stakes[1]}  {' | '.join(rounds)}".rstrip()
        return "\n".join([hands, bets, f"{1 + s.plies % 2} to move" if s.folded == NOBODY else f"{s.folded} folds"])
