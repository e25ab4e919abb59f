"""Runs that name what a stranger likes, for tests of files that name code."""

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from scramjet.runtime import checkpoint_format
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig

TINY: dict[str, Any] = {
    "num_envs": 4, "num_steps": 8, "num_threads": 1, "total_timesteps": 64, "device": "cpu",
    "eval": EvaluationConfig(every=0, final_episodes=0), "checkpoint": CheckpointConfig(every=1),
}  # fmt: skip
SMALL = "--num-envs 4 --num-steps 8 --num-threads 1 --device cpu --eval.every 0 --eval.final-episodes 0"
FLAGS = [*SMALL.split(), "--display", "quiet"]
ENVS = """
import gymnasium

def make_env(level="easy", render_mode=None):
    return gymnasium.make("CartPole-v1", render_mode=render_mode)
"""
CANARY = "from pathlib import Path\nPath({canary!r}).touch()\n"
"""The first lines of a program that tells of itself."""


def forge_metadata(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a checkpoint's metadata as someone would who also knows how to make its hash right."""
    path, limit = checkpoint / "metadata.json", sys.getrecursionlimit()
    record = json.loads(path.read_text())
    for own in ("sha256", "signature"):  # what is forged a second time has no signature
        record.pop(own, None)
    change(record)
    sys.setrecursionlimit(10_000)
    try:
        record["sha256"] = checkpoint_format._digest(record)
        path.write_text(json.dumps(record))
    finally:
        sys.setrecursionlimit(limit)


def forge(run: Path, env: Any, **metadata: Any) -> None:
    """Have a run name another world: what a stranger can write."""
    config = tomllib.loads((run / "config.toml").read_text())
    (run / "config.toml").write_text(tomli_w.dumps({**config, "env": env}))

    def change(record: dict[str, Any]) -> None:
        record["metadata"]["config"]["env"] = env
        record["metadata"].update(metadata)

    for step in (run / "checkpoints").glob("step_*"):
        forge_metadata(step, change)


def forget_modules(prefix: str) -> None:
    """Have modules imported again, as another process would."""
    for name in [name for name in sys.modules if name.startswith(prefix)]:
        del sys.modules[name]
