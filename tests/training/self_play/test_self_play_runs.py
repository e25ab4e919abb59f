"""Runs against a pool of opponents: they resume bit for bit, keep the files they need, and refuse what cannot work."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.errors import CheckpointError, ConfigError, PlayerError, TrustError
from scramjet.training import start
from scramjet.training.self_play import exploiter
from tests.helpers.run_files import lines_of

BOARD = {"rows": 4, "cols": 4, "connect": 3, "opening_plies": 0}
MLP = {"hidden": [16], "encoder": "mlp", "symmetry": "none"}
MEMORY = {**MLP, "memory": "gru", "memory_size": 8}
PLAY = {"pool_fraction": 0.5, "opponents_at_once": 2, "snapshot_every": 2, "pool_size": 3, "change_every": 2}
SMALL: dict[str, Any] = {
    "num_envs": 16, "num_steps": 16, "minibatch_size": 64, "num_threads": 1, "learning_rate": 0.01,
    "entropy_coef": 0.01, "policy": MLP, "env_parameters": BOARD, "eval": {"every": 0, "final_episodes": 0},
    "checkpoint": {"every": 1, "keep_last_n": 2}, "self_play": PLAY, "device": "cpu", "display": "quiet",
}  # fmt: skip
UPDATE = 16 * 16

SNAKES = {"env": "snake", "env_parameters": {"snakes": 2, "step_reward": 0.0}}
RUNS: dict[str, dict[str, Any]] = {
    "flat": {},
    "memory": {"policy": MEMORY},
    "normalized": {"normalize_observations": True, "normalize_rewards": True},
    "torch": {"fused": False, "policy": {"hidden": [16], "encoder": "grid_cnn", "grid_channels": [4]}},
    "vtrace": {"advantage": "vtrace"},
    "fixed": {"self_play": {**PLAY, "fixed_fraction": 0.25, "opponents": ["random", "greedy"]}},
    "frames": {**SNAKES, "frame_stack": 2},
    "exploiter with memory": {"policy": MEMORY, "self_play": {**PLAY, "exploiters": 1, "memory": 20}},
    "agents": {**SNAKES, "self_play": {**PLAY, "selection": "newest", "snapshot_win_rate": 0.3}},
}
FEW = ("exploiter with memory", "fixed")


def train(runs_dir: Path, name: str, updates: int, **changes: Any) -> Path:
    settings = {**SMALL, **changes}
    env = settings.pop("env", "connect_four")
    scramjet.train(env, runs_dir=runs_dir, run_name=name, total_timesteps=updates * UPDATE, **settings)
    return runs_dir / name


def end_of(run: Path, updates: int) -> tuple[bytes, bytes, Any]:
    folder = run / "checkpoints" / f"step_{updates * UPDATE:08d}"
    league = json.loads((folder / "metadata.json").read_text())["metadata"]["self_play"]
    return (folder / "model.safetensors").read_bytes(), (folder / "trainer.safetensors").read_bytes(), league


def go_on(run: Path, updates: int) -> None:
    scramjet.train(resume=run, total_timesteps=updates * UPDATE, display="quiet")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates."""
    return train(tmp_path_factory.mktemp("trained"), "run", 4)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run", symlinks=True)


ON_GPU = {"device": "cuda", "self_play": {**PLAY, "fixed_fraction": 0.1, "opponents": ["random"]}}
CASES = [pytest.param(name, {}, marks=() if name in FEW else pytest.mark.rest) for name in RUNS]
CASES += [pytest.param(name, ON_GPU, marks=pytest.mark.gpu) for name in ("flat", "torch", "memory", "agents")]
CASES += [pytest.param("torch", {**ON_GPU, "env_device": "cpu"}, marks=pytest.mark.gpu)]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_a_resumed_run_ends_as_if_it_had_never_stopped(tmp_path: Path, name: str, place: dict[str, Any]) -> None:
    settings = {**RUNS[name], **place}
    whole = end_of(train(tmp_path, "whole", 14, **settings), 14)
    parts = train(tmp_path, "parts", 5, **settings)
    for updates in (8, 14):
        go_on(parts, updates)
    model, trainer, league = end_of(parts, 14)
    assert league == {**whole[2], "members": league["members"]}
    for ours, theirs in zip(league["members"], whole[2]["members"], strict=True):
        assert {**ours, "digest": ""} == {**theirs, "digest": ""}  # the digest covers the name of the run's folder
    assert (model, trainer) == whole[:2]
    assert sum(member["wins"] + member["losses"] for member in league["members"]) > 10


def test_a_damaged_or_foreign_member_and_a_linked_folder_of_them_are_refused_and_nothing_is_lost(run: Path) -> None:
    opponents, elsewhere = run / "opponents", run.parent / "elsewhere"
    kept = shutil.copytree(opponents, run.parent / "kept", symlinks=True)
    theirs = train(run.parent, "theirs", 2, seed=2) / "opponents" / "step_00000512"

    def damage() -> None:
        file = opponents / "step_00000000" / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"x")

    def link() -> None:
        opponents.rename(elsewhere)
        (elsewhere / "exploiters" / "step_00000007").mkdir(parents=True)
        opponents.symlink_to(elsewhere)

    for spoil, message in (
        (damage, r"opponent step_0 .*model.safetensors.*put its folder back"),
        (lambda: shutil.copytree(theirs, opponents / theirs.name, dirs_exist_ok=True), "not the opponent that entered"),
        (link, r"opponents is a symbolic link"),
    ):
        spoil()
        with pytest.raises(CheckpointError, match=message):
            go_on(run, 6)
        opponents.unlink() if opponents.is_symlink() else shutil.rmtree(opponents)
        shutil.copytree(kept, opponents, symlinks=True)
    assert (elsewhere / "exploiters" / "step_00000007").is_dir()
    go_on(run, 6)


def test_policies_of_other_runs_play_and_are_copied_into_the_run(run: Path, tmp_path: Path) -> None:
    fixed = {**PLAY, "opponents": [str(run), str(run / "opponents" / "step_00000512")]}
    ours = train(tmp_path, "ours", 5, self_play=fixed)
    shutil.rmtree(run)
    go_on(ours, 8)
    given = [member for member in end_of(ours, 8)[2]["members"] if member["kind"] == "given"]
    assert [member["name"] for member in given] == fixed["opponents"]


def test_members_stay_while_a_checkpoint_needs_them_and_the_best_is_the_strongest(tmp_path: Path) -> None:
    run = train(tmp_path, "run", 30, self_play={**PLAY, "memory": 1000})
    needed: set[str] = set()
    for metadata in (run / "checkpoints").glob("step_*/metadata.json"):
        members = json.loads(metadata.read_text())["metadata"]["self_play"]["members"]
        needed |= {f"step_{member['step']:08d}" for member in members}
    assert {path.name for path in (run / "opponents").glob("step_*")} == needed
    assert len(needed) <= 9  # of three checkpoints, the best among them
    assert (run / "opponents" / "step_00000000").is_dir(), "the first one is spread over time, too"
    best = json.loads((run / "checkpoints" / "best" / "metadata.json").read_text())["metadata"]
    assert best["best_return"] == best["self_play"]["rating"] > 1000
    last = lines_of(run)[-1]
    assert {"self_play/rating", "self_play/win_rate", "self_play/draws", "self_play/distinct_games"} <= set(last)
    assert 0 < last["self_play/distinct_games"] <= 1
    assert any(key.startswith("self_play/against/step_") for key in last)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"env": "cartpole", "env_parameters": {}}, "cartpole is played by one"),
    ({"env_parameters": {**BOARD, "random_opponent": True}}, "--env.no-random-opponent"),
    ({"self_play": {"pool_fraction": 0.5, "opponents": ["nobody"]}}, "'nobody', which cannot play"),
    ({"self_play": {"pool_fraction": 0.5, "opponents_at_once": 17}}, "--num-envs"),
    ({"self_play": {"fixed_fraction": 0.5}}, "--self-play.opponents random"),
    (
        {"policy": {"hidden": [2_000, 1_500]}, "self_play": {"pool_fraction": 0.5, "pool_size": 10_000}},
        "--self-play.pool-size",
    ),
]


def test_what_cannot_work_is_named_with_the_fix_and_leaves_no_run(tmp_path: Path) -> None:
    for changes, message in BAD:
        with pytest.raises(ConfigError, match=re.escape(message)):
            train(tmp_path, "run", 2, **changes)
        assert not (tmp_path / "run").exists(), message
    other = train(tmp_path, "other", 2, policy={"hidden": [8], "encoder": "mlp"})
    against = {"pool_fraction": 0.5, "opponents": [str(other)]}
    for changes, message in (({}, "holds another network"), ({"env_parameters": {}}, "trained on another world")):
        with pytest.raises(ConfigError, match=message):
            train(tmp_path, "run", 2, self_play=against, **changes)


PLAYERS = """
def stubborn(view):
    return 99  # no column

def failing(view):
    raise KeyError("nothing to play")
"""


def test_illegal_moves_of_an_opponent_are_replaced_and_told_once(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "own.py").write_text(PLAYERS)
    play = {"pool_fraction": 0.0, "fixed_fraction": 0.5, "opponents": [f"{tmp_path / 'own.py'}:stubborn"]}
    run = train(tmp_path, "run", 12, self_play=play, display="plain")
    assert capsys.readouterr().out.count("chose an illegal move") == 1
    (member,) = end_of(run, 12)[2]["members"]
    assert member["wins"] > member["losses"] > 0, "it plays at random, and the learner gets better"


def test_an_opponent_that_raises_is_named_with_its_line_and_the_run_can_go_on(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(PLAYERS)
    with pytest.raises(PlayerError, match=r"failing failed in own.py line 6: KeyError"):
        train(tmp_path, "run", 4, self_play={"fixed_fraction": 0.5, "opponents": [f"{file}:failing"]})
    file.write_text("def failing(view):\n    return view.legal[0]\n")
    scramjet.train(resume=tmp_path / "run", display="quiet")


def test_actors_beside_the_learner_play_against_the_pool_too(tmp_path: Path) -> None:
    run = train(tmp_path, "run", 16, mode="async", num_actors=2, advantage="vtrace")
    league = end_of(run, 16)[2]
    assert sum(member["wins"] + member["losses"] for member in league["members"]) > 10
    assert len(league["members"]) > 1
    go_on(run, 20)


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
    run = train(tmp_path, "run", 8, self_play={**PLAY, "exploiters": 1})
    assert moments[0] == []
    assert [bool(each) and not any(each) for each in moments[1:]] == [True, True]
    exploiters = [member for member in end_of(run, 8)[2]["members"] if member["kind"] == "exploiter"]
    assert [member["step"] for member in exploiters] == [3 * UPDATE, 6 * UPDATE]
    assert (run / "opponents" / "exploiters" / f"step_{3 * UPDATE:08d}" / "model.safetensors").is_file()


def test_a_player_that_you_named_does_not_vouch_for_another_of_its_name(tmp_path: Path, monkeypatch: Any) -> None:
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


FORGED: list[dict[str, Any]] = [
    {"waiting": [[0]]}, {"waiting": [[0] * 9]}, {"num_entered": -5}, {"recent": [-1.0, 0.0, 0.0]}, {"rating": 1e308},
]  # fmt: skip


def test_forged_results_are_refused_in_words(run: Path) -> None:
    session = start.begin(start.StartRequest(resume=run, total_timesteps=8 * UPDATE))
    league = session.league
    with session.run:
        for forged in FORGED:
            with pytest.raises(ValueError, match=r"pool|game"):
                league.restore({**league.described(), **forged}, league.tensors(), run, games_go_on=True, is_own=True)
    session.close()


@pytest.mark.rest
def test_games_of_pettingzoo_are_played_against_the_pool_too(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic", reason="pip install 'scramjet[pettingzoo]'")
    run = train(tmp_path, "run", 4, env="pettingzoo:tictactoe_v3", env_parameters={}, checkpoint={"every": 0})
    members = end_of(run, 4)[2]["members"]
    assert sum(member["wins"] + member["draws"] + member["losses"] for member in members) > 10
