"""The libraries compared, what each can do, and how it is installed: an environment of its own for each, from PyPI."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import urllib.request
import venv
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"
PUFFERLIB_SOURCE = (
    "https://files.pythonhosted.org/packages/7c/e1/"
    "5292f9b69c6263707b40ba04a87e6b9bcc177281d31092f77afd90c412f1/pufferlib-3.0.0.tar.gz"
)
Steps = tuple[tuple[str, ...], ...]


class InstallError(Exception):
    """A peer cannot be installed here; the message says why."""


@dataclass(frozen=True)
class Peer:
    """One library."""

    name: str
    title: str
    package: str
    """Whose version stands beside the title."""
    program: str
    """File in this folder that measures it."""
    works: tuple[str, ...]
    installs: Steps = ()
    """What pip installs, in this order; torch first, so that nothing later chooses a build for CUDA."""
    words: tuple[str, ...] = ()
    """Further arguments of the program."""
    most_envs: int = 4096
    """Beyond this one figure would take minutes."""
    absent: dict[str, str] = field(default_factory=dict)
    """Why it has no figure for a work."""
    shares: str | None = None
    """The peer in whose environment it runs, if it has none of its own."""

    @property
    def path(self) -> Path:
        """The program."""
        return HERE / self.program


SCRAMJET = Peer("scramjet", "scramjet", "scramjet", "scramjet_cartpole.py", ("env", "training", "solve", "gae"))
SAME_ENVS = "it steps Gymnasium's CartPole one env at a time, as Stable-Baselines3 does"
NO_LEARNER = "it has no learner"
PEERS = (
    SCRAMJET,
    Peer(
        "pufferlib",
        "PufferLib",
        "pufferlib",
        "pufferlib_cartpole.py",
        ("env", "training", "gae"),
        (
            (TORCH, "numpy==1.26.4", "setuptools==84.2.1", "wheel==0.48.0", "Cython==3.3.1", "ninja==1.13.0"),
            (
                TORCH,
                "numpy==1.26.4",
                "gym==0.23.0",
                "gymnasium==0.29.1",
                "pettingzoo==1.24.1",
                "shimmy[gym-v21]==1.3.0",
            ),
            (TORCH, "numpy==1.26.4", "psutil==7.2.2", "pynvml==13.0.1", "rich==15.0.0", "rich_argparse==1.8.0"),
            (TORCH, "numpy==1.26.4", "imageio==2.38.1", "pyro-ppl==1.9.2", "heavyball==2.2.1"),
        ),
        absent={"solve": "its CartPole ends at 200 steps and pays nothing on the last: 475 cannot be reached"},
    ),
    Peer(
        "jax",
        "JAX",
        "jax",
        "jax_cartpole.py",
        ("env", "training", "solve", "gae"),
        (("jax==0.10.2", "gymnax==1.0.1", "six==1.17.0"),),
        words=("--envs", "gymnax"),
    ),
    Peer(
        "envpool",
        "EnvPool",
        "envpool",
        "envpool_cartpole.py",
        ("env", "training", "solve", "gae"),
        ((TORCH, "envpool==1.2.5"),),
    ),
    Peer(
        "sbx",
        "SBX",
        "sbx-rl",
        "stable_baselines3_cartpole.py",
        ("training", "solve"),
        ((TORCH,), (TORCH, "sbx-rl==0.28.0", "stable-baselines3==2.9.2", "jax==0.10.2")),
        absent={"env": "its envs are Stable-Baselines3's", "gae": "its GAE is Stable-Baselines3's"},
    ),
    Peer(
        "sb3",
        "Stable-Baselines3",
        "stable-baselines3",
        "stable_baselines3_cartpole.py",
        ("env", "training", "solve", "gae"),
        ((TORCH,), (TORCH, "stable-baselines3==2.9.2")),
    ),
    Peer(
        "sample-factory",
        "Sample Factory",
        "sample-factory",
        "sample_factory_cartpole.py",
        ("training", "solve", "gae"),
        ((TORCH,), (TORCH, "sample-factory==2.1.1")),
        most_envs=64,
        absent={"env": SAME_ENVS},
    ),
    Peer(
        "rllib",
        "RLlib",
        "ray",
        "rllib_cartpole.py",
        ("training", "solve"),
        ((TORCH,), (TORCH, "ray[rllib]==2.60.0")),
        most_envs=1024,
        absent={"env": SAME_ENVS, "gae": "its GAE works on lists of episodes, not on a rollout"},
    ),
    Peer(
        "gymnasium",
        "Gymnasium",
        "gymnasium",
        "gymnasium_cartpole.py",
        ("env",),
        absent={"training": NO_LEARNER, "solve": NO_LEARNER, "gae": NO_LEARNER},
        shares="sb3",
    ),
)
PLOT = Peer("plot", "matplotlib", "matplotlib", "plot.py", (), (("matplotlib==3.11.2",),))


def python_of(peer: Peer, folder: Path, given: dict[str, str]) -> str:
    """The interpreter to run a peer with: the one given, ours for scramjet, else one installed in `folder`."""
    name = peer.shares or peer.name
    if name in given:
        return given[name]
    if peer is SCRAMJET:
        return sys.executable
    return str(install(next(p for p in (*PEERS, PLOT) if p.name == name), folder))


def install(peer: Peer, folder: Path) -> Path:
    """Make a peer's environment, unless it stands there already with the same pins; its python."""
    home = folder / peer.name
    python, marker = home / "bin" / "python", home / "installed"
    pins = "\n".join(" ".join(step) for step in peer.installs)
    if marker.exists() and marker.read_text() == pins:
        return python
    print(f"installing {peer.title} into {home}", flush=True)
    venv.create(home, clear=True, with_pip=True)
    for step in peer.installs:
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *step)
    if peer.name == "pufferlib":
        _build_pufferlib(python, home)
    marker.write_text(pins)
    return python


def _build_pufferlib(python: Path, home: Path) -> None:
    """From the source that PyPI has, with its CartPole alone: all its worlds need libraries that it would download."""
    with urllib.request.urlopen(PUFFERLIB_SOURCE) as answer, tarfile.open(fileobj=io.BytesIO(answer.read())) as archive:
        archive.extractall(home, filter="data")
    source = home / "pufferlib-3.0.0"
    for name in ("raylib-5.5_webassembly", "box2d-web", "box2d-linux-amd64"):
        (source / name).mkdir(exist_ok=True)  # setup.py downloads what has no folder
    setup = source / "setup.py"
    text = setup.read_text()
    text = text.replace(
        "glob.glob('pufferlib/ocean/**/binding.c', recursive=True)", "['pufferlib/ocean/cartpole/binding.c']"
    )
    setup.write_text(text.replace('if shutil.which("nvcc"):', "if False:"))
    _run(python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", str(source))


def _run(python: Path, *words: str) -> None:
    """Run a step of an installation, or say in one line why it failed."""
    path = os.pathsep.join([str(python.parent.resolve()), os.environ.get("PATH", "")])
    done = subprocess.run([str(python), *words], capture_output=True, text=True, env={**os.environ, "PATH": path})
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        errors = [line for line in lines if "error" in line.lower()] or lines or ["no message"]
        raise InstallError(errors[-1].strip())
