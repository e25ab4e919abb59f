"""The world that visitors of a shared page play."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.envs.api import Env
from scramjet.errors import ConfigError
from scramjet.training.config.run_config import RunConfig


def visitors_world(config: RunConfig, given: Collection[str]) -> Env:
    """The world that visitors of a shared page play: from the start, with a seat for each player.

    `given` are names of parameters that the user gave, which stay. Raises a ConfigError for a world that no page takes.
    """
    if config.frame_stack > 1:
        raise ConfigError(
            f"export-page cannot take a run with frame_stack={config.frame_stack}: the page shows its network one "
            f"observation at a time"
        )
    if not isinstance(config.make_env(), Env):
        raise ConfigError(
            f"export-page cannot take {config.env}: its rules are code of another library, not a native world whose "
            f"Python can be translated to run in a page"
        )
    with contextlib.suppress(ConfigError):  # a world for one
        config, _ = for_several(config)
    world = from_the_start(config, given)[0].make_env()
    assert isinstance(world, Env)
    return world
