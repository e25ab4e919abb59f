"""Players that a user writes: what they see, what they may return, and how their mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scramjet.errors import ConfigError, PlayerError
from scramjet.players.player import Player
from scramjet.players.registry import runs_code, scripted_player
from scramjet.players.user_player import UserPlayer, View
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio


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


def test_agents_are_shown_by_their_number_and_several_choices_each_with_its_legal_ones() -> None:
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


def chosen_by(player: Player | None) -> tuple[list[int], np.ndarray]:
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
        chosen, masks = chosen_by(player)
        assert chosen == [np.flatnonzero(mask)[place] for mask in masks], spec
        assert isinstance(player, UserPlayer) == (spec != "own.py:Many"), spec  # which plays many games at once
        assert player is not None
        assert player.name == spec


def test_what_a_player_raises_is_told_with_its_line(own_file: Path) -> None:
    line = 1 + OWN.splitlines().index("    return half(view.legal)")
    with pytest.raises(PlayerError, match=f"own.py:fails failed in own.py line {line}: ZeroDivisionError"):
        chosen_by(scripted_player("own.py:fails"))


def test_players_that_cannot_be_made_are_named(own_file: Path) -> None:
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
