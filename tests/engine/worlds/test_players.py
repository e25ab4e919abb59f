"""Pools of worlds for several: agents that act at once and die, seats that take turns; against plain Python."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from scramjet.engine.actions import random_actions
from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import leaves
from scramjet.envs import Env
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.pool_transitions import BACKENDS


@dataclass
class MortalGame:
    """What one game of Mortals must do, told from its env's index and episode alone."""

    index: int
    episode: int = 0
    time: int = 0
    alive: list[bool] = field(default_factory=lambda: [True] * 3)
    last: list[int] = field(default_factory=lambda: [0] * 3)
    returns: list[float] = field(default_factory=lambda: [0.0] * 3)
    ended_by: str = ""

    def life(self, k: int) -> int:
        return 1 + (self.index + 2 * self.episode + k * self.index) % 5

    def play(self, chosen: list[int]) -> tuple[list[float], list[bool], list[bool]]:
        """What is paid to each agent, and which episodes are terminated and truncated."""
        self.time, self.last = self.time + 1, chosen
        was_alive, ends, late = self.alive, chosen[0] == 3, self.time == 4
        self.alive = [was_alive[k] and self.time < self.life(k) for k in range(3)]
        paid = [10.0 * self.time + chosen[k] if was_alive[k] else 0.0 for k in range(3)]
        terminated = [was_alive[k] and (ends or not self.alive[k]) for k in range(3)]
        if ends or late or not any(self.alive):
            self.ended_by = "rules" if ends else "clock" if late and any(self.alive) else "deaths"
        return paid, terminated, [was_alive[k] and late and not terminated[k] for k in range(3)]

    def shows(self) -> list[int]:
        return [0, 1, 2]

    def turn(self) -> list[bool]:
        return self.alive

    def view(self, k: int) -> list[float]:
        return [self.time, self.life(k), self.last[k], k]

    def mask(self, k: int) -> list[bool]:
        return [not (self.alive[k] and choice == (self.time + k) % 3) for choice in range(4)]

    def stats(self, k: int) -> list[float]:
        return [self.life(k), self.last[k]]


@dataclass
class DuelGame:
    """The same for Duel."""

    index: int
    episode: int = 0
    time: int = 0
    last: Any = 0
    returns: list[float] = field(default_factory=lambda: [0.0] * 2)
    ended_by: str = ""
    limit = 7

    def mover(self) -> int:
        return [0, 1, 1, 0, 1][(self.index + self.episode + self.time) % 5]

    def pay(self, choice: Any) -> tuple[list[float], bool]:
        """Rewards of both seats for the next turn, and whether it ends the game."""
        won = choice == 5 and self.time >= 2
        mine, other = choice + 100.0 * won, -0.5 * choice
        return ([mine, other] if self.mover() == 0 else [other, mine]), won

    def play(self, chosen: list[Any]) -> tuple[list[float], list[bool], list[bool]]:
        (choice,) = chosen
        paid, terminated = self.pay(choice)
        self.time, self.last = self.time + 1, choice
        late = self.time == self.limit
        if terminated or late:  # at the limit both: terminated wins
            self.ended_by = f"rules{', late' * late}" if terminated else "clock"
        return paid, [terminated], [late and not terminated]

    def shows(self) -> list[int]:
        return [self.mover()]

    def turn(self) -> list[int]:
        return [self.mover()]

    def view(self, k: int) -> list[float]:
        return [k, self.time, self.last]

    def mask(self, k: int) -> list[bool]:
        return [choice != 2 * k + self.time % 2 for choice in range(6)]

    def stats(self, k: int) -> list[float]:
        return [1.0 if self.last == 5 and self.time > 2 else 0.0]


@dataclass
class TrioGame(DuelGame):
    """The same for Trio."""

    last: Any = field(default_factory=lambda: [0, 0])
    returns: list[float] = field(default_factory=lambda: [0.0] * 3)
    limit = 6

    def mover(self) -> int:
        return [2, 2, 0, 1, 2][self.time % 5]

    def pay(self, choice: list[int]) -> tuple[list[float], bool]:
        rewards = [0.0] * 3
        rewards[self.mover()] = -1.0 * choice[0]
        rewards[{0: 1, 1: 2, 2: 0}[self.mover()]] = 10.0 * choice[1]
        return rewards, self.time + 1 == 2 + (self.index + 3 * self.episode) % 7

    def view(self, k: int) -> list[float]:
        return [*self.last, k, self.time]

    def mask(self, k: int) -> list[bool]:
        return [True] * 3 + [choice != (self.time + k) % 4 for choice in range(4)]

    def stats(self, k: int) -> list[float]:
        return []


def read(obs: Any, row: int) -> list[float]:
    return [number for leaf in leaves(obs) for number in leaf[row].tolist()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("world", "model", "played_by", "ways_to_end"),
    [
        (Mortals, MortalGame, PlayedBy.AGENTS, {"rules", "clock", "deaths"}),
        (Duel, DuelGame, PlayedBy.SEATS, {"rules", "clock", "rules, late"}),
        (Trio, TrioGame, PlayedBy.SEATS, {"rules", "clock", "rules, late"}),
    ],
)
def test_every_player_is_paid_shown_the_end_and_logged_as_the_rules_say(
    world: type[Env], model: Any, played_by: PlayedBy, ways_to_end: set[str], backend: Any
) -> None:
    """Agents die at their own steps, and all begin anew when the game is over; seats take uneven turns."""
    pool, random = pool_of(world(), 6, backend), np.random.default_rng(4)
    rows, players = pool.num_rows // 6, pool.num_players
    assert (pool.played_by, rows, players) == (played_by, 3 if world is Mortals else 1, len(model(0).returns))
    out, games = pool.reset(30), [model(i) for i in range(6)]
    logged, ended_by = [], set()
    for _ in range(60):
        actions = random_actions(pool, out, random)
        out = pool.step(actions.copy())
        views = pool.views()
        assert not any(map(np.shares_memory, leaves(views), leaves(out.obs)))
        for i, game in enumerate(games):
            own = slice(i * rows, (i + 1) * rows)
            paid, terminated, truncated = game.play(actions[own].tolist())
            assert out.reward[own].ravel().tolist() == paid
            assert (out.terminated[own].tolist(), out.truncated[own].tolist()) == (terminated, truncated)
            game.returns = [total + more for total, more in zip(game.returns, paid, strict=True)]
            for k in range(players):
                row = k if rows > 1 else 0
                if terminated[row] or truncated[row]:
                    assert read(out.final_obs, i * players + k) == game.view(k)
                    logged.append((i, k, game.returns[k], game.time, *game.stats(k)))
            if game.ended_by:
                ended_by.add(game.ended_by)
                games[i] = game = model(i, game.episode + 1)
            assert out.turn[own].tolist() == game.turn()
            for row, k in enumerate(game.shows(), start=i * rows):
                assert read(out.obs, row) == game.view(k)
                assert out.mask[row].tolist() == game.mask(k)
            for k in range(players):
                assert read(views, i * players + k) == game.view(k)
    assert ways_to_end <= ended_by
    episodes = pool.episodes()
    columns = [episodes.env_ids, episodes.players, episodes.returns, episodes.lengths, *episodes.stats.values()]
    assert list(zip(*[column.tolist() for column in columns], strict=True)) == logged
    assert episodes.num_ended == len(logged) > 100
    assert len(pool.episodes()) == 0


class Unborn(Mortals):
    """Agent 1 is not there in the first place."""

    def alive(self, s: Any, player: Any) -> bool:
        return player != 1 and s.age < 2


@pytest.mark.parametrize("backend", ["interpreted", pytest.param("cpu", marks=pytest.mark.rest)])
def test_an_agent_that_the_rules_call_dead_at_the_start_has_no_turn_and_no_episode(backend: Any) -> None:
    pool = pool_of(Unborn(), 1, backend)
    assert pool.reset(0).turn.tolist() == [True, False, True]
    assert pool.step(np.array([2, 2, 1])).reward.tolist() == [12.0, 0.0, 11.0]
    pool.step(np.array([2, 2, 1]))
    assert pool.episodes().players.tolist() == [0, 2]
