"""Worlds that cannot be played well without memory: a core solves them, and without one no policy can."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scramjet
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from scramjet.training.config.files import starting_config
from scramjet.training.config.run_config import EvaluationConfig

pytestmark = pytest.mark.learning

NOTHING_TO_REMEMBER_WITH = {"memory": None, "hidden": (64, 64)}


def trained(
    tmp_path: Path, world: str, steps: int, parameters: dict[str, Any], policy: dict[str, Any], **changes: Any
) -> Any:
    """The last evaluation of a run with a world's preset, other memory and fewer steps."""
    config = starting_config(world)
    config = replace(
        config,
        env_parameters=parameters,
        total_timesteps=steps,
        num_threads=1,
        policy=replace(config.policy, **policy),
        eval=EvaluationConfig(every=0, final_episodes=400),
        **changes,
    )
    return scramjet.train(config, runs_dir=tmp_path, display="quiet").evaluation


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        ({"memory": "lstm"}, {"length": 2, "delay": 3}),
        ({"memory": "gru"}, {"length": 3, "delay": 0}),
        ({"memory": "mingru", "memory_layers": 2}, {"length": 1, "delay": 5}),
    ],
    ids=["lstm", "gru", "mingru"],
)
def test_bits_are_repeated_with_memory(policy, parameters, tmp_path):
    assert trained(tmp_path, "memory", 80_000, parameters, policy).stats["all_right"] == 1.0


def test_bits_are_guessed_without_memory(tmp_path):
    """Answers are asked for while a blank is shown: whatever a policy does then, it is right half the time."""
    env = load_env("memory", length=2)
    for answer in (0, 1):
        pool, rewards = NativePool(env, 4096, num_threads=1), 0.0
        out = pool.reset(0)
        bits = [out.obs.copy()]
        for tick in range(4):
            out = pool.step(np.full(4096, answer))
            bits.append(out.obs.copy())
            rewards += out.reward
            assert tick in (0, 3) or not out.obs.any()  # all that is seen when answers are asked for
        of_pattern = {
            pattern: rewards[(bits[0][:, 0] == pattern[0]) & (bits[1][:, 0] == pattern[1])].mean()
            for pattern in itertools.product((-1, 1), repeat=2)
        }
        assert np.mean(list(of_pattern.values())) == 1.0  # of 2: the ceiling, over all patterns
    evaluation = trained(tmp_path, "memory", 40_000, {"length": 2}, NOTHING_TO_REMEMBER_WITH)
    assert evaluation.mean_return == pytest.approx(1.0, abs=4 * 0.71 / 400**0.5)


def test_the_sign_of_the_t_maze_is_remembered(tmp_path):
    assert trained(tmp_path, "tmaze", 130_000, {"length": 10}, {}).mean_return == pytest.approx(4.0)


def test_the_sign_of_the_t_maze_is_guessed_without_memory(tmp_path):
    """The junction looks the same whatever the sign said, so half the turns are wrong: 1.95 at most."""
    evaluation = trained(tmp_path, "tmaze", 60_000, {"length": 10}, NOTHING_TO_REMEMBER_WITH)
    ceiling = 0.5 * 4.0 + 0.5 * -0.1
    assert evaluation.mean_return <= ceiling + 4 * 2.05 / 400**0.5
    assert evaluation.stats["right"] <= 0.5 + 4 * 0.5 / 400**0.5
