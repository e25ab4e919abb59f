"""Settings that a library reads from the folder that one is in: a stranger's folder may hold them.

Numba may be told there which library to load, matplotlib to run LaTeX on a text. Neither can be kept from reading
them, so the command stops before the library is used.
"""

from __future__ import annotations

import os

from scramjet.errors import ConfigError


def refuse_settings_here(name: str, library: str, instead: str) -> None:
    """Refuse to go on in a folder with a file called `name`, which `library` would obey; `instead` is another way."""
    if os.path.lexists(name):
        raise ConfigError(
            f"{name} in the folder that you are in would be obeyed by {library}, and may have it run something; go to "
            f"another folder, or move the file away {instead}"
        )
