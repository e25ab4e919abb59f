"""What is installed from a wheel works away from the repository and without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
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
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a wheel of this checkout installs."""
    pytest.importorskip("hatchling", reason="builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, ROOT, folder], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_the_wheel_carries_presets_examples_and_docs(installed: Path) -> None:
    for name, pattern in (("configs", "*.toml"), ("examples", "*.py"), ("docs", "**/*.md")):
        expected = {path.relative_to(ROOT / name) for path in (ROOT / name).glob(pattern)}
        found = {
            path.relative_to(installed / "scramjet" / name) for path in (installed / "scramjet" / name).glob(pattern)
        }
        assert found == expected
        assert len(found) >= 2


def test_the_wheel_carries_the_positions_that_players_are_graded_by(installed: Path) -> None:
    folder = Path("scramjet/arena/solver/positions")
    assert {path.name for path in (installed / folder).iterdir()} == {path.name for path in (ROOT / folder).iterdir()}
    assert len((installed / folder / "begin_hard.txt").read_text().splitlines()) == 1000


def test_a_wheel_lists_writes_an_example_and_trains_it_from_another_worlds_preset_without_a_compiler(
    installed: Path, tmp_path: Path, state_folder: Path
) -> None:
    surroundings = {
        "PATH": "",
        "HOME": os.environ["HOME"],
        "PYTHONPATH": str(installed),
        "SCRAMJET_STATE_DIR": str(state_folder),
    }
    words = [sys.executable, "-c", SCRIPT, str(installed)]
    done = subprocess.run(words, cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(installed / "scramjet" / "docs" / "worlds" / "bandit.md") in done.stdout
    assert "scramjet check corridor.py" in done.stdout
    assert "hidden = [\n    8,\n]" in done.stdout
    assert str(ROOT) not in done.stdout + done.stderr
