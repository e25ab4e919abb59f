"""Mistakes on the command line: one clear message that names the fix, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.helpers import ROOT
from tests.helpers.command_calls import TINY, call, refusal


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["train", "cartpol"], ["cartpol", "Did you mean 'cartpole'", "scramjet list"]),
        (["trian"], ["trian", "Did you mean 'train'"]),
        (["train", "--lerning-rate", "3"], ["--lerning-rate", "--learning-rate"]),
        (["train", "--gamma", "2"], ["gamma=2.0", "from 0 to 1"]),
        (["train", "--learning-rate", "fast"], ["learning_rate='fast'", "0.001@0,0@end"]),
        (["train", "--num-envs", "0"], ["num_envs=0", "at least 1"]),
        (["train", "--num-envs", "many"], ["num-envs"]),
        (["train", "--total-timesteps", "soon"], ["--total-timesteps soon", "500K"]),
        (["train", "--time-limit", "5 parsecs"], ["5 parsecs", "30s"]),
        (["train", "--time-limit", "40"], ["time_limit='40'", "no unit", "write 40s"]),
        (["train", "cartpole_spo"], ["is a preset", "scramjet train --preset cartpole_spo"]),
        (["train", "--search", "alphazero:8"], ["--search", "--algorithm alphazero --alphazero.simulations 8"]),
        (["train", "--search=spo:8x2"], ["--search", "--algorithm spo --spo.particles 8 --spo.depth 2"]),
        (["train", "--search"], ["--search", "--alphazero.simulations 64, or --algorithm spo"]),
        (
            ["train", "--minibatch-size", "1000000"],
            ["minibatch_size=1000000", "larger than the batch", "--minibatch-size"],
        ),
        (["train", "--num-minibatches", "4", "--minibatch-size", "64"], ["give one of them"]),
        (["train", "--num-envs", "7", "--num-steps", "3"], ["num_minibatches=4", "evenly", "--num-minibatches 3"]),
        (
            ["train", "--curiosity", "none", "--bonus.coef", "1"],
            ["bonus.coef=1.0 does nothing with curiosity=none", "leave bonus.coef out", "--curiosity rnd or icm"],
        ),
        (["train", "--env.gravty", "3"], ["gravty", "Did you mean 'gravity'"]),
        (["train", "--env.gravity", "strong"], ["--env.gravity", "strong"]),
        (["train", "--env.gravity"], ["--env.gravity", "needs a value"]),
        (["train", "--env.no-gravity"], ["no_gravity", "Did you mean 'gravity'"]),
        (["train", "maze", "--env.rows", "1", "--env.cols", "1"], ["rows=1", "at least 2"]),
        (["train", "binpack", "--env.max-items", "0"], ["max_items=0"]),
        (["train", "connect_four", "--env.rows", "4", "--env.cols", "4", "--env.connect", "5"], ["connect=5", "lower"]),
        (["train", "cartpole", "--policy.encoder", "nature_cnn"], ["nature_cnn", "--policy.encoder auto"]),
        (["train", "snake", "--policy.encoder", "nature_cnn"], ["10x10", "--policy.encoder grid_cnn"]),
        (["train", "maze", "--frame-stack", "4"], ["frame_stack=4", "--frame-stack 1"]),
        (["eval", "nowhere", "--render", "--json"], ["--render", "--json"]),
        (["train", "--env.mass-pole", "-1"], ["mass_pole=-1", "above 0"]),
        (["train", "--policy.hidden", "0"], ["policy.hidden", "--policy.hidden 64 64"]),
        (["train", "maze", "--policy.ignore", "steps"], ["'steps'", "its entries: agent, step_count, target, walls"]),
        (["train", "--policy.ignore", "x"], ["policy.ignore names 'x'", "no entries to leave out"]),
        (["train", "--run-name", "../escape"], ["../escape", "letters"]),
        (["train", "--resume", "nowhere"], ["nowhere"]),
        (["train", "--fork", "nowhere"], ["nowhere"]),
        (["train", "--config", "missing.toml"], ["missing.toml"]),
        (["eval", "nowhere"], ["nowhere"]),
        (["eval"], ["scramjet eval --help"]),
        (["eval", "nowhere", "--no-fused"], ["--no-fused is for `scramjet train`"]),
        (["eval", "nowhere", "--sead", "3"], ["--sead", "--seed"]),
        (["eval", "nowhere", "--render", "--fps", "0"], ["fps=0.0", "--fps 30"]),
        (["bench", "--num-envs", "0"], ["--num-envs", "at least 1"]),
        (["check", "missing.py"], []),
    ],
)
def test_a_mistake_gets_a_message_that_names_it_and_the_fix(
    words: list[str],
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(capsys, *words)
    for part in parts:
        assert part in message
    assert not list(tmp_path.rglob("config.toml")), "a refused command left a run behind"


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("a.toml", "lerning_rate = 1", ["lerning_rate", "Did you mean 'learning_rate'"]),
        ("a.yaml", "policy: {hiden: [3]}", ["hiden", "Did you mean 'hidden'"]),
        ("a.toml", "gamma = 'high'", ["gamma", "'high'", "a number"]),
        ("a.toml", "curiosity = 'rdn'", ["a.toml: curiosity='rdn'", "or 'none'. Did you mean 'rnd'?"]),
        ("a.yaml", "algorithm: alfazero", ["a.yaml: algorithm='alfazero'", "Did you mean 'alphazero'?"]),
        ("a.toml", "policy.memory = 'None!'", ["a.toml: policy.memory='None!'", "Did you mean 'none'?"]),
        ("a.toml", "policy.value_bins = 1", ["policy.value_bins=1", "at least 2 (or 'none'); the default is none"]),
        ("a.toml", "num_envs = 3.5", ["num_envs=3.5", "a whole number"]),
        ("a.toml", "gamma = ", ["a.toml", "not valid"]),
        ("a.yaml", "a: [1", ["a.yaml", "not valid"]),
        ("a.toml", "config_version = 99", ["99", "upgrade scramjet"]),
        ("a.toml", "[env]\nname = 'cartpole'\ngravty = 1", ["gravty", "Did you mean 'gravity'"]),
        ("a.txt", "", ["a.txt", ".toml"]),
    ],
)
def test_a_mistake_in_a_config_file_is_named(
    name: str, text: str, parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    message = refusal(capsys, "train", "--config", tmp_path / name, "--runs-dir", tmp_path)
    for part in parts:
        assert part in message


def test_a_run_name_that_exists_is_refused_with_the_way_out(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal(capsys, "train", "cartpole", *TINY, "--runs-dir", trained.parent, "--run-name", "tiny")
    assert "tiny" in message
    assert "--resume" in message


def test_a_resumed_run_refuses_every_other_flag_by_name(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--gamma", "0.5"], ["--env.gravity", "1"], ["--seed=3"], ["bandit"]):
        message = refusal(capsys, "train", "--resume", trained, *words)
        assert words[0].partition("=")[0] in message
    assert "the run knows its world" in refusal(capsys, "train", "cartpole", "--resume", trained)  # the default, too


def test_a_finished_run_says_how_to_go_on(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--total-timesteps" in refusal(capsys, "train", "--resume", trained)
    assert "--total-timesteps" in refusal(capsys, "train", "--fork", trained)


def test_a_checkpoint_of_another_world_or_network_is_refused_and_leaves_no_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["--fork", trained, "--total-timesteps", "2048", "--runs-dir", tmp_path]
    assert "another world" in refusal(capsys, "train", "bandit", *base)
    assert "another network" in refusal(capsys, "train", *base, "--policy.hidden", "32")
    assert not list(tmp_path.glob("*")), "a refused fork left a folder"


def test_a_world_that_writes_past_its_observation_is_refused_before_it_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (ROOT / "examples" / "corridor.py").read_text()
    (tmp_path / "wild.py").write_text(source.replace("obs[0] =", "obs[5] ="))
    message = refusal(capsys, "train", tmp_path / "wild.py", *TINY, "--runs-dir", tmp_path)
    assert "Corridor.observe" in message
    assert not list(tmp_path.glob("wild-*"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("words", [("train", "cartpole", "--display", "quiet"), ("bench", "cartpole")])
def test_a_gpu_that_is_not_there_is_one_message_and_exit_code_2(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*words, "--device", "cuda") == 2
    message = capsys.readouterr().err
    assert "device='cuda' needs" in message
    assert "--device cpu" in message
    assert "Traceback" not in message
