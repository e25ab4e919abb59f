"""What is installed from a wheel works away from the repository and without a compiler, and so does each extra."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers import ROOT

BUILD = """import sys
from hatchling.builders.wheel import WheelBuilder

print(*WheelBuilder(sys.argv[1]).build(directory=sys.argv[2]))
"""

SCRIPT = """
import sys
from pathlib import Path
import scramjet
from scramjet.cli import run

assert Path(scramjet.__file__).is_relative_to(sys.argv[1]), scramjet.__file__
tiny = "--total-timesteps 64 --num-envs 4 --num-steps 8 --num-minibatches 1 --policy.hidden 8".split()
tiny += "--no-fused --eval.final-episodes 0 --display quiet".split()
for words in (["list", "bandit"], ["example", "corridor"]):
    assert run(words) == 0, words
assert run(["train", "corridor.py", "--preset", "bandit", *tiny]) == 0
print((Path("runs") / "corridor-1" / "config.toml").read_text())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as users get it."""
    pytest.importorskip("hatchling", reason="builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, ROOT, folder], check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder with what it installs."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "installed")
    return wheel.parent / "installed"


def test_the_wheel_carries_presets_examples_docs_and_the_positions_that_players_are_graded_by(installed):
    positions = "arena/solver/positions"
    for ours, theirs, pattern in (
        ("configs", "configs", "*.toml"),
        ("examples", "examples", "*.py"),
        ("docs", "docs", "**/*.md"),
        (f"scramjet/{positions}", positions, "*"),
    ):
        source, target = ROOT / ours, installed / "scramjet" / theirs
        expected = {path.relative_to(source) for path in source.glob(pattern)}
        assert {path.relative_to(target) for path in target.glob(pattern)} == expected, ours
        assert len(expected) >= 2, ours
    assert len((installed / "scramjet" / positions / "begin_hard.txt").read_text().splitlines()) == 1000


@pytest.mark.rest
def test_an_example_is_written_and_trained_from_another_worlds_preset_without_a_compiler(
    installed, tmp_path, state_folder
):
    surroundings = {"PATH": "", "PYTHONPATH": str(installed), "SCRAMJET_STATE_DIR": str(state_folder)}
    surroundings["SCRAMJET_CACHE_DIR"] = os.environ.get("SCRAMJET_CACHE_DIR", str(tmp_path))
    words = [sys.executable, "-c", SCRIPT, str(installed)]
    done = subprocess.run(words, cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(installed / "scramjet" / "docs" / "worlds" / "bandit.md") in done.stdout
    assert "scramjet check corridor.py" in done.stdout
    assert "hidden = [\n    8,\n]" in done.stdout
    assert str(ROOT) not in done.stdout + done.stderr


PAGES = "\n".join(page.read_text() for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
FOR_DEVELOPERS = {"browser", "dev", "kernels", "many", "others", "parity", "seen"}
FIRST_LINES = re.findall(r"^scramjet (\w+ .*)# pip install 'scramjet\[(\w+)\]'", PAGES, re.MULTILINE)[::-1]
LINES = {extra: shlex.split(words) for words, extra in FIRST_LINES}
"""Extra to the words of the first line `scramjet COMMAND ... # pip install 'scramjet[EXTRA]'` on a page."""
TINY = "--num-envs 2 --num-steps 16 --num-minibatches 1 --num-epochs 1 --total-timesteps 64 --device cpu "
TINY += "--eval.every 0 --eval.final-episodes 0 --display plain"


def test_every_extra_that_a_page_names_exists_and_every_extra_is_on_a_page():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - FOR_DEVELOPERS
    named = {extra for group in re.findall(r"scramjet\[([\w,]+)\]", PAGES) for extra in group.split(",")}
    assert named - FOR_DEVELOPERS == extras
    assert set(LINES) == extras - {"cuda"}


@pytest.mark.extras
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("extra", sorted(extra for extra, words in LINES.items() if words[0] == "train"))
def test_the_line_of_an_extra_trains_in_a_clean_environment(extra, wheel, tmp_path):
    """Slow: each environment has its own torch."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[{extra}]"]
    subprocess.run(install, check=True, timeout=1200)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio")}
    words = [python, "-m", "scramjet", *LINES[extra], *shlex.split(TINY)]
    trained = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert (tmp_path / "runs").is_dir()
    assert "tracking by" not in trained.stdout  # which tells of a tracker that stopped
