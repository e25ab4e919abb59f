"""Type checkers and editors know every setting: its name, its type and a text that says what it does."""

import importlib
import importlib.util
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

from scramjet.cli import _COMMANDS, flags_module
from scramjet.commands.command_line import field_texts
from scramjet.training.config.keyword_types import PPOSettings, Settings
from scramjet.training.config.keywords import TABLES
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.keyword_types import TuneSettings
from scramjet.tuning.settings import StudySettings
from tests.helpers import ROOT

RIGHT = """
train("cartpole", seed=2, learning_rate=1e-3, policy={"hidden": [32]}, total_timesteps="20K")
train("cartpole", clip_epsilon="0.2@0,0@end", ppo=scramjet.PPOConfig(gamma=0.9), eval={"every": 3, "max_steps": None})
train(env=scramjet.Env, num_envs="auto", track=["aim"], tags=("a", "b"), env_parameters={"gravity": 12})
train(resume="runs/a", total_timesteps=1e6, time_limit="2h")
train(fork=pathlib.Path("runs/a"), checkpoint=scramjet.CheckpointConfig(every=3), self_play={"opponents": ["random"]})
tune("cartpole", {"gamma": "0.9..0.99"}, trials=3, steps="2M", seed=2, total_timesteps=1e5, policy={"memory": None})
def mine(**settings: Unpack[scramjet.Settings]) -> None: train("cartpole", total_timesteps=3, **settings)
"""
WRONG = {
    'train("cartpole", sede=2)': 'Unexpected keyword argument "sede"',
    'train("cartpole", seed="two")': 'expected "int"',
    'train("cartpole", policy={"hiden": [32]})': 'expected "PolicySettings | PolicyConfig"',
    'train("cartpole", policy={"hidden": [0.5]})': 'expected "PolicySettings | PolicyConfig"',
    'train("cartpole", policy=scramjet.PPOConfig())': 'expected "PolicySettings | PolicyConfig"',
    'train("cartpole", device="gpu")': "expected \"Literal['auto', 'cpu', 'cuda']\"",
    'train("cartpole", hidden=[32])': 'Unexpected keyword argument "hidden"',
    'tune("cartpole", trails=3)': 'did you mean "trials"?',
    'tune("cartpole", method="tpee")': "expected \"Literal['random', 'tpe', 'pareto', 'halving', 'pbt']\"",
}
CHECKED = (
    "__init__ training/loop tuning/api training/config/keyword_types tuning/keyword_types training/config/run_config "
    "algorithms/config policies/config training/curiosity/config selfplay/config"
)
"""The files of scramjet whose types mypy is shown; it need not read the others."""


def test_mypy_accepts_right_settings_and_refuses_wrong_names_and_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    header = "import pathlib\nfrom typing import Unpack\nimport scramjet\nfrom scramjet import train, tune\n"
    program.write_text(f"{header}{RIGHT.strip()}\n" + "\n".join(WRONG))
    files = [ROOT / "scramjet" / f"{name}.py" for name in CHECKED.split()]
    options = ["--config-file=", "--cache-dir", tmp_path, "--follow-imports=skip", "--ignore-missing-imports"]
    words = [sys.executable, "-m", "mypy", *options, program, *files]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    told = [line for line in done.stdout.splitlines() if "program.py" in line and "error:" in line]
    first = header.count("\n") + RIGHT.strip().count("\n") + 2
    assert [int(line.split(":")[1]) for line in told] == [*range(first, first + len(WRONG))], done.stdout + done.stderr
    for line, expected in zip(told, WRONG.values(), strict=True):
        assert expected in line


def test_the_types_of_keywords_are_those_of_the_settings() -> None:
    spec = importlib.util.spec_from_file_location("keyword_types", ROOT / "tools/keyword_types.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for path, source in tool.sources().items():
        assert path.read_text() == source, f"{path.name} is not up to date: run `python tools/keyword_types.py`"
    of_run = {field.name for kind in (RunConfig, TABLES["ppo"]) for field in fields(kind)}
    assert set(get_type_hints(Settings)) == of_run - {"env", "total_timesteps", "time_limit"}
    assert set(get_type_hints(PPOSettings)) == {field.name for field in fields(TABLES["ppo"])}
    of_study = {field.name for field in fields(StudySettings)}
    assert set(get_type_hints(TuneSettings)) == (of_run | of_study) - {"env"}


def test_every_field_of_every_config_and_every_flag_has_a_text() -> None:
    modules = [importlib.import_module(flags_module(name)) for name in _COMMANDS]
    commands = [vars(module)[name] for module in modules for name in ("Arguments", "Place") if name in vars(module)]
    for kind in (RunConfig, *TABLES.values(), StudySettings, *commands):
        texts = field_texts(kind)
        nested = {"place", "study", "settings"} if kind in commands else set()
        assert {field.name for field in fields(kind)} - nested == set(texts), f"{kind}: one has no text below it"
        for name, text in texts.items():
            assert text.endswith((".", "...", ")")), f"{kind}: {name}"
            assert len(text.split()) > 2, f"{kind}: {name}"
