"""The `scramjet` command: runs a subcommand of commands/, and turns a user's error into one message and exit code 2."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from scramjet.errors import ScramjetError, did_you_mean, printable
from scramjet.runtime.private_files import refuse_settings_here
from scramjet.runtime.signals import StuckWatch

USAGE = """\
usage: scramjet COMMAND [...]

Reinforcement learning at the speed of the hardware, from plain Python.

commands:
  train       train an agent            scramjet train cartpole
  tune        search good settings      scramjet tune cartpole --gamma 0.9..0.999
  eval        play a trained agent      scramjet eval runs/cartpole-1 --episodes 100
  play        play against an agent     scramjet play runs/connect_four-1
  tournament  rate agents by games      scramjet tournament runs/connect_four-1 --random
  grade       judge by perfect play     scramjet grade runs/connect_four-1
  plot        draw learning curves      scramjet plot runs/cartpole-1
  compare     runs side by side         scramjet compare cartpole-1 cartpole-2
  sync        send runs to a tool       scramjet sync runs/cartpole-1 --to aim
  serve       runs in the browser       scramjet serve
  export-page a game in one HTML file   scramjet export-page runs/connect_four-1
  list        the worlds there are      scramjet list
  example     a world to begin from     scramjet example corridor
  check       find mistakes in a world  scramjet check my_world.py
  bench       measure speed             scramjet bench cartpole

`scramjet COMMAND --help` lists its flags; `scramjet --version` prints the version.
"""


_COMMANDS = (
    "train", "tune", "eval", "play", "tournament", "grade", "plot", "compare", "sync", "serve", "export-page", "list",
    "example", "check", "bench",
)  # fmt: skip


_FLAGS_APART = ("train", "tune", "eval", "play", "tournament", "grade", "export-page", "list", "check", "bench")
"""Commands whose flags are in `arguments/`, for what runs them takes a while to load."""
_PYTHONS_WARNING = warnings.formatwarning


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: run a command and exit."""
    _open_closed_streams()
    if os.environ.get("FORCE_COLOR", "").lower() in ("0", "false"):  # which rich takes for a yes
        os.environ["NO_COLOR"] = "1"
        del os.environ["FORCE_COLOR"]
    warnings.formatwarning = _warning_line
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    sys.exit(_exit_code(list(sys.argv[1:] if arguments is None else arguments)))


def _exit_code(words: list[str]) -> int:
    """Run a command and return its exit code; an error becomes one message."""
    try:
        try:
            code = run(words)
        except SystemExit as ending:  # after --help, or a flag that does not exist
            code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 2
        sys.stdout.flush()  # here, where a full disk can still be told
        return code
    except ScramjetError as error:
        if not error.is_told:
            _complain(str(error))
        return error.exit_code
    except MemoryError as error:
        _complain(
            f"not enough memory ({error}); lower --num-envs, --num-steps, --policy.hidden or --policy.memory-size"
        )
    except RuntimeError as error:
        if "start new thread" in str(error):
            _complain("the system gives no more threads; raise the limit with `ulimit -u`, or lower --num-threads")
            return 2
        if "allocate memory" not in str(error):  # torch's way to say that there is none
            raise
        _complain("not enough memory for the network or its batches; lower --num-envs, --num-steps, --policy.hidden, "
                  "--policy.memory-size, or the world's size")  # fmt: skip
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `scramjet list | head`: the reader has gone
        _drop_output()
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EBADF, errno.EIO):  # what printing may meet
            raise
        fix = "free some" if error.errno == errno.ENOSPC else "check where the output goes"
        _complain(f"{error.strerror}: {fix} and run the command again")
        _drop_output()
    return 2


def _warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours as one line for the user, without the place in our source; others' as Python has them."""
    if category is UserWarning and filename.startswith(os.path.dirname(__file__) + os.sep):
        return f"scramjet: {printable(str(message))}\n"
    return _PYTHONS_WARNING(message, category, filename, lineno, line)


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # the reader may be gone
        print(f"scramjet: {text}", file=sys.stderr, flush=True)


def _drop_output() -> None:
    """Discard what is still to be printed: Python would try again at exit, and fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Open standard streams that the process was started without (`scramjet train >&-`), as /dev/null.

    Else the next files opened would get their descriptors, and whatever is printed would be written into them.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        os.set_inheritable(descriptor, True)
        descriptor = os.dup(descriptor)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115 - open until the end
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in (
            "strict",
            "surrogateescape",
        ):  # a terminal may lack ±
            stream.reconfigure(errors="backslashreplace")


def _leave(number: int, frame: object) -> None:
    """Exit at once on Ctrl-C while modules load or Python shuts down, when there is nothing to clean up."""
    os._exit(130)


def _interruptible() -> StuckWatch:
    """Within this, Ctrl-C raises KeyboardInterrupt, so that a command can clean up; a second Ctrl-C ends compiled code
    that never returns."""
    # A shell starts its background jobs with Ctrl-C ignored: that stays.
    is_heard = signal.getsignal(signal.SIGINT) in (_leave, signal.default_int_handler)
    return StuckWatch({signal.SIGINT: signal.default_int_handler} if is_heard else {}, describe=_what_hangs)


def _what_hangs() -> str:
    if "scramjet.engine.worlds.native_pool" not in sys.modules:
        return ""
    from scramjet.engine.worlds.hanging import what_hangs

    return what_hangs()


def run(words: list[str]) -> int:
    """Run a command given as words; returns the exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if words[0] in ("-V", "--version", "version"):
        from scramjet.version import __version__

        print(f"scramjet {__version__}")
        return 0
    if words[0] not in _COMMANDS:
        raise ScramjetError(
            f"unknown command '{words[0]}'.{did_you_mean(words[0], _COMMANDS)} Commands: {', '.join(_COMMANDS)}"
        )
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ScramjetError("the folder that you are in is gone; go to another one: cd") from None
    # Numba reads it each time that it compiles.
    refuse_settings_here(".numba_config.yaml", "Numba", "and set its NUMBA_... variables yourself")
    return _call(words[0], words[1:])


def flags_module(command: str) -> str:
    """The module with the flags of a command, which loads no torch."""
    apart = "arguments." if command in _FLAGS_APART else ""
    return f"scramjet.commands.{apart}{command.replace('-', '_')}"


def _call(command: str, words: list[str]) -> int:
    """Read the words of a command, then import the function that runs it, and run it.

    So help and wrong flags are answered before torch is loaded, which takes seconds.
    """
    name = command.replace("-", "_")
    given: tuple[Any, ...] = _loaded(flags_module(command)).read(words)
    try:
        if command == "train":
            _start_ahead(words)
        from scramjet.commands.command_line import loading_shown

        with loading_shown(command):
            function: Callable[..., int] = getattr(_loaded(f"scramjet.commands.{name}"), f"{name}_command")
        with _interruptible():
            return function(*given)
    finally:
        if command == "train":
            from scramjet.adapters.gymnasium.process import end_unused

            end_unused()


def _start_ahead(words: list[str]) -> None:
    """Start what a training most likely needs, beside the loading of torch: a worker for envs, compiled kernels."""
    from scramjet.adapters.gymnasium.process import start_ahead
    from scramjet.adapters.registry import tries_out_an_env
    from scramjet.executors.compile_ahead import compile_ahead

    if tries_out_an_env(words):
        start_ahead()
    if os.environ.get("LOCAL_RANK", "0") == "0":  # one for all ranks of a machine
        compile_ahead()


def _loaded(module: str) -> ModuleType:
    """Import a module with all that it imports."""
    was_enabled = gc.isenabled()
    gc.disable()  # imports make a million objects that stay; collecting among them takes a sixth of the start
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


if __name__ == "__main__":  # `python -m scramjet.cli` is `python -m scramjet`
    main()
