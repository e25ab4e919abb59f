"""What runs in a process of Ray's: envs and a policy that play trajectories with the weights they are sent."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scramjet.adapters.factories import adopt_factory, factory_of, is_given, pickled
from scramjet.adapters.gymnasium.worker_pool import QUICK_SECONDS
from scramjet.adapters.registry import is_foreign
from scramjet.adapters.world_code import code_of, file_in, sources_of
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Episodes
from scramjet.envs.api import Env
from scramjet.envs.given import adopt_class, given_class
from scramjet.envs.registry import canonical_name
from scramjet.errors import ScramjetError
from scramjet.executors.choice import choose_executor
from scramjet.policies.policy import Policy
from scramjet.runs.world_files import copied_sources, world_fingerprint
from scramjet.runtime.devices import set_threads
from scramjet.runtime.runs import Sources, fits, private_folder_with
from scramjet.training.asynchronous.actors import MOST_RESTARTS, seed_of
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import RunConfig
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.version import __version__

Weights = Mapping[str, np.ndarray]


# --- a world on its way to another machine


@dataclass(frozen=True, slots=True)
class SentWorld:
    """A world's name with what another machine needs to find it."""

    name: str
    sources: Sources | None = None  # of a world in a file or in a module of the user's
    module: str = ""  # the module among the sources, of a function in a module
    factory: Callable[..., Any] | None = None  # the function or class, of one given from Python

    @classmethod
    def of(cls, name: str) -> SentWorld:
        """The world of this name as it is here. Raises a ConfigError if it is a function that cannot be sent."""
        if is_given(name):
            given = given_class(canonical_name(name)) or factory_of(name)
            pickled(name, given)
            return cls(name, factory=given)
        if file_in(name) is not None:
            return cls(name, sources=copied_sources(name))
        code = code_of(name)
        path = None if code is None or "." in code.place else code.path()
        if code is None or path is None or _is_installed(path) or path.name == "__init__.py":
            return cls(name)
        sources = {each: data for each, data in (sources_of(path) or {}).items() if not each.startswith("..")}
        return cls(name, sources=sources if fits(sources) else None, module=code.place)

    def open(self) -> str:
        """Make the world loadable in this process; returns the name to load it by.

        Its own file is used if it is here with the same contents; else the source that was sent, from a private folder.
        """
        if isinstance(self.factory, type) and issubclass(self.factory, Env):
            adopt_class(canonical_name(self.name), self.factory)
        elif self.factory is not None:
            adopt_factory(self.name, self.factory)
        if self.sources is None:
            return self.name
        if self.module:
            if importlib.util.find_spec(self.module) is None:
                sys.path.append(str(private_folder_with(self.sources)))
            return self.name
        parts = file_in(self.name)
        assert parts is not None
        if copied_sources(self.name) == self.sources:
            return self.name
        return parts.at(private_folder_with(self.sources) / os.path.basename(parts.path))


def _is_installed(path: Path) -> bool:
    """Whether a file belongs to an installed package or to Python: other machines have it installed themselves."""
    return any(part in ("site-packages", "dist-packages") for part in path.parts) or path.is_relative_to(
        os.path.dirname(os.__file__)
    )


# --- the actor


@dataclass(frozen=True, slots=True)
class Order:
    """What an actor is told when it is made."""

    actor: int
    config: RunConfig  # resolved; `num_workers` is that of this actor
    world: SentWorld
    num_envs: int
    episodes: EpisodeSeed  # those it begins with
    seed: int


@dataclass(frozen=True, slots=True)
class Greeting:
    """What an actor answers when its envs are ready."""

    version: str  # of scramjet there
    rules: str  # a hash of the rules of its world


@dataclass(frozen=True, slots=True)
class Played:
    """A trajectory on its way to the learner."""

    version: int  # of the weights that played it
    arrays: list[np.ndarray]  # `Rollout.learned_tensors`
    episodes: Episodes  # that ended in it
    idle_seconds: float  # how long the actor waited before it
    restarts: int = 0  # how often envs failed since the last one
    messages: list[str] = field(default_factory=list)  # of the envs since then, for the user


class RemoteActor:
    """Envs and a policy, made from a config. Methods are called one after the other, on the process's main thread."""

    def __init__(self, order: Order) -> None:
        """Keeps the order; `begin` does what can fail."""
        self._order = order
        self._version, self._restarts, self._failures = -1, 0, 0
        self._messages: list[str] = []
        self._idle_since = time.perf_counter()

    def place(self) -> str:
        """Ray's id of the machine this actor runs on."""
        import ray

        node: str = ray.get_runtime_context().get_node_id()
        return node

    def begin(self, policy: Policy) -> Greeting:
        """Make the envs and begin their first episodes; `policy` is a copy of the learner's on the CPU."""
        order = self._order
        set_threads(1)
        self._config = replace(order.config, env=order.world.open())
        self._policy = policy
        self._generator = torch.Generator().manual_seed(
            seed_of(order.seed, order.actor, order.episodes.key & 0xFFFFFFFF)
        )
        self._make_envs(order.episodes)
        return Greeting(__version__, world_fingerprint(self._player.pool.env))

    def _make_envs(self, episodes: EpisodeSeed) -> None:
        """Make all envs, and begin these episodes."""
        config = self._config
        assert isinstance(config.num_steps, int)
        pool = make_pool(config, num_envs=self._order.num_envs, num_threads=1, learns=True)
        pool.tell(self._messages.append)
        pool.prepare()
        executor = choose_executor(self._policy, pool, fused=config.fused)
        self._player = RolloutPlayer(pool, executor, config.num_steps, config.ppo.bptt_horizon)
        pool.reset(episodes, out=self._player.buffers.last)

    def play(self, version: int, weights: Weights | None) -> Played:
        """Play a trajectory; `weights` are new ones of this version, or None if the actor has the newest already."""
        idle = time.perf_counter() - self._idle_since
        if weights is not None:
            load_weights(self._policy, weights)
            self._version = version
        self._play_until_complete()
        player, pool = self._player, self._player.pool
        restarts, self._restarts, pool.restarts = self._restarts + pool.restarts, 0, 0
        messages, self._messages[:] = list(self._messages), []
        arrays = [tensor.numpy() for tensor in player.rollout.learned_tensors]
        played = Played(self._version, arrays, pool.episodes(), idle, restarts, messages)
        self._idle_since = time.perf_counter()
        return played

    def _play_until_complete(self) -> None:
        """Play a trajectory; if envs fail and may be restarted, all are made anew and begin fresh episodes."""
        failures = 0
        while True:
            try:
                with self._guarded():
                    self._player.play(self._generator)
                return
            except ScramjetError as error:
                failures += 1
                if self._config.on_env_error != "restart" or failures > MOST_RESTARTS:
                    raise
                self._failures += 1
                self._restarts += 1
                self._messages.append(f"restarted: {error}")
                self._player.pool.close()
                self._make_envs(self._order.episodes.after("failed", self._failures))

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """End this process if quick envs that step in it hang: none of their steps takes long, nor do all of them."""
        config = self._config
        assert isinstance(config.num_steps, int)
        if not is_foreign(config.env) or config.num_workers != 0:
            yield
            return
        seconds = config.env_timeout + 10 * config.num_steps * QUICK_SECONDS
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)  # works while Python's lock is held
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def load_weights(policy: Policy, weights: Weights) -> None:
    """Copy weights by name into a policy on the CPU; the arrays may be read-only."""
    for name, tensor in policy.state_dict().items():
        np.copyto(tensor.numpy(), weights[name])
