"""The opponents in the envs of one pool: who plays in which env, and their actions in rollouts.

A group of envs is divided evenly among slots, each with one opponent. Opponents change at the ends of games only: a
group has two generations of opponents, an env keeps the generation that its game began with, and a third one may come
when no game of the first is left. So shapes and memory stay the same, and on the GPU all of it is part of one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.jit import RowKernel
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.engine.trees import map_leaves
from scramjet.executors.choice import choose_stack
from scramjet.executors.executor import ActStep
from scramjet.players.player import Player
from scramjet.policies.policy import Policy
from scramjet.selfplay import games
from scramjet.training.rollout.others import BoundOthers, Others
from scramjet.training.rollout.recurrent_states import RecurrentStates
from scramjet.training.rollout.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Opponent:
    """Who plays in a slot: a policy by its weights, or a scripted player."""

    number: int  # that of the pool's member
    weights: Mapping[str, Tensor] | None  # a policy's state dict; None: random moves, or those of `player`
    player: Player | None = None


@dataclass(frozen=True, slots=True)
class GroupSize:
    """Which envs of a pool a group has, and how many opponents at once."""

    first_env: int
    num_envs: int  # a multiple of the slots
    num_slots: int
    num_generations: int  # 2, or 1 if its opponents never change


class Group:
    """Some envs of a pool, neighbours, in which the learner plays one seat or agent and opponents play the others."""

    def __init__(
        self, pool: Pool, policy: Policy, size: GroupSize, num_steps: int, *, fused: bool, told: set[str]
    ) -> None:
        """`told`: the players of whose illegal moves the user has been told."""
        device, self.size, self.policy, self.pool = policy.device, size, policy, pool
        self.by_seats = pool.played_by is PlayedBy.SEATS
        self.rows_per_env = pool.num_rows // pool.num_envs
        self.envs = slice(size.first_env, size.first_env + size.num_envs)
        self.rows = slice(self.envs.start * self.rows_per_env, self.envs.stop * self.rows_per_env)
        num_rows, generations = self.rows.stop - self.rows.start, size.num_generations
        self.learner_seat = torch.zeros(size.num_envs, dtype=torch.int8, device=device)
        self.generation = torch.zeros(size.num_envs, dtype=torch.int8, device=device)
        self.newest = torch.zeros(1, dtype=torch.int8, device=device)
        self.members = torch.full((generations, size.num_slots), -1, dtype=torch.int32, device=device)
        self.earned = torch.zeros(size.num_envs, pool.num_players, device=device)
        self.recurrent = RecurrentStates(pool.played_by, num_rows, pool.num_players, policy.state_size, device)
        space = pool.observation_space
        self.stacks = [choose_stack(policy, size.num_slots, space, fused=fused) for _ in range(generations)]
        self.seated: list[list[Opponent]] = [[] for _ in range(generations)]
        self.noise = policy.distribution.noise(num_steps, num_rows, torch.Generator(device))  # [T, rows, ...]
        self.seat_draws = torch.zeros(num_steps, size.num_envs, device=device)  # [T, E]
        shape, dtype = (num_rows, *policy.distribution.action_shape), policy.distribution.action_dtype
        self.actions = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(generations)]
        self.states = [torch.zeros(num_rows, policy.state_size, device=device) for _ in range(generations)]
        self._told = told
        self.waiting: list[Opponent] | None = None
        """The opponents that come next, as soon as no game of the generation before the last is left."""

    @property
    def is_settled(self) -> bool:
        """Whether all games are played against the newest generation."""
        return bool((self.generation == self.newest).all())

    def draw_seats(self, generator: torch.Generator) -> None:
        """Draw the learner's seat or agent in the games that begin with the first rollout."""
        drawn = torch.rand(self.size.num_envs, generator=generator, device=generator.device)
        self.learner_seat.copy_((drawn * self.pool.num_players).to(torch.int8))

    def change_if_possible(self) -> None:
        """Let the waiting opponents begin in the games to come, if a generation is free for them."""
        if self.waiting is None or not self.is_settled:
            return
        place = (int(self.newest) + 1) % self.size.num_generations
        self.seat_opponents(place, self.waiting)
        self.newest.fill_(place)
        self.waiting = None

    def seat_opponents(self, generation: int, opponents: Sequence[Opponent]) -> None:
        """Put opponents into the slots of a generation."""
        self.seated[generation] = list(opponents)
        for slot, opponent in enumerate(opponents):
            self.members[generation, slot] = opponent.number
            self.stacks[generation].load(slot, opponent.weights)
            if opponent.player is not None:
                opponent.player.begin(self.pool)

    def legal_choices(
        self, player: Player, actions: np.ndarray, masks: np.ndarray, generator: np.random.Generator
    ) -> np.ndarray:
        """A scripted player's actions [M] as choices from 0 on; for each illegal one a random legal choice.

        `masks` [M, choices] are the legal ones, [M, 0] where all are. The user is told once of each player.
        """
        space = self.pool.action_space
        choices = np.asarray(actions, np.int64) - int(space.start)
        legal = masks if masks.shape[1] else np.ones((len(choices), int(space.n)), np.bool_)
        is_choice = (choices >= 0) & (choices < legal.shape[1])
        is_legal = is_choice & legal[np.arange(len(choices)), np.where(is_choice, choices, 0)]
        if not is_legal.all():
            if player.name not in self._told:
                self._told.add(player.name)
                self.pool.say(
                    f"the opponent {player.name} chose an illegal move; random legal ones are made in its place"
                )
            drawn = np.where(legal, generator.random(legal.shape), -1.0).argmax(1)
            choices = np.where(is_legal, choices, drawn)
        return choices

    @property
    def playing(self) -> list[Opponent]:
        """The opponents that play now or come next."""
        return [*(self.waiting or ()), *(opponent for row in self.seated for opponent in row)]

    @property
    def active(self) -> list[int]:
        """The generations that must act: on the GPU all of them, as recorded work is always the same."""
        if self.noise.is_cuda or not self.is_settled:
            return list(range(self.size.num_generations))
        return [int(self.newest)]


class BoundGroup:
    """A group in the buffers of one rollout."""

    def __init__(self, group: Group, acting: Rollout, rollout: Rollout, shown: Sequence[Transition]) -> None:
        self._group, self._shown = group, shown
        num_steps, rows, envs = acting.num_steps, group.rows, group.envs
        # Where actions are chosen in buffers of one step, random numbers are copied to such a buffer, too.
        self._noise_now = group.noise if acting is rollout else group.noise[:1].clone()
        self._acts = [
            stack.actions([self._act_step(acting, t, generation) for t in range(num_steps)])
            for generation, stack in enumerate(group.stacks)
        ]
        last = len(group.actions) - 1
        first, second = (_matrix(group.actions[g]) for g in (0, last))
        assert acting.mine is not None
        self._turns = [_turn_of(acting, t, rows) for t in range(num_steps)]
        self._choose = [
            _bound(
                games.choose_actions, first.shape[0], turn, group.learner_seat, group.generation, group.rows_per_env,
                group.by_seats, first, second, acting.mine[t, rows], _matrix(acting.action[t, rows]),
            )
            for t, turn in enumerate(self._turns)
        ]  # fmt: skip
        self._keep_states = _bound(
            games.keep_states, first.shape[0], group.generation, group.rows_per_env, group.states[0],
            group.states[last], group.recurrent.movers,
        )  # fmt: skip
        assert rollout.opponent is not None
        assert rollout.outcome is not None
        self._rollout = rollout
        self._end_games = [
            _bound(
                games.end_games, group.size.num_envs, rollout.reward[t].view(-1, group.pool.num_players)[envs],
                _turn_of(rollout, t, rows), rollout.terminated[t, rows], rollout.truncated[t, rows], group.by_seats,
                group.seat_draws[t], group.newest, group.members, group.size.num_envs // group.size.num_slots,
                group.learner_seat, group.generation, group.earned, rollout.opponent[t, rows],
                rollout.outcome[t, rows],
            )
            for t in range(rollout.num_steps)
        ]  # fmt: skip

    def _act_step(self, acting: Rollout, t: int, generation: int) -> ActStep:
        group, rows, policy = self._group, self._group.rows, self._group.policy
        num_rows = rows.stop - rows.start
        return ActStep(
            obs=map_leaves(lambda leaf: leaf[t, rows], acting.obs),
            mask=None if acting.mask is None else acting.mask[t, rows],
            noise=self._noise_now[t],
            action=group.actions[generation],
            log_prob=torch.zeros(num_rows, device=policy.device),
            value=None if policy.splits else torch.zeros(num_rows, device=policy.device),
            state=group.states[generation] if policy.state_size else None,
        )

    def act(self, t: int, at: Tensor | None, active: Sequence[int], generator: np.random.Generator) -> None:
        """Choose the opponents' actions of step t; `active` are the generations that play."""
        group, recurrent = self._group, self._group.recurrent
        if at is not None:
            torch.index_select(group.noise, 0, at, out=self._noise_now)
        if recurrent.is_used:
            recurrent.fetch_movers(self._turns[t])
            for generation in active:
                group.states[generation].copy_(recurrent.movers)
        for generation in active:
            self._acts[generation][t]()
            self._ask_players(t, generation, generator)
        if recurrent.is_used:
            self._keep_states()
            recurrent.keep_movers(self._turns[t])
        self._choose[t]()

    def _ask_players(self, t: int, generation: int, generator: np.random.Generator) -> None:
        """Have the scripted players of a generation choose their actions; envs are on the CPU."""
        group = self._group
        size = group.size.num_envs // group.size.num_slots * group.rows_per_env
        for slot, opponent in enumerate(group.seated[generation]):
            if opponent.player is None:
                continue
            rows = np.arange(slot * size, (slot + 1) * size)
            own, turn = rows // group.rows_per_env, self._turns[t].numpy()[rows]
            seats = turn if group.by_seats else rows % group.rows_per_env
            plays = (group.generation.numpy()[own] == generation) & (seats != group.learner_seat.numpy()[own])
            rows = rows[plays if group.by_seats else plays & turn]
            if len(rows):
                chosen = opponent.player.choose(self._shown[t], group.rows.start + rows, generator)
                masks = self._shown[t].mask[group.rows.start + rows]
                group.actions[generation].numpy()[rows] = group.legal_choices(opponent.player, chosen, masks, generator)

    def take_in(self, t: int) -> None:
        """Score the games that ended in step t, and let players forget them."""
        group = self._group
        if group.recurrent.is_used:
            rollout, rows = self._rollout, group.rows
            ended = [rollout.terminated[t, rows], rollout.truncated[t, rows]]
            terminated, truncated = ended if ended[0].is_cuda else [each.numpy() for each in ended]
            group.recurrent.reset_ended(_turn_of(rollout, t, rows), terminated, truncated)
        self._end_games[t]()


class Opponents(Others):
    """The opponents in the envs of one pool, in one or more groups."""

    def __init__(
        self, pool: Pool, policy: Policy, sizes: Sequence[GroupSize], num_steps: int, *, fused: bool, seed: int
    ) -> None:
        self.pool = pool
        told: set[str] = set()
        self.groups = [Group(pool, policy, size, num_steps, fused=fused, told=told) for size in sizes]
        self.generator = torch.Generator(policy.device).manual_seed(seed)
        """Draws the opponents' actions and the learner's seats."""
        self.running_hash = torch.zeros(pool.num_envs, dtype=torch.int64, device=policy.device)
        self.for_players = np.random.default_rng(0)
        """For scripted players; seeded anew for each rollout."""
        self.active: list[list[int]] = [group.active for group in self.groups]
        for group in self.groups:
            group.draw_seats(self.generator)

    @torch.inference_mode()
    def begin(self, num_steps: int) -> None:
        for group in self.groups:
            group.change_if_possible()
            noise, num_rows = group.noise, group.rows.stop - group.rows.start
            group.policy.distribution.noise(num_steps, num_rows, self.generator, out=noise)
            torch.rand(group.seat_draws.shape, generator=self.generator, out=group.seat_draws, device=noise.device)
        seed = torch.randint(2**62, (), generator=self.generator, device=self.generator.device)
        if any(opponent.player is not None for group in self.groups for opponent in group.playing):
            self.for_players = np.random.default_rng(int(seed))
        self.active = [group.active for group in self.groups]

    def bind(self, acting: Rollout, rollout: Rollout, shown: Sequence[Transition]) -> BoundOthers:
        return _BoundOpponents(self, acting, rollout, shown)

    def tensors(self) -> dict[str, Tensor]:
        """The state to save in a checkpoint; views of it, so that `restore` may copy into them."""
        state = {"running_hash": self.running_hash}
        for i, group in enumerate(self.groups):
            for name in ("learner_seat", "generation", "newest", "members", "earned"):
                state[f"{i}/{name}"] = getattr(group, name)
            if group.recurrent.is_used:
                state[f"{i}/memory"] = group.recurrent.states
        return state


class _BoundOpponents(BoundOthers):
    """Opponents in the buffers of one rollout."""

    def __init__(self, opponents: Opponents, acting: Rollout, rollout: Rollout, shown: Sequence[Transition]) -> None:
        self._opponents, pool = opponents, opponents.pool
        self._groups = [BoundGroup(group, acting, rollout, shown) for group in opponents.groups]
        turns = rollout.seat if rollout.alive is None else rollout.alive
        assert rollout.game is not None
        self._hash = _bound(
            games.hash_games, pool.num_envs, rollout.action.view(*rollout.action.shape[:2], -1), turns,
            rollout.terminated, rollout.truncated, pool.num_rows // pool.num_envs,
            pool.played_by is PlayedBy.SEATS, opponents.running_hash, rollout.game,
        )  # fmt: skip
        self._is_hashed = not rollout.action.is_floating_point()

    def act(self, t: int, at: Tensor | None = None) -> None:
        for group, active in zip(self._groups, self._opponents.active, strict=True):
            group.act(t, at, active, self._opponents.for_players)

    def take_in(self, t: int) -> None:
        for group in self._groups:
            group.take_in(t)

    def end(self) -> None:
        if self._is_hashed:
            self._hash()


def _matrix(actions: Tensor) -> Tensor:
    """Actions [R, ...] as a matrix [R, D], a view."""
    return actions.view(len(actions), -1)


def _turn_of(rollout: Rollout, t: int, rows: slice) -> Tensor:
    """Whose turn it is, or who is alive, before step t, of some rows."""
    turn = rollout.turn(t)
    assert turn is not None
    return turn[rows]


def _bound(kernel: RowKernel, num_rows: int, *arguments: Any) -> Callable[[], None]:
    """A call of a kernel with arguments whose addresses are looked up once, where that can be done."""
    if any(isinstance(each, Tensor) and each.is_cuda for each in arguments):
        return partial(kernel.on, num_rows, *arguments)
    arrays = (each.numpy() if isinstance(each, Tensor) else each for each in arguments)
    return partial(kernel.alone, 0, num_rows, *arrays)
