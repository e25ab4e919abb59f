"""Texts and values that runs' files hold, cut to what a person can look at."""

from __future__ import annotations

import hashlib
import json
from typing import Any

MOST_CHARACTERS = 1_000


def cut_text(text: str) -> str:
    """A text as it is, or the beginning of a long one with its length and a hash: equal where the whole texts are."""
    if len(text) <= MOST_CHARACTERS:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{text[:MOST_CHARACTERS]}... ({len(text):,} characters, sha256 {digest})"


def cut_value(value: Any) -> Any:
    """A value of JSON as it is, or a large one as text that was cut."""
    if isinstance(value, str):
        return cut_text(value)
    if not isinstance(value, list | dict):
        return value
    text = json.dumps(value)
    return value if len(text) <= MOST_CHARACTERS else cut_text(text)
