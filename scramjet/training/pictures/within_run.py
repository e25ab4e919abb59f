"""Videos within a run: every so many updates the policy as it is then plays an episode, drawn while training goes on.

The weights are copied on the training thread; another thread plays, draws and encodes. It has its own envs and random
numbers, so that the run is the same with and without videos. It pauses after each frame, to leave most of the time to
training. (A lower priority would make training wait: one that waits for a core may hold Python's lock.)
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from scramjet.errors import RunError
from scramjet.policies.policy import Policy
from scramjet.runtime.files import is_folder, make_folder
from scramjet.telemetry.progress import PhaseClock
from scramjet.telemetry.readable import short_path
from scramjet.training.display.interface import Display
from scramjet.training.pictures.episodes import Moment, watch
from scramjet.training.pictures.recording import record_moments
from scramjet.training.pictures.stages import Stage, picture_stage
from scramjet.training.seeds import evaluation_episodes
from scramjet.training.session import Session

FOLDER = "videos"
MOST_FRAMES, MOST_SECONDS = 1000, 60.0
"""A video ends after so many frames, or when it plays so long."""
PAUSES = 2.0
"""How long it pauses after each frame, in times that the frame took."""
WAITING_SECONDS, STOPPED_SECONDS = 60.0, 2.0
"""How long the end of a run waits for the video under way: one that has finished, and one that was stopped."""


class _GivenUpError(Exception):
    """The run has ended, and does not wait for the video."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A video that was written, or why it was not."""

    path: Path
    step: int
    problem: str = ""


class RunVideos:
    """Makes the videos of a run, one at a time; one that is due while another is being made is left out."""

    def __init__(self, session: Session, display: Display, clock: PhaseClock) -> None:
        self._session, self._display, self._clock = session, display, clock
        self._folder = session.run.path / FOLDER
        self._thread: threading.Thread | None = None
        self._made: deque[_Made] = deque()
        self._stage: Stage | None = None
        self._is_hurried, self._is_given_up = threading.Event(), threading.Event()
        self._has_told_of_failure = self._has_told_of_skips = False
        self._num_made = self._step = 0

    def record_if_due(self, update: int) -> None:
        """Begin a video of the policy after this update, if one is due and its file is not there from before a resume.

        The last update's is always due. Also tells sinks of videos that are ready.
        """
        session, every = self._session, self._session.config.video_every
        if not every:
            return
        is_last = update == session.num_updates
        if is_last:
            self._wait(WAITING_SECONDS)
        self._hand_over()
        if update % every and not is_last:
            return
        step = session.step_after(update)
        path = self._folder / f"step_{step:08d}.mp4"
        if self._is_busy:
            if not self._has_told_of_skips:
                self._has_told_of_skips = True
                session.news.append(f"no video at step {step:,}: one is still being made; --video-every is short")
        elif not os.path.lexists(path):
            self._begin(path, step)

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self, path: Path, step: int) -> None:
        """Copy the policy and start the thread that makes a video of it."""
        try:
            policy = copy.deepcopy(self._session.policy).cpu().eval()
        except Exception as error:  # a user's network
            self._made.append(_Made(path, step, _text(error)))
            return
        self._step = step
        self._thread = threading.Thread(
            target=self._make, args=(policy, path, step), name="scramjet-video", daemon=True
        )
        self._thread.start()

    def _make(self, policy: Policy, path: Path, step: int) -> None:
        """Make a video, on the thread."""
        try:
            if not os.path.lexists(self._folder):
                make_folder(self._folder)
            if not is_folder(self._folder):
                raise RunError(f"{self._folder} is no folder; move it away")
            self._record(policy, path, step)
            self._made.append(_Made(path, step))
        except _GivenUpError:
            pass
        except Exception as error:  # drawing is a user's code, and a disk may be full: training goes on
            self._made.append(_Made(path, step, _text(error)))

    def _record(self, policy: Policy, path: Path, step: int) -> None:
        config = self._session.config
        if self._stage is None:
            self._stage = picture_stage(config, 1, num_workers=1)
        stage = self._stage
        most = int(min(MOST_FRAMES, MOST_SECONDS * stage.frames_per_second))
        moments = watch(stage, policy, config, evaluation_episodes(config.seed, step))
        paced = self._paced(itertools.islice(moments, most))
        record_moments(paced, path, config.env, stage.frames_per_second, threads=1)

    def _paced(self, moments: Iterator[Moment]) -> Iterator[Moment]:
        """The moments with a pause after each, unless the run has ended and waits."""
        for moment in moments:
            began_at = time.monotonic()
            yield moment
            if self._is_given_up.is_set():
                raise _GivenUpError
            self._is_hurried.wait(PAUSES * (time.monotonic() - began_at))

    def _hand_over(self) -> None:
        """Tell sinks of videos that are ready, and the user of the first one that failed."""
        while self._made:
            made = self._made.popleft()
            if not made.problem:
                self._num_made += 1
                for sink in self._session.sinks:
                    self._give(getattr(sink, "video", None), made)
            elif not self._has_told_of_failure:
                self._has_told_of_failure = True
                self._session.news.append(f"no video at step {made.step:,}: {made.problem} (training goes on)")

    def _give(self, take: Callable[[Path, int], None] | None, made: _Made) -> None:
        if take is None:
            return
        try:
            take(made.path, made.step)
        except Exception as error:  # a user's sink
            self._session.news.append(f"a sink did not take the video {made.path.name}: {_text(error)}")

    def finish(self, *, is_stopped: bool) -> None:
        """Wait a while for the video under way, then give it up; says where the videos are.

        `is_stopped`: the run was asked to stop before its last update.
        """
        self._wait(STOPPED_SECONDS if is_stopped else WAITING_SECONDS)
        if self._is_busy:
            self._display.event(f"the video of step {self._step:,} was given up; scramjet eval --video makes one")
        self._end()
        self._hand_over()
        if self._num_made:
            what = "1 video" if self._num_made == 1 else f"{self._num_made} videos"
            self._display.event(f"{what} in {short_path(self._folder)}")

    def _wait(self, seconds: float) -> None:
        """Wait for the video under way without pauses, at most so long."""
        if not self._is_busy:
            return
        assert self._thread is not None
        self._is_hurried.set()
        self._thread.join(0.5)
        if self._is_busy:
            self._display.event(f"waiting for the video of step {self._step:,}")
            with self._clock.paused():
                self._thread.join(seconds)
        self._is_hurried.clear()

    def _end(self) -> None:
        """Give up the video under way and close its envs."""
        self._is_given_up.set()
        self._is_hurried.set()
        if self._thread is not None:
            self._thread.join(STOPPED_SECONDS)
        if self._stage is not None and not self._is_busy:
            with contextlib.suppress(Exception):  # an env of another's
                self._stage.pool.close()
            self._stage = None

    def __enter__(self) -> RunVideos:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


def _text(error: Exception) -> str:
    """What went wrong, in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, RunError) else f"{type(error).__name__}: {text}" if text else type(error).__name__
