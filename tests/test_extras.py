"""The extras of the package: those that pages name are there, and each trains its line from a clean environment."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from tests.helpers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOR_DEVELOPERS = {"dev", "many", "others", "parity", "seen"}
TINY = "--num-envs 2 --num-steps 16 --num-minibatches 1 --num-epochs 1 --total-timesteps 64 --device cpu "
TINY += "--eval.every 0 --eval.final-episodes 0 --display plain"


def extras() -> dict[str, list[str]]:
    """The extras of pyproject.toml and what each installs."""
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return found


def lines_of_pages() -> dict[str, list[str]]:
    """Extra to the words of the first line `scramjet COMMAND ... # pip install 'scramjet[EXTRA]'` on a page."""
    text = "\n".join(page.read_text() for page in PAGES)
    found = re.findall(r"^scramjet (\w+ .*)# pip install 'scramjet\[(\w+)\]'", text, re.MULTILINE)
    return {extra: shlex.split(words) for words, extra in reversed(found)}


TRAINING = sorted(extra for extra, words in lines_of_pages().items() if words[0] == "train")
"""The extras whose line trains, and needs nothing that is not there yet."""


def test_every_extra_that_a_page_names_exists_and_every_extra_is_on_a_page() -> None:
    named = {
        extra
        for page in PAGES
        for group in re.findall(r"scramjet\[([\w,]+)\]", page.read_text())
        for extra in group.split(",")
    }
    assert named - FOR_DEVELOPERS == set(extras()) - FOR_DEVELOPERS
    assert set(lines_of_pages()) == set(extras()) - FOR_DEVELOPERS - {"cuda"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as users get it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True)
    (built,) = folder.glob("scramjet-*.whl")
    return built


@pytest.mark.extras
@pytest.mark.parametrize("extra", TRAINING)
def test_the_line_of_an_extra_trains_in_a_clean_environment(extra: str, wheel: Path, tmp_path: Path) -> None:
    """Slow: each environment has its own torch."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[{extra}]"]
    subprocess.run(install, check=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio")}
    words = ["scramjet", *lines_of_pages()[extra], *shlex.split(TINY)]
    trained = subprocess.run(
        [python, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert (tmp_path / "runs").is_dir()
    assert "tracking by" not in trained.stdout  # which tells of a tracker that stopped
