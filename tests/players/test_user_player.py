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


def test_a_view_has_what_the_mover_sees_and_the_record_of_its_game() -> None:
    views, pool, out = views_of(Duel(), 0)
    for env, view in enumerate(views):
        assert np.array_equal(view.observation, out.obs[env])
        assert view.legal == np.flatnonzero(out.mask[env]).tolist()
        assert view.seat == out.turn[env]
        assert view.state.first == pool.record(env).first
        assert view.env is pool.env


def test_what_a_player_does_to_its_view_does_not_change_the_game() -> None:
    views, pool, out = views_of(Duel(), 0)
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


@pytest.mark.parametrize("answer", [None, 1.5, "left", [1, 2]])
def test_an_answer_that_is_no_action_is_named(answer: Any) -> None:
    with pytest.raises(PlayerError, match=r"returned .* no action; return one of view.legal"):
        views_of(Duel(), answer)


OWN = '''
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

def choose(view):
    return view.legal[-1]

def fails(view):
    return half(view.legal)
'''


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper_of_mine.py").write_text("def half(legal):\n    return len(legal) // 0\n")
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


@pytest.mark.parametrize(("spec", "place"), [("own.py", -1), ("own.py:Counter", 0), ("{folder}/own.py:choose", -1)])
def test_functions_and_classes_in_a_file_play(own_file: Path, spec: str, place: int) -> None:
    player = scripted_player(spec.format(folder=own_file.parent))
    pool = pool_of(Duel(), 4, backend="interpreted")
    out = pool.reset(1)
    assert player is not None
    player.begin(pool)
    actions = player.choose(out, np.arange(4), np.random.default_rng(0))
    assert actions.tolist() == [np.flatnonzero(mask)[place] for mask in out.mask]


def test_a_module_in_the_current_folder_is_found(own_file: Path) -> None:
    (own_file.parent / "bots_of_mine.py").write_text("def bot(view):\n    return 0\n")
    player = scripted_player("bots_of_mine:bot")
    assert player is not None
    assert player.name == "bots_of_mine:bot"


def test_what_a_player_raises_is_told_with_its_line(own_file: Path) -> None:
    player = scripted_player("own.py:fails")
    pool = pool_of(Duel(), 1, backend="interpreted")
    out = pool.reset(1)
    assert player is not None
    player.begin(pool)
    line = 1 + OWN.splitlines().index("    return half(view.legal)")
    with pytest.raises(PlayerError, match=f"own.py:fails failed in own.py line {line}: ZeroDivisionError"):
        player.choose(out, np.arange(1), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("own.py:Unready", "own.py:Unready failed: TypeError"),
        ("own.py:chose", r"has no 'chose' to play. Did you mean 'choose'\?"),
        ("gone.py:choose", "there is no file 'gone.py'"),
        ("no_such_module:choose", "cannot import 'no_such_module'"),
        ("own.py:OWN", "has no 'OWN'"),
        ("minimax", "minimax:3"),
        ("minimax:x", "minimax:3"),
        ("minimax:11", "1 to 10"),
    ],
)
def test_players_that_cannot_be_made_are_named(own_file: Path, spec: str, problem: str) -> None:
    with pytest.raises((ConfigError, PlayerError), match=problem):
        scripted_player(spec)


@pytest.mark.parametrize("spec", ["runs/a", "a", "runs/b:c/best", "perfect", "", ":", "a b:c", "own.py:not a name"])
def test_other_texts_name_no_scripted_player(spec: str) -> None:
    assert scripted_player(spec) is None
    assert not runs_code(spec)


def test_only_modules_and_files_run_code() -> None:
    assert [runs_code(spec) for spec in ("random", "greedy", "minimax:3", "minimax")] == [False] * 4
    assert [runs_code(spec) for spec in ("a.b:C", "own.py", "some/own.py:C", "a:b")] == [True] * 4


def test_an_object_that_cannot_choose_is_refused() -> None:
    with pytest.raises(ConfigError, match="without a method choose"):
        UserPlayer(3)


def test_a_subclass_of_player_plays_many_games_at_once(own_file: Path) -> None:
    own_file.write_text(
        "from scramjet.players.player import Player\n"
        "class Many(Player):\n    def choose(self, seen, rows, generator):\n        return seen.mask[rows].argmax(1)\n"
    )
    player = scripted_player("own.py:Many")
    assert isinstance(player, Player)
    assert not isinstance(player, UserPlayer)
    assert player.name == "own.py:Many"
