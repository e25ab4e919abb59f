"""The bytes of a compiled kernel's file: a small header of plain values, then machine code.

There is no pickle in it: reading one makes numbers, text, lists and bytes, and imports and calls nothing.

    magic, 16 bytes · SHA-256 of all that follows · length of the header, 8 bytes · header, JSON · the parts
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

_MAGIC = b"scramjet kernel1"
_DIGEST, _LENGTH = hashlib.sha256().digest_size, 8


def pack(header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """The file's bytes. `header` holds None, bool, int, float, str, and lists and dicts of them; else TypeError."""
    described = {"sizes": [len(part) for part in parts], "header": header}
    text = json.dumps(described).encode()
    if json.loads(text) != described:
        raise TypeError("tuples and dicts with other keys than text would not come back as they are")
    body = b"".join([len(text).to_bytes(_LENGTH, "little"), text, *parts])
    return b"".join([_MAGIC, hashlib.sha256(body).digest(), body])


def unpack(content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The header and the parts; ValueError where the file is damaged or of another kind."""
    start = len(_MAGIC) + _DIGEST
    body = memoryview(content)[start:]
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != content[len(_MAGIC) : start]:
        raise ValueError("damaged, or no kernel")
    end = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    described = json.loads(bytes(body[_LENGTH:end]))
    parts = []
    for size in described["sizes"]:
        parts.append(bytes(body[end : end + size]))
        end += size
    return described["header"], parts
