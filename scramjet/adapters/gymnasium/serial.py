"""Gymnasium envs stepped one after the other in this process: to debug, with breakpoints and plain tracebacks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scramjet.adapters.gymnasium.env_results import Ended, EnvFailedError, MakeEnv, row_arrays
from scramjet.adapters.gymnasium.env_state import UnsavableError
from scramjet.adapters.gymnasium.pool import GymPool
from scramjet.adapters.gymnasium.runner import GymRows
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Rows, check_count
from scramjet.errors import ConfigError, WorldError


class SerialPool(GymPool):
    """The same envs, rules and results as `WorkerPool`, without processes.

    It says that it `overlaps`, though its envs step in `recv`: training then sends its rows in the same halves as those
    of worker processes, and learns the same numbers.
    """

    def __init__(self, name: str, make_env: MakeEnv, num_envs: int) -> None:
        check_count("num_envs", num_envs)
        if not callable(make_env):
            raise ConfigError(f"make_env={make_env!r} must be a function that makes a gymnasium.Env")
        self._make_env = make_env
        try:
            self._envs = GymRows(name, make_env, range(num_envs))
        except EnvFailedError as error:
            raise WorldError(str(error)) from error
        super().__init__(name, self._envs.facts, num_envs)
        self._rows = row_arrays([np.zeros(shape, dtype) for shape, dtype in self._row_layout])
        self._envs.bind(self._rows)

    def _reset_envs(self, seeds: EpisodeSeed) -> None:
        try:
            self._envs.reset(seeds)
        except EnvFailedError as error:
            raise WorldError(str(error)) from error

    def _begin(self, rows: Rows) -> None:
        """Nothing yet: the envs step when they are waited for."""

    def _finish(self, rows: Rows) -> Iterable[Ended]:
        assert isinstance(rows, slice)
        try:
            return self._envs.step(rows.start, rows.stop)[0]
        except EnvFailedError as error:
            raise WorldError(str(error)) from error.__cause__

    def _try_saving(self) -> str | None:
        try:
            pair = GymRows(self.name, self._make_env, range(2))
        except (EnvFailedError, WorldError) as problem:  # there may be no more than there are
            return str(problem)
        try:
            return pair.why_inexact()
        finally:
            pair.close()

    def _capture(self) -> list[bytes]:
        return self._envs.capture()

    def _put_back(self, states: list[bytes], seeds: EpisodeSeed) -> str | None:
        try:
            self._envs.restore(states, seeds)
        except UnsavableError as problem:
            return str(problem)
        return None

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()
