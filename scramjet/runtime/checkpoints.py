"""Checkpoints on disk: each appears whole or not at all, and a damaged one is never believed.

    checkpoints/step_00010000/    one checkpoint (see checkpoint_format.py)
    checkpoints/latest, best      symlinks to two of them

`CheckpointStore` is the one writer; `load_checkpoint` reads, also beside a running writer; `Background` is the thread
that writes while training goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scramjet.errors import CheckpointError, ConfigError, did_you_mean
from scramjet.runtime.checkpoint_format import (
    FORMAT_VERSION,
    METADATA_FILE,
    Checkpoint,
    encode,
    load_folder,
    read_record,
)
from scramjet.runtime.files import (
    TEMPORARY_PREFIX,
    exchange_paths,
    explain_disk_errors,
    fsync_directory,
    is_folder,
    make_folder,
    read_link,
    remove_tree,
    replace_symlink,
    temporary_path,
    write_atomic,
    write_synced,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FORMAT_VERSION", "Checkpoint", "CheckpointStore", "checkpoints_of", "load_checkpoint", "step_name"]

_REPLACED_PREFIX = ".old-"
_STEP = re.compile(r"step_([0-9]{8,})")
_LINKS = ("latest", "best")
_MAX_DAMAGED = 50
"""Damaged checkpoints that are read before the search for a whole one ends."""


class CheckpointStore:
    """The writer of one run's checkpoints. The caller holds the run's lock while the store is in use.

    `keep_last_n` is how many checkpoints stay; None keeps all. `best` and `latest` always stay. `check` is called
    before each save and may refuse it (`Run.check_lock`).
    """

    def __init__(
        self, directory: Path, keep_last_n: int | None = None, check: Callable[[], None] = lambda: None
    ) -> None:
        if keep_last_n is not None and keep_last_n < 1:
            raise ConfigError(f"keep_last_n={keep_last_n} would keep no checkpoint; use 1 or more")
        self.directory = directory
        self._keep_last_n = keep_last_n
        self._check = check
        with explain_disk_errors(directory):
            self._make_directory()
            self._clear_up_after_a_kill()

    def save(
        self,
        step: int,
        model: Mapping[str, Tensor],
        trainer: Mapping[str, Tensor],
        metadata: Mapping[str, Any],
        is_best: bool = False,
    ) -> Path:
        """Save a checkpoint, point `latest` (and `best`) at it, remove those too old, return its folder.

        `metadata` holds what JSON can hold, finite numbers only. When this returns the checkpoint is on the
        disk; when it raises, every checkpoint that was there before still is.
        """
        if step < 0:
            raise RuntimeError(f"a checkpoint cannot have the negative step {step}")
        files = encode(step, model, trainer, metadata, is_best)
        path = self.directory / step_name(step)
        self._check()
        with explain_disk_errors(path):
            self._make_directory()
            if _has_same_tensors(path, files[METADATA_FILE]):
                write_atomic(path / METADATA_FILE, files[METADATA_FILE])
            else:
                with _written_aside(self.directory, files) as unfinished:
                    self._move_into_place(unfinished, path)
            if is_best:
                replace_symlink(self.directory / "best", path.name)
            replace_symlink(
                self.directory / "latest", path.name
            )  # last: a save is finished when this link points at it
            self._prune(step)
        return path

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints here, whole or not, ascending."""
        return _steps_in(self.directory)

    def load_latest_whole(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest whole checkpoint, and for each damaged newer one a message that says why not."""
        return _load_newest_whole(self.directory)

    def _make_directory(self) -> None:
        """Make the folder of checkpoints where it is missing; a link in its place could lead anywhere."""
        _refuse_linked(self.directory)
        make_folder(self.directory)

    def _move_into_place(self, unfinished: Path, path: Path) -> None:
        if not is_folder(path):
            os.rename(unfinished, path)
        elif exchange_paths(unfinished, path):
            fsync_directory(self.directory)  # before the old one goes: a power cut may bring its name back
            remove_tree(unfinished, self.directory)
        else:
            self._replace_in_two_steps(unfinished, path)
        fsync_directory(self.directory)

    def _replace_in_two_steps(self, unfinished: Path, path: Path) -> None:
        """Replace a checkpoint where folders cannot be exchanged; a kill in between is put right on start."""
        replaced = self.directory / f"{_REPLACED_PREFIX}{path.name}"
        remove_tree(replaced, self.directory)
        os.rename(path, replaced)
        try:
            os.rename(unfinished, path)
        except BaseException:
            os.rename(replaced, path)
            raise
        fsync_directory(self.directory)
        remove_tree(replaced, self.directory)

    def _prune(self, newest_step: int) -> None:
        """Remove the checkpoints before `newest_step` that are too old to keep.

        Later ones stay: they are damaged, or resuming would have begun there, and training will replace them.
        """
        if self._keep_last_n is None:
            return
        wanted = {read_link(self.directory / name) for name in _LINKS}
        past = [step for step in self.steps() if step <= newest_step]
        for step in past[: -self._keep_last_n]:
            if step_name(step) not in wanted:
                # Renamed first: a kill while removing must not leave a part under a checkpoint's name.
                doomed = temporary_path(self.directory)
                os.rename(self.directory / step_name(step), doomed)
                remove_tree(doomed, self.directory)

    def _clear_up_after_a_kill(self) -> None:
        for replaced in self.directory.glob(f"{_REPLACED_PREFIX}step_*"):
            path = self.directory / replaced.name.removeprefix(_REPLACED_PREFIX)
            if os.path.lexists(path):
                remove_tree(replaced, self.directory)
            elif is_folder(replaced):
                os.rename(replaced, path)
        for unfinished in self.directory.glob(f"{TEMPORARY_PREFIX}*"):
            _remove(unfinished)
        for step in self.steps():  # real folders only: a link called step_... may lead to somebody's files
            for unfinished in (self.directory / step_name(step)).glob(f"{TEMPORARY_PREFIX}*"):
                _remove(unfinished)
        self._finish_links()

    def _finish_links(self) -> None:
        """Point the links at the newest checkpoint, where a kill came after its save and before theirs."""
        latest, best = self.directory / "latest", self.directory / "best"
        for step in self.steps()[-1:]:
            with contextlib.suppress(CheckpointError):  # a damaged one is no target
                name = step_name(step)
                is_best = read_record(self.directory / name)["is_best"]
                if read_link(latest) == name and (read_link(best) == name or not is_best):
                    return
                load_folder(self.directory / name)
                if is_best:
                    replace_symlink(best, name)
                replace_symlink(latest, name)


def _remove(path: Path) -> None:
    """Remove what stands at `path`; of a link, the link alone."""
    if is_folder(path):
        remove_tree(path, path.parent)
    else:
        path.unlink(missing_ok=True)


def write_checkpoint(
    path: Path, step: int, model: Mapping[str, Tensor], trainer: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Write a checkpoint that is of no run to a folder, whole or not at all; another checkpoint there is replaced.

    Raises a CheckpointError where something else stands there.
    """
    files = encode(step, model, trainer, metadata, False)
    with explain_disk_errors(path):
        if os.path.lexists(path) and not (is_folder(path) and {*os.listdir(path)} == {*files}):
            raise CheckpointError(f"{path} exists and is no saved policy; choose another name, or remove it first")
        folder = path.parent
        make_folder(folder)
        with _written_aside(folder, files) as unfinished:
            if os.path.lexists(path) and not exchange_paths(unfinished, path):
                remove_tree(path, folder)
            if not os.path.lexists(path):
                os.rename(unfinished, path)
            fsync_directory(folder)


@contextlib.contextmanager
def _written_aside(folder: Path, files: Mapping[str, bytes]) -> Iterator[Path]:
    """A hidden folder in `folder` with these files, on the disk; what is left of it in the end is removed."""
    unfinished = temporary_path(folder)
    try:
        unfinished.mkdir()
        for name, data in files.items():
            write_synced(unfinished / name, data)
        fsync_directory(unfinished)
        yield unfinished
    finally:
        remove_tree(unfinished, folder)  # on a full disk this gives the space back


def step_name(step: int) -> str:
    """Return the name of the folder of the checkpoint at `step`."""
    return f"step_{step:08d}"


def checkpoints_of(run: Path) -> list[Path]:
    """Return the folders of all checkpoints of a run, whole or not, oldest first; also beside a running writer."""
    directory = _checkpoints_under(run)
    return [directory / step_name(step) for step in _steps_in(directory)]


def load_checkpoint(path: Path) -> Checkpoint:
    """Load a checkpoint, given its folder, a `latest` or `best` link, or a run (then its newest whole one).

    Raises a CheckpointError that names the file and what is wrong with it; no code in it is run.
    """
    while True:
        before = _state_of(path)
        try:
            return _load_once(path)
        except CheckpointError:
            if _state_of(path) == before:
                raise
            # A running writer has moved on and removed the one we were reading: there is a newer one.


def _load_once(path: Path) -> Checkpoint:
    # os.path answers False where pathlib raises: for NUL bytes and for names too long
    if path.parent.name == "checkpoints":
        _refuse_linked(path.parent)
    if _is_link_of_a_run(path):
        return load_folder(_follow_link(path))
    if os.path.isfile(path):
        raise CheckpointError(f"{path} is a file, not a checkpoint; give a folder such as {step_name(1000)}")
    if not os.path.isdir(path):
        raise CheckpointError(_describe_missing(path))
    if os.path.lexists(path / METADATA_FILE) or _step_of(path.name) is not None:
        return load_folder(path.resolve())
    directory = _checkpoints_under(path)
    checkpoint, problems = _load_newest_whole(directory)
    if checkpoint is None:
        found = "; ".join(problems) or "none was saved yet"
        raise CheckpointError(f"{path} has no whole checkpoint: {found}")
    return checkpoint


def _state_of(path: Path) -> tuple[str | None, list[int]]:
    """What a writer changes when it saves: where a link points, which checkpoints there are."""
    return read_link(path), _steps_in(_checkpoints_under(path))


def _checkpoints_under(path: Path) -> Path:
    _refuse_linked(path / "checkpoints")
    return path / "checkpoints" if os.path.isdir(path / "checkpoints") else path


def _refuse_linked(directory: Path) -> None:
    if os.path.islink(directory):
        raise CheckpointError(
            f"{directory} is a symbolic link, which is not followed; put the folder itself in its place (to keep a run "
            f"on another disk, link to the run's folder)"
        )


def _load_newest_whole(directory: Path) -> tuple[Checkpoint | None, list[str]]:
    problems: list[str] = []
    for step in reversed(_steps_in(directory)):
        if len(problems) == _MAX_DAMAGED:
            return None, [f"the newest {_MAX_DAMAGED} are damaged, older ones were not read", *problems]
        path = directory / step_name(step)
        try:
            checkpoint = load_folder(path)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        if checkpoint.step == step:
            return checkpoint, problems
        problems.append(f"checkpoint {path} is of step {checkpoint.step}; give the folder its right name")
    return None, problems


def _steps_in(directory: Path) -> list[int]:
    try:
        with os.scandir(directory) as entries:
            folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except PermissionError as error:
        raise CheckpointError(f"{directory} cannot be read: permission denied; check its mode") from error
    except (OSError, ValueError):  # not there, or no path at all
        return []
    return sorted(step for step in map(_step_of, folders) if step is not None)


def _step_of(name: str) -> int | None:
    match = _STEP.fullmatch(name)
    # Only names we would give ourselves: a step_ with zeros too many is somebody else's folder.
    return int(match[1]) if match and step_name(int(match[1])) == name else None


def _has_same_tensors(path: Path, metadata: bytes) -> bool:
    """Say whether `path` holds a whole checkpoint with the very tensors that `metadata` describes."""
    if not is_folder(path):
        return False
    try:
        load_folder(path)
        return bool(read_record(path)["files"] == json.loads(metadata)["files"])
    except CheckpointError:
        return False


def _is_link_of_a_run(path: Path) -> bool:
    """Say whether `path` is `latest`, `best` or what a stranger put beside them, and no link of the user's own."""
    if path.name in _LINKS:
        return os.path.islink(path) or os.path.isfile(path)
    return path.parent.name == "checkpoints" and os.path.islink(path)


def _follow_link(link: Path) -> Path:
    """The checkpoint that `latest` or `best` stands for: one beside it, and never elsewhere."""
    name = read_link(link) or ""
    if _step_of(name) is None:
        kind = "symbolic link" if os.path.islink(link) else "file"
        raise CheckpointError(
            f"{link} is a {kind} that names no checkpoint beside it, and is not followed; "
            f"give one of the checkpoints in {link.parent}/"
        )
    target = link.parent.resolve() / name
    if not is_folder(target):
        raise CheckpointError(_describe_missing(link))
    return target


def _describe_missing(path: Path) -> str:
    target = read_link(path)
    if target is not None:
        return f"{path} points at {target}, which is gone; use another checkpoint in {path.parent}/"
    siblings: list[str] = []
    with contextlib.suppress(OSError, ValueError):  # ValueError: a name that no file can have
        siblings = [name for name in os.listdir(path.parent) if not name.startswith(".")]
    nearest = did_you_mean(path.name, siblings)
    return f"there is no checkpoint at {path}.{nearest or ' Give the folder of a run or of one of its checkpoints.'}"


# --- A thread for work in the background: training goes on while a checkpoint is written


_Result = TypeVar("_Result")


class Background(Generic[_Result]):
    """Does one piece of work after the other on its own thread; an error there is raised by the next call here.

    Leaving its `with` block waits for what is under way.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scramjet-background")
        self._under_way: Future[_Result] | None = None

    def start(self, work: Callable[[], _Result]) -> list[_Result]:
        """Begin a piece of work once the one before is done; returns what `wait` does for that one."""
        done = self.wait()
        self._under_way = self._executor.submit(work)
        return done

    def finished(self) -> list[_Result]:
        """A list with the result of the work if it has ended since the last call, else an empty list; does not wait."""
        return self.wait() if self._under_way is not None and self._under_way.done() else []

    def wait(self) -> list[_Result]:
        """Wait for the work under way; a list with its result, or an empty list where there was none."""
        under_way, self._under_way = self._under_way, None
        return [] if under_way is None else [under_way.result()]

    def __enter__(self) -> Background[_Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown()
        if error is None:
            self.wait()
