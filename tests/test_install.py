"""Installing: the index alone satisfies constraints.txt on every platform, and install.py falls back as it says."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers import ROOT

PLATFORMS = {
    "x86_64-manylinux_2_28": {},
    "aarch64-manylinux_2_28": {},
    "aarch64-apple-darwin": {"MACOSX_DEPLOYMENT_TARGET": "14.0"},
    "x86_64-pc-windows-msvc": {},
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
WITHOUT_WHEELS = ("aim-ui", "choix")
"""Pure Python that its authors publish as source alone."""


def resolve(*choices: str, **surroundings: str) -> set[str]:
    """What uv takes from the plain index for pyproject.toml with every extra: `name==version`, by metadata alone."""
    pytest.importorskip("uv", reason="uv resolves")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_INDEX", "UV_FIND_LINKS"))}
    words = [sys.executable, "-m", "uv", "pip", "compile", "--all-extras", "-c", "constraints.txt", "pyproject.toml"]
    words += ["--quiet", "--no-header", "--no-annotate", *choices]
    done = subprocess.run(words, cwd=ROOT, env=kept | surroundings, capture_output=True, text=True, timeout=240)
    if any(sign in done.stderr for sign in ("error sending request", "Failed to fetch", "dns error")):
        pytest.skip("no package index is reached from here")
    assert done.returncode == 0, done.stderr[-2000:]
    return {line.partition(" ")[0] for line in done.stdout.splitlines() if "==" in line}


def pins() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {line.partition(" ")[0] for line in lines if "==" in line}


def test_the_index_alone_satisfies_the_constraints_for_all_platforms_at_once_and_they_leave_nothing_open() -> None:
    assert resolve("--universal", "--python-version", "3.11") == pins()


@pytest.mark.rest
@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("place", PLATFORMS)
def test_each_platform_and_python_finds_wheels_of_all_it_needs(place: str, version: str) -> None:
    only_wheels = ["--only-binary", ":all:", *(f"--no-binary={name}" for name in WITHOUT_WHEELS)]
    chosen = resolve("--python-platform", place, "--python-version", version, *only_wheels, **PLATFORMS[place])
    assert len(chosen) > 100
    assert chosen <= pins()


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/install.py on a Linux machine without torch and without a GPU."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DRIVER", ())
    monkeypatch.setattr(module, "installed", lambda package: False)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    return module


Fails = Callable[[tuple[str, ...]], bool]


def commands(
    installer: ModuleType, monkeypatch: pytest.MonkeyPatch, words: str, fails: Fails, *, by_uv: bool = True
) -> tuple[int, list[str]]:
    """The exit code, and what was run: by whom and the last words of it."""
    ran = []

    def succeeds(*command: str) -> bool:
        ran.append(f"{command[2]}: {' '.join(command[command.index('-c') + 2 :])}")
        return not fails(command)

    monkeypatch.setattr(installer, "succeeds", succeeds)
    monkeypatch.setattr(installer, "uv_is_usable", lambda: by_uv)
    return installer.main(words.split()), ran


def test_a_machine_without_a_gpu_gets_torchs_cpu_build_and_what_pip_finds_where_that_is_out_of_reach(
    installer: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands(installer, monkeypatch, "", lambda command: False) == (
        0,
        ["uv: --torch-backend=cpu torch", "uv: -e ."],
    )
    assert capsys.readouterr().out.splitlines() == [f"no NVIDIA GPU here: {installer.CPU_BUILD}"]
    code, ran = commands(installer, monkeypatch, "dev", lambda command: "--torch-backend=cpu" in command)
    assert (code, ran) == (0, ["uv: --torch-backend=cpu torch", "pip: torch", "uv: -e .[dev]"])
    assert installer.CUDA_BUILD in capsys.readouterr().out


def test_a_gpu_or_another_system_takes_the_build_of_the_index(
    installer: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert commands(installer, monkeypatch, "", lambda command: False) == (0, ["uv: -e ."])
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(installer, "DRIVER", (str(tmp_path),))
    assert commands(installer, monkeypatch, "", lambda command: False) == (0, ["uv: -e ."])


def test_pip_takes_the_place_of_a_uv_that_fails_or_is_not_to_be_used(
    installer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, ran = commands(installer, monkeypatch, "dev", lambda command: command[2] == "uv")
    assert (code, ran[-2:]) == (0, ["uv: -e .[dev]", "pip: -e .[dev]"])
    by_pip = (0, ["pip: torch", "pip: -e .[dev]"])
    assert commands(installer, monkeypatch, "dev", lambda command: False, by_uv=False) == by_pip
    assert commands(installer, monkeypatch, "dev", lambda command: True)[0] == 1


def test_an_extra_that_cannot_be_installed_is_named_and_the_others_are_taken(
    installer: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installer, "installed", lambda package: True)
    assert commands(installer, monkeypatch, "dev -- ray tune", lambda command: ".[ray]" in command) == (
        0,
        ["uv: -e .[dev]", "uv: -e .[dev,ray,tune]"],
    )
    code, ran = commands(installer, monkeypatch, "dev -- ray tune", lambda command: "ray" in command[-1])
    assert (code, ran[2:]) == (0, ["uv: -e .[ray]", "pip: -e .[ray]", "uv: -e .[tune]"])
    assert "'ray' cannot be installed: tests that need it will be skipped" in capsys.readouterr().out


def test_an_index_of_the_users_own_is_pips_alone(installer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "succeeds", lambda *command: True)
    for setting, usable in (("global.index-url", False), (":env:.no-index", False), ("global.find-links", True)):
        told = subprocess.CompletedProcess([], 0, stdout=f"global.timeout='60'\n{setting}='x'\n")
        monkeypatch.setattr(subprocess, "run", lambda *words, told=told, **named: told)
        assert installer.uv_is_usable() == usable, setting
