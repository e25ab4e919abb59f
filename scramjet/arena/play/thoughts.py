"""What is known of a position: how likely a policy would make each legal move, what result it expects, and what perfect
play says where a solver knows the world and answers at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.arena.play.moves import Move, Moves
from scramjet.arena.solver.perfect_player import best_moves_in, opening_book
from scramjet.arena.solver.solver import Position, Solver, in_words, is_usual_board
from scramjet.engine.actions import random_actions
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Env
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.training.checkpoint_config import reward_divisor_of
from scramjet.training.rollout.recurrent_states import RecurrentStates

# --- by a network

TRIAL_GAMES = 64
TRIAL_STEPS = 300


@dataclass(frozen=True, slots=True)
class Thoughts:
    """What a policy thinks of the position before a move."""

    player: int
    """The seat or agent to move, counted from 0."""
    moves: tuple[Move, ...]
    """The legal moves."""
    probabilities: tuple[float, ...]
    """How likely the policy makes each of them when it draws moves as in training; they sum to 1."""
    value: float
    """The return that the policy expects for the player from here, discounted as in training."""
    chances: float | None
    """The value brought from -1 (lost) .. 1 (won) to 0 .. 1, a draw counting half; None where the world's games end in
    other numbers."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        each = zip(self.moves, self.probabilities, strict=True)
        return {
            "player": self.player,
            "moves": [{**move.as_dict(), "probability": probability} for move, probability in each],
            "value": self.value,
            "chances": self.chances,
        }


class Adviser:
    """A policy that follows one game and says what it would do in the place of whoever is to move.

    Like a policy that plays against itself it keeps a memory of its own for each seat, also for those that somebody
    else plays.
    """

    def __init__(self, policy: Policy, name: str, reward_scale: float = 1.0) -> None:
        self.name = name
        self._policy = policy
        self._reward_scale = reward_scale
        self._turn = torch.zeros(0)

    def begin(self, pool: Pool) -> None:
        """Forget everything: a game of this pool begins."""
        self._recurrent = RecurrentStates.of(self._policy, pool)

    def think(self, seen: Transition, row: int, player: int, moves: Moves, *, win_or_lose: bool) -> Thoughts:
        """What the policy thinks of the moves of `player`, whose row of the pool is `row`; changes nothing."""
        mask = seen.mask[row]
        numbers = np.flatnonzero(moves.legal(mask))
        output = self._output(seen)
        logits = output.logits[row].expand(len(numbers), -1)
        legal = torch.from_numpy(mask).expand(len(numbers), -1) if mask.size else None
        actions = torch.from_numpy(np.ascontiguousarray(moves.actions[numbers]))
        log_prob, _ = self._policy.distribution.log_prob_and_entropy(logits, actions, legal)
        value = float(output.value[row]) * self._reward_scale
        return Thoughts(
            player=player,
            moves=tuple(moves[int(number)] for number in numbers),
            probabilities=tuple(log_prob.double().exp().tolist()),
            value=value,
            chances=min(1.0, max(0.0, (1.0 + value) / 2)) if win_or_lose else None,
        )

    def suggest(self, seen: Transition, row: int) -> tuple[np.ndarray, float]:
        """The policy's most likely action in a row of the pool, as envs take it, and the return that it expects."""
        output = self._output(seen)
        mask = torch.from_numpy(seen.mask[row : row + 1]) if seen.mask.shape[1] else None
        action = self._policy.distribution.mode(output.logits[row : row + 1], mask)
        chosen = self._policy.distribution.env_action(action)[0]
        return chosen.numpy(), float(output.value[row]) * self._reward_scale

    def watch(self, seen: Transition) -> None:
        """Take in what the players to move see, before they move."""
        self._turn = torch.from_numpy(seen.turn.copy())
        if self._recurrent.is_used:
            state = self._output(seen).state
            assert state is not None
            self._recurrent.movers.copy_(state)
            self._recurrent.keep_movers(self._turn)

    def see(self, out: Transition) -> None:
        """Take in the results of a step: memories of a game that ended are forgotten."""
        self._recurrent.reset_ended(self._turn, out.terminated, out.truncated)

    def memory(self) -> Tensor:
        """A copy of what it remembers."""
        return self._recurrent.states.clone()

    def recall(self, memory: Tensor) -> None:
        """Remember what `memory` held, and nothing else."""
        self._recurrent.states.copy_(memory)

    @torch.inference_mode()
    def _output(self, seen: Transition) -> Any:
        """Logits, value and memory of all rows."""
        obs = map_leaves(lambda leaf: torch.from_numpy(leaf.copy()), seen.obs)
        turn = torch.from_numpy(seen.turn.copy())
        return self._policy(obs, self._recurrent.of_movers(turn))


def reward_scale(checkpoint: Checkpoint) -> float:
    """What the values of a checkpoint's policy are multiplied with to be returns: rewards were divided by it."""
    return reward_divisor_of(checkpoint) or 1.0


def ends_in_win_or_loss(env: Env) -> bool:
    """Whether each of some games played at random ended in -1, 0 or 1 for every player."""
    pool = NativePool(env, TRIAL_GAMES, num_threads=1)
    out, random = pool.reset(0), np.random.default_rng(0)
    returns: set[float] = set()
    for _ in range(TRIAL_STEPS):
        out = pool.step(random_actions(pool, out, random))
        returns |= set(pool.episodes().returns.tolist())
    return bool(returns) and returns <= {-1.0, 0.0, 1.0} and min(returns) < 0


# --- by perfect play

MOST_CELLS_LEFT = 30
"""Free cells of a Connect Four board up to which the scores of all moves take about a second at most."""


def book_moves(env: Env, s: Any) -> list[int]:
    """The best moves of an early position of Connect Four on 6 x 7, as the opening book has them; else none."""
    if not is_usual_board(env):
        return []
    return best_moves_in(opening_book(), Position.from_pieces(s.pieces[::-1] if s.turn else s.pieces)) or []


class PerfectHints:
    """Judges the moves of Connect Four by a solver; has nothing to say about other worlds, and early in a game."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._solver: Solver | None = None

    @property
    def knows_world(self) -> bool:
        """Whether it ever has something to say in this world."""
        return isinstance(self._env, ConnectFour) and self._env.connect == 4

    def verdicts(self, s: Any) -> dict[int, str]:
        """Each legal move of the side to move in the record `s`, by number, in words such as "a win in 3 plies".

        Empty where the world is not known, or where the answer would take long.
        """
        env = self._env
        if not isinstance(env, ConnectFour) or env.connect != 4 or env.rows * env.cols - s.moves > MOST_CELLS_LEFT:
            return {}
        try:
            position = Position.from_pieces(s.pieces[::-1] if s.turn else s.pieces)
        except ConfigError:  # a board that the solver does not know
            return {}
        if self._solver is None:
            self._solver = Solver(env.rows, env.cols)
        scores = self._solver.scores_of_moves(position)
        return {column: in_words(score, position) for column, score in enumerate(scores) if score is not None}
