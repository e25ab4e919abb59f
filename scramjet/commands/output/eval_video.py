"""The part of `scramjet eval` that writes videos: `scramjet eval RUN --video FILE`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scramjet.arena.head_to_head import Match
from scramjet.arena.play.watching import record_match
from scramjet.errors import printable
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.training.pictures.recording import Recording, checked_cells

SECONDS_BETWEEN_LINES = 0.2
RETURNS_SHOWN = 8
"""Episodes whose returns are printed one by one."""


def write_match_video(
    match: Match,
    games: int | None,
    path: Path,
    *,
    seed: int | None,
    fps: float | None,
    as_json: bool,
    show_progress: Callable[[str], None],
) -> int:
    """Write a video of some games of a match and print what is in it; returns the exit code."""
    games, seed = checked_cells(1 if games is None else games, seed)
    for note in match.notes:
        print(printable(note), file=sys.stderr, flush=True)
    seed = match.config.seed if seed is None else seed
    recording = record_match(match, games, path, seed=seed, fps=fps, progress=frame_counter(show_progress))
    print_recording(recording, match.checkpoint, as_json=as_json, show_progress=show_progress)
    return 0


def frame_counter(show_progress: Callable[[str], None]) -> Callable[[int], None]:
    """A function that is called with the number of frames so far and shows it now and then."""
    shown_at = time.monotonic()

    def count(num_frames: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at > SECONDS_BETWEEN_LINES:
            shown_at = time.monotonic()
            show_progress(f"drawing: {num_frames:,} frames")

    return count


def print_recording(
    recording: Recording, checkpoint: Checkpoint, *, as_json: bool, show_progress: Callable[[str], None]
) -> None:
    """Print where a video is, how long it plays, and the returns of its episodes."""
    show_progress("")
    if as_json:
        print(
            json.dumps(
                {
                    "checkpoint": str(checkpoint.path),
                    "step": checkpoint.step,
                    "video": str(recording.path),
                    "frames": recording.num_frames,
                    "frames_per_second": recording.frames_per_second,
                    "returns": recording.returns.tolist(),
                    "lengths": recording.lengths.tolist(),
                }
            )
        )
        return
    rate = f"{recording.frames_per_second:g} a second, {recording.seconds:.1f} s"
    print(printable(f"{recording.path}: {recording.num_frames:,} frames, {rate}"))
    returns = [_text(one) for one in recording.returns[:RETURNS_SHOWN].tolist()]
    more = ", ..." if len(recording.returns) > RETURNS_SHOWN else ""
    mean = (
        f" (mean {recording.returns.mean():.2f})"
        if recording.returns.shape[0] > 1 == recording.returns.shape[1]
        else ""
    )
    print(f"  returns  {', '.join(returns)}{more}{mean}")


def _text(returns: list[float]) -> str:
    """The returns of one episode, those of several players with a stroke between them."""
    return " / ".join(f"{gain:.2f}" for gain in returns)
