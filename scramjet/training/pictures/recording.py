"""Videos of a policy that plays: `scramjet.record_video`, `scramjet eval --video`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from scramjet.envs.registry import stop_if_being_read
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.runtime.outputs import output_file
from scramjet.runtime.video.fitting import as_picture
from scramjet.runtime.video.grid import Grid
from scramjet.runtime.video.text_picture import text_picture
from scramjet.runtime.video.video_file import VideoFile, check_video
from scramjet.search.rows import SearchSettings
from scramjet.settings import coerce
from scramjet.training.config.run_config import RunConfig
from scramjet.training.pictures.episodes import Moment, watch
from scramjet.training.pictures.stages import Drawing, picture_stage
from scramjet.training.playing import checked_episodes, load_trained, note_on_played, search_settings, with_evaluation
from scramjet.training.seeds import unseen_episodes

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
