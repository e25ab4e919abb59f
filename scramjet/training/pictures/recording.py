"""Videos of a policy that plays: `scramjet.record_video`, `scramjet eval --video`, and videos within a run.

Within a run, every so many updates the policy as it is then plays an episode, drawn while training goes on. The weights
are copied on the training thread; another thread plays, draws and encodes. It has its own envs and random numbers, so
that the run is the same with and without videos. It pauses after each frame, to leave most of the time to training. (A
lower priority would make training wait: a thread that waits for a core may hold Python's lock.)
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from scramjet.envs.registry import stop_if_being_read
from scramjet.errors import ConfigError, RunError
from scramjet.policies.policy import Policy
from scramjet.runtime.files import is_folder, make_folder, output_file
from scramjet.runtime.video.pictures import Grid, as_picture, text_picture
from scramjet.runtime.video.video_file import VideoFile, check_video
from scramjet.search.rows import SearchSettings
from scramjet.settings import coerce
from scramjet.telemetry.progress import PhaseClock
from scramjet.telemetry.readable import short_path
from scramjet.training.config.run_config import RunConfig
from scramjet.training.display.interface import Display
from scramjet.training.pictures.stages import Drawing, Moment, Stage, picture_stage, watch
from scramjet.training.playing import checked_episodes, load_trained, note_on_played, search_settings, with_evaluation
from scramjet.training.seeds import evaluation_episodes, unseen_episodes
from scramjet.training.session import Session

if TYPE_CHECKING:
    from scramjet.adapters.objects import World

MOST_CELLS = 36
"""Episodes that fit into one picture."""
LAST_SECONDS = 1.0
"""How long the last frame stays at least."""

Progress = Callable[[int], None]
"""Called with the number of frames so far."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A video that was written."""

    path: Path
    num_frames: int
    frames_per_second: float
    returns: np.ndarray  # [episodes, players] float64
    lengths: np.ndarray  # [episodes] int64, in steps

    def __repr__(self) -> str:
        """One line: the file, how long it plays, and what its episodes brought."""
        returns = ", ".join(f"{value:.4g}" for value in self.returns.mean(1)[:4])
        more = ", ..." if len(self.returns) > 4 else ""
        return f"Recording({str(self.path)!r}, {self.seconds:.1f} s, returns=[{returns}{more}])"

    @property
    def seconds(self) -> float:
        """How long it plays."""
        return self.num_frames / self.frames_per_second


def record_video(
    path: str | PathLike[str],
    out: str | Path,
    episodes: int = 1,
    seed: int | None = None,
    network: nn.Module | None = None,
    env: World | None = None,
    *,
    fps: float | None = None,
    env_parameters: Mapping[str, Any] | None = None,
    samples: bool | None = None,
    max_steps: int | None = None,
    search: str | None = None,
    trust: bool = False,
) -> Recording:
    """Write a video of a run or a checkpoint at play; `scramjet eval --video` from Python.

    `out` ends with .mp4, .gif or .webm; a file that is there is replaced. Several episodes are shown side by side, and
    each stays at its end until all have ended. `fps` is how many steps are shown a second, by default what suits the
    world. The rest is as for `evaluate`, whose first episodes with the same seed these are.
    """
    stop_if_being_read()
    video, fps = Path(coerce("out", out, Path)), coerce("fps", fps, float | None)
    episodes, seed = checked_cells(episodes, seed)
    check_video(video, fps)
    chosen = None if env_parameters is None else coerce("env_parameters", env_parameters, dict[str, Any])
    policy, config, checkpoint = load_trained(
        path, network, env=env, choose_parameters=None if chosen is None else lambda name: chosen, trust=trust
    )
    if chosen is None and (note := note_on_played(config, checkpoint)):
        warnings.warn(note, stacklevel=2)
    settings = search_settings(search, policy, config, checkpoint)
    config = with_evaluation(config, samples, max_steps, searches=settings is not None)
    return record_policy(
        policy, config, video, episodes=episodes, seed=config.seed if seed is None else seed, fps=fps, search=settings
    )


def checked_cells(episodes: int, seed: int | None) -> tuple[int, int | None]:
    """The number of episodes in a video and the seed; raises a ConfigError where they do not fit into one."""
    episodes, seed = checked_episodes(episodes, seed)
    if episodes > MOST_CELLS:
        raise ConfigError(f"{episodes} episodes do not fit into one video; at most {MOST_CELLS} stand side by side")
    return episodes, seed


def record_policy(
    policy: Policy,
    config: RunConfig,
    path: Path,
    *,
    episodes: int,
    seed: int,
    fps: float | None = None,
    search: SearchSettings | None = None,
    progress: Progress | None = None,
) -> Recording:
    """Write a video of a policy at play, one cell an episode."""
    check_video(path, fps)
    stage = picture_stage(config, episodes)
    with contextlib.closing(stage.pool):
        moments = watch(stage, policy, config, unseen_episodes(seed), search=search)
        return record_moments(moments, output_file(path), config.env, fps or stage.frames_per_second, progress)


def record_moments(
    moments: Iterable[Moment], path: Path, name: str, fps: float, progress: Progress | None = None, *, threads: int = 0
) -> Recording:
    """Write a video of episodes while they are played; `name` is their world's in messages."""
    with VideoFile(path, fps, threads=threads) as video:
        for frame, moment in _frames(moments, name):
            video.add(frame)
            returns, lengths = moment.returns, moment.steps
            if progress is not None:
                progress(video.num_frames)
        for _ in range(int(LAST_SECONDS * fps)):
            video.add(frame)
    return Recording(path, video.num_frames, fps, returns, lengths)


def _frames(moments: Iterable[Moment], name: str) -> Iterator[tuple[np.ndarray, Moment]]:
    """The picture of all episodes at each moment; what did not change since the last is not drawn again."""
    grid: Grid | None = None
    drawings: list[Drawing] = []
    pictures: list[np.ndarray] = []
    for moment in moments:
        pictures = [
            pictures[i] if drawings and drawing is drawings[i] else picture_of(drawing, name)
            for i, drawing in enumerate(moment.drawings)
        ]
        drawings = moment.drawings
        grid = grid or Grid(pictures)
        yield grid.frame(pictures), moment


def picture_of(drawing: Drawing, name: str) -> np.ndarray:
    """Text or a picture of any kind as an RGB picture [height, width, 3] uint8."""
    return text_picture(drawing) if isinstance(drawing, str) else as_picture(name, drawing)


# --- videos within a run


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
