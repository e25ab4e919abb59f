"""Installs scramjet into the environment whose Python runs this: `python tools/install.py [EXTRA ...]`.

uv installs, in a quarter of pip's time; pip takes its place wherever uv cannot be had or does not get through. A
machine without an NVIDIA GPU gets PyTorch's CPU build, which is a sixth of the one with CUDA. Extras after `--` are
taken one by one where they cannot be had together, and one that cannot be installed is named and left out.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *CONSTRAINTS)
UV = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, *CONSTRAINTS)
CPU_BUILD = "PyTorch for the CPU: 0.2 GB to download, 1.3 GB on disk with all that scramjet needs"
CUDA_BUILD = "taking the one that pip finds; if that has CUDA, 2.5 GB to download, 5 GB on disk"


DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
"""One of these exists where a driver of NVIDIA's is at work: on Linux, in a container, in Linux under Windows."""


def succeeds(*words: str) -> bool:
    """Run a command; uv's own complaints are not shown, for pip is asked next and tells its own."""
    surroundings = os.environ | {"UV_HTTP_RETRIES": "1"}
    quiet = {"stderr": subprocess.DEVNULL} if words[1:3] == ("-m", "uv") else {}
    return subprocess.run(words, cwd=ROOT, env=surroundings, check=False, **quiet).returncode == 0


def uv_is_usable() -> bool:
    """uv reads none of pip's settings: whoever gave pip an index of their own means that one."""
    words = [sys.executable, "-m", "pip", "config", "list"]
    settings = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
    names = {line.partition("=")[0].rpartition(".")[2] for line in settings}
    if names & {"index-url", "no-index", "proxy"}:
        return False
    return succeeds(*PIP, "uv")


def installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def install(*what: str, by_uv: bool) -> bool:
    return (by_uv and succeeds(*UV, *what)) or succeeds(*PIP, *what)


def install_torch(*, by_uv: bool) -> bool:
    """PyTorch's CPU build where it has no GPU to use and the index would bring the one with CUDA."""
    if installed("torch") or any(Path(file).exists() for file in DRIVER) or platform.system() != "Linux":
        return True  # what is there is kept; elsewhere the index has one build
    if by_uv:
        print(f"no NVIDIA GPU here: {CPU_BUILD}", flush=True)
        if succeeds(*UV, "--torch-backend=cpu", "torch"):
            return True
        print(f"that build cannot be reached here: {CUDA_BUILD}", flush=True)
    return succeeds(*PIP, "torch")


def main(words: list[str]) -> int:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if unknown := [word for word in words if word != "--" and word not in known]:
        print(f"scramjet has no extra {unknown[0]!r}; it has {', '.join(known)}\n\n{__doc__}")
        return 2
    needed, _, optional = " ".join(words).partition("--")
    by_uv = uv_is_usable()
    own = f".[{','.join(needed.split())}]" if needed.split() else "."
    if not install_torch(by_uv=by_uv) or not install("-e", own, by_uv=by_uv):
        return 1
    extras = optional.split()
    if extras and not (by_uv and succeeds(*UV, "-e", f".[{','.join([*needed.split(), *extras])}]")):
        for extra in extras:
            if not install("-e", f".[{extra}]", by_uv=by_uv):
                print(f"the extra {extra!r} cannot be installed: tests that need it will be skipped", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
