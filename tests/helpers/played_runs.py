"""Tiny runs to play against."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.command_calls import call

TINY = [
    "--num-envs", 4, "--num-steps", 16, "--minibatch-size", 32, "--total-timesteps", 128, "--num-threads", 1,
    "--policy.encoder", "mlp", "--policy.hidden", 8, "--eval.every", 0, "--eval.final-episodes", 0,
    "--display", "quiet",
]  # fmt: skip


def tiny_run(runs_dir: Path, world: str, name: str) -> Path:
    """A run of a few updates, which plays about at random."""
    assert call("train", world, *TINY, "--runs-dir", runs_dir, "--run-name", name) == 0
    return runs_dir / name
