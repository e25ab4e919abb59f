"""Pools of worlds for several: agents that act at once and die, seats that take turns."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from player_worlds import Duel, Mortals, Painters, Trio

from scramjet.engine import NativePool, Transition
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.random_play import random_actions
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.check import check_world
from scramjet.envs import Box, Dict, Discrete, Env, MultiDiscrete
from scramjet.errors import ConfigError, WorldError

BACKENDS = ["interpreted", "cpu"]
WORLDS = [Mortals, Duel, Trio]
FIELDS = [field.name for field in fields(Transition) if field.init]


def pool_of(env: Env, num_envs: int, backend: str = "cpu") -> NativePool:
    return NativePool(env, num_envs, num_threads=1, backend=backend)


def copy(out: Transition) -> Transition:
    return Transition(**{name: map_leaves(np.copy, getattr(out, name)) for name in FIELDS})


def assert_equal(one: Transition, other: Transition) -> None:
    """All that two steps gave is the same; `final_obs` where an episode ended, elsewhere it is stale."""
    for name in ("obs", "mask", "turn", "reward", "terminated", "truncated"):
        for ours, theirs in zip(leaves(getattr(one, name)), leaves(getattr(other, name)), strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    ended = one.terminated | one.truncated
    for ours, theirs in zip(leaves(one.final_obs), leaves(other.final_obs), strict=True):
        seen = np.repeat(ended, len(ours) // len(ended))
        np.testing.assert_array_equal(ours[seen], theirs[seen], err_msg="final_obs")


def legal_actions(env: Env, num_envs: int, seed: int, steps: int) -> list[np.ndarray]:
    """Random legal actions of a pool reset with `seed`, found by playing."""
    pool, random, actions = pool_of(env, num_envs, "interpreted"), np.random.default_rng(0), []
    out = pool.reset(seed)
    for _ in range(steps):
        actions.append(random_actions(pool, out, random))
        out = pool.step(actions[-1])
    return actions


# --- agents ---------------------------------------------------------------------------------------------------


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


# --- seats ----------------------------------------------------------------------------------------------------


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


# --- every promise of a pool, for agents and seats alike ------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_views_of_agents_are_what_each_of_them_was_shown(backend: str) -> None:
    pool = pool_of(Mortals(), 4, backend)
    pool.reset(5)
    for actions in legal_actions(Mortals(), 4, 5, 12):
        out, views = pool.step(actions), pool.views()
        for name in ("me", "who"):
            np.testing.assert_array_equal(views[name], out.obs[name])
            assert not np.shares_memory(views[name], out.obs[name])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_restored_snapshot_of_players_goes_on_exactly(world: type[Env], backend: str, is_fresh: bool) -> None:
    actions = legal_actions(world(), 5, 3, 40)
    pool = pool_of(world(), 5, backend)
    pool.reset(3)
    outs = [copy(pool.step(row.copy())) for row in actions[:18]]
    assert not is_fresh or world is not Mortals or not outs[-1].turn.all()  # someone is dead at this moment
    snapshot = pool.snapshot()
    pool.episodes()
    after = [copy(pool.step(row.copy())) for row in actions[18:]]
    episodes = pool.episodes()
    pool = pool_of(world(), 5, backend) if is_fresh else pool
    restored = pool.restore(snapshot)
    for name in ("obs", "mask", "turn"):
        for ours, theirs in zip(leaves(getattr(restored, name)), leaves(getattr(outs[-1], name)), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for row, expected in zip(actions[18:], after, strict=True):
        assert_equal(pool.step(row.copy()), expected)
    again = pool.episodes()
    assert len(again) > 20
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(again, name), getattr(episodes, name))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_simulating_players_moves_nothing_and_equals_the_step_where_the_game_goes_on(world: type[Env], backend) -> None:
    pool = pool_of(world(), 6, backend)
    out = pool.reset(8)
    compared, rows = 0, pool.num_rows // 6
    for actions in legal_actions(world(), 6, 8, 25):
        before, shown = pool.snapshot(), copy(out)
        states, imagined = pool.simulate(pool.states(), actions.copy())
        assert pool.snapshot()["states"].tobytes() == before["states"].tobytes()
        assert_equal(shown, out)
        out = pool.step(actions.copy())
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(imagined, name), getattr(out, name))
        goes_on = pool.states()["_steps"] > 0
        np.testing.assert_array_equal(states[goes_on], pool.states()[goes_on])
        for name in ("obs", "mask", "turn"):
            for ours, theirs in zip(leaves(getattr(imagined, name)), leaves(getattr(out, name)), strict=True):
                np.testing.assert_array_equal(ours[np.repeat(goes_on, rows)], theirs[np.repeat(goes_on, rows)])
        compared += int(goes_on.sum())
    assert 50 < compared < 150
    pool.episodes()
    pool.simulate(pool.states(), actions)
    assert len(pool.episodes()) == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_whole_envs_of_players_sent_in_parts_equal_one_step(world: type[Env], backend: str) -> None:
    whole, parts = pool_of(world(), 7, backend), pool_of(world(), 7, backend)
    whole.reset(2)
    parts.reset(2)
    per_env = whole.num_rows // 7
    slices = [slice(0, 3 * per_env), slice(3 * per_env, 4 * per_env), slice(4 * per_env, 7 * per_env)]
    for actions in legal_actions(world(), 7, 2, 20):
        expected = whole.step(actions.copy())
        for rows in slices:
            parts.send(actions, rows)
        for rows in slices:
            batch = parts.recv()
            assert batch.rows == rows
            assert_equal(batch.transition, expected.part(rows))
            envs = slice(rows.start // per_env, rows.stop // per_env)
            assert len(batch.transition.reward) == (
                rows.stop - rows.start if world is Mortals else envs.stop - envs.start
            )
    one, other = whole.episodes(), parts.episodes()
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert len(one) > 20


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_a_step_of_players_in_parts_equals_a_whole_one(world: type[Env], backend: str) -> None:
    whole, parts = pool_of(world(), 7, backend), pool_of(world(), 7, backend)
    whole.reset(2)
    out = parts.reset(2)
    middle = whole.num_rows // 7 * 3
    for actions in legal_actions(world(), 7, 2, 20):
        expected = whole.step(actions.copy())
        for rows in (slice(0, middle), slice(middle, whole.num_rows)):
            parts.send(actions, rows)
            parts.recv(rows, out)
        assert_equal(out, expected)
    one, other = whole.episodes(), parts.episodes()
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert len(one) > 20


@pytest.mark.parametrize("rows", [slice(0, 1), slice(1, 4), slice(0, 4), slice(2, 3), slice(0, 6, 2)])
def test_a_part_of_an_envs_agents_cannot_be_sent_alone(rows: slice) -> None:
    pool = pool_of(Mortals(), 2)
    pool.reset(0)
    before = pool.snapshot()["states"]
    with pytest.raises(ConfigError, match="whole envs of 3 rows"):
        pool.send(np.zeros(6, np.int64), rows)
    np.testing.assert_array_equal(pool.snapshot()["states"], before)


def test_what_the_mask_forbids_is_refused_in_parts_too_after_a_step_into_other_arrays() -> None:
    """What is legal was last shown in the caller's arrays, and stays so for the rows that are not sent yet."""
    pool = pool_of(Duel(), 2, "interpreted")
    out = pool.reset(0, out=pool.allocate())
    legal = [int(np.flatnonzero(~out.mask[i])[0]) + 1 for i in range(2)]  # the one after the only illegal one
    pool.step(np.array(legal), out=out)
    legal = np.array([int(np.flatnonzero(out.mask[i])[0]) for i in range(2)])
    illegal = np.array([legal[0], np.flatnonzero(~out.mask[1])[0]])
    pool.send(illegal, slice(0, 1))
    with pytest.raises(WorldError, match="masked"):
        pool.send(illegal, slice(1, 2))
    pool.send(legal, slice(1, 2))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_the_players_of_env_i_do_what_those_of_env_0_do_in_the_part_that_begins_at_i(world: type[Env], backend) -> None:
    actions = legal_actions(world(), 4, 50, 20)
    together = pool_of(world(), 4, backend)
    together.reset(50)
    outs = [copy(together.step(row.copy())) for row in actions]
    per_env = together.num_rows // 4
    for i in range(4):
        alone, rows = pool_of(world(), 1, backend), slice(i * per_env, (i + 1) * per_env)
        alone.reset(EpisodeSeed.of(50).part(i))
        for out, row in zip(outs, actions, strict=True):
            assert_equal(alone.step(row[rows].copy()), out.part(rows))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_results_of_players_are_written_into_the_arrays_given_and_nowhere_else(world: type[Env], backend: str) -> None:
    pool, twin = pool_of(world(), 3, backend), pool_of(world(), 3, backend)
    mine, own = pool.allocate(), copy(pool._own)
    pool.reset(5, out=mine)
    twin.reset(5)
    for actions in legal_actions(world(), 3, 5, 15):
        assert pool.step(actions.copy(), out=mine) is mine
        assert_equal(mine, twin.step(actions.copy()))
    for name in FIELDS:
        for ours, theirs in zip(leaves(getattr(own, name)), leaves(getattr(pool._own, name)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


THREADS = """
import hashlib
import numpy as np
from player_worlds import Duel, Mortals, Trio
from scramjet.engine import NativePool
from scramjet.engine.random_play import random_actions
from scramjet.engine.trees import leaves

for world in (Mortals, Duel, Trio):
    digests = set()
    for num_threads in (1, 2, 3):
        pool, random = NativePool(world(), 7, num_threads=num_threads), np.random.default_rng(0)
        assert pool.num_threads == num_threads, pool.num_threads
        digest = hashlib.sha256()
        out = pool.reset(5)
        for _ in range(40):
            out = pool.step(random_actions(pool, out, random))
            for array in (*leaves(out.obs), out.mask, out.turn, out.reward, out.terminated, out.truncated):
                digest.update(array.tobytes())
            ended = out.terminated | out.truncated
            for leaf in leaves(out.final_obs):
                digest.update(leaf[np.repeat(ended, len(leaf) // len(ended))].tobytes())
        episodes = pool.episodes()
        assert len(episodes) > 50
        columns = (episodes.returns, episodes.lengths, episodes.env_ids, episodes.players, *episodes.stats.values())
        for values in columns:
            digest.update(np.ascontiguousarray(values).tobytes())
        digest.update(pool.snapshot()["states"].tobytes())
        digests.add(digest.hexdigest())
    print(len(digests), end=" ")
"""


def run_python(program: str, **environment: str) -> str:
    everything = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), **environment}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=everything, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_one_two_and_three_threads_give_players_the_same_when_envs_do_not_divide() -> None:
    assert run_python(THREADS, NUMBA_NUM_THREADS="3") == "1 1 1"


def test_twenty_thousand_steps_of_agents_and_of_seats_with_named_observations_keep_no_memory_and_no_reference() -> None:
    for world in (Mortals, Trio):
        pool = pool_of(world(), 2)
        out = pool.allocate()
        pool.reset(0, out=out)
        actions = np.zeros(pool._action_shape, np.int64)
        for _ in range(2000):  # Python and the allocator settle
            pool.step(actions, out=out)
            pool.views()
        arrays = [actions, *[leaf for name in FIELDS for leaf in leaves(getattr(out, name))]]
        references, peak = [sys.getrefcount(array) for array in arrays], peak_memory()
        for _ in range(20_000):
            pool.step(actions, out=out)
            pool.views()
        assert [sys.getrefcount(array) for array in arrays] == references
        assert peak_memory() - peak < 2 * 2**20  # a record of 50 bytes kept by each array and step would be 10 MiB


def peak_memory() -> int:
    """The most memory this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- actions that are not in the space, or not legal ----------------------------------------------------------------


@pytest.mark.parametrize("action", [-3, 4, 2**40, -(2**63)])
def test_an_agents_choice_outside_the_space_is_refused_interpreted_and_brought_into_it_compiled(action: int) -> None:
    interpreted, compiled = pool_of(Mortals(), 2, "interpreted"), pool_of(Mortals(), 2)
    actions = np.array([2, 2, 1, 2, 2, action])
    interpreted.reset(2)
    compiled.reset(2)
    with pytest.raises(WorldError, match=rf"action {action} of env 1, agent 2 is outside Discrete\(4\) of Mortals"):
        interpreted.step(actions)
    nearest = min(max(action, 0), 3)
    assert compiled.step(actions).reward.tolist() == [12.0, 12.0, 11.0, 12.0, 12.0, 10.0 + nearest]


@pytest.mark.parametrize(("pair", "nearest"), [([-1, 3], [0, 2]), ([5, -5], [1, 0]), ([1, 2**50], [1, 2])])
def test_each_of_an_agents_choices_outside_its_range_is_refused_interpreted_and_mended_compiled(pair, nearest) -> None:
    interpreted, compiled = pool_of(Painters(), 2, "interpreted"), pool_of(Painters(), 2)
    actions = np.array([[0, 1], [1, 1], pair, [1, 2]])
    interpreted.reset(0)
    compiled.reset(0)
    with pytest.raises(WorldError, match=r"of env 1, agent 0 is outside MultiDiscrete\(\[2 3\]\) of Painters"):
        interpreted.step(actions)
    out = compiled.step(actions)
    assert out.reward.tolist() == [1.0, 11.0, 10.0 * nearest[0] + nearest[1], 12.0]
    assert out.obs[2].tolist() == nearest


@pytest.mark.parametrize(("pair", "nearest"), [([-1, 9], [0, 3]), ([3, -2], [2, 0])])
def test_each_of_a_seats_choices_outside_its_range_is_refused_interpreted_and_mended_compiled(pair, nearest) -> None:
    interpreted, compiled = pool_of(Trio(), 2, "interpreted"), pool_of(Trio(), 2)
    actions = np.array([[0, 0], pair])
    interpreted.reset(0)
    compiled.reset(0)
    with pytest.raises(WorldError, match=r"of env 1 is outside MultiDiscrete\(\[3 4\]\) of Trio"):
        interpreted.step(actions)
    assert compiled.step(actions).reward[1].tolist() == [10.0 * nearest[1], 0.0, -1.0 * nearest[0]]


@pytest.mark.parametrize(
    ("world", "actions", "message"),
    [
        (Mortals, [2, 2, 1, 2, 1, 0], r"action 1 of env 1, agent 1 is masked as illegal in the state of Mortals"),
        (Duel, [5, 0], r"action 0 of env 1 is masked as illegal in the state of Duel"),
        (Trio, [[0, 0], [0, 2]], r"action \[0 2\] of env 1 is masked as illegal in the state of Trio"),
    ],
)
def test_an_action_that_the_mask_forbids_is_refused_interpreted_naming_whose_it_is(world, actions, message) -> None:
    pool = pool_of(world(), 2, "interpreted")
    pool.reset(EpisodeSeed(0, first_env=4 if world is Duel else 0))  # there env 1 begins with seat 0
    before = pool.snapshot()["states"]
    with pytest.raises(WorldError, match=message):
        pool.step(np.array(actions))
    np.testing.assert_array_equal(pool.snapshot()["states"], before)


def test_a_dead_agent_may_do_anything_in_the_space() -> None:
    pool = pool_of(Mortals(), 1, "interpreted")
    pool.reset(EpisodeSeed(0, first_env=1))  # agent 0 dies at age 2
    pool.step(np.array([1, 2, 1]))
    assert pool.step(np.array([2, 0, 1])).turn.tolist() == [False, True, True]
    assert pool.allocate().mask.shape == (3, 4)
    assert pool.step(np.array([2, 1, 2])).reward[0] == 0.0  # 2 is what a living agent 0 might not choose at age 2


@pytest.mark.parametrize("shape", [(2,), (3,), (6, 1), (4,)])
def test_actions_for_fewer_rows_than_agents_are_refused(shape: tuple[int, ...]) -> None:
    pool = pool_of(Mortals(), 2)
    pool.reset(0)
    with pytest.raises(ConfigError, match=r"this pool takes int64 \[6\]"):
        pool.step(np.zeros(shape, np.int64))


# --- authors' mistakes ----------------------------------------------------------------------------------------------


class Plain(Env):
    """A world for one, from which mistakes are made."""

    max_episode_steps = 5
    observation_space: Any = Box(0, 1, (1,), np.float32)
    action_space: Any = Discrete(2)
    state = {"x": np.int32}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> Any:
        return 0.0, False

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 0.0


class Shared(Plain):
    """A world for two agents, from which mistakes are made."""

    num_agents = 2

    def step(self, s: Any, action: Any, reward: Any) -> Any:
        return False

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs[0] = 0.0


class TwoSeats(Shared):
    """A world for two seats, from which mistakes are made."""

    num_agents = 1
    num_seats = 2

    def seat(self, s: Any) -> int:
        return 0


def two_arguments(self: Any, s: Any, mask: Any) -> None:
    pass


def three_arguments(self: Any, s: Any, mask: Any, player: Any) -> None:
    pass


BOX = Box(0, 1, (1,), np.float32)
MISTAKES: dict[str, tuple[type[Env], dict[str, Any], str]] = {
    "agents with the step of one": (Plain, {"num_agents": 2}, r"has 2 players: write `def step\(self, s, action, rew"),
    "seats with the step of one": (Plain, {"num_seats": 2}, r"has 2 players: write `def step\(self, s, action, rewar"),
    "seats without turns": (Shared, {"num_agents": 1, "num_seats": 2}, r"has 2 seats; write `def seat\(self, s\)`"),
    "agents and seats": (TwoSeats, {"num_agents": 3}, r"num_agents=3 and num_seats=2; one of them must be 1"),
    "no agents": (Shared, {"num_agents": 0}, r"num_agents is 0; it must be an integer of at least 1"),
    "half an agent": (Shared, {"num_agents": 1.5}, r"num_agents is 1.5; it must be an integer"),
    "many seats as a bool": (TwoSeats, {"num_seats": True}, r"num_seats is True; it must be an integer"),
    "observe of one": (
        Shared,
        {"observe": Plain.observe},
        r"observe must be written `def observe\(self, s, obs, playe",
    ),
    "mask of one": (Shared, {"mask": two_arguments}, r"mask must be written `def mask\(self, s, mask, player\)`"),
    "mask of players": (Plain, {"mask": three_arguments}, r"mask must be written `def mask\(self, s, mask\)`"),
    "alive of nobody": (Shared, {"alive": Plain.reset}, r"alive must be written `def alive\(self, s, player\)`"),
    "a key with a space": (Plain, {"observation_space": Dict({"my key": BOX})}, r"a key 'my key'; use a plain name"),
    "a key with a digit": (Plain, {"observation_space": Dict({"2nd": BOX})}, r"a key '2nd'; use a plain name"),
    "a key that hides": (Plain, {"observation_space": Dict({"a": Dict({"_b": BOX})})}, r"a key '_b'; use a plain name"),
    "a key that is Python": (Plain, {"observation_space": Dict({"class": BOX})}, r"a key 'class'; use a plain name"),
    "a key with a dot": (Plain, {"observation_space": Dict({"a.b": BOX})}, r"a key 'a.b'; use a plain name"),
    "a field that is Python": (Plain, {"state": {"class": np.int64}}, r"a field 'class'; use a plain name"),
    "a Dict of nothing": (Plain, {"observation_space": Dict({})}, r"observation_space is an empty Dict"),
    "a Dict of actions": (
        Plain,
        {"action_space": Dict({"a": BOX})},
        r"action_space is Dict.*Discrete, MultiDiscrete or",
    ),
    "actions of float64": (
        Plain,
        {"action_space": Box(-1, 1, (2,), np.float64)},
        r"action_space is Box.*dtype float32",
    ),
    "a lone number": (Plain, {"action_space": Box(-1, 1, (), np.float32)}, r"action_space is Box.*at least one number"),
    "a table of choices": (
        Plain,
        {"action_space": MultiDiscrete([[2, 2]])},
        r"give MultiDiscrete a flat list of sizes",
    ),
    "choices from 1": (Plain, {"action_space": MultiDiscrete([2, 2], start=[1, 0])}, r"action_space starts at"),
    "a masked Box": (
        Plain,
        {"action_space": BOX, "mask": two_arguments},
        r"actions of a Box are not masked; drop mask",
    ),
    "a masked Box of agents": (
        Shared,
        {"action_space": BOX, "mask": three_arguments},
        r"has a mask, but actions of a Bo",
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_declaration_is_told_in_the_authors_words(mistake: str, backend: str) -> None:
    base, changes, message = MISTAKES[mistake]
    with pytest.raises(WorldError, match=rf"Mistaken.*{message}"):
        pool_of(type("Mistaken", (base,), changes)(), 2, backend)


def reward_and_end(self: Any, s: Any, action: Any, reward: Any) -> Any:
    return 1.0, False


def nothing(self: Any, s: Any, action: Any, reward: Any) -> Any:
    s.x += 1


def seat_two(self: Any, s: Any) -> int:
    return 2


def first(self: Any, s: Any) -> int:
    return 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (Shared, {"step": reward_and_end}, r"Mistaken\.step must return"),
        (TwoSeats, {"step": reward_and_end}, r"Mistaken\.step must return"),
        (Shared, {"step": nothing}, r"Mistaken\.step must return"),
        (TwoSeats, {"seat": seat_two}, r"Mistaken\.seat.*2"),
        (Shared, {"seat": first}, r"Mistaken.*seat"),
        (Plain, {"seat": first}, r"Mistaken\.?.*step\(self, s, action, reward\)"),
    ],
    ids=[
        "agents' step gives a pair",
        "seats' step gives a pair",
        "step gives nothing",
        "a third of two",
        "seat of agents",
        "seat of one",
    ],
)
def test_a_mistake_in_the_rules_of_players_is_told_when_they_are_played(base, changes, message, backend: str) -> None:
    with pytest.raises(WorldError, match=message):
        play(type("Mistaken", (base,), changes)(), backend)


def play(env: Env, backend: str) -> None:
    """A few steps from the very beginning."""
    pool, random = pool_of(env, 2, backend), np.random.default_rng(0)
    pool.prepare()
    out = pool.reset(0)
    for _ in range(3):
        out = pool.step(random_actions(pool, out, random))


def test_a_world_for_one_may_have_a_parameter_called_seat() -> None:
    class Theatre(Plain):
        seat: int = 3

    pool = pool_of(Theatre(), 2, "interpreted")
    assert pool.played_by is PlayedBy.ONE
    pool.reset(0)
    assert pool.step(np.zeros(2, np.int64)).reward.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("world", WORLDS)
def test_the_worlds_of_these_tests_pass_the_check_of_worlds(world: type[Env]) -> None:
    findings = list(check_world(f"{Path(__file__).parent}/player_worlds.py:{world.__name__}", steps=60))
    assert [finding.text for finding in findings if not finding.is_fine] == []
