"""Runs against a pool of opponents: they resume bit for bit, keep the files they need, and refuse what cannot work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.errors import CheckpointError, ConfigError, PlayerError, TrustError
from scramjet.training import start
from scramjet.training.self_play import exploiter

SMALL: dict[str, Any] = {
    "num_envs": 16,
    "num_steps": 16,
    "minibatch_size": 64,
    "num_threads": 1,
    "learning_rate": 0.01,
    "entropy_coef": 0.01,
    "policy": {"hidden": [16], "encoder": "mlp", "symmetry": "none"},
    "env_parameters": {"rows": 4, "cols": 4, "connect": 3, "opening_plies": 0},
    "eval": {"every": 0, "final_episodes": 0},
    "checkpoint": {"every": 1, "keep_last_n": 2},
    "self_play": {"pool_fraction": 0.5, "opponents_at_once": 2, "snapshot_every": 2, "pool_size": 3, "change_every": 2},
    "device": "cpu",
    "display": "quiet",
}
UPDATE = 16 * 16

RUNS: dict[str, dict[str, Any]] = {
    "flat": {},
    "memory": {"policy": {"hidden": [16], "encoder": "mlp", "memory": "gru", "memory_size": 8, "symmetry": "none"}},
    "normalized": {"normalize_observations": True, "normalize_rewards": True},
    "torch": {"fused": False, "policy": {"hidden": [16], "encoder": "grid_cnn", "grid_channels": [4]}},
    "vtrace": {"advantage": "vtrace"},
    "fixed": {"self_play": {**SMALL["self_play"], "fixed_fraction": 0.25, "opponents": ["random", "greedy"]}},
    "frames": {
        "env": "snake",
        "env_parameters": {"snakes": 2, "step_reward": 0.0},
        "frame_stack": 2,
    },
    "exploiter": {"self_play": {**SMALL["self_play"], "exploiters": 1, "memory": 20}},
    "agents": {
        "env": "snake",
        "env_parameters": {"snakes": 2, "step_reward": 0.0},
        "self_play": {**SMALL["self_play"], "selection": "newest", "snapshot_win_rate": 0.3},
    },
}


def train(runs_dir: Path, name: str, updates: int, **changes: Any) -> Path:
    settings = {**SMALL, **changes}
    env = settings.pop("env", "connect_four")
    scramjet.train(env, runs_dir=runs_dir, run_name=name, total_timesteps=updates * UPDATE, **settings)
    return runs_dir / name


def end_of(run: Path, updates: int) -> tuple[bytes, bytes, Any]:
    folder = run / "checkpoints" / f"step_{updates * UPDATE:08d}"
    league = json.loads((folder / "metadata.json").read_text())["metadata"]["self_play"]
    return (folder / "model.safetensors").read_bytes(), (folder / "trainer.safetensors").read_bytes(), league


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_ends_as_if_it_had_never_stopped(tmp_path: Path, name: str) -> None:
    whole = end_of(train(tmp_path, "whole", 14, **RUNS[name]), 14)
    parts = train(tmp_path, "parts", 5, **RUNS[name])
    for updates in (8, 14):
        scramjet.train(resume=parts, total_timesteps=updates * UPDATE, display="quiet")
    model, trainer, league = end_of(parts, 14)
    assert league == {**whole[2], "members": league["members"]}
    for ours, theirs in zip(league["members"], whole[2]["members"], strict=True):
        assert {**ours, "digest": ""} == {**theirs, "digest": ""}  # the digest covers the name of the run's folder
    assert (model, trainer) == whole[:2]
    assert sum(member["wins"] + member["losses"] for member in league["members"]) > 10


def test_members_stay_while_a_checkpoint_needs_them_and_go_when_none_does(tmp_path: Path) -> None:
    run = train(tmp_path, "run", 14)
    needed: set[str] = set()
    for metadata in (run / "checkpoints").glob("step_*/metadata.json"):
        members = json.loads(metadata.read_text())["metadata"]["self_play"]["members"]
        needed |= {f"step_{member['step']:08d}" for member in members}
    assert {path.name for path in (run / "opponents").glob("step_*")} == needed
    assert len(needed) <= 6
    assert (run / "opponents" / "step_00000000").is_dir(), "the first one is spread over time, too"


def test_a_damaged_member_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    run = train(tmp_path, "run", 4)
    file = run / "opponents" / "step_00000000" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"opponent step_0 .*model.safetensors.*put its folder back"):
        scramjet.train(resume=run, total_timesteps=6 * UPDATE, display="quiet")
    file.write_bytes(whole)
    scramjet.train(resume=run, total_timesteps=6 * UPDATE, display="quiet")


def test_a_member_of_another_run_is_not_taken_for_ours(tmp_path: Path) -> None:
    ours, theirs = train(tmp_path, "ours", 4), train(tmp_path, "theirs", 4, seed=2)
    for name in ("model.safetensors", "metadata.json"):
        foreign = (theirs / "opponents" / "step_00000512" / name).read_bytes()
        (ours / "opponents" / "step_00000512" / name).write_bytes(foreign)
    with pytest.raises(CheckpointError, match="not the opponent that entered the pool"):
        scramjet.train(resume=ours, total_timesteps=6 * UPDATE, display="quiet")


def test_policies_of_other_runs_play_and_are_copied_into_the_run(tmp_path: Path) -> None:
    other = train(tmp_path, "other", 4)
    fixed = {**SMALL["self_play"], "opponents": [str(other), str(other / "opponents" / "step_00000512")]}
    run = train(tmp_path, "run", 5, self_play=fixed)
    for path in sorted(other.rglob("*"), reverse=True):
        path.unlink() if not path.is_dir() or path.is_symlink() else path.rmdir()
    scramjet.train(resume=run, total_timesteps=8 * UPDATE, display="quiet")
    league = end_of(run, 8)[2]
    given = [member for member in league["members"] if member["kind"] == "given"]
    assert [member["name"] for member in given] == fixed["opponents"]


def test_the_best_checkpoint_is_the_strongest_not_that_of_the_highest_return(tmp_path: Path) -> None:
    run = train(tmp_path, "run", 30, self_play={**SMALL["self_play"], "memory": 1000})
    best = json.loads((run / "checkpoints" / "best" / "metadata.json").read_text())["metadata"]
    assert best["best_return"] == best["self_play"]["rating"] > 1000
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"self_play/rating", "self_play/win_rate", "self_play/draws", "self_play/distinct_games"} <= set(lines[-1])
    assert 0 < lines[-1]["self_play/distinct_games"] <= 1
    assert any(key.startswith("self_play/against/step_") for key in lines[-1])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "one player": ({"env": "cartpole", "env_parameters": {}}, "cartpole is played by one"),
    "random opponent": (
        {"env_parameters": {**SMALL["env_parameters"], "random_opponent": True}},
        "--env.no-random-opponent",
    ),
    "no such opponent": ({"self_play": {"pool_fraction": 0.5, "opponents": ["nobody"]}}, "'nobody', which cannot play"),
    "too few envs": ({"self_play": {"pool_fraction": 0.5, "opponents_at_once": 17}}, "--num-envs"),
    "nobody given": ({"self_play": {"fixed_fraction": 0.5}}, "--self-play.opponents random"),
    "a pool too large": (
        {"policy": {"hidden": [2_000, 1_500]}, "self_play": {"pool_fraction": 0.5, "pool_size": 10_000}},
        "--self-play.pool-size",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_work_is_named_with_the_fix_and_leaves_no_run(tmp_path: Path, name: str) -> None:
    changes, message = BAD[name]
    with pytest.raises(ConfigError) as caught:
        train(tmp_path, "run", 2, **changes)
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_opponent_of_another_network_or_world_is_named(tmp_path: Path) -> None:
    other = train(tmp_path, "other", 2, policy={"hidden": [8], "encoder": "mlp"})
    with pytest.raises(ConfigError, match="holds another network"):
        train(tmp_path, "run", 2, self_play={"pool_fraction": 0.5, "opponents": [str(other)]})
    with pytest.raises(ConfigError, match="trained on another world"):
        train(tmp_path, "run", 2, env_parameters={}, self_play={"pool_fraction": 0.5, "opponents": [str(other)]})


PLAYERS = """
import numpy as np

def stubborn(view):
    return 99  # no column

def failing(view):
    raise KeyError("nothing to play")
"""


def test_illegal_moves_of_an_opponent_are_replaced_and_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(PLAYERS)
    play = {"pool_fraction": 0.0, "fixed_fraction": 0.5, "opponents": [f"{tmp_path / 'own.py'}:stubborn"]}
    run = train(tmp_path, "run", 12, self_play=play, display="plain")
    assert capsys.readouterr().out.count("chose an illegal move") == 1
    (member,) = end_of(run, 12)[2]["members"]
    assert member["wins"] > member["losses"] > 0, "it plays at random, and the learner gets better"


def test_an_opponent_that_raises_is_named_with_its_line_and_the_run_can_go_on(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(PLAYERS)
    with pytest.raises(PlayerError, match=r"failing failed in own.py line 8: KeyError"):
        train(tmp_path, "run", 4, self_play={"fixed_fraction": 0.5, "opponents": [f"{file}:failing"]})
    file.write_text("def failing(view):\n    return view.legal[0]\n")
    scramjet.train(resume=tmp_path / "run", display="quiet")


def test_a_stranger_cannot_name_players_of_his_own_code(tmp_path: Path) -> None:
    file, config = tmp_path / "evil.py", tmp_path / "run.toml"
    file.write_text("raise SystemExit('ran')")
    config.write_text(f'env = "connect_four"\n[self_play]\nfixed_fraction = 0.5\nopponents = ["{file}:choose"]\n')
    with pytest.raises(TrustError, match=r"evil.py:choose.*--trust"):
        scramjet.train(config, runs_dir=tmp_path, display="quiet")
    run = train(tmp_path, "run", 2)
    frozen = (run / "config.toml").read_text()
    (run / "config.toml").write_text(frozen.replace("opponents = []", f'opponents = ["{file}:choose"]'))
    with pytest.raises(TrustError, match=r"evil.py"):
        scramjet.train(resume=run, total_timesteps=6 * UPDATE, display="quiet")


def test_actors_beside_the_learner_play_against_the_pool_too(tmp_path: Path) -> None:
    run = train(tmp_path, "run", 16, mode="async", num_actors=2, advantage="vtrace")
    league = end_of(run, 16)[2]
    assert sum(member["wins"] + member["losses"] for member in league["members"]) > 10
    assert len(league["members"]) > 1
    scramjet.train(resume=run, total_timesteps=20 * UPDATE, display="quiet")


def test_an_exploiter_enters_the_pool_and_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploiter, "MOST_UPDATES", 3)
    begin_anew, moments = exploiter.Exploiter.begin_anew, []

    def begin_and_note(self: exploiter.Exploiter) -> None:
        before = [tensor for state in self._learner.optimizer.state.values() for tensor in state.values()]
        begin_anew(self)
        after = [tensor for state in self._learner.optimizer.state.values() for tensor in state.values()]
        assert [id(tensor) for tensor in after] == [id(tensor) for tensor in before]  # graphs hold their addresses
        moments.append([float(tensor.abs().max()) for tensor in after])

    monkeypatch.setattr(exploiter.Exploiter, "begin_anew", begin_and_note)
    run = train(tmp_path, "run", 8, self_play={**SMALL["self_play"], "exploiters": 1})
    assert moments[0] == []
    assert [bool(each) and not any(each) for each in moments[1:]] == [True, True]
    exploiters = [member for member in end_of(run, 8)[2]["members"] if member["kind"] == "exploiter"]
    assert [member["step"] for member in exploiters] == [3 * UPDATE, 6 * UPDATE]
    assert (run / "opponents" / "exploiters" / f"step_{3 * UPDATE:08d}" / "model.safetensors").is_file()


def test_a_player_that_you_named_does_not_vouch_for_another_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, source in (("mine", "def choose(view):\n    return view.legal[0]\n"), ("theirs", "raise SystemExit\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "player_a.py").write_text(source)
        opponents = 'opponents = ["player_a.py", "player_a:choose"]'
        config = f'env = "connect_four"\n[self_play]\nfixed_fraction = 0.5\n{opponents}\n'
        (tmp_path / folder / "run.toml").write_text(config)
    monkeypatch.chdir(tmp_path / "mine")
    fixed = {"fixed_fraction": 0.5, "opponents": ["player_a.py", "player_a:choose"]}
    train(tmp_path, "run", 2, self_play=fixed)
    monkeypatch.chdir(tmp_path / "theirs")
    monkeypatch.delitem(sys.modules, "player_a", raising=False)
    with pytest.raises(TrustError, match=r"player_a.py.*--trust"):
        scramjet.train(tmp_path / "theirs" / "run.toml", runs_dir=tmp_path, display="quiet")


def test_a_linked_folder_of_opponents_is_refused_and_nothing_behind_it_is_touched(tmp_path: Path) -> None:
    run, elsewhere = train(tmp_path, "run", 4), tmp_path / "elsewhere"
    (run / "opponents").rename(elsewhere)
    (elsewhere / "exploiters" / "step_00000007").mkdir(parents=True)
    (run / "opponents").symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match=r"opponents is a symbolic link"):
        scramjet.train(resume=run, total_timesteps=8 * UPDATE, display="quiet")
    assert (elsewhere / "exploiters" / "step_00000007").is_dir()


FORGED: dict[str, dict[str, Any]] = {
    "waiting": {"waiting": [[0]]},
    "more waiting": {"waiting": [[0] * 9]},
    "num_entered": {"num_entered": -5},
    "recent": {"recent": [-1.0, 0.0, 0.0]},
    "rating": {"rating": 1e308},
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_results_are_refused_in_words(tmp_path: Path, name: str) -> None:
    run = train(tmp_path, "run", 4)
    session = start.begin(start.StartRequest(resume=run, total_timesteps=8 * UPDATE))
    league = session.league
    assert league is not None
    with session.run, pytest.raises(ValueError, match=r"pool|game"):
        league.restore({**league.described(), **FORGED[name]}, league.tensors(), run, games_go_on=True, is_own=True)
    session.close()


def test_games_of_pettingzoo_are_played_against_the_pool_too(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic", reason="pip install 'scramjet[pettingzoo]'")
    run = train(tmp_path, "run", 4, env="pettingzoo:tictactoe_v3", env_parameters={}, checkpoint={"every": 0})
    members = end_of(run, 4)[2]["members"]
    assert sum(member["wins"] + member["draws"] + member["losses"] for member in members) > 10
