"""What the docs show runs as written: Python blocks in order, config files, and the commands of scramjet.

Blocks of one page share a folder and a namespace, so a block may build on those above it. Trainings from Python are
cut to two tiny updates; those of commands end where training would begin, with the world made and the network built.
What cannot run here is listed in NOT_RUN with its reason; nothing else is left out.
"""

from __future__ import annotations

import inspect
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scramjet.adapters.registry import is_foreign
from scramjet.cli import run
from scramjet.commands import train as train_command
from scramjet.policies.networks import default_network
from scramjet.training import loop
from scramjet.training.config.files import apply, starting_config
from scramjet.training.config.run_config import RunConfig
from scramjet.training.config.yaml_text import read_yaml
from tests.test_docs import PAGES, ROOT, blocks, command_lines

NOT_RUN = {
    "ale:": "Atari games take seconds to load and train; tests/engine/test_atari.py plays them",
    "mujoco:": "tests/training/test_foreign_training.py trains it",
    "envpool:": "tests/engine/test_envpool_pool.py plays it",
    "pettingzoo": "an optional library; tests/engine/test_pettingzoo_pool.py plays it",
    "my_": "a file of the reader's",
    "my-run": "a run of the reader's",
    "--device cuda": "needs a GPU",
    'device="cuda"': "needs a GPU",
    "--help": "tests/test_command_line.py shows the help of each command",
    "play connect_four": "waits for a person; tests/commands/test_play.py types for one",
    "bench": "measures for minutes; tests/test_cli.py runs it",
    "tune cartpole": "trains many runs; tests/tuning/ and tests/commands/test_tune.py run studies",
    "scramjet.tune(": "trains many runs, each in a process of its own; tests/tuning/ run studies",
    "studies/": "a study of the reader's",
    "runs/": "a run of the reader's; tests/test_cli.py evaluates, resumes and forks",
}
"""Text in a command or block that keeps it from being run here, and why."""
SHORTER = {"check": ["--steps", "50"]}
"""What is added to a command here, so that it takes less time."""
ENDLESS = "serve"
"""The command that goes on until Ctrl-C; tests/web/ open its page in a browser."""

PYTHON = [page for page in PAGES if blocks(page, "python")]
FILES = [(page.name, kind, text) for page in PAGES for kind in ("toml", "yaml") for text in blocks(page, kind)]
PARAMETERS = inspect.signature(loop.train).parameters


def reason_not_to_run(text: str) -> str | None:
    """Why a command or block cannot run here, or None."""
    return next((reason for part, reason in NOT_RUN.items() if part in text), None)


def tiny(config: RunConfig) -> RunConfig:
    """The same training, two updates long."""
    evaluation = replace(config.eval, every=0, final_episodes=2)
    ppo = replace(config.ppo, num_minibatches=1, minibatch_size=None, num_epochs=1, bptt_horizon=None)
    small = {"num_envs": 8, "num_steps": 16, "total_timesteps": 256, "num_threads": 1}
    return replace(config, ppo=ppo, eval=evaluation, **small)


def cut_short(whole: Any) -> Any:
    """`scramjet.train` with everything as given but for the size."""

    def train(config: Any = None, **given: Any) -> Any:
        settings = {name for name in given if name not in PARAMETERS}
        if settings:
            given.update(total_timesteps=256, num_envs=8, num_steps=16)
        elif given.get("resume") is None and given.get("fork") is None:
            config = tiny(starting_config(config) if isinstance(config, str) else config or RunConfig())
        return whole(config, **{**given, "display": "quiet"})

    return train


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "train", cut_short(loop.train))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(blocks(page, "python"), start=1):
        if reason_not_to_run(code) is None:
            world = re.search(r"^class (\w+)\(Env\)", code, re.MULTILINE)
            file = tmp_path / (f"{world[1].lower()}.py" if world else f"block_{number}.py")  # as the page calls it
            file.write_text(code)
            exec(compile(code, str(file), "exec"), namespace)


@pytest.mark.parametrize(("page", "kind", "text"), FILES)
def test_config_files_are_taken(page: str, kind: str, text: str) -> None:
    assert apply(RunConfig(), tomllib.loads(text) if kind == "toml" else read_yaml(text), page)


def begin(config: RunConfig, **place: Any) -> Any:
    """Stands for training: the world is made, and the network that it would train is built."""
    world = config.make_env()
    if not is_foreign(config.env) and config.frame_stack == 1:
        with torch.device("meta"):  # of every size and kind, without its numbers
            default_network(world.observation_space, world.action_space, config.policy)
    return SimpleNamespace(exit_code=0)


COMMANDS = sorted({shlex.join(words) for page in PAGES for words in command_lines(page)})


def test_commands_run_up_to_where_training_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_command, "train", begin)
    treasure = next(
        code for code in blocks(ROOT / "docs/writing-environments.md", "python") if "class Treasure" in code
    )
    (tmp_path / "treasure.py").write_text(treasure)
    ran = []
    for command in sorted(COMMANDS, key=lambda command: "example" not in command):  # it writes what others take
        if reason_not_to_run(command) is None and shlex.split(command)[0] != ENDLESS:
            words = shlex.split(command)
            assert run([*words, *SHORTER.get(words[0], [])]) == 0, command
            ran.append(command)
    assert len(ran) > 30


def test_what_is_not_run_says_why_and_is_found_in_the_docs() -> None:
    shown = [*COMMANDS, *(code for page in PYTHON for code in blocks(page, "python"))]
    for part, reason in NOT_RUN.items():
        assert reason
        assert any(part in text for text in shown), f"nothing shows {part!r}: take it off the list"
