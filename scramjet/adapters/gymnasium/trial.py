"""One env tried out before a pool of its kind is made: what its spaces are, and whether it may live in this process.

It is made, reset, stepped and closed in a process of its own. An env that hangs or leaves there is told like any other
failure, and not met for the first time in this process, where nothing could end it.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

from scramjet.adapters.factories import can_be_sent, pickled
from scramjet.adapters.gymnasium.env_results import EnvFacts, EnvFailedError, MakeEnv
from scramjet.adapters.gymnasium.runner import GymRows
from scramjet.adapters.gymnasium.workers import protocol
from scramjet.adapters.gymnasium.workers.process import UnreadableFactoryError, WorkerFailedError, WorkerProcess
from scramjet.adapters.gymnasium.workers.started_ahead import take_worker
from scramjet.envs.beside import ImportPaths
from scramjet.errors import WorldError


@dataclass(frozen=True, slots=True)
class Trial:
    """What one env showed when it was tried out."""

    facts: EnvFacts
    seconds: float  # of a step; infinite where nobody knows, or where the env should not live in this process
    can_be_sent: bool  # whether other processes can make such envs


def try_out(name: str, make_env: MakeEnv, timeout: float) -> Trial:
    """Try an env out, each call on it within `timeout` seconds. A factory that no other process can have is tried in
    this one."""
    if not can_be_sent(make_env):
        return _tried_here(name, make_env)
    worker = take_worker(name, timeout)
    try:
        worker.ask(protocol.START, pickle.dumps((ImportPaths.here(), name, pickled(name, make_env), range(1), False)))
        facts: EnvFacts = worker.answer()
        worker.ask(protocol.TRY_OUT)
        seconds, is_something_left = worker.answer()
        if is_something_left or not _closes(worker):
            seconds = math.inf
        return Trial(facts, seconds, can_be_sent=True)
    except UnreadableFactoryError:
        return _tried_here(name, make_env)
    except WorkerFailedError as failure:
        raise WorldError(str(failure)) from None
    finally:
        worker.kill()


def _closes(worker: WorkerProcess) -> bool:
    """Whether the env closes, and leaves nothing behind: here it would keep this process from ending."""
    worker.ask(protocol.CLOSE)
    try:
        return not worker.answer()
    except WorkerFailedError:
        return False


def _tried_here(name: str, make_env: MakeEnv) -> Trial:
    try:
        envs = GymRows(name, make_env, range(1))
    except EnvFailedError as error:
        raise WorldError(str(error)) from error
    try:
        return Trial(envs.facts, envs.seconds_of_a_step(), can_be_sent=False)
    finally:
        envs.close()
