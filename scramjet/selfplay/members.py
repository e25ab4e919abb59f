"""The members of a run's pool of opponents, and their files in the run's folder.

opponents/step_00010000/         an earlier self; a checkpoint without trainer state, so every command can load it
opponents/given/step_00000001/   the first opponent that the user gave, as it was when the run began
opponents/exploiters/step_...    a snapshot of an exploiter
opponents/first/step_00010000/   what the policy was when its strength was first measured, see training/strength.py
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from scramjet.errors import CheckpointError
from scramjet.players.player import Player
from scramjet.runtime.checkpoint_format import read_record
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint, step_name
from scramjet.runtime.files import explain_disk_errors, remove_tree, temporary_path

FOLDER = "opponents"
"""The folder of a run that holds its opponents."""

Kind = Literal["self", "given", "exploiter", "first", "player"]
FOLDERS: dict[str, str] = {
    "self": FOLDER, "given": f"{FOLDER}/given", "exploiter": f"{FOLDER}/exploiters", "first": f"{FOLDER}/first",
}  # fmt: skip

SCORES = ("wins", "draws", "losses", "rating")


@dataclass(slots=True)
class Member:
    """One member of the pool: its policy or player, and our results against it."""

    number: int  # counted from 0 in the order of entry, never used twice
    name: str  # what metrics and tables call it
    kind: Kind
    step: int  # of the policy when it entered; 0 for members that were given
    digest: str = ""  # of its folder; empty for scripted players
    rating: float | None = None  # None until enough games were played
    wins: float = 0.0  # ours against it; older games count less
    draws: float = 0.0
    losses: float = 0.0
    has_left: bool = False  # the pool; its last games go on
    weights: Mapping[str, Tensor] | None = field(default=None, repr=False)
    player: Player | None = field(default=None, repr=False)

    @property
    def games(self) -> float:
        """Games against it, older ones counted less."""
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Our share of wins against it, draws counted half; two imagined games, one won, keep it from 0 and 1."""
        return (self.wins + 0.5 * self.draws + 1) / (self.games + 2)

    @property
    def folder(self) -> str:
        """Its folder below that of the run."""
        return f"{FOLDERS[self.kind]}/{step_name(self.step if self.kind != 'given' else self.number + 1)}"

    def described(self) -> dict[str, Any]:
        """The member and our results against it, for the metadata of a checkpoint."""
        plain = {name: getattr(self, name) for name in ("number", "name", "kind", "step", "digest", "has_left")}
        return plain | {name: getattr(self, name) for name in SCORES}

    @classmethod
    def from_description(cls, data: Any) -> Member:
        """The member that `described` gave; raises a ValueError for anything else."""
        kinds: dict[str, Any] = {"number": int, "name": str, "kind": str, "step": int, "digest": str}
        kinds |= {name: float | int for name in SCORES} | {"rating": float | int | None}
        kinds["has_left"] = bool
        if not isinstance(data, dict) or set(data) != set(kinds):
            raise ValueError("a member of the pool has other entries than expected")
        if not all(isinstance(data[name], kind) for name, kind in kinds.items()):
            raise ValueError(f"the member {data['name']!r} of the pool has an entry of the wrong kind")
        is_sound = data["kind"] in (*FOLDERS, "player") and 0 <= data["number"] < 2**31 and 0 <= data["step"] < 2**63
        rating = 0.0 if data["rating"] is None else data["rating"]
        if not is_sound or any(not 0 <= data[name] < 1e12 for name in SCORES[:3]) or not abs(rating) < 1e6:
            raise ValueError(f"the member {data['name']!r} of the pool has an entry out of range")
        return cls(**data)


class MemberFiles:
    """The files of a run's opponents: written whole or not at all, and checked by their hashes when they are read."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._used: set[str] = set()  # folders of members
        self._busy = threading.Lock()  # checkpoints are written, and old members removed, on a thread of their own
        for folder in FOLDERS.values():
            if (run / folder).is_symlink():
                raise CheckpointError(
                    f"{run / folder} is a symbolic link, which is not followed; put the folder itself in its place"
                )

    def save(self, member: Member, metadata: Mapping[str, Any]) -> str:
        """Write a member's weights; returns the digest of its folder. The same member gives the same digest."""
        assert member.weights is not None
        path = self._run / member.folder
        with self._busy:
            self._used.add(member.folder)
            saved = CheckpointStore(path.parent).save(int(path.name[5:]), member.weights, {}, metadata)
            return load_checkpoint(saved).digest

    def release(self, member: Member) -> None:
        """Say that a member is not needed any more, but for checkpoints that name it."""
        self._used.discard(member.folder)

    def load(self, member: Member) -> dict[str, Tensor]:
        """A member's weights; refuses a file that is damaged, or not the one that entered the pool."""
        path = self._run / member.folder
        self._used.add(member.folder)
        try:
            checkpoint = load_checkpoint(path)
        except CheckpointError as error:
            raise CheckpointError(
                f"the opponent {member.name} of this run cannot be read: {error}; put its folder back from a copy of "
                f"the run, or begin a new run from the checkpoint with --fork"
            ) from error
        if checkpoint.digest != member.digest:
            raise CheckpointError(
                f"'{path}' is not the opponent that entered the pool (its SHA-256 differs); put its folder back from a "
                f"copy of the run, or begin a new run from the checkpoint with --fork"
            )
        return checkpoint.model

    def remove_unused(self) -> None:
        """Remove the folders that neither a member nor any checkpoint of the run needs."""
        with self._busy:
            wanted, checkpoints = set(self._used), self._run / "checkpoints"
            for name in step_folders(checkpoints):
                with contextlib.suppress(CheckpointError):  # a damaged checkpoint needs no opponents
                    wanted |= set(_folders_in(read_record(checkpoints / name)["metadata"]))
            for kind in ("self", "exploiter") if not (self._run / FOLDER).is_symlink() else ():
                folder = self._run / FOLDERS[kind]
                with explain_disk_errors(folder):
                    for name in step_folders(folder):
                        if f"{FOLDERS[kind]}/{name}" not in wanted:
                            doomed = temporary_path(folder)  # a kill must not leave a part under this name
                            os.rename(folder / name, doomed)
                            remove_tree(doomed, folder)


def step_folders(folder: Path) -> list[str]:
    """The names of the folders of checkpoints in a folder; none where it is missing or a link."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    with os.scandir(folder) as entries:
        return [each.name for each in entries if each.name.startswith("step_") and each.is_dir(follow_symlinks=False)]


def _folders_in(metadata: Mapping[str, Any]) -> list[str]:
    """The folders of the opponents that a checkpoint with this metadata needs."""
    members = (metadata.get("self_play") or {}).get("members", [])
    return [member.folder for member in map(Member.from_description, members) if member.kind in FOLDERS]


def plain_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of a policy's tensors on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
