"""How strong a policy is in a game for several: while it trains it plays random moves and its own first self.

The return tells nothing there, since what one seat wins another loses. These games draw random numbers of their own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from scramjet.algorithms.intervals import lower_bound
from scramjet.engine.actions import random_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.errors import CheckpointError
from scramjet.policies.policy import Policy
from scramjet.runs.results import Best
from scramjet.selfplay.members import Member, MemberFiles, plain_weights
from scramjet.training.evaluator import Player, steps_at_most

OPPONENTS = ("random", "first")
"""Random moves, and the policy as it was when it first played these games: the ends of the metrics' names."""
STEPS_FOR_ONE = 128
"""Steps of training for each step of these games, at least: they take 1 to 2 % of the time of fast worlds."""
SHORT = 5.0
"""Steps of games that take no less time if they are shorter."""


@dataclass(frozen=True, slots=True)
class WinRates:
    """What a policy won of its games against each opponent, a draw counted half."""

    random: float
    first: float
    games: int
    """Games against each of them."""

    @property
    def as_best(self) -> Best:
        """The share of all these games, and what it exceeds with 95 % confidence."""
        share = (self.random + self.first) / 2
        return Best(share, lower_bound(share, math.sqrt(share * (1 - share)), 2 * self.games))


class Strength:
    """The win rates of a run's policy, and its first self; a checkpoint holds both, so that a resume goes on alike."""

    def __init__(
        self,
        pool: Pool,
        files: MemberFiles,
        metadata: Callable[[], Mapping[str, Any]],
        *,
        samples: bool,
        max_steps: int | None,
    ) -> None:
        """`pool` is for these games; `metadata` describes the policy, for the file of its first self.

        `samples` and `max_steps` are those of the evaluations.
        """
        self.pool, self._files, self._metadata = pool, files, metadata
        self._samples, self._max_steps = samples, steps_at_most(pool, max_steps) or math.inf
        self.measured_at = 0
        """The step of the last measurement, or the one that the run began at."""
        self.latest: WinRates | None = None
        """None before the first measurement."""
        self._member: Member | None = None
        self._first: Policy | None = None
        self._lasting: dict[str, Any] | None = None

    def is_due(self, step: int, games: int, mean_length: float) -> bool:
        """Whether enough was trained since the last measurement for another of so many games of this mean length."""
        return step - self.measured_at >= STEPS_FOR_ONE * len(OPPONENTS) * games * max(mean_length, SHORT)

    def measure(
        self,
        policy: Policy,
        seeds: EpisodeSeed,
        step: int,
        games: int,
        gives_up: Callable[[], bool],
        *,
        is_final: bool = False,
    ) -> WinRates | None:
        """Play so many games, or a few more, against each opponent; None if `gives_up`, asked often, returned True.

        A final measurement leaves no trace in checkpoints: a run that is trained further goes on as if it had never
        been at its end.
        """
        first, now = self._first or _copied(policy), _copied(policy)
        shares: list[np.ndarray] = []  # of each round [N]: what the policy has won in the game of each env
        with _beside_training():
            while len(shares) * self.pool.num_envs < len(OPPONENTS) * games:
                won = self._play_round(now, first, seeds.after("round", len(shares)), gives_up)
                if won is None:
                    return None
                shares.append(won)
        if is_final:
            self._lasting = self.described()
        elif self._first is None:
            member = Member(0, f"step_{step}", "first", step, weights=plain_weights(policy.state_dict()))
            member.digest = self._files.save(member, self._metadata())
            self._member, self._first = member, first
        won, opponent = np.stack(shares), self._opponent
        by_random, by_first = (float(won[:, opponent == number].mean()) for number in range(len(OPPONENTS)))
        self.latest = WinRates(by_random, by_first, games=int((opponent == 0).sum()) * len(shares))
        self.measured_at = step
        return self.latest

    @property
    def _opponent(self) -> np.ndarray:
        """The number of the opponent in each env, [N]."""
        return np.arange(self.pool.num_envs) % len(OPPONENTS)

    @property
    def _seat(self) -> np.ndarray:
        """The seat that the policy has in each env, [N]; the opponent has all others."""
        return np.arange(self.pool.num_envs) // len(OPPONENTS) % self.pool.num_players

    def _play_round(
        self, policy: Policy, first: Policy, seeds: EpisodeSeed, gives_up: Callable[[], bool]
    ) -> np.ndarray | None:
        """Play one game in each env; returns what the policy has won of it [N]: 1, a draw a half, or 0.

        A game that is too long counts as it stands.
        """
        pool, seat = self.pool, self._seat
        generator, torch_generator = np.random.default_rng(seeds.key & (2**64 - 1)), torch.Generator(policy.device)
        torch_generator.manual_seed(seeds.key)
        own = Player(pool, policy, torch_generator if self._samples else None)
        other = Player(pool, first, torch_generator)  # draws, or two policies would play the same game again and again
        by_random = self._opponent == OPPONENTS.index("random")
        returns, is_over = np.zeros((pool.num_envs, pool.num_players)), np.zeros(pool.num_envs, np.bool_)
        out, steps = pool.reset(seeds), 0
        pool.episodes()
        while not is_over.all() and steps < self._max_steps:
            if gives_up():
                return None
            actions = _by_row(own.act(out), other.act(out), out.turn != seat)
            actions = _by_row(actions, random_actions(pool, out, generator), by_random & (out.turn != seat))
            out = pool.step(actions)
            own.see(out)
            other.see(out)
            returns += np.where(is_over[:, None], 0.0, out.reward)
            is_over |= out.terminated | out.truncated
            steps += 1
        pool.episodes()
        return _won(returns, seat)

    def metrics(self) -> dict[str, float | None]:
        """The win rates of the last measurement by the names of metrics, None before the first."""
        latest = self.latest
        return {f"versus/{name}": None if latest is None else getattr(latest, name) for name in (*OPPONENTS, "games")}

    def described(self) -> dict[str, Any]:
        """What the metadata of a checkpoint says of it."""
        if self._lasting is not None:
            return self._lasting
        latest = self.latest
        return {
            "measured_at": self.measured_at,
            "latest": None if latest is None else [latest.random, latest.first, latest.games],
            "first": None if self._member is None else self._member.described(),
        }

    def restore(self, data: Any, policy: Policy) -> str:
        """Restore what `described` gave; `policy` is the run's, of which the first self has the network.

        Raises a ValueError or a KeyError for data that does not fit. Returns a note where the first self's file cannot
        be read: then the policy of the next measurement stands in for it.
        """
        self.measured_at = int(data["measured_at"])
        if data["latest"] is None or data["first"] is None:
            return ""
        random, first, games = data["latest"]
        if not (0 <= random <= 1 and 0 <= first <= 1 and 0 < int(games) < 2**31):
            raise ValueError("the win rates are out of range")
        self.latest = WinRates(float(random), float(first), int(games))
        member = Member.from_description(data["first"])
        if member.kind != "first":
            raise ValueError(f"the first self is of the kind {member.kind!r}")
        try:
            weights = self._files.load(member)
        except CheckpointError as error:
            return f"win rates against the first self begin anew ({error})"
        self._member, self._first = member, _copied(policy)
        self._first.load_state_dict(weights)
        return ""


def is_game(pool: Pool) -> bool:
    """Whether seats play against each other in a pool's world, so that returns say nothing of strength."""
    return pool.played_by is PlayedBy.SEATS and pool.num_players > 1


def _copied(policy: Policy) -> Policy:
    """A copy of a policy that only plays: neither dropout nor batch statistics know of it."""
    return copy.deepcopy(policy).requires_grad_(False).eval()


@contextmanager
def _beside_training() -> Iterator[None]:
    """Leave torch's own generator, which a user's network may draw from, as it was; use one thread.

    On a busy machine threads wait for each other longer than the work of a few games takes.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(num_threads)


def _by_row(actions: np.ndarray, others: np.ndarray, is_others: np.ndarray) -> np.ndarray:
    """The actions [N, ...], but those of the others where these are to move [N]."""
    return np.where(is_others.reshape(-1, *[1] * (actions.ndim - 1)), others, actions).astype(actions.dtype)


def _won(returns: np.ndarray, seat: np.ndarray) -> np.ndarray:
    """What the player in this `seat` [N] has won of each game by the returns [N, seats]; first with others is half."""
    own, best = returns[np.arange(len(seat)), seat], returns.max(1)
    is_shared = (returns == best[:, None]).sum(1) > 1
    return np.where(own < best, 0.0, np.where(is_shared, 0.5, 1.0))
