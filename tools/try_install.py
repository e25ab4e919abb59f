"""Does what the README says where nothing of ours is installed, and tells how it ended.

    python tools/try_install.py plain     from the plain index with this Python: make train, make test
    python tools/try_install.py newest    the newest version of everything, as pip brings it: the core of the tests
    python tools/try_install.py lowest    the lowest versions that pyproject.toml names: six worlds train
    python tools/try_install.py debian    a Debian of the smallest size, as an ordinary user: make train, make test

Each works on a clone of the last commit, in a folder that is removed at the end, and leaves pip's own settings aside:
a folder of wheels or an index that this machine offers to pip is not used. Downloads are gigabytes. `debian` needs root
and the program debootstrap.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLAIN = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", "UV_FIND_LINKS": ""}
WORLDS = ("cartpole", "pendulum", "maze", "snake", "connect_four", "memory")
TINY = ["--total-timesteps", "4096", "--num-envs", "16", "--num-steps", "64", "--display", "plain"]
DEBIAN = "ca-certificates,git,make,python3,python3-venv"


def run(words: Sequence[str | Path], folder: Path, **surroundings: str) -> None:
    """Show a command, run it in a folder, and say how long it took; a failure ends the program with its exit code."""
    print("$", *words, flush=True)
    begun = time.monotonic()
    done = subprocess.run(words, cwd=folder, env=os.environ | PLAIN | surroundings, check=False)
    print(f"exit code {done.returncode} after {time.monotonic() - begun:.0f} s\n", flush=True)
    if done.returncode:
        sys.exit(done.returncode)


def clone_into(folder: Path) -> Path:
    clone = folder / "scramjet"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    return clone


def environment(folder: Path) -> Path:
    """A virtual environment that holds uv alone, and the path of its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", "uv"], folder)
    return python


def plain(folder: Path) -> None:
    clone = clone_into(folder)
    for target in ("train", "test"):
        run(["make", f"PYTHON={sys.executable}", target], clone)
    run(["du", "-sh", ".venv"], clone)


def newest(folder: Path) -> None:
    clone, python = clone_into(folder), environment(folder)
    run([python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "-e", ".[dev]"], clone)
    run([python, "-m", "pip", "list"], clone)
    run([python, "-m", "pytest", "-n", "auto", "--maxprocesses", "8", "--dist", "worksteal"], clone)


def lowest(folder: Path) -> None:
    clone, python = clone_into(folder), environment(folder)
    by_uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--resolution", "lowest-direct"]
    run([*by_uv, "-e", "."], clone)
    run([python, "-m", "pip", "list"], clone)
    for world in WORLDS:
        run([python, "-m", "scramjet", "train", world, *TINY], folder)


def debian(folder: Path) -> None:
    system = folder / "debian"
    run(["debootstrap", "--variant=minbase", f"--include={DEBIAN}", "bookworm", system], folder)
    home = system / "home" / "someone"
    subprocess.run(["useradd", "--root", system, "--create-home", "someone"], check=True)
    clone_into(home)
    for file in ("/etc/resolv.conf", "/etc/hosts", os.environ.get("SSL_CERT_FILE", "")):
        if file and Path(file).exists():  # how this machine finds and trusts the index
            (system / file[1:]).parent.mkdir(parents=True, exist_ok=True)
            (system / file[1:]).write_bytes(Path(file).read_bytes())
    subprocess.run(["chroot", system, "chown", "-R", "someone", "/home/someone"], check=True)
    mounts = [("proc", "proc"), ("sysfs", "sys"), ("tmpfs", "dev/shm"), ("devpts", "dev/pts")]
    try:
        for kind, place in mounts:
            (system / place).mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", kind, kind, system / place], check=True)
        inside = ["chroot", "--userspec=someone", system, "env", "-i", "PATH=/usr/bin:/bin", "HOME=/home/someone"]
        inside += [f"{name}={os.environ[name]}" for name in ("SSL_CERT_FILE", "PIP_CERT") if name in os.environ]
        for target in ("train", "test"):
            run([*inside, "sh", "-c", f"cd ~/scramjet && make {target}"], folder)
        run([*inside, "sh", "-c", "du -sh ~/scramjet/.venv"], folder)
    finally:
        for _, place in reversed(mounts):
            subprocess.run(["umount", "--lazy", system / place], check=False)


WAYS = {way.__name__: way for way in (plain, newest, lowest, debian)}

if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - any Python may run this
        sys.exit("scramjet needs Python 3.11 or newer")
    if sys.argv[1:] not in [[name] for name in WAYS]:
        sys.exit(f"say which: {', '.join(WAYS)}\n\n{__doc__}")
    with tempfile.TemporaryDirectory(prefix="scramjet-", ignore_cleanup_errors=True) as temporary:
        WAYS[sys.argv[1]](Path(temporary))
