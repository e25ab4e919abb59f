"""Compiled functions about the games of a rollout: who chooses which action, how games end, who plays the next one."""

from __future__ import annotations

import numpy as np

from scramjet.compile.jit import RowKernel

HASH_FACTOR = np.int64(1099511628211)
"""The multiplier of the FNV hash."""


@RowKernel
def choose_actions(
    start: int, stop: int,
    turn: np.ndarray, learner_seat: np.ndarray, generation: np.ndarray, rows_per_env: int, by_seats: bool,
    first: np.ndarray, second: np.ndarray, mine: np.ndarray, action: np.ndarray,
) -> None:  # fmt: skip
    """Put the opponents' actions into the rows that they play, and say which rows are the learner's.

    turn [R]: the seat to move, where seats take turns; learner_seat, generation [E]: the learner's seat or agent and
    the opponents' generation in each env; first, second [R, D]: the actions of both generations; mine [R] and
    action [R, D] are written.
    """
    for row in range(start, stop):
        env = row // rows_per_env
        seat = turn[row] if by_seats else row % rows_per_env
        mine[row] = seat == learner_seat[env]
        if seat != learner_seat[env]:
            for j in range(action.shape[1]):
                action[row, j] = first[row, j] if generation[env] == 0 else second[row, j]


@RowKernel
def keep_states(
    start: int, stop: int,
    generation: np.ndarray, rows_per_env: int, first: np.ndarray, second: np.ndarray, state: np.ndarray,
) -> None:  # fmt: skip
    """Keep the recurrent states [R, S] after a step of the generation that plays in each row's env."""
    for row in range(start, stop):
        is_first = generation[row // rows_per_env] == 0
        for j in range(state.shape[1]):
            state[row, j] = first[row, j] if is_first else second[row, j]


@RowKernel
def end_games(
    start: int, stop: int,
    reward: np.ndarray, turn: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, by_seats: bool,
    draw: np.ndarray, newest: np.ndarray, members: np.ndarray, envs_per_slot: int,
    learner_seat: np.ndarray, generation: np.ndarray, earned: np.ndarray, opponent: np.ndarray, outcome: np.ndarray,
) -> None:  # fmt: skip
    """Score the games that ended in a step, and give the next ones a seat for the learner and an opponent.

    reward, earned [E, P]: of each player in this step, and so far in its game. turn [R], for agents: who was alive.
    draw [E]: a number from 0 to 1 for the next seat; newest [1]: the generation that begins new games; members
    [generations, slots]: the numbers of the opponents. opponent and outcome [R] are written in each env's first row. Of
    more than two players the learner is compared with the next one: all others are the same opponent, and among equals
    wins are as likely as losses, which they are not if the best of several counts.
    """
    num_players = reward.shape[1]
    rows_per_env = 1 if by_seats else num_players
    for env in range(start, stop):
        first, is_over = env * rows_per_env, True
        for row in range(first, first + rows_per_env):
            if (by_seats or turn[row]) and not (terminated[row] or truncated[row]):
                is_over = False
        for player in range(num_players):
            earned[env, player] += reward[env, player]
        outcome[first] = 0
        opponent[first] = -1
        if is_over:
            own, other = earned[env, learner_seat[env]], earned[env, (learner_seat[env] + 1) % num_players]
            outcome[first] = 3 if own > other else 1 if own < other else 2
            opponent[first] = members[generation[env], env // envs_per_slot]
            for player in range(num_players):
                earned[env, player] = 0.0
            learner_seat[env] = min(int(draw[env] * num_players), num_players - 1)
            generation[env] = newest[0]


@RowKernel
def hash_games(
    start: int, stop: int,
    action: np.ndarray, turn: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, rows_per_env: int,
    by_seats: bool, running: np.ndarray, game: np.ndarray,
) -> None:  # fmt: skip
    """Write a hash of all actions of each game that ended in a rollout, 0 elsewhere.

    action [T, R, D], turn [T + 1, R], terminated and truncated [T, R]; running [N]: of the games under way; game
    [T, R] is written in each env's first row.
    """
    for env in range(start, stop):
        hashed, first = running[env], env * rows_per_env
        for t in range(action.shape[0]):
            is_over = True
            for row in range(first, first + rows_per_env):
                if by_seats or turn[t, row]:
                    for j in range(action.shape[2]):
                        hashed = (hashed ^ (action[t, row, j] + 1)) * HASH_FACTOR
                    if not (terminated[t, row] or truncated[t, row]):
                        is_over = False
            game[t, first] = hashed | 1 if is_over else 0
            hashed = np.int64(0) if is_over else hashed
        running[env] = hashed
