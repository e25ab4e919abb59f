"""What positions of a small game are worth: with best play, and against the worst that can happen to a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scramjet.arena.game_tree import OVER, GameTree


@dataclass(frozen=True, slots=True)
class BestPlay:
    """The value of every position if everybody plays best, and of every move in it."""

    values: np.ndarray  # [P, S] float64, the return of each seat from here on
    moves: np.ndarray  # [P, A] float64, the return of the seat to move after each action; -inf where illegal

    @property
    def keeps_value(self) -> np.ndarray:
        """[P, A] bool: the actions that give nothing away."""
        return np.isclose(self.moves, self.moves.max(axis=1, keepdims=True))


def best_play(tree: GameTree) -> BestPlay:
    """Solve a game in which everybody sees everything, by backward induction: each seat maximizes its own return."""
    values = np.zeros((len(tree.seat), tree.num_seats))
    moves = np.full(tree.mask.shape, -np.inf)
    for level in reversed(tree.levels):
        after = _after(tree, values, level)  # [p, A, S]
        places = np.arange(len(after))
        own = after[places, :, tree.seat[level]]  # [p, A]
        moves[level] = np.where(tree.mask[level], own, -np.inf)
        values[level] = after[places, moves[level].argmax(axis=1)]
    return BestPlay(values, moves)


def worst_returns(tree: GameTree, actions: np.ndarray) -> np.ndarray:
    """The least that each seat can come out with, averaged over the deals, [S] float64.

    The seat plays `actions` [P], one for each position, and the others whatever hurts it most: it is at least 0 in a
    game of wins and losses exactly if the player never loses.
    """
    worst = np.zeros(tree.num_seats)
    for seat in range(tree.num_seats):
        values = np.zeros((len(tree.seat), 1))
        for level in reversed(tree.levels):
            after = _after(tree, values, level, seat)[:, :, 0]  # [p, A]
            chosen = after[np.arange(len(after)), actions[level]]
            hurtful = np.where(tree.mask[level], after, np.inf).min(axis=1)
            values[level, 0] = np.where(tree.seat[level] == seat, chosen, hurtful)
        worst[seat] = tree.root_probability @ values[tree.levels[0], 0]
    return worst


def _after(tree: GameTree, values: np.ndarray, level: slice, seat: int | None = None) -> np.ndarray:
    """Reward and the value of what follows, for each action in the positions of a level, [p, A, seats]."""
    child = tree.child[level]
    reward = tree.reward[level] if seat is None else tree.reward[level][:, :, seat, None]
    return reward + np.where(child[:, :, None] == OVER, 0.0, values[child])
