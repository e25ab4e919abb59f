"""`scramjet train`: where settings come from, what a run leaves, how it is extended, forked and stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import scramjet
from scramjet.commands.arguments.env_parameters import split_env_parameters, typed_parameters
from scramjet.runtime.metrics_log import read_metrics
from scramjet.training.config.files import load_frozen, starting_config
from tests.helpers.command_calls import TINY, call


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


@pytest.mark.parametrize(("flag", "expected"), [("--env.random-opponent", True), ("--env.no-random-opponent", False)])
def test_a_boolean_parameter_of_a_world_is_a_flag_with_a_no_form(flag: str, expected: bool) -> None:
    words, values = split_env_parameters(["connect_four", flag, "--seed", "3"])
    assert words == ["connect_four", "--seed", "3"]
    assert typed_parameters("connect_four", values) == {"random_opponent": expected}
