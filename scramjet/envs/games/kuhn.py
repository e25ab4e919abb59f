"""Kuhn poker: one card each, one bet, and a bluff that pays.

Kuhn (1950), "A simplified two-person poker": with best play the first player loses 1/18 of an ante a game. For three
players: Abou Risk and Szafron (2010), "Using counterfactual regret minimization to create competitive multiplayer
poker agents".
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

PASS, BET = 0, 1  # actions: check or fold, bet or call
NOT_YET = 0  # in the history; else 1 + action
MOST_PLAYERS = 3
RANKS = "JQKA"


def first_bet(s: Any) -> int:
    """The ply at which the bet was made; -1 where nobody has bet."""
    for ply in range(s.plies):
        if s.history[ply] == 1 + BET:
            return ply
    return -1


def has_folded(s: Any, player: int) -> bool:
    """Whether a player has passed where there was a bet to call."""
    num_players = s.cards.shape[0] - 1
    bet = first_bet(s)
    for ply in range(bet + 1, s.plies):
        if bet >= 0 and ply % num_players == player:
            return s.history[ply] == 1 + PASS
    return False


def stake(s: Any, player: int) -> int:
    """What a player has put into the pot: the ante, and the bet if it bet or called."""
    num_players = s.cards.shape[0] - 1
    for ply in range(s.plies):
        if ply % num_players == player and s.history[ply] == 1 + BET:
            return 2
    return 1


def pot(s: Any) -> int:
    """All chips in the middle."""
    chips = 0
    for player in range(s.cards.shape[0] - 1):
        chips += stake(s, player)
    return chips


def is_over(s: Any) -> bool:
    """Whether everybody has checked, or answered the bet."""
    num_players = s.cards.shape[0] - 1
    bet = first_bet(s)
    return s.plies == (num_players if bet < 0 else bet + num_players)


def winner(s: Any) -> int:
    """Who has the highest card among those who have not folded."""
    best = -1
    for player in range(s.cards.shape[0] - 1):
        if not has_folded(s, player) and (best < 0 or s.cards[player] > s.cards[best]):
            best = player
    return best


class Kuhn(Env):
    """Poker with one card each and one bet, for two or three players. Rewards are chips."""

    players: int = 2

    hidden = True  # the others' cards
    action_space = Discrete(2)
    action_names = ("pass", "bet")
    stat_names = ("win", "pot")

    @property
    def num_seats(self) -> int:
        return self.players

    @property
    def most_plies(self) -> int:
        return 2 * self.players - 1

    @property
    def observation_space(self) -> Box:
        # own card one-hot, then for each ply whether it was a pass or a bet
        return Box(0, 1, (self.players + 1 + 2 * self.most_plies,), np.int8)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "cards": (np.int8, self.players + 1),  # of each player in turn, and one that nobody gets
            "history": (np.int8, self.most_plies),  # NOT_YET, or 1 + action
            "plies": np.int8,
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        return {"cards": (0, self.players), "history": (NOT_YET, 1 + BET), "plies": (0, self.most_plies - 1)}

    def reset(self, s: Any) -> None:
        for card in range(self.players + 1):
            s.cards[card] = card
        shuffle(s, s.cards)

    def deals(self) -> list[tuple[float, dict[str, Any]]]:
        """Every deal with its probability."""
        dealt = list(permutations(range(self.players + 1)))
        return [(1 / len(dealt), {"cards": cards}) for cards in dealt]

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        s.history[s.plies] = 1 + action
        s.plies += 1
        if not is_over(s):
            return False
        for player in range(self.players):
            reward[player] = -stake(s, player)
        reward[winner(s)] += pot(s)
        return True

    def seat(self, s: Any) -> int:
        return s.plies % self.players

    def observe(self, s: Any, obs: Any, player: int) -> None:
        obs[:] = 0
        obs[s.cards[player]] = 1
        for ply in range(s.plies):
            obs[self.players + 2 * ply + s.history[ply]] = 1

    def stats(self, s: Any, stats: Any, player: int) -> None:
        stats.win = 1.0 if is_over(s) and winner(s) == player else 0.0
        stats.pot = pot(s)

    def validate(self) -> None:
        if not 2 <= self.players <= MOST_PLAYERS:
            raise ValueError(f"players={self.players} must be from 2 to {MOST_PLAYERS}")

    def render(self, s: Any) -> np.ndarray:
        return self._picture(s, range(self.players))

    def render_for(self, s: Any, player: int) -> np.ndarray:
        return self._picture(s, (player,))

    def _picture(self, s: Any, open_hands: Collection[int]) -> np.ndarray:
        """The table with the cards of these players face up."""
        width = 20 + self.players * (CARD_WIDTH + 20)
        canvas = Canvas(width, CARD_HEIGHT + 70, TABLE)
        for player in range(self.players):
            left = 20 + player * (CARD_WIDTH + 20)
            card = s.cards[player] if player in open_hands else None
            draw_card(canvas, left, 20, card, has_folded(s, player))
            draw_chips(canvas, left, CARD_HEIGHT + 45, stake(s, player))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        return self._text(s, range(self.players))

    def ascii_for(self, s: Any, player: int) -> str:
        return self._text(s, (player,))

    def _text(self, s: Any, open_hands: Collection[int]) -> str:
        """The table as text, with the cards of these players."""
        words = ["check", "bet", "fold", "call"]
        bet = first_bet(s)
        told = [
            f"{1 + ply % self.players} {words[s.history[ply] - 1 + (2 if 0 <= bet < ply else 0)]}"
            for ply in range(s.plies)
        ]
        cards = [RANKS[s.cards[player]] if player in open_hands else "?" for player in range(self.players)]
        hands = "  ".join(f"{1 + player}: {card}" for player, card in enumerate(cards))
        news = f"{1 + winner(s)} wins" if is_over(s) else f"{1 + s.plies % self.players} to move"
        return "\n".join([hands, f"pot {pot(s)}  {', '.join(told)}".rstrip(), news])
