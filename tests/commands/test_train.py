"""`scramjet train`: where settings come from, what a run leaves, how it goes on, and what a damaged one tells."""

import errno
import json
import shutil
from pathlib import Path

import pytest
import torch

import scramjet
from scramjet.runtime import files
from scramjet.runtime.logs import read_metrics
from scramjet.training.config.files import load_frozen, starting_config
from scramjet.training.config.run_config import RunConfig
from tests.commands.conftest import Runs
from tests.helpers import ROOT
from tests.helpers.command_calls import TINY, call, refusal
from tests.helpers.small_runs import OneLayer

LITTLE = ["--num-envs", 8, "--num-steps", 16, "--total-timesteps", 128, "--eval.every", 0, "--eval.final-episodes", 0]


def trained(folder: Path, name: str, *words: object) -> RunConfig:
    """Train a run in the folder; returns its frozen config."""
    assert call("train", *words, "--runs-dir", folder, "--run-name", name, "--display", "quiet") == 0
    return load_frozen(folder / name / "config.toml")


def test_a_run_folder_holds_config_metrics_and_checkpoints(runs):
    run = runs["tiny"]
    assert load_frozen(run / "config.toml").num_envs == 8
    assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] == [128, 256, 384, 512]
    latest, best = run / "checkpoints" / "latest", run / "checkpoints" / "best"
    assert {path.name for path in latest.iterdir()} == {"metadata.json", "model.safetensors", "trainer.safetensors"}
    assert latest.resolve().name == "step_00000512"
    assert best.resolve().parent == (run / "checkpoints").resolve()


def test_env_parameters_reach_the_world_and_the_frozen_config(tmp_path):
    config = trained(tmp_path, "a", "cartpole", *TINY, "--env.gravity", "3.5", "--env.max-episode-steps=9")
    assert (config.env_parameters["gravity"], config.env_parameters["max_episode_steps"]) == (3.5, 9)
    assert max(record["return_max"] for record in read_metrics(tmp_path / "a" / "metrics.jsonl")) <= 9


def test_flags_win_over_the_file_and_the_file_over_the_preset(tmp_path):
    (tmp_path / "mine.yaml").write_text("env: cartpole\nnum_envs: 8\nnum_steps: 16\ngamma: 0.5\ntotal_timesteps: 128\n")
    words = ["--config", tmp_path / "mine.yaml", "--gamma", "0.6", "--eval.final-episodes", 0]
    config = trained(tmp_path, "a", *words)
    assert (config.ppo.gamma, config.num_envs) == (0.6, 8)
    assert config.ppo.gae_lambda == 0.9, "the preset's value"
    assert config.ppo.value_coef == 0.5, "the code's default"
    (tmp_path / "b.toml").write_text("num_envs = 6\nnum_steps = 5\nnum_minibatches = 3\n")
    (tmp_path / "c.toml").write_text(
        "num_envs = 6\nnum_steps = 5\nnum_minibatches = 3\n[env]\ngravity = 3.5\nmax_episode_steps = 9\n"
    )
    beside = ["--config", tmp_path / "c.toml", "--total-timesteps", 60, "--eval.final-episodes", 0]
    config = trained(tmp_path, "c", "cartpole", *beside)
    assert (config.env_parameters["gravity"], config.num_envs, config.ppo.gae_lambda) == (3.5, 6, 0.9)
    assert call("train", *beside, "bandit", "--runs-dir", tmp_path) == 2, "the file's gravity is none of bandit's"
    assert trained(tmp_path, "b", "--config", tmp_path / "b.toml", "--total-timesteps", 60, "bandit").env == "bandit"


def test_impala_takes_one_epoch_unless_told_whatever_the_preset_says_and_is_warned_above_that(runs, tmp_path, capsys):
    assert starting_config("cartpole").ppo.num_epochs == 4
    (tmp_path / "mine.toml").write_text('loss = "impala"\n')
    (tmp_path / "told.toml").write_text('loss = "impala"\nnum_epochs = 3\n')
    fork = ["--fork", runs["tiny"], "--total-timesteps", 640]
    for number, (words, epochs, is_warned) in enumerate(
        (
            (["--loss", "ppo"], 4, False),
            (["--loss", "impala"], 1, False),
            (["--loss=impala", "--num-epochs=1"], 1, False),
            (["--num_epochs", "2", "--loss", "impala"], 2, True),
            (["--num-epochs", "2"], 2, False),
            (["--config", tmp_path / "mine.toml"], 1, False),
            (["--config", tmp_path / "told.toml"], 3, True),
            ([*fork, "--loss", "impala"], 1, False),
        )
    ):
        base = [] if "--fork" in words else ["cartpole", *LITTLE]
        place = ["--runs-dir", tmp_path, "--run-name", f"run-{number}", "--display", "plain"]
        assert call("train", *base, *words, *place) == 0
        assert load_frozen(tmp_path / f"run-{number}" / "config.toml").ppo.num_epochs == epochs, words
        records = read_metrics(tmp_path / f"run-{number}" / "metrics.jsonl")
        assert [record["epochs"] for record in records] == [epochs], words
        said = capsys.readouterr().out
        assert (f"impala with num_epochs={epochs}: its gradient has no clip" in said) == is_warned, words
        assert ("--num-epochs 1 is usual" in said) == is_warned, words


def test_a_fork_counts_on_and_records_where_it_comes_from(runs, tmp_path):
    words = ["--fork", runs["tiny"] / "checkpoints" / "latest", "--learning-rate", "1e-4", "--total-timesteps", "1024"]
    words += ["--checkpoint.every", 10]
    trained(tmp_path, "child", *words)
    assert [record["step"] for record in read_metrics(tmp_path / "child" / "metrics.jsonl")] == [640, 768, 896, 1024]
    lineage = json.loads((tmp_path / "child" / "lineage.json").read_text())
    assert lineage["parent_step"] == 512
    assert lineage["changed"]["learning_rate"][1] == 1e-4
    checkpoints = sorted(path.name for path in (tmp_path / "child" / "checkpoints").glob("step_*"))
    assert checkpoints[0] == "step_00000512", "killed before its own first checkpoint, a fork resumes from its parent's"
    trained(tmp_path, "grandchild", "--fork", tmp_path / "child", "--total-timesteps", "1152")
    again = json.loads((tmp_path / "grandchild" / "lineage.json").read_text())
    assert again["parent_lineage"]["parent_step"] == 512


def test_an_extended_run_remembers_its_new_total(runs, tmp_path):
    run = Path(shutil.copytree(runs["tiny"], tmp_path / "long", symlinks=True))
    assert call("train", "--resume", run, "--total-timesteps", "1K", "--display", "quiet") == 0
    assert load_frozen(run / "config.toml").total_timesteps == 1000
    assert read_metrics(run / "metrics.jsonl")[-1]["step"] == 1024


def test_train_from_python_returns_the_result(tmp_path):
    config, network = scramjet.RunConfig(num_envs=8, num_steps=16, total_timesteps=256), OneLayer()
    before = network.layer.weight.detach().clone()
    result = scramjet.train(config, runs_dir=tmp_path, network=network, display="quiet")
    assert (result.step, result.stopped_by) == (256, None)
    assert result.evaluation is not None
    assert not torch.equal(before, network.layer.weight)
    with pytest.raises(scramjet.ScramjetError, match="network of its own"):
        scramjet.load_policy(result.run_path)
    loaded = scramjet.load_policy(result.run_path, network=OneLayer())
    obs = torch.randn(5, 4)
    assert torch.equal(loaded(obs).logits, result.policy(obs).logits)


def test_a_time_limit_stops_the_run_and_leaves_it_to_be_resumed(tmp_path):
    words = [*LITTLE, "--total-timesteps", "100M", "--time-limit", "0.2s"]
    trained(tmp_path, "a", "cartpole", *words)
    first = read_metrics(tmp_path / "a" / "metrics.jsonl")[-1]["step"]
    assert 0 < first < 100_000_000
    assert call("train", "--resume", tmp_path / "a", "--time-limit", "0.2s", "--display", "quiet") == 0
    assert read_metrics(tmp_path / "a" / "metrics.jsonl")[-1]["step"] > first


@pytest.fixture
def hurt(runs: Runs, tmp_path: Path) -> Path:
    """A copy of a finished run of 512 steps, to be hurt."""
    return Path(shutil.copytree(runs["tiny"], tmp_path / "hurt", symlinks=True))


def test_a_damaged_checkpoint_is_refused_by_eval_and_skipped_by_resume_if_there_is_a_whole_one(hurt, capsys):
    newest = hurt / "checkpoints" / "step_00000512" / "model.safetensors"
    content = bytearray(newest.read_bytes())
    content[-5] ^= 1
    newest.write_bytes(content)
    assert "model.safetensors" in refusal(capsys, "eval", newest.parent)
    assert call("train", "--resume", hurt, "--display", "plain") == 0
    output = capsys.readouterr().out
    assert "step_00000512" in output
    assert "resumed at step 384" in output
    for path in (hurt / "checkpoints").glob("step_*/trainer.safetensors"):
        path.write_bytes(b"x" + path.read_bytes()[1:])
    before = (hurt / "metrics.jsonl").read_bytes()
    assert "no whole checkpoint" in refusal(capsys, "train", "--resume", hurt, "--total-timesteps", 4096)
    assert (hurt / "metrics.jsonl").read_bytes() == before


def test_resume_says_what_metrics_have_lost(runs, tmp_path, capsys):
    for keeps, words in ((2, "ends at step 256"), (0, "has no whole line"), (4, "resumed at step 512")):
        run = Path(shutil.copytree(runs["tiny"], tmp_path / str(keeps), symlinks=True))
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        (run / "metrics.jsonl").write_text("".join([*lines[:keeps], *["what\n" for _ in lines[keeps:]]]))
        assert call("train", "--resume", run, "--total-timesteps", 1024, "--display", "plain") == 0
        output = capsys.readouterr().out
        assert words in output
        assert ("curves have a gap" in output) == (keeps < 4)
        kept = [128 * (i + 1) for i in range(keeps)]
        assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == [*kept, 640, 768, 896, 1024]


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


@pytest.mark.parametrize(("where", "what"), [(0, "reward"), pytest.param(1, "observation", marks=pytest.mark.rest)])
def test_numbers_that_are_none_stop_the_run_and_keep_its_last_checkpoint(where, what, tmp_path, capsys):
    (tmp_path / "nan_world.py").write_text(f"WHERE = {where}\n" + NAN_WORLD)
    words = ["--num-envs", 4, "--num-steps", 16, "--eval.every", 0, "--checkpoint.every", 1, "--display", "quiet"]
    message = refusal(capsys, "train", tmp_path / "nan_world.py", *words, "--runs-dir", tmp_path, "--run-name", "n")
    for part in (f"{what} of", "env 0", "step 300", "Nan"):
        assert part in message
    assert (tmp_path / "n" / "checkpoints" / "latest").resolve().name == "step_00001152"
    assert scramjet.load_policy(tmp_path / "n") is not None


def test_a_full_disk_stops_the_run_with_a_message_and_keeps_what_was_saved(tmp_path, monkeypatch, capsys):
    whole, calls = files.write_all, []

    def fills_up(descriptor: int, data: bytes) -> None:
        calls.append(len(data))
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(descriptor, data)

    words = ["--checkpoint.every", 1, "--runs-dir", tmp_path, "--run-name", "full", "--display", "quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", fills_up)
        message = refusal(capsys, "train", "cartpole", *TINY, *words)
    assert "disk is full" in message
    assert "--resume" in message
    assert call("train", "--resume", tmp_path / "full", "--display", "quiet") == 0


def test_a_frozen_config_that_was_edited_is_refused_on_resume(hurt, capsys):
    path = hurt / "config.toml"
    path.write_text(path.read_text().replace("gamma = 0.98", "gamma = 0.5"))
    message = refusal(capsys, "train", "--resume", hurt, "--total-timesteps", 4096)
    assert "gamma is 0.5 and was 0.98" in message
    path.write_text("")
    assert "frozen config" in refusal(capsys, "train", "--resume", hurt)


def test_the_optimizer_goes_back_to_the_parameters_it_came_from(tmp_path):
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


@pytest.mark.rest
def test_a_resumed_run_says_when_the_rules_of_its_world_have_changed(tmp_path, capsys):
    source = (ROOT / "examples" / "corridor.py").read_text()
    (tmp_path / "walk.py").write_text(source)
    assert call("train", tmp_path / "walk.py", *TINY, "--runs-dir", tmp_path, "--display", "quiet") == 0
    (tmp_path / "walk.py").write_text(source.replace("-0.01", "-0.5"))
    assert call("train", "--resume", tmp_path / "walk-1", "--total-timesteps", 1024, "--display", "plain") == 0
    assert "rules have changed" in capsys.readouterr().out
