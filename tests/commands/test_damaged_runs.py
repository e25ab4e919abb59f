"""Runs that are damaged, in use, edited or out of disk: told in one message, and what was saved is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import scramjet
from scramjet.runtime.metrics_log import read_metrics
from tests.helpers import ROOT
from tests.helpers.command_calls import TINY, call, refusal


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
