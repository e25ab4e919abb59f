"""Runs trained into a folder, and the metrics that they leave there."""

import json
from dataclasses import replace

import scramjet
from scramjet.training.config.run_config import EvaluationConfig

NO_EVALUATION = EvaluationConfig(every=0, final_episodes=0)


def train(config, tmp_path, **options):
    """Train silently, into a run in `tmp_path`."""
    return scramjet.train(config, runs_dir=tmp_path, display="quiet", **options)


def lines_of(run_path):
    """The records of a run's metrics, oldest first."""
    return [json.loads(line) for line in (run_path / "metrics.jsonl").read_text().splitlines()]


def timeless_lines_of(run_path):
    """The same without what the clock decides."""
    return [{key: value for key, value in line.items() if key != "time"} for line in lines_of(run_path)]


def last_checkpoint(run):
    """The bytes of the tensors in a run's newest checkpoint: weights, and all else that training depends on."""
    names = ("model.safetensors", "trainer.safetensors")
    return {name: (run / "checkpoints" / "latest" / name).read_bytes() for name in names}


def assert_resumes_exactly(config, folder, stop_at=None, **given):
    """A run that is cut, in its middle if not told where, and resumed ends with the bytes and numbers of a whole one.

    Returns that.
    """
    total = config.total_timesteps
    whole = train(config, folder, run_name="whole", **given)
    train(replace(config, total_timesteps=stop_at or total // 2), folder, run_name="cut", **given)
    resumed = train(None, folder, resume=folder / "cut", total_timesteps=total, **given)
    assert resumed.step == whole.step
    expected, found = last_checkpoint(whole.run_path), last_checkpoint(resumed.run_path)
    for name in expected:
        assert found[name] == expected[name], name
    assert {**resumed.metrics, "time": None} == {**whole.metrics, "time": None}
    return whole
