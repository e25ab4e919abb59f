"""The league of a run: the members of its pool, our results against them, who plays next, and how strong we are.

After each rollout results are counted; after each update a snapshot may enter, and now and then other opponents are
drawn. The rating of the policy follows from its recent games against members, whose own ratings are what the policy had
when they entered; the first policy, or random moves, stand at 1000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scramjet.algorithms.intervals import CONFIDENCE
from scramjet.algorithms.ratings import ANCHOR_RATING, performance_rating
from scramjet.errors import CheckpointError, shortened
from scramjet.policies.policy import Policy
from scramjet.selfplay.config import Selection, SelfPlayConfig
from scramjet.selfplay.members import Member, MemberFiles, plain_weights
from scramjet.training.rollout.rollout import Outcome, Rollout
from scramjet.training.self_play.exploiter import Exploiter
from scramjet.training.self_play.opponents import Group, Opponent, Opponents

GAMES_TO_RATE = 50
"""Games after which a member that was given is rated, by our rating then."""
GAMES_COMPARED = 1000
"""Newest games of a rollout among which distinct ones are counted."""


class League:
    """Members, results, ratings; decides who plays in the envs of one or more pools."""

    def __init__(
        self,
        config: SelfPlayConfig,
        policy: Policy,
        opponents: Sequence[Opponents],
        given: Sequence[Member],
        files: MemberFiles,
        metadata: Callable[[], Mapping[str, Any]],
        *,
        seed: int,
        exploiter: Exploiter | None = None,
    ) -> None:
        """`opponents`: of each pool that trains. `given`: members that the user gave. `metadata` describes the policy
        for a file of its own. `exploiter`: a learner that only has to beat the policy, if there is one."""
        self.config, self._policy, self._opponents, self.files = config, policy, opponents, files
        self._metadata, self.exploiter = metadata, exploiter
        self.members: list[Member] = list(given)
        """In the order of entry; those that have left the pool stay until their last games are over."""
        self.num_entered = len(given)
        self.rating, self.rating_error = ANCHOR_RATING, math.inf
        self.generator = torch.Generator().manual_seed(seed)
        """Draws opponents."""
        self._recent = {outcome: 0.0 for outcome in Outcome}  # games against the pool, older ones counted less
        self._num_distinct, self._num_compared = 0, 0

    @property
    def pool(self) -> list[Member]:
        """The members that opponents are drawn from, in the order of entry."""
        return [member for member in self.members if not member.has_left]

    def begin(self, step: int) -> None:
        """Begin the first games: the first policy enters, and opponents are drawn."""
        for member in self.members:
            if member.kind == "given":
                member.digest = self.files.save(member, self._metadata())
        if self.config.pool_fraction:
            self.enter("self", step, plain_weights(self._policy.state_dict()), rating=ANCHOR_RATING)
        self._seat_first()

    def _seat_first(self) -> None:
        """Seat the opponents of games that all begin."""
        given = [_opponent(member) for member in self.members if member.kind in ("given", "player")]
        for each in self._opponents:
            for group in each.groups:
                if group.size.num_generations == 1:
                    group.seat_opponents(0, given)
        self._draw_opponents(is_first=True)

    def enter(self, kind: Any, step: int, weights: Mapping[str, Tensor], *, rating: float | None = None) -> Member:
        """Let a policy enter the pool: its file is on the disk when this returns."""
        name = f"step_{step}" if kind == "self" else f"exploiter_{step}"
        member = Member(self.num_entered, name, kind, step, rating=rating, weights=weights)
        member.digest = self.files.save(member, self._metadata())
        self.num_entered += 1
        self.members.append(member)
        alike = [each for each in self.pool if each.kind == kind]
        if len(alike) > self.config.pool_size:
            alike[least_missed([each.step for each in alike])].has_left = True
        return member

    def count(self, rollout: Rollout) -> None:
        """Count the games of a rollout that ended."""
        assert rollout.outcome is not None
        assert rollout.opponent is not None
        ended = rollout.outcome > 0
        kinds, counts = torch.unique(rollout.opponent[ended].long() * 4 + rollout.outcome[ended], return_counts=True)
        results: dict[int, dict[Outcome, int]] = {}
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            results.setdefault(kind // 4, dict.fromkeys(Outcome, 0))[Outcome(kind % 4)] = count
        by_number = {member.number: member for member in self.members}
        for number, of_member in results.items():
            if number in by_number:  # actors may be behind, and end games against members that are gone
                self._add_results(by_number[number], of_member)
        total = {outcome: sum(of_member[outcome] for of_member in results.values()) for outcome in Outcome}
        self._recent = self._forgetful(self._recent, total)
        self._rate()
        self._count_distinct(rollout)

    def _forgetful(self, before: Mapping[Outcome, float], added: Mapping[Outcome, int]) -> dict[Outcome, float]:
        keeps = math.exp(-sum(added.values()) / self.config.memory)
        return {outcome: keeps * before[outcome] + added[outcome] for outcome in Outcome}

    def _add_results(self, member: Member, results: Mapping[Outcome, int]) -> None:
        before = {Outcome.WIN: member.wins, Outcome.DRAW: member.draws, Outcome.LOSS: member.losses}
        after = self._forgetful(before, results)
        member.wins, member.draws, member.losses = after[Outcome.WIN], after[Outcome.DRAW], after[Outcome.LOSS]

    def _rate(self) -> None:
        """Rate the policy by its recent games, and given members that have played enough by the policy's rating."""
        rated = [member for member in self.members if member.rating is not None and member.games > 0]
        if rated:
            self.rating, self.rating_error = performance_rating(
                [member.rating or 0.0 for member in rated],
                [member.wins for member in rated],
                [member.draws for member in rated],
                [member.losses for member in rated],
                draw_parameter=0.0,
            )
        for member in self.members:
            if member.rating is None and member.games >= min(GAMES_TO_RATE, 0.5 * self.config.memory):
                odds = member.win_rate / (1 - member.win_rate)
                member.rating = self.rating - 400 * math.log10(odds)

    def _count_distinct(self, rollout: Rollout) -> None:
        assert rollout.game is not None
        ended = rollout.game[rollout.game != 0][-GAMES_COMPARED:]
        self._num_compared, self._num_distinct = len(ended), len(torch.unique(ended))

    @property
    def win_rate(self) -> float | None:
        """Our share of wins in recent games against the pool, draws counted half; None before the first."""
        games = sum(self._recent.values())
        return None if games == 0 else (self._recent[Outcome.WIN] + 0.5 * self._recent[Outcome.DRAW]) / games

    def after_update(self, update: int, step: int) -> None:
        """Let a snapshot enter if one is due, let the exploiter learn, and draw other opponents if that is due."""
        if self.is_snapshot_due(update):
            self.enter("self", step, plain_weights(self._policy.state_dict()), rating=self.rating)
        if self.exploiter is not None:
            self._exploit(self.exploiter, step)
        if update % self.config.change_every == 0:
            self._draw_opponents()
        playing = {opponent.number for each in self._opponents for group in each.groups for opponent in group.playing}
        for member in self.members:
            if member.has_left and member.number not in playing:
                self.files.release(member)
        self.members = [member for member in self.members if not member.has_left or member.number in playing]

    def _exploit(self, exploiter: Exploiter, step: int) -> None:
        """Let the exploiter learn for one update; when it is ready, its snapshot enters and it begins anew."""
        exploiter.learn(step)
        if exploiter.is_ready:
            odds = exploiter.win_rate / (1 - exploiter.win_rate)
            self.enter("exploiter", step, exploiter.weights(), rating=self.rating + 400 * math.log10(odds))
            exploiter.begin_anew()

    def is_snapshot_due(self, update: int) -> bool:
        """Whether a snapshot enters after this update: every so many updates, at a win rate, or both."""
        config = self.config
        if not config.pool_fraction or (config.snapshot_every and update % config.snapshot_every):
            return False
        if config.snapshot_win_rate is None:
            return config.snapshot_every > 0
        newest = max((member for member in self.pool if member.kind == "self"), key=_step, default=None)
        is_known = newest is None or newest.games >= min(GAMES_TO_RATE, 0.5 * config.memory)
        return is_known and (self.win_rate or 0.0) >= config.snapshot_win_rate

    def _draw_opponents(self, *, is_first: bool = False) -> None:
        """Draw the next opponents of each pool; they begin where games end, the first ones at once."""
        members, config = self.pool, self.config
        if not config.pool_fraction or not members:
            return
        probabilities = draw_probabilities(
            [member.win_rate for member in members],
            config.selection,
            exponent=config.priority_exponent,
            uniform_share=config.uniform_share,
            num_newest=config.opponents_at_once,
        )
        for each in self._opponents:
            group = each.groups[0]
            drawn = [_opponent(members[i]) for i in draw_members(probabilities, group.size.num_slots, self.generator)]
            if is_first:
                group.seat_opponents(0, drawn)
            else:
                group.waiting = drawn

    @property
    def strength(self) -> tuple[float, float] | None:
        """The rating and its lower bound, by which the best checkpoint is chosen; None before the first games."""
        if not math.isfinite(self.rating_error):
            return None
        return self.rating, self.rating - CONFIDENCE * self.rating_error

    def metrics(self) -> dict[str, float]:
        """Ratings, win rates and the variety of games, by the names of metrics."""
        games = sum(self._recent.values())
        numbers: dict[str, float | None] = {
            "self_play/rating": self.rating if math.isfinite(self.rating_error) else None,
            "self_play/rating_error": self.rating_error if math.isfinite(self.rating_error) else None,
            "self_play/win_rate": self.win_rate,
            "self_play/win_rate_worst": min((member.win_rate for member in self.pool if member.games), default=None),
            "self_play/draws": self._recent[Outcome.DRAW] / games if games else None,
            "self_play/pool": float(len(self.pool)),
            "self_play/distinct_games": self._num_distinct / self._num_compared if self._num_compared else None,
            "self_play/exploiter_win_rate": None if self.exploiter is None else self.exploiter.win_rate,
        }
        against = {f"self_play/against/{member.name}": member.win_rate for member in self.pool if member.games}
        return {name: value for name, value in {**numbers, **against}.items() if value is not None}

    def close(self) -> None:
        """Close the exploiter's envs, if there are any."""
        if self.exploiter is not None:
            self.exploiter.pool.close()

    def described(self) -> dict[str, Any]:
        """What the metadata of a checkpoint says: members and ratings, without tensors."""
        return {
            "members": [member.described() for member in self.members],
            "num_entered": self.num_entered,
            "rating": self.rating,
            "rating_error": self.rating_error if math.isfinite(self.rating_error) else None,
            "recent": [self._recent[outcome] for outcome in Outcome],
            "waiting": [
                None if group.waiting is None else [opponent.number for opponent in group.waiting]
                for each in self._opponents
                for group in each.groups
            ],
        }

    def tensors(self) -> dict[str, Tensor]:
        """The state to save in a checkpoint beside its metadata."""
        state = {"self_play/rng": self.generator.get_state()}
        for i, each in enumerate(self._opponents):
            state[f"self_play/{i}/rng"] = each.generator.get_state()
            state |= {f"self_play/{i}/{name}": tensor for name, tensor in each.tensors().items()}
        if self.exploiter is not None:
            state |= {f"exploiter/{name}": tensor for name, tensor in self.exploiter.tensors().items()}
        return state

    def restore(self, data: Any, tensors: Mapping[str, Tensor], path: Path, *, games_go_on: bool, is_own: bool) -> None:
        """Restore what `described` and `tensors` gave, which are from `path`.

        `games_go_on`: the envs are where they were, too. `is_own` is as for `Pool.restore`.
        Raises a ValueError or a KeyError for data that does not fit this run.
        """
        known = {member.number: member for member in self.members}
        self.members = [Member.from_description(each) for each in data["members"]]
        self._check_sound(data)
        for member in self.members:
            if member.kind == "player":
                if member.number not in known:
                    raise ValueError(f"the player {member.name} is not among self_play.opponents any more")
                member.player = known[member.number].player
            else:
                member.weights = self.files.load(member)
                _check_fits(member, self._policy)
        self.num_entered = int(data["num_entered"])
        self.rating = float(data["rating"])
        self.rating_error = math.inf if data["rating_error"] is None else float(data["rating_error"])
        self._recent = {outcome: float(value) for outcome, value in zip(Outcome, data["recent"], strict=True)}
        self.generator.set_state(tensors["self_play/rng"])
        if self.exploiter is not None:
            own = {name.removeprefix("exploiter/"): t for name, t in tensors.items() if name.startswith("exploiter/")}
            self.exploiter.restore(own, path, is_own=is_own)
        if not games_go_on:
            self._seat_first()
            return
        by_number = {member.number: _opponent(member) for member in self.members}
        waiting = iter(data["waiting"])
        for i, each in enumerate(self._opponents):
            self._restore_pool(f"self_play/{i}/", each, tensors, by_number)
            for group in each.groups:
                numbers = next(waiting)
                group.waiting = None if numbers is None else [by_number[number] for number in numbers]

    def _check_sound(self, data: Any) -> None:
        """Refuse numbers that no run writes; `members` are restored already."""
        numbers = [member.number for member in self.members]
        if len(set(numbers)) != len(numbers) or not isinstance(data["num_entered"], int):
            raise ValueError("two members of the pool have one number, or nobody knows how many have entered")
        if not max(numbers, default=-1) < data["num_entered"] < 2**31:
            raise ValueError(f"num_entered={shortened(data['num_entered'])} members have entered the pool")
        counts = [*data["recent"], data["rating"] + 1e6, data["rating_error"] or 0.0]
        if len(data["recent"]) != len(Outcome) or not all(0 <= float(each) < 1e12 for each in counts):
            raise ValueError("the results against the pool are out of range")
        groups = [group for each in self._opponents for group in each.groups]
        for group, waiting in zip(groups, data["waiting"], strict=True):
            if waiting is not None and (len(waiting) != group.size.num_slots or not set(waiting) <= set(numbers)):
                raise ValueError("those who wait for their games are not members of the pool")

    def _restore_pool(
        self, prefix: str, opponents: Opponents, tensors: Mapping[str, Tensor], by_number: Mapping[int, Opponent]
    ) -> None:
        """Restore the games and opponents of one pool."""
        opponents.generator.set_state(tensors[f"{prefix}rng"])
        for name, tensor in opponents.tensors().items():
            saved = tensors[prefix + name]
            if saved.shape != tensor.shape or saved.dtype != tensor.dtype:
                raise ValueError(f"{prefix}{name} is {list(saved.shape)} of {saved.dtype}")
            tensor.copy_(saved)
        for group in opponents.groups:
            _check_games(group)
            for generation, numbers in enumerate(group.members.tolist()):
                if -1 not in numbers:
                    group.seat_opponents(generation, [by_number[number] for number in numbers])


def _check_games(group: Group) -> None:
    """Refuse restored games with a seat or generation that there is not, or played by nobody."""
    generations, players = group.size.num_generations, group.pool.num_players
    for name, bound in (("learner_seat", players), ("generation", generations), ("newest", generations)):
        tensor = getattr(group, name)
        if bool(((tensor < 0) | (tensor >= bound)).any()):
            raise ValueError(f"{name} of a game is out of range")
    played = {*group.generation.unique().tolist(), int(group.newest)}
    if any(-1 in group.members[generation].tolist() for generation in played):
        raise ValueError("a game is played against nobody")


def _opponent(member: Member) -> Opponent:
    return Opponent(member.number, member.weights, member.player)


def _step(member: Member) -> int:
    return member.step


def _check_fits(member: Member, policy: Policy) -> None:
    """Refuse a member whose tensors differ in name or shape from the policy's."""
    own = policy.state_dict()
    if member.weights is None or {name: t.shape for name, t in own.items()} != {
        name: t.shape for name, t in member.weights.items()
    }:
        raise CheckpointError(
            f"the opponent {member.name} has another network than this run; give one of the same shape"
        )


# --- who is drawn as an opponent, and who stays


def draw_probabilities(
    win_rates: Sequence[float], selection: Selection, *, exponent: float, uniform_share: float, num_newest: int
) -> Tensor:
    """The probability of each member, oldest first, to be drawn as the next opponent, [members] float64.

    "prioritized" draws what still beats us: in proportion to (1 - win rate)^exponent, mixed with `uniform_share` of
    uniform draws (prioritized fictitious self-play, Vinyals et al. 2019). "newest" draws among the last `num_newest`.
    """
    count = len(win_rates)
    uniform = torch.full((count,), 1 / count, dtype=torch.float64)
    if selection == "uniform":
        return uniform
    if selection == "newest":
        newest = torch.zeros(count, dtype=torch.float64)
        newest[-num_newest:] = 1 / min(num_newest, count)
        return newest
    beats_us = (1 - torch.tensor(win_rates, dtype=torch.float64)).clamp(min=0) ** exponent
    total = float(beats_us.sum())
    if total <= 0:  # we always win
        return uniform
    return (1 - uniform_share) * beats_us / total + uniform_share * uniform


def draw_members(probabilities: Tensor, count: int, generator: torch.Generator) -> list[int]:
    """Draw `count` members, distinct while there are enough of them; those drawn twice fill up the rest."""
    possible = int((probabilities > 0).sum())
    drawn: list[int] = torch.multinomial(probabilities, min(count, possible), generator=generator).tolist()
    while len(drawn) < count:
        drawn += torch.multinomial(probabilities, 1, generator=generator).tolist()
    return drawn


def least_missed(steps: Sequence[int]) -> int:
    """Which of the snapshots, made at these steps in order, to drop so that those that stay are spread most evenly.

    The first and the last one stay: of the others the one whose neighbours are closest to each other goes.
    """
    if len(steps) < 3:
        return 0
    gaps = [steps[i + 1] - steps[i - 1] for i in range(1, len(steps) - 1)]
    return 1 + gaps.index(min(gaps))
