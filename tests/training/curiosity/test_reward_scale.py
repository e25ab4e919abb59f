"""Beside bonuses rewards are never made larger, and all who read values of such a run know it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scramjet.arena.play.thoughts import reward_scale
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.evaluation.searching import search_settings
from scramjet.training.playing import load_policy
from tests.helpers.run_files import train
from tests.helpers.sessions import SMALL, begun

pytestmark = pytest.mark.usefixtures("one_thread")

SPARSE = replace(SMALL, env="deep_sea", env_parameters={"size": 4})
CURIOUS = replace(SPARSE, curiosity="rnd", bonus=BonusConfig(features=8))
CONFIGS: dict[str, RunConfig] = {
    "small rewards, no curiosity": SPARSE,
    "small rewards": CURIOUS,
    "large rewards": replace(CURIOUS, env="pendulum", env_parameters={}),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_searches_and_shown_values_use_the_scale_of_rewards_that_training_used(kind: str, tmp_path: Path) -> None:
    config = CONFIGS[kind]
    run = train(config, tmp_path, run_name="run").run_path
    with begun(None, tmp_path, resume=run, total_timesteps=8 * 32) as session:
        scaler: Any = session.learner.reward_scaler
        factor = float(scaler.factor)
    assert (factor > 1.0, factor < 1.0) == (kind == "small rewards, no curiosity", kind == "large rewards")
    checkpoint = load_checkpoint(run / "checkpoints" / "latest")
    assert reward_scale(checkpoint) == pytest.approx(1.0 / factor)
    if config.env == "deep_sea":
        settings = search_settings("spo:4x2", load_policy(run), config, checkpoint)
        assert settings is not None
        assert float(settings.rewards.scale) == pytest.approx(factor)
