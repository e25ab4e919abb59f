"""Reads TOML within bounds, so that a file from a stranger cannot take much time or memory."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MAX_DOTS = 20
"""Maximum number of dots in a key."""
MAX_KEYS = 5_000
"""Maximum number of keys and tables in a file; ours have about 150."""
MAX_VALUES = 100_000
"""Maximum number of values in all its lists together."""

_TOML_QUOTED = re.compile(
    r'''"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'{3}.*?(?:\'{3}|\Z)|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|\#[^\n]*''', re.DOTALL
)
"""Strings and comments of a TOML file, those without an end too."""
_KEY_OR_TABLE = re.compile(r"[={]|^[ \t]*\[[^,\n]*\][ \t]*$", re.MULTILINE)


def read_toml(text: str) -> Any:
    """TOML within the bounds of `check_bounds`; a ValueError says what is wrong with it."""
    check_bounds(text)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep; a config has tables of values") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python's limit on the digits of a number, of which it does not say where
        raise ValueError("a whole number in it has thousands of digits") from None


def check_bounds(text: str) -> None:
    """Refuse, with a ValueError, TOML that takes seconds to read or to go through.

    A key of thousands of parts (`a.a.a...`) takes memory by the square of its length, too.
    """
    unquoted = _TOML_QUOTED.sub("quoted", text)
    if len(_KEY_OR_TABLE.findall(unquoted)) > MAX_KEYS:
        raise ValueError(f"it has more than {MAX_KEYS:,} keys and tables")
    if unquoted.count(",") > MAX_VALUES:
        raise ValueError(f"its lists have more than {MAX_VALUES:,} values")
    if max(piece.count(".") for piece in re.split(r"[,=\n\[\]{}]", unquoted)) > MAX_DOTS:
        raise ValueError(f"a key in it has more than {MAX_DOTS} dots")
