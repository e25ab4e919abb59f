"""The `scramjet` command. Each subcommand is a small function; users' errors become one message and exit code 2."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from scramjet.errors import ScramjetError, did_you_mean
from scramjet.runtime.signals import StuckWatch

USAGE = """\
usage: scramjet COMMAND [...]

Reinforcement learning at the speed of the hardware, from plain Python.

commands:
  train   train an agent            scramjet train cartpole
  eval    play a trained agent      scramjet eval runs/cartpole-1 --episodes 100
  list    the worlds there are      scramjet list
  check   find mistakes in a world  scramjet check my_world.py
  bench   measure speed             scramjet bench cartpole

`scramjet COMMAND --help` tells all about a command; `scramjet --version` the version.
"""


_COMMANDS = ("train", "eval", "list", "check", "bench")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run a command and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _ended_by_second_interrupt():
            code = run(words)
        sys.stdout.flush()  # here, where a full disk can still be told
    except ScramjetError as error:
        print(f"scramjet: {error}", file=sys.stderr)
        code = error.exit_code
    except MemoryError as error:
        print(
            f"scramjet: not enough memory ({error}); lower --num-envs, --num-steps, --policy.hidden or "
            f"--policy.memory-size",
            file=sys.stderr,
        )
        code = 2
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # torch's way to say that there is none
            raise
        print("scramjet: not enough memory for the network or its batches; lower --num-envs, --num-steps, "
              "--policy.hidden, --policy.memory-size, or the world's size", file=sys.stderr)  # fmt: skip
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `scramjet list | head`: the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"scramjet: {error.strerror}: free some and run the command again", file=sys.stderr)
        with contextlib.suppress(OSError, ValueError):  # what is still to be written has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 2
    sys.exit(code)


def _ended_by_second_interrupt() -> StuckWatch:
    """Around a command: Ctrl-C means what it does, and a second one ends compiled code that never returns."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not so in the background of a shell
    return StuckWatch({signal.SIGINT: signal.default_int_handler} if is_heard else {}, describe=_what_hangs)


def _what_hangs() -> str:
    if "scramjet.engine.native" not in sys.modules:
        return ""
    from scramjet.engine.hanging import what_hangs

    return what_hangs()


def run(words: list[str]) -> int:
    """Run a command given as words; returns the exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if words[0] in ("-V", "--version", "version"):
        from scramjet import __version__

        print(f"scramjet {__version__}")
        return 0
    if words[0] not in _COMMANDS:
        raise ScramjetError(
            f"unknown command '{words[0]}'.{did_you_mean(words[0], _COMMANDS)} Commands: {', '.join(_COMMANDS)}"
        )
    if words[0] != "train":
        return _load(words[0])(words[1:])
    from scramjet.engine.spare_worker import end_spare, start_ahead

    start_ahead(words[1:])
    try:
        return _load("train")(words[1:])
    finally:
        end_spare()


def _load(command: str) -> Callable[[list[str]], int]:
    """The function of a command. Its modules wait for this, so that `scramjet --help` does not load torch."""
    was_enabled = gc.isenabled()
    gc.disable()  # a million objects are made that stay: to look through them time and again is a sixth of a start
    try:
        if command == "train":
            from scramjet.algorithms.ahead import compile_ahead

            compile_ahead()
        module = importlib.import_module(f"scramjet.commands.{command}")
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
    function: Callable[[list[str]], int] = getattr(module, f"{command}_command")
    return function
