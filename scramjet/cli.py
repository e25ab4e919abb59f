"""The `scramjet` command. Each subcommand is a small function; users' errors become one message and exit code 2."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence

from scramjet.errors import ScramjetError, did_you_mean

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


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run a command and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
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


def run(words: list[str]) -> int:
    """Run a command given as words; returns the exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if words[0] in ("-V", "--version", "version"):
        from scramjet import __version__

        print(f"scramjet {__version__}")
        return 0
    command = _COMMANDS.get(words[0])
    if command is None:
        raise ScramjetError(
            f"unknown command '{words[0]}'.{did_you_mean(words[0], _COMMANDS)} Commands: {', '.join(_COMMANDS)}"
        )
    return command(words[1:])


def _train(words: list[str]) -> int:
    from scramjet.algorithms.ahead import compile_ahead

    compile_ahead()
    from scramjet.commands.train import train_command

    return train_command(words)


def _eval(words: list[str]) -> int:
    from scramjet.commands.eval import eval_command

    return eval_command(words)


def _list(words: list[str]) -> int:
    from scramjet.commands.list import list_command

    return list_command(words)


def _check(words: list[str]) -> int:
    from scramjet.commands.check import check_command

    return check_command(words)


def _bench(words: list[str]) -> int:
    from scramjet.commands.bench import bench_command

    return bench_command(words)


# Imports wait for their command, so that `scramjet --help` does not load torch.
_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "eval": _eval,
    "list": _list,
    "check": _check,
    "bench": _bench,
}
