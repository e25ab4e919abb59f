"""With a version of Numba that was not tested: its own parts are left alone, and all else goes on as before."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from scramjet.compile import numba_versions
from scramjet.compile.numba_versions import is_within
from tests.helpers import ROOT
from tests.helpers.forked_commands import call

PRIVATE = ("numba.core", "numba._", "numba.np", "numba.cuda.", "llvmlite")


def train_shortly(folder: Path, *, fused: bool) -> None:
    """Train twice in this process, and write what was found into a file of the folder."""
    from safetensors.numpy import load_file

    import scramjet
    from scramjet.compile.addresses import AVAILABLE

    found: dict[str, Any] = {"addresses": AVAILABLE}
    for env, num_envs in {"cartpole": 64, "gym:CartPole-v1": 4}.items():
        result = scramjet.train(
            env, num_envs=num_envs, num_steps=32, total_timesteps=num_envs * 64, fused=fused, seed=3, num_threads=1,
            runs_dir=folder / "runs", display="quiet", eval={"every": 0, "final_episodes": 0},
        )  # fmt: skip
        newest = sorted(Path(result.run_path, "checkpoints").glob("step_*"))[-1]
        weights = load_file(newest / "model.safetensors")
        lines = [json.loads(line) for line in Path(result.run_path, "metrics.jsonl").read_text().splitlines()]
        found[env] = {
            "weights": hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest(),
            "episodes": [[line[name] for name in ("return_100", "policy_loss", "value_loss")] for line in lines],
        }
    (folder / "found.json").write_text(json.dumps(found))


def train_usually(folder: Path) -> None:
    """With torch's operators."""
    train_shortly(folder, fused=False)


PLAIN = """
import sys
from pathlib import Path
from tests.engine.test_plain_numba import train_shortly
train_shortly(Path(sys.argv[1]), fused=True)
"""


def test_an_untested_numba_trains_to_the_same_weights_and_keeps_nothing_on_disk(tmp_path: Path) -> None:
    plain, usual, cache = (tmp_path / name for name in ("plain", "usual", "cache"))
    plain.mkdir()
    usual.mkdir()
    call(train_usually, usual, output=tmp_path / "output")  # with kernels from the usual cache
    everything = {**os.environ, "PYTHONPATH": str(ROOT), "SCRAMJET_PLAIN_NUMBA": "1", "SCRAMJET_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", PLAIN, str(plain)]
    done = subprocess.run(command, env=everything, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    of_plain, of_usual = (json.loads((folder / "found.json").read_text()) for folder in (plain, usual))
    assert of_plain.pop("addresses") is False
    assert of_usual.pop("addresses") is True
    assert all(any(line) for of_env in of_usual.values() for line in of_env["episodes"])
    assert of_plain == of_usual
    assert done.stderr.count("everything compiles anew at every start") == 1
    assert "Results are right" in done.stderr
    assert not list(cache.rglob("*.kernel"))


@pytest.mark.parametrize(
    ("text", "is_tested"),
    [("0.60.1", False), ("0.61.0", True), ("0.68.1", True), ("0.69.0dev0", False), ("1.0", False), ("", False)],
)
def test_versions_outside_the_tested_range_are_told_apart(text: str, is_tested: bool) -> None:
    assert is_within(text, ((0, 61), (0, 69))) is is_tested


def test_the_package_asks_for_the_versions_that_were_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (numba,) = [one for one in project["dependencies"] if one.startswith("numba")]
    (cuda,) = project["optional-dependencies"]["cuda"]
    for requirement, tested in ((numba, numba_versions.TESTED_NUMBA), (cuda, numba_versions.TESTED_NUMBA_CUDA)):
        lowest, below = (".".join(map(str, bound)) for bound in tested)
        assert requirement.endswith(f">={lowest},<{below}")


def test_the_note_names_the_version_and_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_versions, "installed", lambda package: "0.99.0")
    assert "not tested with Numba 0.99.0" in numba_versions.untested_note()
    assert "pip install 'numba>=0.61,<0.69'" in numba_versions.untested_note()


def test_only_one_folder_imports_or_touches_what_numba_keeps_to_itself() -> None:
    package = ROOT / "scramjet"
    strangers = [path for path in package.rglob("*.py") if path.parent.name != "numba_internals"]
    assert len(strangers) > 100
    for path in strangers:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            assert not any(name.startswith(PRIVATE) for name in names), f"{path.name} line {getattr(node, 'lineno', 0)}"
            assert not (isinstance(node, ast.Attribute) and node.attr == "_cache"), f"{path.name} line {node.lineno}"
