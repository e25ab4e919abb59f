"""Signatures that tell a user's own checkpoints from others': made with a key in the user's state folder.

A signature says who wrote a checkpoint, not that it is good. What nobody but the user can have written need not be
checked as a stranger's would; without a key everything is a stranger's.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from scramjet.runtime.user_state import UserRecords

_KEYS = UserRecords("keys", "runs that you resume will be checked as if somebody else had made them")
_NAME = "checkpoints"
_KEY_BYTES = 32


def sign(text: str) -> str | None:
    """The user's signature of a text; None where no key can be kept."""
    key = _key() or _new_key()
    return None if key is None else _signature(key, text)


def is_signed(text: str, signature: object) -> bool:
    """Whether the user has signed this text."""
    key = _key()
    if key is None or not isinstance(signature, str):
        return False
    return hmac.compare_digest(_signature(key, text).encode(), signature.encode(errors="replace"))


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key() -> bytes | None:
    kept = (_KEYS.read(_NAME) or {}).get("secret")
    try:
        key = bytes.fromhex(kept) if isinstance(kept, str) else b""
    except ValueError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _new_key() -> bytes | None:
    _KEYS.write(_NAME, {"secret": secrets.token_hex(_KEY_BYTES)})
    return _key()  # what is there now: another process may have written one too
