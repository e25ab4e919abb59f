"""Players that follow a rule, and players by name: `random`, `greedy`, `minimax:3`, a user's own, a run with a search.

Greedy and minimax players look ahead with `Pool.simulate`, many positions at a time. They see the whole state of a
game, hidden cards included, but no random draw that is still to come: the copies they play on draw other numbers.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scramjet.adapters.factories import functions_of, module_at
from scramjet.adapters.world_code import NamedCode, find_in_current_folder
from scramjet.engine.actions import random_actions
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool, is_whole
from scramjet.engine.transition import Transition
from scramjet.engine.trees import hash_rows
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.envs.api import Discrete
from scramjet.errors import ConfigError, PlayerError, WorldError, did_you_mean, shortened
from scramjet.players.player import Player, UserPlayer, blamed_on
from scramjet.search.specs import SearchSpec, parse_search, split_player

# --- players that follow a rule

MAX_DEPTH = 10
MAX_POSITIONS = 1 << 16
"""Positions that are simulated at once; more are looked at in parts, so that memory stays bounded."""
PATIENCE = 1.0 - 1e-6
"""What a reward counts one move later: enough to win soon rather than late, too little to change anything else."""

HISTORY = ("_seed", "_index", "_episode", "_draw", "_return", "_returns")
"""Fields of a record that say how a position came about, and nothing about what can follow."""


class RandomPlayer(Player):
    """Takes any legal action, each as likely."""

    name = "random"

    def begin(self, pool: Pool) -> None:
        self._pool = pool

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return random_actions(self._pool, seen, generator, rows)


@dataclass(frozen=True, slots=True)
class Moves:
    """All legal moves from some positions, C of them, and what came of each."""

    legal: np.ndarray  # [positions, actions] bool
    parents: np.ndarray  # [C], the position that each move starts from
    actions: np.ndarray  # [C]
    states: np.ndarray  # [C], records after the moves
    out: Transition  # of C envs
    goes_on: np.ndarray  # [C] bool, whether the game does


class LookAheadPlayer(Player):
    """A player that tries moves out with `Pool.simulate`."""

    def begin(self, pool: Pool) -> None:
        self._pool = _searchable(pool, self.name)

    def _moves(self, states: np.ndarray, mask: np.ndarray, generator: np.random.Generator) -> Moves:
        """Play every legal move from these positions; `mask` is that of their movers."""
        legal = mask if mask.shape[1] else np.ones((len(states), int(self._pool.action_space.n)), np.bool_)
        parents, actions = np.nonzero(legal)
        before = states[parents]
        before["_seed"] = generator.integers(-(2**63), 2**63 - 1, len(before))  # not what the game will draw
        after, out = self._pool.simulate(before, actions)
        return Moves(legal, parents, actions, after, out, ~(out.terminated | out.truncated))

    def _scores(self, states: np.ndarray) -> np.ndarray:
        """How good positions look for each seat, [positions, seats]; zeros where the world has no `score`."""
        if hasattr(self._pool.env, "score"):
            return np.asarray(self._pool.scores(states), np.float64)
        return np.zeros((len(states), self._pool.num_players))


class GreedyPlayer(LookAheadPlayer):
    """Takes the action with the highest reward at once, then the one with the highest `score` of the position after it.

    A position that ends the game has a score of 0. Ties are broken at random.
    """

    name = "greedy"

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        moves = self._moves(self._pool.states()[rows], seen.mask[rows], generator)
        each, movers = np.arange(len(moves.actions)), seen.turn[rows][moves.parents]
        rewards, scores = np.full(moves.legal.shape, -np.inf), np.zeros(moves.legal.shape)  # [M, A]
        rewards[moves.parents, moves.actions] = moves.out.reward[each, movers]
        scores[moves.parents, moves.actions] = self._scores(moves.states)[each, movers] * moves.goes_on
        is_best = rewards == rewards.max(1, keepdims=True)
        return _best_actions(np.where(is_best, scores, -np.inf), generator)


class MinimaxPlayer(LookAheadPlayer):
    """Looks `depth` moves ahead, and takes the action that is best for it if every seat does the best for itself.

    An action is worth the rewards on the way and, where the world has a `score`, that of the last position. With two
    seats that play for the opposite, this is minimax; with more, each seat maximizes its own (Luckhardt and Irani 1986,
    "max^n"). Ties are broken at random.
    """

    def __init__(self, depth: int) -> None:
        if not is_whole(depth) or not 1 <= depth <= MAX_DEPTH:
            raise ConfigError(f"minimax:{shortened(depth)} must look 1 to {MAX_DEPTH} moves ahead, as minimax:3 does")
        self.depth = depth
        self.name = f"minimax:{depth}"

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        values = self._values(self._pool.states()[rows], seen.mask[rows], self.depth, generator)  # [M, A, S]
        return _best_actions(_of_movers(values, seen.turn[rows]), generator)

    def _values(self, states: np.ndarray, mask: np.ndarray, depth: int, generator: np.random.Generator) -> np.ndarray:
        """What each action is worth to each seat, [positions, actions, seats]; -inf where it is illegal."""
        kept, same = _distinct(states)
        if len(kept) < len(states):
            return np.asarray(self._values(states[kept], mask[kept], depth, generator)[same])
        most = max(1, MAX_POSITIONS // int(self._pool.action_space.n))
        if len(states) > most:
            parts = [slice(start, start + most) for start in range(0, len(states), most)]
            return np.concatenate([self._values(states[part], mask[part], depth, generator) for part in parts])
        moves = self._moves(states, mask, generator)
        worth = moves.out.reward.astype(np.float64)  # [C, S]
        if moves.goes_on.any():
            worth[moves.goes_on] += PATIENCE * self._future(moves, depth - 1, generator)
        values = np.full((*moves.legal.shape, worth.shape[1]), -np.inf)
        values[moves.parents, moves.actions] = worth
        return values

    def _future(self, moves: Moves, depth: int, generator: np.random.Generator) -> np.ndarray:
        """What the games that go on after these moves are worth to each seat, with `depth` more moves to look ahead."""
        states, turn = moves.states[moves.goes_on], moves.out.turn[moves.goes_on]
        if depth == 0:
            return self._scores(states)
        values = self._values(states, moves.out.mask[moves.goes_on], depth, generator)
        return np.asarray(values[np.arange(len(states)), _of_movers(values, turn).argmax(1)])


def _searchable(pool: Pool, player: str) -> Any:
    """The pool, if a player can look ahead in its games; else raise a ConfigError that says why not."""
    instead = f"put another player in the place of {player}, such as random"
    if not isinstance(pool, WorldPool):
        raise ConfigError(
            f"{player} looks ahead, and {pool.name} cannot be simulated: only native worlds can; {instead}"
        )
    if pool.played_by is not PlayedBy.SEATS:
        raise ConfigError(
            f"{player} plays games in which seats take turns, and in {pool.name} all act at once; {instead}"
        )
    if not isinstance(pool.action_space, Discrete):
        raise ConfigError(
            f"{player} chooses one of several actions, and {pool.name} has {pool.action_space}; {instead}"
        )
    return pool


def _distinct(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of different positions [K], and for each position which of them it is the same as [positions].

    Games that reach a position by other moves, or that other games have reached too, need be looked at once only.
    """
    positions = np.zeros(len(states), states.dtype)  # zeros between the fields too: copies have anything there
    for name in set(states.dtype.names or ()) - set(HISTORY):
        positions[name] = states[name]
    words = positions.view(np.uint64).reshape(len(states), -1)  # the header keeps records to whole words
    _, kept, same = np.unique(hash_rows(words), return_index=True, return_inverse=True)
    return kept, same


def _of_movers(values: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """What each action is worth to the seat to move, [positions, actions]."""
    return np.asarray(values[np.arange(len(values)), :, turn])


def _best_actions(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The action of the highest value in each row [M, A], one of them at random where several are."""
    is_best = values == values.max(1, keepdims=True)
    return np.asarray((is_best * (1.0 + generator.random(values.shape))).argmax(1))


# --- players by name

USUAL_NAME = "choose"
"""The function that is meant where a file is given and nothing in it."""
SCRIPTED = ("random", "greedy", "minimax:N")
"""Names of the players that come with scramjet; N is how many moves ahead minimax looks."""

_FAMILIES = {name.partition(":")[0] for name in SCRIPTED}
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def scripted_player(spec: str) -> Player | None:
    """The player that a text names; None if the text is none of "random", "greedy", "minimax:3", "module:Name",
    "FILE.py:Name" and "FILE.py".

    The last three run the user's code: only texts that the user has given may come here, see `runs_code`.
    """
    if spec == "random":
        return RandomPlayer()
    if spec == "greedy":
        return GreedyPlayer()
    if spec == "minimax" or spec.startswith("minimax:"):
        return _minimax(spec)
    place = _place(spec)
    return None if place is None else _user_player(spec, *place)


def is_scripted(spec: str) -> bool:
    """Whether `scripted_player` would make a player of this text, or refuse it as a wrong one; nothing is loaded."""
    return spec.partition(":")[0] in _FAMILIES or runs_code(spec)


def runs_code(spec: str) -> bool:
    """Whether making this player would import a module or run a file; nothing is loaded to find out."""
    return not spec.startswith("minimax:") and _place(spec) is not None


def _minimax(spec: str) -> MinimaxPlayer:
    depth = spec.partition(":")[2]
    if not depth.isascii() or not depth.isdigit() or len(depth) > 3:
        raise ConfigError(f"{shortened(spec)} must say how many moves to look ahead: minimax:3")
    return MinimaxPlayer(int(depth))


def _place(spec: str) -> tuple[str, str] | None:
    """The module or file, and the name in it, that a text stands for; None where it stands for none."""
    if spec.endswith(".py"):
        return spec, USUAL_NAME
    where, colon, name = spec.rpartition(":")
    if not colon or not name.isidentifier():
        return None
    return (where, name) if where.endswith(".py") or _MODULE.fullmatch(where) else None


def _user_player(spec: str, where: str, name: str) -> Player:
    """The player in a module or file of the user's."""
    if where.endswith(".py") and not os.path.isfile(where):
        raise ConfigError(f"there is no file {shortened(where)} for the player {shortened(spec)}; give its path")
    if not where.endswith(".py"):
        find_in_current_folder(NamedCode(where, is_file=False))
    try:
        module = module_at(where, spec)
    except WorldError as error:
        raise PlayerError(f"player {spec}: {error}") from error
    found = getattr(module, name, None)
    if found is None:
        known = functions_of(module)
        listed = f"It has {', '.join(known[:20])}" if known else "It has no functions or classes"
        raise PlayerError(f"{shortened(where)} has no {name!r} to play.{did_you_mean(name, known)} {listed}")
    if isinstance(found, type) and issubclass(found, Player):
        with blamed_on(spec):
            found = found()
    if not isinstance(found, Player):
        return UserPlayer(found, spec)
    found.name = spec
    return found


PERFECT = "perfect"


def split_search(text: str, runs_dir: str | Path = "runs") -> tuple[str, SearchSpec | None]:
    """The run or checkpoint that a text names, and the search behind its last "@", if there is one.

    Raises a ConfigError with examples where a search is meant and misspelled: behind a run that there is, or begun
    like one.
    """
    if names_a_path(text, runs_dir):
        return text, None
    player, spec = split_player(text)
    place, at, search = text.rpartition("@")
    if player == text and at and (names_a_path(place, runs_dir) or search.lower().startswith(("alphazero", "spo"))):
        parse_search(search)
    if spec is not None and (player == PERFECT or is_scripted(player)):
        raise ConfigError(f"{shortened(text)}: only networks search, and {player} is none; give RUN@{spec.text}")
    return player, spec


def names_a_path(text: str, runs_dir: str | Path) -> bool:
    """Whether a text is a path, or a name in the folder of runs."""
    return os.path.exists(text) or (os.sep not in text and os.path.exists(os.path.join(runs_dir, text)))
