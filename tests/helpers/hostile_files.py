"""Runs that name what a stranger likes, for tests of files that name code."""

from __future__ import annotations

import json
import sys
import tomllib
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


def forge(run: Path, env: Any, **metadata: Any) -> None:
    """Have a run name another world, its hash computed anew: what a stranger can write."""
    config = tomllib.loads((run / "config.toml").read_text())
    (run / "config.toml").write_text(tomli_w.dumps({**config, "env": env}))
    for step in (run / "checkpoints").glob("step_*"):
        path = step / "metadata.json"
        record = json.loads(path.read_text())
        del record["sha256"]
        record.pop("signature", None)  # of whoever wrote it; what is forged a second time has none
        record["metadata"]["config"]["env"] = env
        record["metadata"].update(metadata)
        record["sha256"] = checkpoint_format._digest(record)
        path.write_text(json.dumps(record))


def forget_modules(prefix: str) -> None:
    """Have modules imported again, as another process would."""
    for name in [name for name in sys.modules if name.startswith(prefix)]:
        del sys.modules[name]
