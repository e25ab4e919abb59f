"""A session is built from its config alone: weights and episodes follow from the seed, pools from the sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from scramjet.training.components import make_evaluator, make_policy, make_pool
from scramjet.training.config.resolution import resolve
from scramjet.training.seeds import training_episodes
from tests.helpers.sessions import SMALL, begun

pytestmark = pytest.mark.usefixtures("one_thread")


def weights(seed: int) -> torch.Tensor:
    policy = make_policy(replace(SMALL, seed=seed))
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])


def test_the_weights_of_a_policy_follow_from_the_seed() -> None:
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_a_session_begins_with_the_first_observations_of_its_seeds_episodes(tmp_path: Path) -> None:
    with begun(replace(SMALL, seed=3), tmp_path) as session:
        pool = NativePool(load_env("cartpole"), 4, num_threads=1)
        np.testing.assert_array_equal(session.rollout.obs[-1].numpy(), pool.reset(training_episodes(3)).obs)


def test_an_evaluator_has_no_more_envs_than_episodes() -> None:
    config = resolve(SMALL)
    assert make_evaluator(config, episodes=3).pool.num_envs == 3


def test_envs_of_a_config_with_frames_show_that_many() -> None:
    assert make_pool(resolve(replace(SMALL, frame_stack=3)), num_envs=2).observation_space.shape == (3 * 4,)


def test_the_first_reason_to_stop_is_kept(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        session.stop("solved")
        session.stop("bored")
        assert session.stop_reason == "solved"
