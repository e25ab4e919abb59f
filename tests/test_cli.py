"""The command line as a person meets it: results, JSON, and one clear message with exit code 2 for each mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import scramjet
from scramjet.cli import main
from scramjet.commands import bench
from scramjet.commands.env_parameters import split_env_parameters, typed_parameters
from scramjet.errors import ConfigError
from scramjet.policies.config import PolicyConfig
from scramjet.runtime.metrics_log import read_metrics
from scramjet.training.config.files import load_frozen, starting_config
from tests.helpers import ROOT

TINY = ["--num-envs", "8", "--num-steps", "16", "--total-timesteps", "512"]
TINY += ["--eval.final-episodes", "2", "--eval.every", "2", "--eval.episodes", "2"]


def call(*words: object) -> int:
    """Run a command as the shell would; returns its exit code."""
    with pytest.raises(SystemExit) as ending:
        main([str(word) for word in words])
    code = ending.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny finished run."""
    runs = tmp_path_factory.mktemp("runs")
    assert call("train", "cartpole", *TINY, "--runs-dir", runs, "--run-name", "tiny", "--display", "quiet") == 0
    return runs / "tiny"


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The message of a command that must fail with exit code 2, in one line and without a traceback."""
    assert call(*words) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return " ".join(captured.err.replace("│", " ").split())


# --- what works -----------------------------------------------------------------------------------------


def test_a_run_folder_holds_config_metrics_and_checkpoints(trained: Path) -> None:
    assert load_frozen(trained / "config.toml").num_envs == 8
    assert [record["step"] for record in read_metrics(trained / "metrics.jsonl")] == [128, 256, 384, 512]
    latest = trained / "checkpoints" / "latest"
    assert sorted(path.name for path in latest.iterdir()) == [
        "metadata.json",
        "model.safetensors",
        "trainer.safetensors",
    ]
    assert latest.resolve().name == "step_00000512"
    assert (trained / "checkpoints" / "best").resolve().parent == (trained / "checkpoints").resolve()


def test_eval_prints_one_json_object(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", trained, "--episodes", 7, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 7
    assert set(result) >= {"mean_return", "std_return", "mean_length", "episodes", "stats"}
    assert 1 <= result["mean_return"] <= 500


def test_eval_accepts_a_run_by_name_and_a_checkpoint_by_path(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", "tiny", "--runs-dir", trained.parent, "--episodes", 3, "--json") == 0
    by_name = capsys.readouterr().out
    assert call("eval", trained / "checkpoints" / "latest", "--episodes", 3, "--json") == 0
    assert json.loads(capsys.readouterr().out)["mean_return"] == json.loads(by_name)["mean_return"]


def test_eval_with_render_shows_the_last_picture_of_the_episode(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("eval", trained, "--render") == 0
    assert "(end)" in capsys.readouterr().out


def test_evaluate_from_python_gives_what_the_command_gives(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eval", trained, "--episodes", 5, "--json") == 0
    expected = json.loads(capsys.readouterr().out)["mean_return"]
    assert scramjet.evaluate(trained, episodes=5).mean_return == expected
    policy = scramjet.load_policy(trained)
    assert policy.act(torch.zeros(3, 4)).shape == (3,)


def test_list_names_every_world_with_its_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--json") == 0
    worlds = {world["name"]: world for world in json.loads(capsys.readouterr().out)["worlds"]}
    assert worlds["cartpole"]["action_space"] == "Discrete(2)"
    assert worlds["cartpole"]["description"].startswith("Balance")
    assert {"bandit", "probe_constant", "probe_delay", "probe_policy"} <= set(worlds)


def test_list_shows_names_as_they_are_and_without_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = {"name": "[red]x\x1b[2J", "observes": "[bold]", "acts": "1", "description": "\x1b]0;pwned\x07"}
    monkeypatch.setattr("scramjet.commands.list.describe", lambda entry: world)
    assert call("list") == 0
    output = capsys.readouterr().out
    assert r"[red]x\x1b[2J  \x1b]0;pwned\x07" in re.sub("  +", "  ", output)
    assert "\x1b" not in output


def test_bench_prints_rows_with_the_three_speeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        call("bench", "bandit", "--num-envs", 16, "--num-threads", 1, "--num-steps", 8, "--seconds", 0.05, "--json")
        == 0
    )
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["env"], row["device"], row["num_envs"], row["num_threads"]) == ("bandit", "cpu", 16, 1)
    for name in ("env_steps_per_second", "rollout_steps_per_second", "train_steps_per_second"):
        assert row[name] > 0
    assert row["env_steps_per_second"] > row["train_steps_per_second"]
    assert row["env_steps_per_second_best"] >= row["env_steps_per_second"]


@pytest.mark.parametrize("memory", ["none", "mingru"])
def test_bench_takes_memory_or_none(memory: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--num-envs", 4, "--num-threads", 1, "--num-steps", 8, "--seconds", 0.05)
    assert call("bench", "bandit", *sizes, "--memory", memory, "--memory-size", 8, "--shared-trunk", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["train_steps_per_second"] > 0


def test_each_line_of_benchs_table_has_the_best_env_steps_beside_the_median_and_fits_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("bench", "bandit", "--num-envs", 4, 16, "--num-threads", 1, "--num-steps", 8, "--seconds", 0.05) == 0
    _, header, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2
    for line in rows:
        assert re.fullmatch(r" *\d+ +1 +[\d.]+ [KM] \([\d.]+ [KM]\) +[\d.]+ [KM] +[\d.]+ [KM] +\d+%", line)
        assert len(line) == len(header) <= 80


def test_bench_all_gives_each_worlds_median_and_best(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("bandit", "mountain_car_continuous")
    monkeypatch.setattr(bench, "registrations", lambda: [SimpleNamespace(name=name) for name in names])
    monkeypatch.setattr(
        bench, "NativePool", lambda env, num_envs, num_threads: SimpleNamespace(num_threads=num_threads)
    )
    monkeypatch.setattr(bench, "_env_rate", lambda pool, seconds: bench.Rate.of([1e8, 2.5e8, 9e7 * pool.num_threads]))
    assert call("bench", "all", "--num-threads", 1, 2, 3) == 0
    _, header, *rows = capsys.readouterr().out.splitlines()
    cells = ["mountain_car_continuous", "100.0 M (250.0 M)", "180.0 M (250.0 M)", "250.0 M (270.0 M)"]
    assert rows[1].split("  ") == cells
    assert [len(line) for line in (header, *rows)] == [80, 80, 80]
    assert call("bench", "all", "--num-threads", 1, 2, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["env_steps_per_second"]["bandit"] == {"1": 1e8, "2": 1.8e8}
    assert report["env_steps_per_second_best"]["bandit"] == {"1": 2.5e8, "2": 2.5e8}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], PolicyConfig()),
        (["--hidden", "5", "--shared-trunk"], PolicyConfig(hidden=(5,), shared_trunk=True)),
        (["--memory", "gru", "--memory-size", "7"], PolicyConfig(memory="gru", memory_size=7)),
    ],
)
def test_the_policy_that_bench_measures_is_the_one_it_is_told(
    flags: list[str], expected: PolicyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[PolicyConfig] = []

    def stop_there(observation_space: Any, action_space: Any, settings: PolicyConfig) -> None:
        built.append(settings)
        raise ConfigError("seen enough")

    monkeypatch.setattr(bench, "default_network", stop_there)
    assert call("bench", "bandit", *flags) == 2
    assert built == [expected]


def test_python_dash_m_scramjet_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "scramjet", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"scramjet {scramjet.__version__}"


def test_env_parameters_reach_the_world_and_the_frozen_config(tmp_path: Path) -> None:
    words = ["--env.gravity", "3.5", "--env.max-episode-steps=9", "--runs-dir", tmp_path, "--display", "quiet"]
    assert call("train", "cartpole", *TINY, *words) == 0
    parameters = load_frozen(tmp_path / "cartpole-1" / "config.toml").env_parameters
    assert (parameters["gravity"], parameters["max_episode_steps"]) == (3.5, 9)
    assert max(record["return_max"] for record in read_metrics(tmp_path / "cartpole-1" / "metrics.jsonl")) <= 9


def test_flags_win_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("env: cartpole\nnum_envs: 8\nnum_steps: 16\ngamma: 0.5\ntotal_timesteps: 256\n")
    words = ["--config", tmp_path / "mine.yaml", "--gamma", "0.6", "--runs-dir", tmp_path, "--display", "quiet"]
    assert call("train", *words, "--eval.final-episodes", 0) == 0
    config = load_frozen(tmp_path / "cartpole-1" / "config.toml")
    assert (config.ppo.gamma, config.num_envs) == (0.6, 8)
    assert config.ppo.gae_lambda == 0.9, "the preset's value"
    assert config.ppo.value_coef == 0.5, "the code's default"


@pytest.mark.parametrize(
    ("words", "epochs", "is_warned"),
    [
        ([], 4, False),
        (["--loss", "ppo"], 4, False),
        (["--loss", "impala"], 1, False),
        (["--loss=impala", "--num-epochs=1"], 1, False),
        (["--loss", "impala", "--num-epochs", "3"], 3, True),
        (["--num_epochs", "2", "--loss", "impala"], 2, True),
        (["--num-epochs", "2"], 2, False),
    ],
)
def test_impala_takes_one_epoch_unless_told_whatever_the_preset_says_and_is_warned_above_that(
    words: list[str], epochs: int, is_warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert starting_config("cartpole").ppo.num_epochs == 4
    assert call("train", "cartpole", *TINY, *words, "--runs-dir", tmp_path, "--display", "plain") == 0
    assert load_frozen(tmp_path / "cartpole-1" / "config.toml").ppo.num_epochs == epochs
    assert [record["epochs"] for record in read_metrics(tmp_path / "cartpole-1" / "metrics.jsonl")] == [epochs] * 4
    warning = f"impala with num_epochs={epochs}: its gradient has no clip"
    said = capsys.readouterr().out
    assert (warning in said) == is_warned
    assert ("--num-epochs 1 is usual" in said) == is_warned


def test_what_a_preset_ignores_can_be_seen_again_or_be_something_else(tmp_path: Path) -> None:
    assert starting_config("maze").policy.ignore == ("step_count",)
    words = ["train", "maze", *TINY, "--policy.encoder", "mlp", "--runs-dir", tmp_path, "--display", "quiet"]
    for i, names in enumerate(([], ["walls", "target"]), start=1):
        assert call(*words, "--policy.ignore", *names) == 0
        assert load_frozen(tmp_path / f"maze-{i}" / "config.toml").policy.ignore == tuple(names)


def test_a_fork_and_a_file_that_change_the_loss_to_impala_take_one_epoch_too(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('loss = "impala"\n')
    (tmp_path / "told.toml").write_text('loss = "impala"\nnum_epochs = 3\n')
    file, told = (["cartpole", *TINY, "--config", tmp_path / name] for name in ("mine.toml", "told.toml"))
    fork = ["--fork", trained, "--loss", "impala", "--total-timesteps", "1024"]
    for name, words, epochs in (("file", file, 1), ("told", told, 3), ("fork", fork, 1)):
        assert call("train", *words, "--runs-dir", tmp_path, "--run-name", name, "--display", "quiet") == 0
        ppo = load_frozen(tmp_path / name / "config.toml").ppo
        assert (ppo.loss, ppo.num_epochs) == ("impala", epochs)


def test_the_world_may_be_named_beside_a_file_that_has_its_parameters(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("num_envs = 6\nnum_steps = 5\nnum_minibatches = 3\n[env]\ngravity = 3.5\n")
    words = ["--config", tmp_path / "a.toml", "--runs-dir", tmp_path, "--display", "quiet", "--total-timesteps", 60]
    assert call("train", "cartpole", *words) == 0
    config = load_frozen(tmp_path / "cartpole-1" / "config.toml")
    assert (config.env_parameters["gravity"], config.num_envs, config.ppo.gae_lambda) == (3.5, 6, 0.9)
    assert call("train", *words, "--num-steps", 10, "bandit") == 2, "the file's gravity is none of bandit's"
    (tmp_path / "b.toml").write_text("num_envs = 6\nnum_steps = 5\nnum_minibatches = 3\n")
    words[1] = tmp_path / "b.toml"
    assert call("train", *words, "bandit") == 0


def test_a_fork_counts_on_and_records_where_it_comes_from(trained: Path, tmp_path: Path) -> None:
    words = ["--fork", trained / "checkpoints" / "latest", "--learning-rate", "1e-4", "--total-timesteps", "1024"]
    assert call("train", *words, "--runs-dir", tmp_path, "--run-name", "child", "--display", "quiet") == 0
    steps = [record["step"] for record in read_metrics(tmp_path / "child" / "metrics.jsonl")]
    assert steps == [640, 768, 896, 1024]
    lineage = json.loads((tmp_path / "child" / "lineage.json").read_text())
    assert lineage["parent_step"] == 512
    assert lineage["changed"]["learning_rate"][1] == 1e-4
    checkpoints = sorted(path.name for path in (tmp_path / "child" / "checkpoints").glob("step_*"))
    assert checkpoints[0] == "step_00000512", "killed before its own first checkpoint, a fork resumes from its parent's"
    grandchild = ["--fork", tmp_path / "child", "--total-timesteps", "1152", "--run-name", "grandchild"]
    assert call("train", *grandchild, "--runs-dir", tmp_path, "--display", "quiet") == 0
    again = json.loads((tmp_path / "grandchild" / "lineage.json").read_text())
    assert again["parent_lineage"]["parent_step"] == 512


def test_an_extended_run_remembers_its_new_total(trained: Path, tmp_path: Path) -> None:
    assert call("train", "cartpole", *TINY, "--runs-dir", tmp_path, "--run-name", "long", "--display", "quiet") == 0
    longer = ["--resume", tmp_path / "long", "--total-timesteps", "1K", "--display", "quiet"]
    assert call("train", *longer) == 0
    assert load_frozen(tmp_path / "long" / "config.toml").total_timesteps == 1000
    assert read_metrics(tmp_path / "long" / "metrics.jsonl")[-1]["step"] == 1024


def test_train_from_python_returns_the_result(tmp_path: Path) -> None:
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out = self.layer(obs)
            return out[:, :2], out[:, 2]

    config = scramjet.RunConfig(num_envs=8, num_steps=16, total_timesteps=256)
    network = Network()
    before = network.layer.weight.detach().clone()
    result = scramjet.train(config, runs_dir=tmp_path, network=network, display="quiet")
    assert (result.step, result.stopped_by) == (256, None)
    assert result.evaluation is not None
    assert not torch.equal(before, network.layer.weight)
    with pytest.raises(scramjet.ScramjetError, match="network of its own"):
        scramjet.load_policy(result.run_path)
    loaded = scramjet.load_policy(result.run_path, network=Network())
    obs = torch.randn(5, 4)
    assert torch.equal(loaded(obs).logits, result.policy(obs).logits)


def test_a_time_limit_stops_the_run_and_leaves_it_to_be_resumed(tmp_path: Path) -> None:
    words = [
        "--num-envs",
        8,
        "--num-steps",
        16,
        "--total-timesteps",
        "10M",
        "--time-limit",
        "0.5s",
        "--display",
        "quiet",
    ]
    assert call("train", "cartpole", *words, "--runs-dir", tmp_path) == 0
    first = read_metrics(tmp_path / "cartpole-1" / "metrics.jsonl")[-1]["step"]
    assert 0 < first < 10_000_000
    assert call("train", "--resume", tmp_path / "cartpole-1", "--time-limit", "0.3s", "--display", "quiet") == 0
    assert read_metrics(tmp_path / "cartpole-1" / "metrics.jsonl")[-1]["step"] > first


# --- mistakes -------------------------------------------------------------------------------------------


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
        (
            ["train", "--minibatch-size", "1000000"],
            ["minibatch_size=1000000", "larger than the batch", "--minibatch-size"],
        ),
        (["train", "--num-minibatches", "4", "--minibatch-size", "64"], ["give one of them"]),
        (["train", "--num-envs", "7", "--num-steps", "3"], ["num_minibatches=4", "evenly", "--num-minibatches 3"]),
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


def test_a_damaged_checkpoint_is_refused_by_eval_and_skipped_by_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--runs-dir", tmp_path, "--run-name", "hurt", "--checkpoint.every", 1, "--display", "plain"]
    assert call("train", "cartpole", *TINY, *words) == 0
    newest = tmp_path / "hurt" / "checkpoints" / "step_00000512" / "model.safetensors"
    content = bytearray(newest.read_bytes())
    content[-5] ^= 1
    newest.write_bytes(content)
    assert "model.safetensors" in refusal(capsys, "eval", newest.parent)
    assert call("train", "--resume", tmp_path / "hurt", "--display", "plain") == 0
    output = capsys.readouterr().out
    assert "step_00000512" in output
    assert "resumed at step 384" in output


@pytest.mark.parametrize(
    ("keeps", "words"), [(2, "ends at step 256"), (0, "has no whole line"), (4, "resumed at step 512")]
)
def test_resume_says_what_metrics_have_lost(
    keeps: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--runs-dir", tmp_path, "--run-name", "hurt", "--display", "quiet"]
    assert call("train", "cartpole", *TINY, *given) == 0
    path = tmp_path / "hurt" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:keeps], *["what\n" for _ in lines[keeps:]]]))
    assert call("train", "--resume", tmp_path / "hurt", "--total-timesteps", 1024, "--display", "plain") == 0
    output = capsys.readouterr().out
    assert words in output
    assert ("curves have a gap" in output) == (keeps < 4)
    assert [line["step"] for line in read_metrics(path)] == [
        *(128 * (i + 1) for i in range(keeps)),
        640,
        768,
        896,
        1024,
    ]


NAN_WORLD = """
import numpy as np
from scramjet.envs import Box, Discrete, Env

class Nan(Env):
    "Goes wrong after a while."
    max_episode_steps = 1000
    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)
    state = {"t": np.int32}
    def reset(self, s):
        s.t = 0
    def step(self, s, action):
        s.t += 1
        return (np.nan if s.t == 300 and WHERE == 0 else 1.0), False
    def observe(self, s, obs):
        obs[0] = np.inf if s.t == 300 and WHERE == 1 else s.t
"""


@pytest.mark.parametrize(("where", "what"), [(0, "reward"), (1, "observation")])
def test_numbers_that_are_none_stop_the_run_and_keep_its_last_checkpoint(
    where: int, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nan_world.py").write_text(f"WHERE = {where}\n" + NAN_WORLD)
    words = ["--num-envs", 4, "--num-steps", 16, "--eval.every", 0, "--checkpoint.every", 1, "--display", "quiet"]
    message = refusal(capsys, "train", tmp_path / "nan_world.py", *words, "--runs-dir", tmp_path, "--run-name", "n")
    assert f"{what} of" in message
    assert "env 0" in message
    assert "step 300" in message
    assert "Nan" in message
    assert (tmp_path / "n" / "checkpoints" / "latest").resolve().name == "step_00001152"
    assert scramjet.load_policy(tmp_path / "n") is not None


def test_a_full_disk_stops_the_run_with_a_message_and_keeps_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import errno

    from scramjet.runtime import files

    whole, calls = files.write_all, []

    def fills_up(descriptor: int, data: bytes) -> None:
        calls.append(len(data))
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(descriptor, data)

    monkeypatch.setattr(files, "write_all", fills_up)
    words = ["--checkpoint.every", 1, "--runs-dir", tmp_path, "--run-name", "full", "--display", "quiet"]
    message = refusal(capsys, "train", "cartpole", *TINY, *words)
    assert "disk is full" in message
    assert "--resume" in message
    monkeypatch.undo()
    assert call("train", "--resume", tmp_path / "full", "--display", "quiet") == 0


def test_a_run_in_use_by_another_process_is_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from scramjet.runtime.runs import Run

    script = "import sys; from pathlib import Path; from scramjet.runtime.runs import Run\n"
    script += "run = Run.open(Path(sys.argv[1])).lock(); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(trained)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        message = refusal(capsys, "train", "--resume", trained, "--total-timesteps", "4096")
        assert str(holder.pid) in message
    finally:
        holder.communicate("")
    Run.open(trained).lock().release()


def test_a_resume_without_a_whole_checkpoint_is_refused_and_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--runs-dir", tmp_path, "--run-name", "hurt", "--checkpoint.every", 1, "--display", "quiet"]
    assert call("train", "cartpole", *TINY, *words) == 0
    for path in (tmp_path / "hurt" / "checkpoints").glob("step_*/trainer.safetensors"):
        path.write_bytes(b"x" + path.read_bytes()[1:])
    before = (tmp_path / "hurt" / "metrics.jsonl").read_bytes()
    message = refusal(capsys, "train", "--resume", tmp_path / "hurt", "--total-timesteps", 4096)
    assert "no whole checkpoint" in message
    assert (tmp_path / "hurt" / "metrics.jsonl").read_bytes() == before


def test_a_frozen_config_that_was_edited_is_refused_on_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", "cartpole", *TINY, "--runs-dir", tmp_path, "--display", "quiet") == 0
    path = tmp_path / "cartpole-1" / "config.toml"
    path.write_text(path.read_text().replace("gamma = 0.98", "gamma = 0.5"))
    message = refusal(capsys, "train", "--resume", tmp_path / "cartpole-1", "--total-timesteps", 4096)
    assert "gamma is 0.5 and was 0.98" in message
    path.write_text("")
    assert "frozen config" in refusal(capsys, "train", "--resume", tmp_path / "cartpole-1")


def test_the_optimizer_goes_back_to_the_parameters_it_came_from(tmp_path: Path) -> None:
    class Heads(torch.nn.Module):
        def __init__(self, order: str) -> None:
            super().__init__()
            sizes = {"policy": 2, "critic": 1}
            for name in order.split():
                setattr(self, name, torch.nn.Linear(4, sizes[name]))

        def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.policy(obs), self.critic(obs).squeeze(-1)

    config = scramjet.RunConfig(num_envs=8, num_steps=16, total_timesteps=256)
    run = scramjet.train(config, runs_dir=tmp_path, network=Heads("policy critic"), display="quiet").run_path
    other_order = scramjet.train(resume=run, network=Heads("critic policy"), total_timesteps=512, display="quiet")
    assert other_order.step == 512
    assert all(torch.isfinite(parameter).all() for parameter in other_order.policy.parameters())


def test_a_resumed_run_says_when_the_rules_of_its_world_have_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (ROOT / "examples" / "corridor.py").read_text()
    (tmp_path / "walk.py").write_text(source)
    assert call("train", tmp_path / "walk.py", *TINY, "--runs-dir", tmp_path, "--display", "quiet") == 0
    (tmp_path / "walk.py").write_text(source.replace("-0.01", "-0.5"))
    words = ["--resume", tmp_path / "walk-1", "--total-timesteps", 1024, "--display", "plain"]
    assert call("train", *words) == 0
    assert "rules have changed" in capsys.readouterr().out


def test_a_world_that_writes_past_its_observation_is_refused_before_it_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (ROOT / "examples" / "corridor.py").read_text()
    (tmp_path / "wild.py").write_text(source.replace("obs[0] =", "obs[5] ="))
    message = refusal(capsys, "train", tmp_path / "wild.py", *TINY, "--runs-dir", tmp_path)
    assert "Corridor.observe" in message
    assert not list(tmp_path.glob("wild-*"))


@pytest.mark.parametrize(("flag", "expected"), [("--env.random-opponent", True), ("--env.no-random-opponent", False)])
def test_a_boolean_parameter_of_a_world_is_a_flag_with_a_no_form(flag: str, expected: bool) -> None:
    words, values = split_env_parameters(["connect_four", flag, "--seed", "3"])
    assert words == ["connect_four", "--seed", "3"]
    assert typed_parameters("connect_four", values) == {"random_opponent": expected}


def test_output_that_finds_no_room_is_one_message_and_exit_code_2() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "scramjet", "list"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "space" in result.stderr


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
