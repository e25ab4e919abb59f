"""Pools of worlds for several: agents that act at once and die, seats that take turns; against plain Python."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.random_play import random_actions
from scramjet.envs import Env
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.pool_transitions import BACKENDS


@dataclass
class MortalGame:
    """What one game of Mortals must do, told from its env's index and episode alone."""

    index: int
    episode: int = 0
    age: int = 0
    alive: list[bool] = field(default_factory=lambda: [True] * 3)
    last: list[int] = field(default_factory=lambda: [0] * 3)
    returns: list[float] = field(default_factory=lambda: [0.0] * 3)

    def life(self, k: int) -> int:
        return 1 + (self.index + 2 * self.episode + k * self.index) % 5

    def view(self, k: int) -> list[int]:
        return [self.age, self.life(k), self.last[k], k]

    def mask(self, k: int) -> list[bool]:
        return [not (self.alive[k] and choice == (self.age + k) % 3) for choice in range(4)]


def seen_by_agents(obs: dict[str, np.ndarray], row: int) -> list[float]:
    return [*obs["me"][row].tolist(), *obs["who"][row].tolist()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_agents_die_at_their_own_steps_and_all_begin_anew_when_the_game_is_over(backend: str) -> None:
    num_envs = 6
    pool, random = pool_of(Mortals(), num_envs, backend), np.random.default_rng(3)
    assert (pool.num_rows, pool.num_players, pool.played_by) == (18, 3, PlayedBy.AGENTS)
    out, games = pool.reset(20), [MortalGame(i) for i in range(num_envs)]
    logged, ways_to_end = [], set()
    for _ in range(60):
        actions = random_actions(pool, out, random)
        out = pool.step(actions.copy())
        for i, game in enumerate(games):
            chosen = actions[3 * i : 3 * i + 3].tolist()
            game.age += 1
            game.last = chosen
            was_alive, ends, late = game.alive, chosen[0] == 3, game.age == 4
            game.alive = [was_alive[k] and game.age < game.life(k) for k in range(3)]
            for k in range(3):
                row = 3 * i + k
                paid = 10.0 * game.age + chosen[k] if was_alive[k] else 0.0
                terminated = was_alive[k] and (ends or not game.alive[k])
                truncated = was_alive[k] and late and not terminated
                game.returns[k] += paid
                assert (out.reward[row], out.terminated[row], out.truncated[row]) == (paid, terminated, truncated)
                if terminated or truncated:
                    assert seen_by_agents(out.final_obs, row) == game.view(k)
                    logged.append((i, k, game.returns[k], game.age, game.life(k), chosen[k]))
            if ends or late or not any(game.alive):
                ways_to_end.add("rules" if ends else "clock" if late and any(game.alive) else "deaths")
                games[i] = game = MortalGame(game.index, game.episode + 1)
            for k in range(3):
                row = 3 * i + k
                assert seen_by_agents(out.obs, row) == game.view(k)
                assert out.turn[row] == game.alive[k]
                assert out.mask[row].tolist() == game.mask(k)
    assert ways_to_end == {"rules", "clock", "deaths"}
    episodes = pool.episodes()
    columns = [episodes.env_ids, episodes.players, episodes.returns, episodes.lengths]
    columns += [episodes.stats["life"], episodes.stats["last"]]
    assert list(zip(*[column.tolist() for column in columns], strict=True)) == logged
    assert episodes.num_ended == len(logged) > 200
    assert len(pool.episodes()) == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_rules_pay_an_agent_after_its_death_counts_for_nothing(backend: str) -> None:
    pool = pool_of(Mortals(), 1, backend)
    pool.reset(EpisodeSeed(0, first_env=1))  # lives 1 + 1 % 5, 1 + 2 % 5, 1 + 3 % 5
    rewards, alive = [], []
    for actions in ([2, 2, 1], [2, 1, 1], [1, 1, 2]):
        out = pool.step(np.array(actions))
        rewards.append(out.reward.tolist())
        alive.append(out.turn.tolist())
    assert rewards == [[12.0, 12.0, 11.0], [22.0, 21.0, 21.0], [0.0, 31.0, 32.0]]
    assert alive == [[True, True, True], [False, True, True], [False, False, True]]
    episodes = pool.episodes()
    assert episodes.players.tolist() == [0, 1]
    assert episodes.returns.tolist() == [34.0, 64.0]
    assert episodes.lengths.tolist() == [2, 3]


class Unborn(Mortals):
    """Agent 1 is not there in the first place."""

    def alive(self, s: Any, player: Any) -> bool:
        return player != 1 and s.age < 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_agent_that_the_rules_call_dead_at_the_start_has_no_turn_and_no_episode(backend: str) -> None:
    pool = pool_of(Unborn(), 1, backend)
    assert pool.reset(0).turn.tolist() == [True, False, True]
    assert pool.step(np.array([2, 2, 1])).reward.tolist() == [12.0, 0.0, 11.0]
    pool.step(np.array([2, 2, 1]))
    assert pool.episodes().players.tolist() == [0, 2]


@dataclass
class DuelGame:
    """What one game of Duel must do, told from its env's index and episode alone."""

    index: int
    episode: int = 0
    ply: int = 0
    last: Any = 0
    returns: list[float] = field(default_factory=lambda: [0.0] * 2)

    def mover(self) -> int:
        return [0, 1, 1, 0, 1][(self.index + self.episode + self.ply) % 5]

    def pay(self, choice: int) -> tuple[list[float], bool]:
        """Rewards of both seats for the next turn, and whether it ends the game."""
        won = choice == 5 and self.ply >= 2
        mine, other = choice + 100.0 * won, -0.5 * choice
        return ([mine, other] if self.mover() == 0 else [other, mine]), won

    def view(self, seat: int) -> list[float]:
        return [seat, self.ply, self.last]

    def mask(self) -> list[bool]:
        return [choice != 2 * self.mover() + self.ply % 2 for choice in range(6)]

    def stats(self) -> tuple[float, ...]:
        return (1.0 if self.last == 5 and self.ply > 2 else 0.0,)

    @staticmethod
    def read(obs: Any, row: int) -> list[float]:
        return obs[row].tolist()


@dataclass
class TrioGame(DuelGame):
    """The same for Trio."""

    last: Any = field(default_factory=lambda: [0, 0])
    returns: list[float] = field(default_factory=lambda: [0.0] * 3)

    def mover(self) -> int:
        return [2, 2, 0, 1, 2][self.ply % 5]

    def pay(self, choice: list[int]) -> tuple[list[float], bool]:
        rewards = [0.0] * 3
        rewards[self.mover()] = -1.0 * choice[0]
        rewards[{0: 1, 1: 2, 2: 0}[self.mover()]] = 10.0 * choice[1]
        return rewards, self.ply + 1 == 2 + (self.index + 3 * self.episode) % 7

    def view(self, seat: int) -> list[float]:
        return [seat, self.ply, *self.last]

    def mask(self) -> list[bool]:
        return [True] * 3 + [choice != (self.ply + self.mover()) % 4 for choice in range(4)]

    def stats(self) -> tuple[float, ...]:
        return ()

    @staticmethod
    def read(obs: Any, row: int) -> list[float]:
        return [*obs["place"][row].tolist(), *obs["last"][row].tolist()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("world", "model", "limit"), [(Duel, DuelGame, 7), (Trio, TrioGame, 6)])
def test_seats_take_uneven_turns_and_every_one_of_them_is_paid_shown_the_end_and_logged(
    world: type[Env], model: type[DuelGame], limit: int, backend: str
) -> None:
    num_envs = 6
    pool, random = pool_of(world(), num_envs, backend), np.random.default_rng(4)
    seats = pool.num_players
    assert (pool.num_rows, seats, pool.played_by) == (num_envs, world.num_seats, PlayedBy.SEATS)
    out, games = pool.reset(30), [model(i) for i in range(num_envs)]
    assert out.turn.tolist() == [game.mover() for game in games]
    logged, ways_to_end = [], set()
    for _ in range(60):
        actions = random_actions(pool, out, random)
        out = pool.step(actions.copy())
        for i, game in enumerate(games):
            rewards, terminated = game.pay(actions[i].tolist())
            game.ply += 1
            game.last = actions[i].tolist()
            game.returns = [total + paid for total, paid in zip(game.returns, rewards, strict=True)]
            truncated = game.ply == limit and not terminated
            assert out.reward[i].tolist() == rewards
            assert (out.terminated[i], out.truncated[i]) == (terminated, truncated)
            if terminated or truncated:
                ways_to_end.add((bool(terminated), game.ply))
                for seat in range(seats):
                    assert game.read(out.final_obs, i * seats + seat) == game.view(seat)
                    logged.append((i, seat, game.returns[seat], game.ply, *game.stats()))
                games[i] = game = model(game.index, game.episode + 1)
            assert out.turn[i] == game.mover()
            assert game.read(out.obs, i) == game.view(game.mover())
            assert out.mask[i].tolist() == game.mask()
        views = pool.views()
        for (i, game), seat in itertools.product(enumerate(games), range(seats)):
            assert game.read(views, i * seats + seat) == game.view(seat)
    assert {terminated for terminated, _ in ways_to_end} == {True, False}
    assert (True, limit) in ways_to_end  # at the limit both: terminated wins
    episodes = pool.episodes()
    columns = [episodes.env_ids, episodes.players, episodes.returns, episodes.lengths, *episodes.stats.values()]
    assert list(zip(*[column.tolist() for column in columns], strict=True)) == logged
    assert episodes.num_ended == len(logged) > 100
    assert len(pool.episodes()) == 0
