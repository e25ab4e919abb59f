"""Random, greedy and minimax players, and those that a user writes: what they see, choose and may not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scramjet.arena.matches import play_games
from scramjet.arena.solver.solver import Position
from scramjet.engine import NativePool, Transition
from scramjet.engine.actions import is_masked, random_actions
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.snake import Snake
from scramjet.errors import ConfigError, PlayerError
from scramjet.players import scripted
from scramjet.players.player import Player, UserPlayer, View
from scramjet.players.scripted import GreedyPlayer, MinimaxPlayer, RandomPlayer, _distinct, runs_code, scripted_player
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.small_games import Guess, four, in_turn


def positions(pool: NativePool, num_moves: int, seed: int = 0) -> Transition:
    """Positions after some random moves; games that ended have begun again."""
    out, random = pool.reset(seed), np.random.default_rng(seed)
    for _ in range(num_moves):
        out = pool.step(random_actions(pool, out, random))
    return out


def chosen_by(player: Player, pool: NativePool, out: Transition) -> np.ndarray:
    player.begin(pool)
    return player.choose(out, np.arange(pool.num_envs), np.random.default_rng(0))


def test_random_players_take_every_legal_action_and_no_other() -> None:
    for world in (Mortals(), Duel(), Trio()):
        pool = pool_of(world, 60, backend="interpreted")
        out, random = pool.reset(1), np.random.default_rng(0)
        player, rows = RandomPlayer(), np.arange(0, pool.num_rows, 2)
        player.begin(pool)
        for _ in range(10):
            actions = player.choose(out, rows, random)
            assert not is_masked(pool.action_space, actions, out.mask[rows]).any(), world
            assert len(np.unique(actions)) > 1, world
            out = pool.step(random_actions(pool, out, random))


def test_players_that_look_ahead_win_wherever_one_move_does() -> None:
    """Minimax, which sees that a later win is certain too, wins at once."""
    pool = four(300)
    out = positions(pool, 15)
    greedy, minimax = (chosen_by(player, pool, out) for player in (GreedyPlayer(), MinimaxPlayer(3)))
    found = 0
    for env in range(300):
        position = Position.from_pieces(out.obs[env])
        winning = [column for column in position.legal if position.after(column).is_lost]
        assert greedy[env] in (winning or position.legal)
        assert minimax[env] in (winning or position.legal)
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


def test_minimax_chooses_as_a_search_of_one_position_after_the_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "MAX_POSITIONS", 50)  # so that positions are looked at in parts
    worlds = {"four": ConnectFour(rows=4, cols=4, connect=3), "duel": Duel()}
    for world, depth in (("four", 3), ("duel", 1), ("duel", 3)):
        pool = pool_of(worlds[world], 12, backend="interpreted")
        out = positions(pool, 5, seed=2)
        actions = chosen_by(MinimaxPlayer(depth), pool, out)
        for env, state in enumerate(pool.states()):
            worth = brute_force(pool, np.array([state]), out.mask[env], depth)
            own = {action: value[out.turn[env]] for action, value in worth.items()}
            assert own[actions[env]] == pytest.approx(max(own.values()), abs=1e-3), (world, depth)


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


def test_scores_decide_where_rewards_do_not_ties_are_broken_at_random_and_no_draw_is_foreseen() -> None:
    scored, start, guess = (
        ScoredPool(Scored(), 20, backend="interpreted"),
        four(200),
        pool_of(Guess(), 100, "interpreted"),
    )
    for player in (GreedyPlayer(), MinimaxPlayer(1)):
        assert (chosen_by(player, scored, scored.reset(0)) == 4).all(), player.name
    for player in (GreedyPlayer(), MinimaxPlayer(2)):
        assert set(chosen_by(player, start, start.reset(0)).tolist()) == set(range(7)), player.name
        results = play_games(guess, [player, RandomPlayer()], in_turn(300), seed=1)
        gained = results.returns[results.seating == 0].sum()  # of 600 guesses; a deviation is 12
        assert 240 < gained < 360, player.name


def test_worlds_in_which_nobody_can_look_ahead_and_depths_that_are_none_are_refused() -> None:
    for world, reason in ((Snake(snakes=2), "all act at once"), (Trio(), "has MultiDiscrete")):
        with pytest.raises(ConfigError, match=f"greedy .*{reason}.* such as random"):
            GreedyPlayer().begin(pool_of(world, 1, backend="interpreted"))
    for depth in (0, 11, 2.5, True):
        with pytest.raises(ConfigError, match="1 to 10 moves ahead"):
            MinimaxPlayer(depth)  # type: ignore[arg-type]


def test_the_same_position_is_the_same_whatever_lies_between_the_fields_of_its_record() -> None:
    dtype = np.dtype({"names": ["_seed", "cell"], "formats": ["i8", "i1"], "offsets": [0, 8], "itemsize": 16})
    states = np.zeros(2, dtype)
    states.view(np.uint8).reshape(2, 16)[1, 9:] = 255  # NumPy leaves anything there when it copies records
    kept, same = _distinct(states)
    assert (kept.tolist(), same.tolist()) == ([0], [0, 0])


def views_of(world: Any, action: Any, num_envs: int = 3) -> tuple[list[View], Any, Any]:
    """What a player is shown of every row after a reset, the pool and what it showed."""
    seen: list[View] = []
    pool = pool_of(world, num_envs, backend="interpreted")
    out = pool.reset(3)
    player = UserPlayer(lambda view: seen.append(view) or action)
    player.begin(pool)
    player.choose(out, np.arange(pool.num_rows), np.random.default_rng(0))
    return seen, pool, out


def test_a_view_has_what_the_mover_sees_and_a_copy_of_the_record_of_its_game() -> None:
    views, pool, out = views_of(Duel(), 0)
    for env, view in enumerate(views):
        assert np.array_equal(view.observation, out.obs[env])
        assert view.legal == np.flatnonzero(out.mask[env]).tolist()
        assert (view.seat, view.state.first) == (out.turn[env], pool.record(env).first)
        assert view.env is pool.env
    before = pool.states()
    views[0].state.first = 4
    views[0].observation[:] = 99
    assert np.array_equal(pool.states(), before)
    assert not (out.obs == 99).any()
    views, _, out = views_of(Mortals(), 0)
    assert [view.seat for view in views] == [0, 1, 2] * 3
    assert views[4].observation["who"] == [1]
    views, _, out = views_of(Trio(), [0, 0])
    assert views[0].legal == [np.flatnonzero(out.mask[0, :3]).tolist(), np.flatnonzero(out.mask[0, 3:]).tolist()]


def test_an_answer_that_is_no_action_and_an_object_that_cannot_choose_are_refused() -> None:
    for answer in (None, 1.5, "left", [1, 2]):
        with pytest.raises(PlayerError, match=r"returned .* no action; return one of view.legal"):
            views_of(Duel(), answer)
    with pytest.raises(ConfigError, match="without a method choose"):
        UserPlayer(3)


OWN = '''
from scramjet.players.player import Player
from helper_of_mine import half

class Counter:
    """Counts its moves."""
    def __init__(self):
        self.moves = 0

    def choose(self, view):
        self.moves += 1
        return view.legal[0]

class Unready:
    def __init__(self, depth):
        pass

class Many(Player):
    def choose(self, seen, rows, generator):
        return seen.mask[rows].argmax(1)

def choose(view):
    return view.legal[-1]

def fails(view):
    return half(view.legal)
'''


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper_of_mine.py").write_text("def half(legal):\n    return len(legal) // 0\n")
    (tmp_path / "bots_of_mine.py").write_text("def bot(view):\n    return view.legal[0]\n")
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def own_choice(player: Player | None) -> tuple[list[int], np.ndarray]:
    """What a player of the user's own chooses at the start of four duels, and what is legal there."""
    assert player is not None
    pool = pool_of(Duel(), 4, backend="interpreted")
    out = pool.reset(1)
    player.begin(pool)
    return player.choose(out, np.arange(4), np.random.default_rng(0)).tolist(), out.mask


def test_functions_and_classes_in_a_file_or_a_module_of_the_current_folder_play(own_file: Path) -> None:
    for spec, place in (("own.py", -1), ("own.py:Counter", 0), (f"{own_file}:choose", -1), ("bots_of_mine:bot", 0),
                        ("own.py:Many", 0)):  # fmt: skip
        player = scripted_player(spec)
        chosen, masks = own_choice(player)
        assert chosen == [np.flatnonzero(mask)[place] for mask in masks], spec
        assert isinstance(player, UserPlayer) == (spec != "own.py:Many"), spec  # which plays many games at once
        assert player is not None
        assert player.name == spec


def test_what_a_player_raises_is_told_with_its_line_and_those_that_cannot_be_made_are_named(own_file: Path) -> None:
    line = 1 + OWN.splitlines().index("    return half(view.legal)")
    with pytest.raises(PlayerError, match=f"own.py:fails failed in own.py line {line}: ZeroDivisionError"):
        own_choice(scripted_player("own.py:fails"))
    for spec, problem in (
        ("own.py:Unready", "own.py:Unready failed: TypeError"),
        ("own.py:chose", r"has no 'chose' to play. Did you mean 'choose'\?"),
        ("gone.py:choose", "there is no file 'gone.py'"),
        ("no_such_module:choose", "cannot import 'no_such_module'"),
        ("own.py:OWN", "has no 'OWN'"),
        ("minimax", "minimax:3"),
        ("minimax:x", "minimax:3"),
        ("minimax:11", "1 to 10"),
    ):
        with pytest.raises((ConfigError, PlayerError), match=problem):
            scripted_player(spec)


def test_only_modules_and_files_run_code() -> None:
    for spec in ("runs/a", "a", "runs/b:c/best", "perfect", "", ":", "a b:c", "own.py:not a name"):
        assert scripted_player(spec) is None, spec
        assert not runs_code(spec), spec
    assert [runs_code(spec) for spec in ("random", "greedy", "minimax:3", "minimax")] == [False] * 4
    assert [runs_code(spec) for spec in ("a.b:C", "own.py", "some/own.py:C", "a:b")] == [True] * 4
