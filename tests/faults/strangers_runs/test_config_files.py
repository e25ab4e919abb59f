"""Config files of strangers: bombs, pipes and folders are told in one message."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.strangers_runs import (
    command,
    folder,
    huge_file,
    link_to_zeros,
    pipe,
)

pytestmark = pytest.mark.faults

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n" for before, after in itertools.pairwise("abcdefghi")
)

CONFIGS = {
    "bomb.yaml": BOMB + "seed: *i\n",
    "merge.yaml": "a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nseed: 1\n",
    "itself.yaml": "seed: &a [*a]\n",
    "deep.toml": "env = {name = 'cartpole', x = " + "[" * 200 + "]" * 200 + "}",
    "deep.yaml": "seed: " + "[" * 400 + "]" * 400,
    "long.toml": f"seed = {'[' + '1,' * 10_000 + ']'}",
    "dots.toml": "a." * 100_000 + "b = 1",
    "quoted dots.toml": '"=" . ' * 100_000 + "b = 1",
    "dots in a table.toml": "env = {" + "a." * 100_000 + "b = 1}",
    "bits.toml": f"seed = 0x{'f' * 6_000}",
    "digits.yaml": f"seed: {'1' * 5_000}",
    "escape.toml": 'env = "\\u001b[2Jcartpole"',
    "keys.yaml": '"\\x1b[2J": 1',
    "bytes.toml": b"seed = 1\xff",
    "large.toml": b"#" * (1 << 20) + b"\n",
    "large.yaml": b"#" * (1 << 20),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_strangers_config_file_is_one_message(name: str, tmp_path: Path) -> None:
    content = CONFIGS[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    code, output = command("train", "--config", tmp_path / name, "--help")
    assert code == 2
    assert output.startswith("scramjet: ")
    assert "\x1b" not in output
    assert len(output) < 5_000


@pytest.mark.parametrize("kind", [pipe, folder, huge_file, link_to_zeros], ids=lambda kind: kind.__name__)
def test_a_config_file_that_is_no_file_is_told_at_once(kind: Callable[[Path, Path], None], tmp_path: Path) -> None:
    kind(tmp_path / "mine.toml", tmp_path)
    code, output = command("train", "--config", tmp_path / "mine.toml")
    assert code == 2
    assert output.startswith(f"scramjet: cannot read the config file {tmp_path}/mine.toml: it ")


def test_a_config_file_may_be_a_link_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("seed = -1\n")
    (tmp_path / "mine.toml").symlink_to("real.toml")
    assert "seed=-1" in command("train", "--config", tmp_path / "mine.toml")[1]
