"""The one gate: whatever runs, deletes, starts or believes something because a file says so needs an Approval.

Reading a file gives data, and data may come from a stranger. An Approval says that the user stands behind it. Only the
functions below make one; each belongs to one way in which a user says so, and a test knows who may call it.

    said(trust)                --trust on the command line, trust=True of a function that was called from Python
    given()                    what the user typed or built: words of the command line, arguments and objects in Python
    signed(text, signature)    a checkpoint that this user wrote, by its signature
    handed_over(data, digest)  the very bytes that the process which started this one has approved
    shipped(path)              a file that came with scramjet

Whoever needs an approval takes one as an argument and passes on the one it was given. What must be approved where is
said above: worlds and players by `runs/world_trust.py`.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final, NoReturn, final

from scramjet.runtime.private_files import is_signed
from scramjet.runtime.shipped import shipped_folder

_KEY: Final = object()


@final
class Approval:
    """Says that the user stands behind something. It is made by this module alone, and cannot be read from a file."""

    __slots__ = ("reason",)

    def __init__(self, reason: str, key: object) -> None:
        if key is not _KEY:
            raise TypeError("an approval is passed on, never made: runtime/trust.py says who may give one")
        self.reason = reason

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("there is one kind of approval")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an approval cannot be copied or written down: it holds in this process alone")

    def __repr__(self) -> str:
        return f"<approval: {self.reason}>"


def said(trust: bool) -> Approval | None:
    """The approval of `--trust`, or of `trust=True` that a user gave to a function; None without."""
    return Approval("the user trusts it", _KEY) if trust is True else None


def given() -> Approval:
    """The approval of what the user typed or built: words of the command line, arguments and objects in Python."""
    return Approval("the user gave it", _KEY)


def signed(text: str, signature: object) -> Approval | None:
    """The approval of what this user wrote, by its signature; None for anybody else's."""
    return Approval("the user wrote it", _KEY) if is_signed(text, signature) else None


def digest_of(data: bytes) -> str:
    """What a process tells the one it starts about bytes that it has approved."""
    return hashlib.sha256(data).hexdigest()


def handed_over(data: bytes, digest: str) -> Approval | None:
    """The approval of bytes whose digest came from the process that started this one; None for other bytes."""
    return Approval("the study approved it", _KEY) if hmac.compare_digest(digest_of(data), digest) else None


def shipped(path: Path) -> Approval | None:
    """The approval of a file that came with scramjet; None for any other."""
    folder = shipped_folder("configs")
    is_ours = folder is not None and path.resolve().is_relative_to(folder.resolve())
    return Approval("it came with scramjet", _KEY) if is_ours else None
