"""Whether the names in `log_info` can be found in a world's `info`."""

from __future__ import annotations

from scramjet.adapters.registry import library_of
from scramjet.errors import ConfigError, shortened

MOST_NAMES = 64
LONGEST_NAME = 100


def check_log_info(env: str, names: tuple[str, ...]) -> None:
    """Refuse names for a world without `info`, and names that are none."""
    if not names:
        return
    library = library_of(env)
    if library is None:
        raise ConfigError(
            f"log_info={list(names)} names numbers in Gymnasium's info, and {shortened(env)} is a native world, which "
            f"has none: list them in its stat_names and write stats() (docs/writing-environments.md)"
        )
    if not library.tells_info:
        raise ConfigError(
            f"log_info={list(names)}, and {shortened(env)} steps games that keep no info of their last step; leave it "
            f"out, or use single games such as gym:ALE/Pong-v5"
        )
    if len(names) > MOST_NAMES or len(set(names)) < len(names):
        raise ConfigError(f"log_info has {len(names)} names; give up to {MOST_NAMES}, each once")
    for name in names:
        if not name.strip("/") or name.startswith("/") or len(name) > LONGEST_NAME or not name.isprintable():
            raise ConfigError(
                f"log_info: {shortened(name)} is no name of a number in info; write success, or reward/x for "
                f'info["reward"]["x"]'
            )
