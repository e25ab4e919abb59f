"""A connection to Ray: to a cluster by its address, or to an instance of our own; and pools that stand for its envs.

Ray writes nothing to our screen, sends no usage statistics, and leaves signals to us. What goes wrong is told in one
message with the fix. Ray is imported when it is first needed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Episodes, Pool
from scramjet.engine.transition import Transition
from scramjet.engine.wrappers import ConcatenatedPool
from scramjet.errors import ConfigError, shortened

CONNECT_SECONDS = 30.0
"""How long a cluster may take to answer."""
START_SECONDS = 180.0
"""How long Ray may take to start or to connect, before the process is ended: it hears no Ctrl-C in there."""
TRIES = 3
"""How often an instance of our own is started, if it does not come up on a machine that is busy."""
MIN_STORE_BYTES = 128 << 20
"""The smallest object store; Ray refuses those below 75 MiB."""
PROCESS_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # sends nothing about the user
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # we ask for every result that matters
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # prints nothing of what machines of the cluster report
    "RAY_TQDM_PATCH_PRINT": "0",  # leaves the print of this process alone
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray does in future versions, and else warns about
}
"""Environment variables of Ray; what the user has set stays."""
_BEAT_SECONDS = 5.0
_HTTP2_SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # the first frame of both sides: its length, its type 4, no flags, stream 0


# --- the connection


def require_ray() -> None:
    """Raise a ConfigError that says what to install where Ray is missing. Imports nothing."""
    spec = importlib.util.find_spec("ray")
    if spec is None or spec.origin is None:
        raise ConfigError("ray is not installed: pip install 'scramjet[ray]', or use --actors local")


class RayCluster:
    """Ray as this process uses it; one at a time."""

    def __init__(self, address: str | None, *, num_cpus: int, store_bytes: int = 0) -> None:
        """Connect to the cluster at `address`: auto, ray://HOST:PORT or HOST:PORT.

        None: the cluster that this process is connected to or that RAY_ADDRESS names, else an instance of our own on
        this machine, with room for `num_cpus` actors of one CPU and an object store of about `store_bytes`. Raises a
        ConfigError where nobody answers.
        """
        require_ray()
        os.environ.update({key: value for key, value in PROCESS_SETTINGS.items() if key not in os.environ})
        import ray

        self.ray: Any = ray
        self.was_connected = bool(ray.is_initialized())
        self.address = address or os.environ.get("RAY_ADDRESS") or "local"
        if not self.was_connected:
            own = {
                "num_cpus": num_cpus,
                "object_store_memory": max(store_bytes, MIN_STORE_BYTES),
                "include_dashboard": False,
            }
            self._connect(own if self.address == "local" else {})
        self._is_closed = threading.Event()
        self._heard_at = time.monotonic()
        threading.Thread(target=self._listen, daemon=True).start()

    def _connect(self, options: dict[str, Any]) -> None:
        """Call `ray.init`; an instance of our own is tried again, as Ray gives its processes 15 s to start."""
        if self.address not in ("local", "auto"):
            _require_listener(self.address)
        tries_left = TRIES if self.address == "local" else 1
        while tries_left > 0:
            tries_left -= 1
            try:
                with _own_signals(), _time_limit(self.address), warnings.catch_warnings(action="ignore"):
                    self.ray.init(address=self.address, logging_level=logging.CRITICAL, log_to_driver=False, **options)
                return
            except Exception as error:  # Ray raises errors of many kinds: ConnectionError, RuntimeError, ValueError
                self.ray.shutdown()
                if tries_left == 0:
                    raise _unreachable(self.address, error) from error

    def _listen(self) -> None:
        """Ask the cluster for its nodes every few seconds, to notice when it does not answer any more."""
        while not self._is_closed.wait(_BEAT_SECONDS):
            with contextlib.suppress(Exception):
                self.ray.nodes()
                self._heard_at = time.monotonic()

    @property
    def seconds_silent(self) -> float:
        """Seconds since the cluster answered last."""
        return time.monotonic() - self._heard_at

    def free_cpus(self) -> float:
        """CPUs of the cluster that nobody has reserved."""
        return float(self.ray.available_resources().get("CPU", 0.0))

    def is_alive(self, node: str) -> bool:
        """Whether the node with this id is alive."""
        return any(each["NodeID"] == node and each["Alive"] for each in self.ray.nodes())

    def close(self) -> None:
        """Leave the cluster, or end our own instance; one that the user connected to stays connected."""
        self._is_closed.set()
        if not self.was_connected:
            leaving = threading.Thread(target=self.ray.shutdown, daemon=True)
            leaving.start()
            leaving.join(timeout=CONNECT_SECONDS)  # a cluster that is gone may never answer


def _unreachable(address: str, error: Exception) -> ConfigError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    if address == "local":
        return ConfigError(
            f"Ray could not start on this machine ({shortened(reason)}); see /tmp/ray/session_latest/logs"
        )
    if address == "auto":
        return ConfigError(
            "ray_address='auto', and no Ray cluster runs on this machine; start one with ray start --head, give its "
            "address, or leave --ray-address out to have Ray started for this run alone"
        )
    return ConfigError(
        f"the Ray cluster at ray_address={address!r} cannot be used ({shortened(reason)}); start it with ray start "
        f"--head, or give the address that this prints"
    )


def _require_listener(address: str) -> None:
    """Raise a ConfigError unless a gRPC server listens at HOST:PORT, as Ray's do: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise ConfigError(f"ray_address={address!r} must be auto, HOST:PORT such as 10.0.0.1:6379, or ray://HOST:10001")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS / 3) as there:
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            there.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _HTTP2_SETTINGS)
            answer = there.recv(len(_HTTP2_SETTINGS))
            if answer[3:4] != _HTTP2_SETTINGS[3:4]:
                raise OSError("what listens there is not Ray")
    except OSError as error:
        raise _unreachable(address, error) from error


@contextlib.contextmanager
def _time_limit(address: str) -> Iterator[None]:
    """End the process with a message if Ray does not return in time: it waits in code of its own."""

    def give_up() -> None:
        what = "Ray did not start on this machine" if address == "local" else f"the Ray cluster at {address} hangs:"
        print(f"scramjet: {what} within {START_SECONDS:.0f} s; try again when it is less busy", file=sys.stderr)
        sys.stderr.flush()
        os._exit(ConfigError.exit_code)

    timer = threading.Timer(START_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Put back the handler of SIGTERM, which Ray replaces by one that ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- the envs of remote actors as the learner knows them


class RemotePool(Pool):
    """The pool of one remote actor, without its envs: those live in the actor's process, which alone steps them."""

    def __init__(self, like: Pool, num_envs: int) -> None:
        """`like` is a pool of the same world on this machine; it may be closed afterwards."""
        self.name, self.env = like.name, like.env
        self.num_envs, self.num_rows = num_envs, num_envs * (like.num_rows // like.num_envs)
        self.played_by, self.num_players, self.mask_size = like.played_by, like.num_players, like.mask_size
        self.observation_space, self.action_space = like.observation_space, like.action_space
        self.is_guarded, self.has_time_limit = like.is_guarded, like.has_time_limit
        self.render_modes = like.render_modes
        self.seeds = EpisodeSeed(0)
        """The episodes that its actor begins with."""
        self.restarts = 0
        self._steps_taken = 0

    @property
    def steps_taken(self) -> int:
        return self._steps_taken

    def count(self, num_steps: int, restarts: int) -> None:
        """Count the steps of a trajectory that arrived, and how often envs failed in it."""
        self._steps_taken += num_steps
        self.restarts += restarts

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        """Choose the episodes that the actor will begin with; nothing is shown here before its first trajectory."""
        self.seeds, self._steps_taken = EpisodeSeed.of(seed), 0
        return self.allocate() if out is None else out

    def begin_again(self) -> EpisodeSeed:
        """Count a restart of the actor; returns the fresh episodes that it shall begin with."""
        self.restarts += 1
        return self.seeds.after("restarted", self._steps_taken, self.restarts)

    def _refuse(self) -> NoReturn:
        raise ConfigError(f"the envs of {self.name} are in processes of Ray's: their actors step them")

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        self._refuse()

    def snapshot(self) -> dict[str, np.ndarray]:
        self._refuse()

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        self._refuse()

    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        self._refuse()

    def views(self) -> Any:
        self._refuse()

    def episodes(self) -> Episodes:
        self._refuse()

    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        self._refuse()


def remote_pools(like: Pool, num_actors: int, num_envs: int) -> ConcatenatedPool:
    """One pool for each of the remote actors, which divide `num_envs` envs; closes `like`, a pool of their world."""
    with contextlib.closing(like):
        like.prepare()
        return ConcatenatedPool([RemotePool(like, num_envs // num_actors) for _ in range(num_actors)])
