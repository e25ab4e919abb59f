"""`scramjet tune`: flags with a range or choice vary, the rest is as for `scramjet train`; trials are processes."""

import os
import signal
import sys
import time
from pathlib import Path

import optuna
import pytest

import scramjet
from scramjet.tuning.study import StudyFile
from tests.helpers.command_calls import TINY, call, refusal
from tests.helpers.forked_commands import start

SPACE = ["--learning-rate", "log:1e-4..1e-2"]


def trials_of(study: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="scramjet", storage=f"sqlite:///{study / 'study.db'}").trials


@pytest.mark.rest
def test_a_study_of_two_trials_trains_ordinary_runs_and_tells_the_best(tmp_path, capfd):
    (tmp_path / "space.toml").write_text('[space]\n"gamma" = [0.9, 0.99]\n[space.policy]\nactivation = "choice:tanh"\n')
    words = ["tune", "cartpole", *SPACE, "--space", tmp_path / "space.toml", *TINY, "--num-threads", "1"]
    words += ["--trials", "2", "--parallel", "2", "--method", "random", "--seeds", "0"]
    assert call(*words, "--studies-dir", tmp_path) == 0
    told = capfd.readouterr().out
    assert "2 trials, 2 at once, 1 thread each" in told
    study = tmp_path / "cartpole-1"
    for trial in trials_of(study):
        run = study / "runs" / f"trial-{trial.number:04}"
        config = scramjet.load_config(run / "config.toml")
        assert (config.ppo.learning_rate, config.ppo.gamma) == (trial.params["learning_rate"], trial.params["gamma"])
        assert (config.num_envs, config.total_timesteps) == (8, 512)
        last = (run / "metrics.jsonl").read_text().splitlines()[-1]
        assert f'"eval/mean_return":{trial.value}' in last
        assert f"trial {trial.number}: {trial.value:.1f}" in told
    best = max(trials_of(study), key=lambda trial: (trial.value, -trial.number)).number
    assert f"scramjet eval {study / 'runs' / f'trial-{best:04}'}" in told


def test_the_base_of_a_study_is_what_train_would_have(tmp_path, monkeypatch):
    monkeypatch.setattr("scramjet.commands.study.go_on", lambda *_, **__: pytest.fail("a study began"))
    monkeypatch.setattr("scramjet.tuning.study.create_storage", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    kept: list[StudyFile] = []
    monkeypatch.setattr(StudyFile, "digest", lambda self: kept.append(self) or "")
    (tmp_path / "base.toml").write_text("num_steps = 32\n[env]\nname = 'cartpole'\ngravity = 10.0\n")
    words = ["tune", "--config", tmp_path / "base.toml", *SPACE, "--env.gravity", "12", "--gamma", "0.97"]
    assert call(*words, "--studies-dir", tmp_path / "studies") == 130
    base = kept[0].base
    assert (base["num_steps"], base["gamma"], base["env"]["gravity"]) == (32, 0.97, 12)
    assert not list((tmp_path / "studies").iterdir()), "a study that could not be made leaves nothing"


def test_without_optuna_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    message = refusal(capsys, "tune", "cartpole", *SPACE, "--studies-dir", tmp_path)
    assert "pip install 'scramjet[tune]'" in message


def test_ctrl_c_keeps_running_trials_and_a_trial_that_is_killed_goes_on(tmp_path):
    output, study = tmp_path / "output", tmp_path / "study"
    words = ["tune", "cartpole", *SPACE, *TINY, "--num-threads", "1", "--checkpoint.every", "1", "--trials", "1"]
    words += ["--total-timesteps", "10M", "--studies-dir", tmp_path, "--study-name", "study", "--parallel", "1"]
    process = start(*map(str, words), output=output)
    run = study / "runs" / "trial-0000"
    first = _trial_of(run, None)
    os.kill(first, signal.SIGKILL)
    _trial_of(run, first)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    told = output.read_text()
    assert process.exitcode == 130, told
    assert f"scramjet tune --resume {study}" in told
    assert [trial.state.name for trial in trials_of(study)] == ["RUNNING"]
    assert not (study / "trials" / "trial-0000.log").read_text()


def _trial_of(run: Path, other: int | None) -> int:
    """The number of the process that trains a run and has saved a checkpoint, if it is not the `other`."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        words = (run / ".lock").read_text().split() if (run / "checkpoints" / "latest").exists() else []
        if words and int(words[0]) != other:
            return int(words[0])
        time.sleep(0.01)
    raise AssertionError("no process trains the run")
