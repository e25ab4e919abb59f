"""What runs in a process of Ray's: envs and a policy that play trajectories with the weights they are sent."""

from __future__ import annotations

import contextlib
import faulthandler
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from scramjet.accelerate.choice import choose_executor
from scramjet.adapters.gymnasium.fastest_pool import QUICK_SECONDS
from scramjet.adapters.registry import is_foreign
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Episodes
from scramjet.errors import ScramjetError
from scramjet.policies.policy import Policy
from scramjet.runtime.machine.devices import set_threads
from scramjet.training.asynchronous.actors import MOST_RESTARTS, seed_of
from scramjet.training.asynchronous.ray.sent_world import SentWorld
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import RunConfig
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.worlds.world_files import world_fingerprint
from scramjet.version import __version__

Weights = Mapping[str, np.ndarray]


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
