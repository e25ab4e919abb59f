"""Reads TOML within bounds, so that a file from a stranger cannot take much time or memory."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MAX_DOTS = 20
"""Most dots in a key."""

_TOML_QUOTED = re.compile(
    r'''"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'{3}.*?(?:\'{3}|\Z)|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|\#[^\n]*''', re.DOTALL
)
"""Strings and comments of a TOML file, those without an end too."""


def read_toml(text: str) -> Any:
    """TOML, without keys of thousands of parts (`a.a.a...`): reading one takes memory by the square of its length."""
    bare = re.split(r"[,=\n\[\]{}]", _TOML_QUOTED.sub("quoted", text))
    if max(piece.count(".") for piece in bare) > MAX_DOTS:
        raise ValueError(f"a key in it has more than {MAX_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep; a config has tables of values") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python's limit on the digits of a number, of which it does not say where
        raise ValueError("a whole number in it has thousands of digits") from None
