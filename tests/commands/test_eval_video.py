"""`scramjet eval --video`: what it writes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command_calls import call, refusal
from tests.helpers.videos import frames_of

pytest.importorskip("av")
pytest.importorskip("PIL")


def test_a_video_of_an_agent_is_written_and_its_returns_printed(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video = tmp_path / "pole.gif"
    assert call("eval", trained, "--video", video, "--fps", 4, "--episodes", 2, "--max-steps", 6) == 0
    printed = capsys.readouterr().out
    assert printed == f"{video}: 11 frames, 4 a second, 2.8 s\n  returns  6.00, 6.00 (mean 6.00)\n"
    assert len(frames_of(video)) == 7  # the last one stays for a second


def test_games_against_another_are_filmed_side_by_side(
    trained_game: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video = tmp_path / "games.webm"
    assert call("eval", trained_game, "--against", "greedy", "--video", video, "--games", 4, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["frames"] == max(told["lengths"]) + 1 + 2  # and the last one for a second
    assert len(told["returns"]) == 4
    assert all(sum(returns) == 0 for returns in told["returns"])
    frames = frames_of(video)
    assert len(frames) == told["frames"]
    assert frames[0].shape[1] == pytest.approx(frames[0].shape[0], rel=0.2)  # two by two


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
    trained: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(capsys, "eval", trained, *words)
