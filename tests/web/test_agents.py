"""Agents of checkpoints for the page."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

import scramjet
from scramjet.errors import CheckpointError, RunError, ScramjetError, TrustError, WorldError
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.web import agents as agents_module
from scramjet.web.agents import Agents, checkpoint_names
from tests.helpers.small_runs import train_small
from tests.helpers.world_files import WALK


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents") / "runs"
    train_small(folder, "pole", "cartpole")
    return folder


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    """The runs once more, to damage them."""
    shutil.copytree(runs, tmp_path / "runs", symlinks=True)
    return tmp_path / "runs"


def test_an_agent_is_the_policy_that_load_policy_reads(runs: Path) -> None:
    agent = Agents(runs).load("pole")
    there = scramjet.load_policy(runs / "pole").state_dict()
    assert agent.checkpoint_name == "step_00000256"
    assert agent.name == "pole at 256"
    assert all(torch.equal(tensor, there[name]) for name, tensor in agent.policy.state_dict().items())


def test_latest_best_and_a_step_are_the_checkpoints_of_those_names(runs: Path) -> None:
    agents, folder = Agents(runs), runs / "pole/checkpoints"
    assert agents.load("pole", "latest").checkpoint_name == os.readlink(folder / "latest")
    assert agents.load("pole", "best").checkpoint_name == os.readlink(folder / "best")
    assert agents.load("pole", "step_00000128").checkpoint.step == 128
    assert checkpoint_names(runs, "pole") == sorted(each for each in os.listdir(folder) if each.startswith("step_"))


def test_a_checkpoint_is_read_once_until_it_changes(copied: Path) -> None:
    agents = Agents(copied)
    first = agents.load("pole")
    assert agents.load("pole") is first
    os.utime(copied / "pole/checkpoints/step_00000256/metadata.json", (1, 1))
    assert agents.load("pole") is not first


def test_only_the_agents_used_last_are_kept(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_module, "MOST_AGENTS", 2)
    agents = Agents(runs)
    first, second = agents.load("pole", "step_00000128"), agents.load("pole", "step_00000192")
    agents.load("pole", "step_00000128")
    agents.load("pole", "step_00000256")
    assert agents.load("pole", "step_00000128") is first
    assert agents.load("pole", "step_00000192") is not second


@pytest.mark.parametrize("name", ["../pole", "..", "", "/etc", "pole/checkpoints", "pole\0", "a" * 5000, "nobody"])
def test_a_name_that_is_no_run_in_the_folder_is_refused(runs: Path, name: str) -> None:
    with pytest.raises(RunError):
        Agents(runs).load(name)


@pytest.mark.parametrize("name", ["../../pole", "step_00000256/..", "step_1", "", "/", "model.safetensors", "a\0"])
def test_a_name_that_is_no_checkpoint_of_the_run_is_refused(runs: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="has no"):
        Agents(runs).load("pole", name)


def test_a_run_that_is_a_link_out_of_the_folder_is_not_followed(copied: Path, runs: Path) -> None:
    (copied / "linked").symlink_to(runs / "pole")
    with pytest.raises(RunError, match="link that leads out of"):
        Agents(copied).load("linked")


def test_a_checkpoint_that_is_a_link_out_of_its_run_is_not_followed(copied: Path, runs: Path) -> None:
    (copied / "pole/checkpoints/step_00000999").symlink_to(runs / "pole/checkpoints/step_00000256")
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        Agents(copied).load("pole", "step_00000999")


def test_a_run_without_a_checkpoint_says_so(copied: Path) -> None:
    shutil.rmtree(copied / "pole/checkpoints")
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        Agents(copied).load("pole")


def test_a_damaged_checkpoint_is_refused(copied: Path) -> None:
    weights = copied / "pole/checkpoints/step_00000256/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    with pytest.raises(CheckpointError, match="step_00000256"):
        Agents(copied).load("pole")


def test_a_network_of_the_users_own_cannot_be_rebuilt_and_says_so(copied: Path) -> None:
    newest = load_checkpoint(copied / "pole")
    store = CheckpointStore(copied / "pole/checkpoints")
    store.save(999, newest.model, newest.trainer, {**newest.metadata, "network": "my_project.Own"})
    with pytest.raises(CheckpointError, match=r"network of its own, my_project\.Own"):
        Agents(copied).load("pole")


class TestWorldsInFiles:
    """A user's own world, which he trained."""

    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
        (tmp_path / "walk.py").write_text(WALK)
        train_small(tmp_path / "runs", "walk", str(tmp_path / "walk.py"), total_timesteps=64)
        return tmp_path

    def test_it_plays_without_a_question(self, place: Path) -> None:
        assert Agents(place / "runs").load("walk").note == ""

    def test_when_its_file_is_gone_the_runs_copy_plays_and_a_note_says_so(self, place: Path) -> None:
        (place / "walk.py").unlink()
        assert "is not there: playing the run's copy" in Agents(place / "runs").load("walk").note

    def test_when_the_copy_is_gone_too_the_message_names_the_file(self, place: Path) -> None:
        (place / "walk.py").unlink()
        shutil.rmtree(place / "runs/walk/world")
        with pytest.raises(ScramjetError, match=r"walk\.py"):
            Agents(place / "runs").load("walk")

    def test_a_stranger_s_world_runs_only_with_trust(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SCRAMJET_STATE_DIR", str(place / "another user"))
        with pytest.raises(TrustError, match="--trust"):
            Agents(place / "runs").load("walk")
        assert Agents(place / "runs", trust=True).load("walk").config.env.endswith("walk.py")

    def test_a_world_that_fails_to_load_is_named(self, place: Path) -> None:
        (place / "walk.py").write_text(WALK + "\nraise ValueError('not today')\n")
        with pytest.raises(WorldError, match="not today"):
            Agents(place / "runs").load("walk")
