"""Random, greedy and minimax players: legal moves, one-ply rewards, brute-force search, no foresight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scramjet.arena.matches import play_games
from scramjet.engine import NativePool
from scramjet.engine.random_play import is_masked, random_actions
from scramjet.engine.transition import Transition
from scramjet.envs.games.snake import Snake
from scramjet.errors import ConfigError
from scramjet.players import scripted
from scramjet.players.player import Player
from scramjet.players.scripted import GreedyPlayer, MinimaxPlayer, RandomPlayer, _distinct
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.small_games import Guess, four, in_turn


def positions(pool: NativePool, num_moves: int, seed: int = 0) -> Transition:
    """Positions after some random moves; games that ended have begun again."""
    out, random = pool.reset(seed), np.random.default_rng(seed)
    for _ in range(num_moves):
        out = pool.step(random_actions(pool, out, random))
    return out


def chosen_by(player: Player, pool: NativePool, out: Transition, seed: int = 0) -> np.ndarray:
    player.begin(pool)
    return player.choose(out, np.arange(pool.num_envs), np.random.default_rng(seed))


@pytest.mark.parametrize("world", [Mortals(), Duel(), Trio()], ids=lambda world: type(world).__name__)
def test_random_players_take_every_legal_action_and_no_other(world: Any) -> None:
    pool = pool_of(world, 60, backend="interpreted")
    out, random = pool.reset(1), np.random.default_rng(0)
    player = RandomPlayer()
    player.begin(pool)
    rows = np.arange(0, pool.num_rows, 2)
    for _ in range(10):
        actions = player.choose(out, rows, random)
        assert not is_masked(pool.action_space, actions, out.mask[rows]).any()
        assert len(np.unique(actions)) > 1
        out = pool.step(random_actions(pool, out, random))


def wins_at_once(board: np.ndarray, side: int, column: int) -> bool:
    """Whether a piece in a column makes four in a line on a board [rows, cols] of 0 (empty), 1 and 2."""
    row = int((board[:, column] == 0).sum()) - 1
    board = board.copy()
    board[row, column] = side
    rows, cols = board.shape
    for r in range(rows):
        for c in range(cols):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(r + k * down, c + k * right) for k in range(4)]
                if all(0 <= y < rows and 0 <= x < cols and board[y, x] == side for y, x in cells):
                    return True
    return False


def test_the_greedy_player_wins_wherever_one_move_does() -> None:
    pool = four(200)
    out = positions(pool, 14)
    actions = chosen_by(GreedyPlayer(), pool, out)
    found = 0
    for env, record in enumerate(pool.states()):
        board = record["pieces"][0] + 2 * record["pieces"][1]
        side = 1 + int(record["turn"])
        legal = np.flatnonzero(out.mask[env])
        winning = [column for column in legal if wins_at_once(board, side, column)]
        assert actions[env] in (winning or legal)
        found += bool(winning)
    assert found > 20


def brute_force(pool: NativePool, state: np.ndarray, mask: np.ndarray, depth: int) -> dict[int, np.ndarray]:
    """What each legal action is worth to each seat, one position after the other."""
    worth = {}
    for action in np.flatnonzero(mask).tolist():
        after, out = pool.simulate(state, np.array([action]))
        rewards, turn, next_mask = out.reward[0].astype(float), int(out.turn[0]), out.mask[0].copy()
        if depth > 1 and not (out.terminated[0] or out.truncated[0]):
            rewards = rewards + max(brute_force(pool, after, next_mask, depth - 1).values(), key=lambda v: v[turn])
        worth[action] = rewards
    return worth


@pytest.mark.parametrize(("world", "depth"), [("four", 3), ("duel", 1), ("duel", 3)])
def test_minimax_chooses_as_a_search_of_one_position_after_the_other_does(
    world: str, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripted, "MAX_POSITIONS", 50)  # so that positions are looked at in parts
    pool = four(12, rows=4, cols=4, connect=3) if world == "four" else pool_of(Duel(), 12)
    out = positions(pool, 5, seed=2)
    actions = chosen_by(MinimaxPlayer(depth), pool, out)
    for env, state in enumerate(pool.states()):
        worth = brute_force(pool, np.array([state]), out.mask[env], depth)
        own = {action: value[out.turn[env]] for action, value in worth.items()}
        assert own[actions[env]] == pytest.approx(max(own.values()), abs=1e-3)


def test_minimax_wins_at_once_rather_than_later() -> None:
    pool = four(300)
    out = positions(pool, 16, seed=3)
    actions = chosen_by(MinimaxPlayer(3), pool, out)
    at_once = [pool.simulate(pool.states(), np.full(300, a))[1].reward for a in range(7)]
    best = np.max([np.where(out.mask[:, a], r[np.arange(300), out.turn], -9.0) for a, r in enumerate(at_once)], axis=0)
    taken = pool.simulate(pool.states(), actions)[1].reward[np.arange(300), out.turn]
    assert (best == 1).sum() > 20
    assert (taken[best == 1] == 1).all()


@pytest.mark.parametrize("player", [GreedyPlayer(), MinimaxPlayer(2)], ids=lambda player: player.name)
def test_looking_ahead_does_not_foresee_random_draws(player: Player) -> None:
    pool = pool_of(Guess(), 100, backend="interpreted")
    results = play_games(pool, [player, RandomPlayer()], in_turn(300), seed=1)
    gained = results.returns[results.seating == 0].sum()  # of 600 guesses; a deviation is 12
    assert 240 < gained < 360


class Scored(Duel):
    """Every action pays the same, and the score says which is the best."""

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        s.ply += 1
        s.last = action
        return False

    def score(self, s: Any, player: Any) -> float:
        return 0.0  # as the pool below has it


class ScoredPool(NativePool):
    def scores(self, states: np.ndarray) -> np.ndarray:
        """Low actions are good for whoever takes them, but 4 is best."""
        worth = np.where(states["last"] == 4, 1.0, -states["last"])
        mover = np.array([self.env.order[(s["first"] + s["ply"] - 1) % 5] for s in states])
        return np.where(mover[:, None] == np.arange(2), worth[:, None], -worth[:, None])


@pytest.mark.parametrize("player", [GreedyPlayer(), MinimaxPlayer(1)], ids=lambda player: player.name)
def test_the_score_of_a_position_decides_where_rewards_do_not(player: Player) -> None:
    pool = ScoredPool(Scored(), 20, backend="interpreted")
    assert (chosen_by(player, pool, pool.reset(0)) == 4).all()


@pytest.mark.parametrize("player", [GreedyPlayer(), MinimaxPlayer(2)], ids=lambda player: player.name)
def test_ties_are_broken_at_random(player: Player) -> None:
    pool = four(200)
    assert set(chosen_by(player, pool, pool.reset(0)).tolist()) == set(range(7))


@pytest.mark.parametrize(
    ("world", "reason"), [(Snake(snakes=2), "all act at once"), (Trio(), "has MultiDiscrete")], ids=["snake", "trio"]
)
def test_worlds_in_which_nobody_can_look_ahead_are_named(world: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"greedy .*{reason}.* such as random"):
        GreedyPlayer().begin(pool_of(world, 1, backend="interpreted"))


def test_a_depth_that_is_none_is_refused() -> None:
    for depth in (0, 11, 2.5, True):
        with pytest.raises(ConfigError, match="1 to 10 moves ahead"):
            MinimaxPlayer(depth)  # type: ignore[arg-type]


def test_the_same_position_is_the_same_whatever_lies_between_the_fields_of_its_record():
    dtype = np.dtype({"names": ["_seed", "cell"], "formats": ["i8", "i1"], "offsets": [0, 8], "itemsize": 16})
    states = np.zeros(2, dtype)
    states.view(np.uint8).reshape(2, 16)[1, 9:] = 255  # NumPy leaves anything there when it copies records
    kept, same = _distinct(states)
    assert kept.tolist() == [0]
    assert same.tolist() == [0, 0]
