"""A run's world with a seat for each player, where the run was trained against opponents of the world's own."""

from __future__ import annotations

from dataclasses import replace

from scramjet.engine.layout import num_players
from scramjet.envs.api import Env
from scramjet.training.config.run_config import RunConfig


def with_seats(config: RunConfig) -> RunConfig:
    """The config with its world's other seats open to players.

    A world that its parameters leave with one player, as `random_opponent` does Connect Four, gets the parameter back
    to its default that opens the other seats and keeps observations and actions as they are. Where there is none, the
    config is returned as it is.
    """
    world = config.make_env()
    if not isinstance(world, Env) or num_players(world) > 1:
        return config
    defaults = world.parameter_defaults()
    for name in (name for name, value in world.parameters.items() if value != defaults[name]):
        opened = replace(config, env_parameters={**config.env_parameters, name: defaults[name]})
        other = opened.make_env()
        assert isinstance(other, Env)
        keeps_spaces = all(
            repr(getattr(other, space)) == repr(getattr(world, space))
            for space in ("observation_space", "action_space")
        )
        if num_players(other) > 1 and keeps_spaces:
            return opened
    return config
