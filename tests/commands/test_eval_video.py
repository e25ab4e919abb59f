"""`scramjet eval --video`: what it writes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scramjet
from scramjet.cli import main
from tests.runtime.video.test_video_file import frames_of

pytest.importorskip("av")
pytest.importorskip("PIL")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scramjet.train(
        "tic_tac_toe", runs_dir=tmp_path_factory.mktemp("runs"), display="quiet", device="cpu", total_timesteps=128,
        num_envs=4, num_steps=16, minibatch_size=64, eval={"every": 0, "final_episodes": 0},
    ).run_path  # fmt: skip


def test_a_video_of_an_agent_is_written_and_its_returns_printed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video = tmp_path / "game.gif"
    assert main(["eval", str(run), "--video", str(video), "--fps", "4", "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{video}: ")
    assert "4 a second" in printed
    assert "returns" in printed
    assert len(frames_of(video)) >= 5  # a game has that many moves at least


def test_games_against_another_are_filmed_side_by_side(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video = tmp_path / "games.webm"
    words = ["eval", str(run), "--against", "greedy", "--video", str(video), "--games", "4", "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["frames"] == max(told["lengths"]) + 1 + 2  # and the last one for a second
    assert len(told["returns"]) == 4
    assert all(sum(returns) == 0 for returns in told["returns"])
    frames = frames_of(video)
    assert len(frames) == told["frames"]
    assert frames[0].shape[1] == pytest.approx(frames[0].shape[0], rel=0.1)  # two by two


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--video", "x.mp4", "--render"], "give one of them"),
        (["--fps", "3"], "--video FILE"),
        (["--video", "x.mkv"], "x.mp4"),
        (["--video", "nowhere/x.mp4"], "no folder"),
        (["--video", "x.mp4", "--episodes", "99"], "at most 36"),
        (["--video", "x.mp4", "--games", "2"], "--against"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_played(
    run: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(run), *words]) == 2
    assert said in capsys.readouterr().err
