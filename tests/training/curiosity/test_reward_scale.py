"""Beside bonuses rewards are never made larger; all who read values of such a run know it, and forks keep them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scramjet.algorithms.ppo import PPOConfig
from scramjet.arena.play.thoughts import reward_scale
from scramjet.engine.trees import map_leaves
from scramjet.policies import Observations, PolicyConfig
from scramjet.runtime.checkpoints import Checkpoint, load_checkpoint
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.evaluation.searching import search_settings
from scramjet.training.playing import load_policy
from scramjet.training.session import Session
from tests.helpers.run_files import train
from tests.helpers.sessions import SMALL, begun

pytestmark = pytest.mark.usefixtures("one_thread")

SPARSE = replace(SMALL, env="deep_sea", env_parameters={"size": 4})
CURIOUS = replace(SPARSE, curiosity="rnd", bonus=BonusConfig(features=8))
LARGE = replace(CURIOUS, env="pendulum", env_parameters={})
Train = Callable[[RunConfig], Path]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trains a run of a config, once for all tests of this file."""
    runs: dict[str, Path] = {}

    def trained(config: RunConfig) -> Path:
        if (key := repr(config)) not in runs:
            runs[key] = train(config, tmp_path_factory.mktemp("runs"), run_name="parent").run_path
        return runs[key]

    return trained


def newest(run: Path) -> Checkpoint:
    return load_checkpoint(run / "checkpoints" / "latest")


def test_searches_and_shown_values_use_the_scale_of_rewards_that_training_used(parent: Train) -> None:
    for config, is_raised, is_lowered in ((SPARSE, True, False), (CURIOUS, False, False), (LARGE, False, True)):
        run = parent(config)
        with begun(None, run.parent, resume=run, total_timesteps=8 * 32) as session:
            scaler: Any = session.learner.reward_scaler
            factor = float(scaler.factor)
        assert (factor > 1.0, factor < 1.0) == (is_raised, is_lowered)
        checkpoint = newest(run)
        assert reward_scale(checkpoint) == pytest.approx(1.0 / factor)
        if config is not LARGE:
            settings = search_settings("spo:4x2", load_policy(run), config, checkpoint)
            assert settings is not None
            assert float(settings.rewards.scale) == pytest.approx(factor)


def rewards_expected(session: Session, obs: Observations) -> Tensor:
    """What a session's policy expects after `obs`, in the rewards that the world pays."""
    learner: Any = session.learner
    with torch.no_grad():
        value = session.policy.value(obs)
    value = value if learner.value_scale is None else learner.value_scale.to_returns(value)
    return value if learner.reward_scaler is None else value / learner.reward_scaler.factor


INTO: dict[str, Any] = {"curiosity": "rnd", "bonus": {"features": 8}}
OUT_OF: dict[str, Any] = {"curiosity": None}
POPART = PPOConfig(num_epochs=1, num_minibatches=1, value_scale="popart")
FORKS: dict[str, tuple[RunConfig, dict[str, Any]]] = {
    "into curiosity": (SPARSE, INTO),
    "out of curiosity": (CURIOUS, OUT_OF),
    "into curiosity with popart": (replace(SPARSE, ppo=POPART), INTO),
    "out of curiosity with popart": (replace(CURIOUS, ppo=POPART), OUT_OF),
    "into curiosity and out of popart": (replace(SPARSE, ppo=POPART), {**INTO, "value_scale": "none"}),
    "out of curiosity into popart": (CURIOUS, {**OUT_OF, "value_scale": "popart"}),
    "to rewards as they are": (SPARSE, {"normalize_rewards": False}),
    "mazes": (replace(CURIOUS, env="maze", env_parameters={}), OUT_OF),
}


def test_a_forks_values_mean_the_same_rewards_as_its_parents(parent: Train, tmp_path: Path) -> None:
    for kind, (config, settings) in FORKS.items():
        run = parent(config)
        with begun(None, tmp_path, resume=run, total_timesteps=8 * 32) as session:
            obs = map_leaves(lambda leaf: leaf[0], session.rollout.obs)
            expected = rewards_expected(session, obs)
        with begun(None, tmp_path, fork=run, total_timesteps=8 * 32, settings=settings) as session:
            found = rewards_expected(session, obs)
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5), kind
            assert "values cannot" not in session.note, kind


UNNORMALIZED = PPOConfig(num_epochs=1, num_minibatches=1, normalize_rewards=False)
KEPT: dict[str, tuple[RunConfig, dict[str, Any], bool]] = {
    "no curiosity": (SPARSE, {"learning_rate": 1e-4}, False),
    "another curiosity": (CURIOUS, {"curiosity": "icm"}, False),
    "large rewards": (LARGE, OUT_OF, False),
    "rewards too small to have been learned": (replace(CURIOUS, env_parameters={"size": 40}), OUT_OF, True),
    "a scale that is not known yet": (replace(SPARSE, ppo=UNNORMALIZED), {"normalize_rewards": True}, False),
}


def test_where_values_should_not_change_a_fork_keeps_its_weights(parent: Train, tmp_path: Path) -> None:
    for kind, (config, settings, is_told) in KEPT.items():
        run = parent(config)
        with begun(None, tmp_path, fork=run, total_timesteps=8 * 32, settings=settings) as session:
            before = newest(run).model
            assert all(torch.equal(tensor, before[name]) for name, tensor in session.policy.state_dict().items()), kind
            assert ("cannot be brought to that from numbers so small" in session.note) == is_told, kind


class WithoutValueLayer(nn.Module):
    """A network of a user that gives values by something else than a last layer called critic_head."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs.flatten(1)), torch.tanh(self.critic(obs.flatten(1)).squeeze(-1))


def test_a_fork_whose_values_cannot_be_brought_along_says_so(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], nn.Module | None, str]] = [
        ({"ppo": replace(POPART, value_scale="symlog")}, None, "with value_scale='symlog'"),
        ({"policy": PolicyConfig(hidden=(8,), value_bins=11)}, None, "with policy.value_bins=11"),
        ({}, WithoutValueLayer(), "in a network without a layer critic_head"),
    ]
    for changes, network, expected in cases:
        run = train(replace(SPARSE, **changes), tmp_path, network=network).run_path
        given: dict[str, Any] = {"fork": run, "total_timesteps": 8 * 32, "network": network}
        with begun(None, tmp_path, **given, settings=INTO) as session:
            assert "rewards are divided by 1 and no longer by 0." in session.note
            assert f"values cannot be brought to that {expected}" in session.note
        with begun(None, tmp_path, **given) as session:
            assert "divided" not in session.note
