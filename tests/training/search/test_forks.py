"""A checkpoint goes on with another algorithm: the same network and normalizers, and a target network made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scramjet.errors import CheckpointError
from scramjet.policies import PolicyConfig
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.training.config.run_config import RunConfig
from tests.helpers.command_calls import call
from tests.helpers.run_files import lines_of, train
from tests.helpers.search_training import PARTICLES, TREES, UPDATE, normalized, searching_config
from tests.helpers.sessions import SMALL, begun

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL_PPO = normalized(replace(SMALL, policy=PolicyConfig(hidden=(8,), encoder="mlp")))
SIZES: dict[str, Any] = {"num_envs": 8, "num_steps": 6, "num_epochs": 2, "num_minibatches": 2}
SEARCHES: dict[str, dict[str, Any]] = {
    "spo": {**SIZES, "spo": PARTICLES},
    "alphazero": {**SIZES, "alphazero": TREES},
}


def parent_of(tmp_path: Path, config: RunConfig = SMALL_PPO) -> Path:
    path: Path = train(config, tmp_path, run_name="parent").run_path
    return path


def newest(run: Path) -> Any:
    return CheckpointStore(run / "checkpoints", None).load_latest_whole()[0]


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_a_ppo_checkpoint_goes_on_by_search_from_its_weights_and_statistics(algorithm: str, tmp_path: Path) -> None:
    run = parent_of(tmp_path)
    parent = newest(run)
    given = {"algorithm": algorithm, **SEARCHES[algorithm]}
    with begun(None, tmp_path, fork=run, total_timesteps=parent.step + 2 * UPDATE, settings=given) as session:
        learner: Any = session.learner
        assert session.first_step == parent.step
        assert session.config.algorithm == algorithm
        assert session.config.ppo.gamma == SMALL_PPO.ppo.gamma
        for name, weight in session.policy.state_dict().items():  # the normalizer's statistics among them
            assert torch.equal(weight, parent.model[name]), name
        if algorithm == "spo":
            for name, weight in learner.target.state_dict().items():
                assert torch.equal(weight, parent.model[name]), name
        count, _, squares = parent.trainer["reward_scaler/moments"].tolist()
        assert float(learner._rewards.scale) == pytest.approx((squares / count + 1e-8) ** -0.5)
        assert learner.replay.num_kept == 0


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_there_and_back_the_steps_count_on(algorithm: str, tmp_path: Path) -> None:
    run = parent_of(tmp_path)
    first = newest(run).step
    there = train(
        None, tmp_path, fork=run, run_name="there", algorithm=algorithm, total_timesteps=first + 2 * UPDATE,
        **SEARCHES[algorithm],
    )  # fmt: skip
    assert [record["step"] for record in lines_of(there.run_path)] == [first + UPDATE, first + 2 * UPDATE]
    back = train(
        None, tmp_path, fork=there.run_path, run_name="back", algorithm="ppo", total_timesteps=there.step + 2 * UPDATE,
        **SIZES,
    )  # fmt: skip
    assert back.step == there.step + 2 * UPDATE
    assert "clip_fraction" in back.metrics
    assert not any(name.startswith(("replay/", "spo/", "target/")) for name in newest(back.run_path).trainer)


def test_a_fork_begun_by_search_resumes_bit_for_bit(tmp_path: Path) -> None:
    run = parent_of(tmp_path)
    first = newest(run).step
    given = {"algorithm": "spo", **SEARCHES["spo"]}
    ends = []
    for name, totals in (("whole", (3,)), ("parts", (1, 3))):
        train(None, tmp_path, fork=run, run_name=name, total_timesteps=first + totals[0] * UPDATE, **given)
        for total in totals[1:]:
            train(None, tmp_path, resume=name, total_timesteps=first + total * UPDATE)
        ends.append(newest(tmp_path / name))
    assert ends[0].trainer.keys() == ends[1].trainer.keys()
    for key, tensor in ends[0].trainer.items():
        assert torch.equal(tensor, ends[1].trainer[key]), key


def test_a_fork_may_change_settings_of_the_search_and_begins_with_an_empty_replay(tmp_path: Path) -> None:
    run = parent_of(tmp_path, searching_config("cartpole", "spo", 3))
    forked = {"spo": {"particles": 6, "depth": 2, "replay_size": UPDATE}}
    with begun(None, tmp_path, fork=run, total_timesteps=6 * UPDATE, settings=forked) as session:
        assert (session.config.spo.particles, session.config.spo.depth) == (6, 2)
        assert session.config.spo.resample_period == PARTICLES.resample_period
        learner: Any = session.learner
        assert learner.replay.num_kept == 0
        assert learner.replay.record.weights.shape == (6, 8, 6)


def test_a_fork_by_command_takes_the_algorithms_defaults_for_what_was_tuned_for_the_other(tmp_path: Path) -> None:
    run = parent_of(tmp_path)
    sizes = ("--num-envs", 8, "--num-steps", 6, "--num-epochs", 1, "--spo.particles", 4, "--display", "quiet")
    words = ["train", "--fork", run, "--algorithm", "spo", "--total-timesteps", "200", "--runs-dir", tmp_path, *sizes]
    assert call(*words, "--run-name", "forked") == 0
    written = (tmp_path / "forked" / "config.toml").read_text()
    assert 'algorithm = "spo"' in written
    assert "learning_rate = 0.0003" in written


def test_another_network_is_refused_by_a_fork_into_a_search_too(tmp_path: Path) -> None:
    run = parent_of(tmp_path)
    with pytest.raises(CheckpointError, match="holds another network"):
        train(None, tmp_path, fork=run, algorithm="spo", total_timesteps="1K", policy={"hidden": [9]})
