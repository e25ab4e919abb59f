"""Agents of checkpoints for the page, and the pictures of worlds that it is sent."""

import io
import os
import shutil
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scramjet
from scramjet.adapters.libraries import LIBRARIES
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Discrete, Env
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.errors import CheckpointError, RunError, ScramjetError, WorldError
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.web import context as agents_module
from scramjet.web.context import Agents, checkpoint_names, why_not_played
from scramjet.web.pictures import MOST_CHARACTERS, checked_picture, drawn, plain_text, png
from tests.helpers.world_files import WALK


def test_an_agent_is_the_policy_of_the_latest_the_best_or_a_named_checkpoint(runs: Path) -> None:
    agent = Agents(runs).load("pole")
    there = scramjet.load_policy(runs / "pole").state_dict()
    assert (agent.checkpoint_name, agent.name) == ("step_00000256", "pole at 256")
    assert all(torch.equal(tensor, there[name]) for name, tensor in agent.policy.state_dict().items())
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


def test_names_that_are_no_run_in_the_folder_and_no_checkpoint_of_a_run_are_refused(runs: Path) -> None:
    agents = Agents(runs)
    for name in ("../pole", "..", "", "/etc", "pole/checkpoints", "pole\0", "a" * 5000, "nobody"):
        with pytest.raises(RunError):
            agents.load(name)
    for name in ("../../pole", "step_00000256/..", "step_1", "", "/", "model.safetensors", "a\0"):
        with pytest.raises(CheckpointError, match="has no"):
            agents.load("pole", name)


def test_links_that_lead_out_are_not_followed_and_damage_is_told(copied: Path, runs: Path) -> None:
    agents, checkpoints = Agents(copied), copied / "pole/checkpoints"
    (copied / "linked").symlink_to(runs / "pole")
    with pytest.raises(RunError, match="link that leads out of"):
        agents.load("linked")
    (checkpoints / "step_00000999").symlink_to(runs / "pole/checkpoints/step_00000256")
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        agents.load("pole", "step_00000999")
    weights = checkpoints / "step_00000256/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    with pytest.raises(CheckpointError, match="step_00000256"):
        agents.load("pole", "step_00000256")
    shutil.rmtree(checkpoints)
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        agents.load("pole")


def test_a_network_of_the_users_own_cannot_be_rebuilt_and_says_so(copied: Path) -> None:
    newest = load_checkpoint(copied / "pole")
    store = CheckpointStore(copied / "pole/checkpoints")
    store.save(999, newest.model, newest.trainer, {**newest.metadata, "network": "my_project.Own"})
    with pytest.raises(CheckpointError, match=r"network of its own, my_project\.Own"):
        Agents(copied).load("pole")


def test_when_the_file_of_a_world_is_gone_the_runs_copy_plays_and_without_it_the_message_names_the_file(
    own_world: Path,
) -> None:
    world, runs = own_world / "walk.py", own_world / "runs"
    world.write_text(WALK + "\nraise ValueError('not today')\n")
    with pytest.raises(WorldError, match="not today"):
        Agents(runs).load("walk")
    world.unlink()
    assert "is not there: playing the run's copy" in Agents(runs).load("walk").note
    shutil.rmtree(runs / "walk/world")
    with pytest.raises(ScramjetError, match=r"walk\.py"):
        Agents(runs).load("walk")


def test_a_run_says_why_it_cannot_be_played_and_nothing_runs_for_the_answer(
    own_world: Path, runs: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [why_not_played(runs / name) for name in ("pole", "toe")] == ["", ""]
    newest, steps = load_checkpoint(copied / "pole"), iter(range(1000, 1010))
    store = CheckpointStore(copied / "pole/checkpoints")
    monkeypatch.setitem(LIBRARIES, "pettingzoo", replace(LIBRARIES["pettingzoo"], package="no-such-package"))
    for name, env, reason in (
        ("gone", {"name": "no_such_world"}, "unknown world 'no_such_world'"),
        ("module", {"name": "no.such:World"}, "which would import"),
        ("library", {"name": "pettingzoo:pursuit_v5"}, "needs no-such-package, which is not installed"),
        ("network", None, "network of its own, 'my_project.Own'"),
    ):
        changed = (
            {"network": "my_project.Own"} if env is None else {"config": {**newest.metadata["config"], "env": env}}
        )
        store.save(next(steps), newest.model, newest.trainer, {**newest.metadata, **changed})
        assert reason in why_not_played(copied / "pole"), name
    own, world = own_world / "runs/walk", own_world / "walk.py"
    world.write_text("raise SystemExit('it ran')")
    assert why_not_played(own) == ""  # the user's own file: what is wrong in it is told when it is watched
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(own_world / "of a stranger"))
    assert "add --trust" in why_not_played(own)
    assert why_not_played(own, trust=True) == ""
    world.unlink()
    assert "the run's copy of it would" in why_not_played(own)
    assert why_not_played(own, trust=True) == ""
    shutil.rmtree(own / "world")
    assert "is not there, and the run has no copy" in why_not_played(own, trust=True)


# --- pictures --------------------------------------------------------------------------------------------------


def decoded(data: bytes) -> np.ndarray:
    """A PNG of three colours without filters, all its sums checked."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, rest = [], data[8:]
    while rest:
        length = struct.unpack(">I", rest[:4])[0]
        assert struct.unpack(">I", rest[8 + length : 12 + length])[0] == zlib.crc32(rest[4 : 8 + length])
        chunks.append((rest[4:8], rest[8 : 8 + length]))
        rest = rest[12 + length :]
    width, height, *kind = struct.unpack(">IIBBBBB", dict(chunks)[b"IHDR"])
    assert (kind, chunks[-1]) == ([8, 2, 0, 0, 0], (b"IEND", b""))
    rows = np.frombuffer(zlib.decompress(dict(chunks)[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(height, width, 3)


def pictures() -> list[np.ndarray]:
    """Of several sizes, and one whose memory is turned around."""
    drawn_at_random = [np.random.default_rng(0).integers(0, 256, shape, np.uint8)
                       for shape in ((1, 1, 3), (5, 7, 3), (300, 2, 3), (4, 6, 3))]  # fmt: skip
    return [*drawn_at_random, drawn_at_random[-1][::-1, ::2]]


def test_a_picture_is_encoded_as_it_looks() -> None:
    for picture in pictures():
        assert np.array_equal(decoded(png(picture)), picture), picture.shape


@pytest.mark.rest
def test_pillow_reads_the_same_pixels() -> None:
    images = pytest.importorskip("PIL.Image")
    for picture in pictures():
        assert np.array_equal(np.asarray(images.open(io.BytesIO(png(picture)))), picture), picture.shape


class Plain(Env):
    """A world without `render`."""

    action_space = Discrete(2)

    def ascii(self, s: Any) -> str:
        return s


class Broken(Plain):
    """A world whose `render` is wrong."""

    def render(self, s: Any) -> np.ndarray:
        return s.picture


def test_a_world_is_shown_by_its_picture_or_else_as_harmless_text() -> None:
    pool = NativePool(CartPole(), 1, backend="interpreted")
    pool.reset(0)
    assert np.array_equal(drawn(pool.env, pool.record(0)), CartPole().render(pool.record(0)))
    assert drawn(Plain(), "x o\n o ") == "x o\n o "
    shown = plain_text("\x1b[2J" + "y" * 2 * MOST_CHARACTERS)  # moves no cursor, and ends
    assert "\x1b" not in shown
    assert len(shown) < 1.1 * MOST_CHARACTERS


def test_what_is_no_picture_is_refused_with_what_it_is() -> None:
    with pytest.raises(WorldError, match=r"Broken.render raised AttributeError"):
        drawn(Broken(), object())
    for picture, given in (
        (np.zeros((4, 4), np.uint8), r"uint8 \[4, 4\]"),
        (np.zeros((4, 4, 3), np.float32), r"float32 \[4, 4, 3\]"),
        (np.zeros((0, 4, 3), np.uint8), r"uint8 \[0, 4, 3\]"),
        (np.lib.stride_tricks.as_strided(np.zeros(3, np.uint8), (9999, 9999, 3), (0, 0, 1)), "9999 x 9999 pixels"),
        ("no picture", "<U10"),
    ):
        with pytest.raises(WorldError, match=given):
            checked_picture(picture, "World")
