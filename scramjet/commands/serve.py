"""`scramjet serve`: a page on which runs live, in the browser."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from scramjet.commands.command_line import parse
from scramjet.errors import ConfigError, shortened

DESCRIPTION = """Show the runs of a folder in the browser, live: curves, configs, checkpoints, games to watch and play.

  scramjet serve
  scramjet serve --runs-dir /data/runs --port 8080
  scramjet serve --host 0.0.0.0             for others on the network, with a token

Only this machine can open the page, unless --host says otherwise; then it needs a token, which is part of the URL.
"""


@dataclass(frozen=True)
class Arguments:
    """What to show, and to whom."""

    runs_dir: Path = Path("runs")
    """Folder that holds the runs."""
    port: int = 8000
    """Port to listen on; 0: any that is free."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0: all of this machine's, with a token."""
    token: str | None = None
    """What a visitor must know; none: nothing on this machine, a new random one with --host."""
    trust: bool = False
    """Let runs name worlds in files or modules that you have not named yourself: they are run when watched or
    played."""
    open: bool = False
    """Open the page in the browser."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet serve", description=DESCRIPTION),)


def serve_command(arguments: Arguments) -> int:
    """Run `scramjet serve ...`; returns the exit code."""
    from scramjet.web.context import THINKING  # help comes without them
    from scramjet.web.security import LOCAL_NAMES, Access
    from scramjet.web.server import make_app
    from scramjet.web.serving import make_server, open_socket

    _check(arguments)
    is_local = arguments.host in LOCAL_NAMES
    access = Access(arguments.token or (None if is_local else secrets.token_urlsafe(24)), arguments.host)
    listening = open_socket(arguments.host, arguments.port)
    with contextlib.closing(listening):
        url = _url(arguments.host, listening.getsockname()[1], access.token)
        print(_welcome(arguments, url, is_local), flush=True)
        sys.setswitchinterval(0.001)  # an answer does not wait for the thread that reads the folder
        server = make_server(make_app(arguments.runs_dir, trust=arguments.trust, access=access))
        if arguments.open:
            webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C, after the server has closed its connections
            server.run(sockets=[listening])
    if any(thread.name.startswith(THINKING) for thread in threading.enumerate()):
        os._exit(0)  # a player still thinks about a move that nobody waits for
    return 0


def _check(arguments: Arguments) -> None:
    """Refuse what cannot be served."""
    if not 0 <= arguments.port <= 65535:
        raise ConfigError(f"port={arguments.port} must be from 0 to 65535")
    if arguments.token is not None and (len(arguments.token) < 8 or not _is_plain(arguments.token)):
        raise ConfigError("--token needs at least 8 letters, digits, '-' and '_'; leave it out for a random one")
    if os.path.lexists(arguments.runs_dir) and not os.path.isdir(arguments.runs_dir):
        raise ConfigError(f"--runs-dir {shortened(str(arguments.runs_dir))} is not a folder; give the folder of runs")
    if os.path.isfile(arguments.runs_dir / "config.toml"):
        parent = arguments.runs_dir.resolve().parent
        raise ConfigError(f"--runs-dir {arguments.runs_dir} is one run; give the folder that holds it: {parent}")


def _is_plain(token: str) -> bool:
    return token.isascii() and token.replace("-", "a").replace("_", "a").isalnum()


def _url(host: str, port: int, token: str | None) -> str:
    from scramjet.web.security import ANY_ADDRESS

    name = "127.0.0.1" if host in ANY_ADDRESS else host
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


def _welcome(arguments: Arguments, url: str, is_local: bool) -> str:
    lines = [f"scramjet serves {arguments.runs_dir}", f"  open  {url}"]
    if not is_local:
        lines.append("  whoever has this URL sees the runs; from elsewhere, with this machine's name in it")
    lines.append("  stop  Ctrl-C")
    return "\n".join(lines)
