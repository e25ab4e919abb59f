"""The winner as a preset: loads to the same config, over the world's preset and in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scramjet.training.config.files import apply, load_config, starting_config
from scramjet.training.config.keywords import with_keywords
from scramjet.training.config.reading import read_file
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.report.preset import preset_text

CASES = [
    ("cartpole", {"learning_rate": 0.0012, "num_minibatches": 8}),
    ("pendulum", {"num_minibatches": 4, "policy.bounded_actions": "tanh"}),
    ("pendulum", {"gamma": 0.99, "normalize_rewards": False}),  # what the code's defaults are
    ("snake", {"env.step_reward": 0.0, "policy.hidden": [64, 32], "learning_rate": "0.001@0,0@end"}),
    ("connect_four", {"self_play.pool_fraction": 0.0, "eval.samples": True}),
    ("probe_policy", {"entropy_coef": 0.1}),  # a world without a preset
    ("cartpole", {"algorithm": "spo", "num_envs": 32}),
]


@pytest.mark.parametrize(("world", "settings"), CASES)
def test_a_winner_loads_to_the_config_it_was_written_from(world: str, settings: dict, tmp_path: Path) -> None:
    config = with_keywords(starting_config(world, algorithm=settings.pop("algorithm", None)), settings)
    path = tmp_path / "winner.toml"
    path.write_text(preset_text(config, "Result"))
    assert load_config(path) == config
    # In place of the world's own preset, laid over the code's defaults alone:
    assert apply(RunConfig(env=world), read_file(path), "winner.toml") == config


def test_what_belongs_to_one_run_or_machine_is_left_out(tmp_path: Path) -> None:
    config = replace(starting_config("cartpole"), seed=7, num_threads=1, device="cpu", tags=("mine",))
    path = tmp_path / "winner.toml"
    path.write_text(preset_text(config, "Result"))
    assert load_config(path) == starting_config("cartpole")


def test_the_header_is_a_comment_whatever_is_in_it(tmp_path: Path) -> None:
    text = preset_text(starting_config("cartpole"), 'a\nseed = 9\r\nb " ' + "long " * 60)
    lines = text.splitlines()
    comment = [line for line in lines if line.startswith("#")]
    assert len(comment) >= 3
    assert max(map(len, comment)) <= 120
    assert "seed = 9" not in lines
    assert lines[len(comment)] == 'env = "cartpole"'
