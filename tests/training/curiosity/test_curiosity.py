"""Curiosity within runs: what the policy learns from, checkpoints, and everything it composes with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scramjet.algorithms.advantages import plain_gae
from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies.config import PolicyConfig
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.bonus import Transitions
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.curiosity.curiosity import METRICS
from scramjet.training.display.summary import run_info
from scramjet.training.persistence.state import begin_as_fork, trainer_tensors
from scramjet.training.self_play.config import SelfPlayConfig
from tests.helpers.command_calls import call
from tests.helpers.rank_sessions import train_on_ranks
from tests.helpers.run_files import last_checkpoint, lines_of, train
from tests.helpers.sessions import SMALL, begun
from tests.helpers.sessions import train as train_session

pytestmark = pytest.mark.usefixtures("one_thread")

CURIOUS = replace(SMALL, curiosity="rnd", bonus=BonusConfig(features=8))
UPDATE = 32
RUNS: dict[str, RunConfig] = {
    "numbers": CURIOUS,
    "torch's operators": replace(CURIOUS, fused=False),
    "memory": replace(CURIOUS, policy=PolicyConfig(hidden=(8,), memory="gru", memory_size=4)),
    "masks and a Dict": replace(CURIOUS, env="maze"),
    "agents": replace(CURIOUS, env="snake", env_parameters={"snakes": 2}),
    "continuous actions": replace(CURIOUS, env="pendulum"),
    "vtrace": replace(CURIOUS, ppo=PPOConfig(num_epochs=2, num_minibatches=2, advantage="vtrace")),
    "another library": replace(CURIOUS, env="gym:CartPole-v1", num_workers=0),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_that_stopped_ends_as_one_that_never_stopped(kind: str, tmp_path: Path) -> None:
    config = RUNS[kind]
    whole = train(config, tmp_path, run_name="whole")
    train(replace(config, total_timesteps=2 * UPDATE), tmp_path, run_name="parts")
    resumed = train(None, tmp_path, resume="parts", total_timesteps=5 * UPDATE)
    assert last_checkpoint(resumed.run_path) == last_checkpoint(whole.run_path)
    records = lines_of(whole.run_path)
    assert all(record[name] > 0 for record in records for name in METRICS)


def test_advantages_are_the_weighted_sum_of_those_of_rewards_and_of_bonuses(tmp_path: Path) -> None:
    weights = BonusConfig(features=8, coef=0.5, reward_coef=3.0, gamma=0.9)
    ppo = PPOConfig(num_epochs=1, num_minibatches=1, normalize_advantages="off", normalize_rewards=False)
    with begun(replace(CURIOUS, bonus=weights, ppo=ppo), tmp_path) as session:
        learner: Any = session.learner
        rollout = session.collector.collect()
        batch = learner.prepare(rollout)
        curiosity = learner.curiosity
        with torch.no_grad():
            bonus = curiosity.bonus.network.novelty(rollout.obs[1:].flatten(0, 1)).view(rollout.reward.shape)
            value = curiosity.critic.network(session.policy.prepare(rollout.obs.flatten(0, 1))).view(
                rollout.value.shape
            )
        never, nothing = torch.zeros_like(rollout.terminated), torch.zeros_like(rollout.reward)
        scaled = bonus * curiosity.scaler.factor
        own, _ = plain_gae(scaled, value, never, never, nothing, gamma=0.9, gae_lambda=0.95)
        ends = rollout.terminated, rollout.truncated, rollout.final_value
        of_rewards, returns = plain_gae(rollout.reward, rollout.value, *ends, gamma=0.99, gae_lambda=0.95)
        expected = (3.0 * of_rewards + 0.5 * own).flatten()
        torch.testing.assert_close(batch.samples.advantage, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(batch.samples.returns, returns.flatten())


def test_bonuses_are_scaled_by_the_deviation_of_their_discounted_sums(tmp_path: Path) -> None:
    with begun(CURIOUS, tmp_path) as session:
        learner: Any = session.learner
        rollout = session.collector.collect()
        learner.prepare(rollout)
        curiosity = learner.curiosity
        with torch.no_grad():
            bonus = curiosity.bonus.network.novelty(rollout.obs[1:].flatten(0, 1)).view(rollout.reward.shape)
        sums, running = [], torch.zeros(4, dtype=torch.float64)
        for row in bonus.double():
            running = 0.99 * running + row  # episodes that end do not end it
            sums.append(running)
        deviation = torch.stack(sums).std(correction=0)
        assert float(curiosity.scaler.factor) == pytest.approx(1 / float((deviation**2 + 1e-8).sqrt()), rel=1e-5)


def test_what_is_seen_again_and_again_is_no_longer_new(tmp_path: Path) -> None:
    config = replace(CURIOUS, env="deep_sea", env_parameters={"size": 3}, total_timesteps=60 * UPDATE)
    bonuses = [record["bonus/mean"] for record in lines_of(train(config, tmp_path).run_path)]
    assert sum(bonuses[-10:]) < 0.7 * sum(bonuses[:10])


def test_without_curiosity_nothing_of_it_is_in_a_checkpoint(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        assert not any("curiosity" in name for name in trainer_tensors(session))


def test_a_fork_goes_on_with_what_was_learned_and_may_begin_or_end_curiosity(tmp_path: Path) -> None:
    parent = train(CURIOUS, tmp_path, run_name="parent")
    with begun(None, tmp_path, fork=parent.run_path, total_timesteps=8 * UPDATE, run_name="on") as session:
        learner: Any = session.learner
        tensors = learner.curiosity.tensors()
        steps = [tensor for name, tensor in tensors.items() if name.endswith("/step")]
        assert {float(step) for step in steps} == {5.0}
        assert float(tensors["curiosity/moments"][0]) == 5 * UPDATE
    given = {"fork": parent.run_path, "total_timesteps": 8 * UPDATE}
    for settings in ({"curiosity": None, "bonus": BonusConfig()}, {"bonus": {"features": 16}}):
        assert train(None, tmp_path, **given, **settings).step == 8 * UPDATE
    plain = train(SMALL, tmp_path, run_name="plain")
    forked = train(None, tmp_path, fork=plain.run_path, total_timesteps=8 * UPDATE, curiosity="rnd")
    assert "bonus/mean" in forked.metrics


def test_ranks_hold_the_same_weights_of_curiosity(tmp_path: Path) -> None:
    config = replace(CURIOUS, num_envs=8, ppo=PPOConfig(num_epochs=1, num_minibatches=2), total_timesteps=64 * 3)
    results = train_on_ranks(2, tmp_path, config)
    assert all(record["bonus/loss"] > 0 for record in lines_of(results[0].run_path))
    trainer = load_checkpoint(results[0].run_path / "checkpoints" / "latest").trainer
    of_first = {name: each for name, each in trainer.items() if name.startswith("curiosity/module/")}
    assert of_first
    for name, tensor in of_first.items():
        (other,) = [each for key, each in trainer.items() if key.endswith("/" + name)]
        assert torch.equal(tensor, other), name


def test_bonuses_in_metrics_are_those_of_all_ranks(tmp_path: Path) -> None:
    """Before the first gradient step two ranks play and reward as one process does."""
    config = replace(SMALL, env="maze", curiosity="rnd", num_envs=8, total_timesteps=64)
    together, *_ = lines_of(train_on_ranks(2, tmp_path / "two", config)[0].run_path)
    alone, *_ = lines_of(train(config, tmp_path / "one").run_path)
    for name in ("bonus/mean", "bonus/max"):
        assert together[name] == pytest.approx(alone[name], rel=1e-4), name


def test_actors_beside_the_learner_are_curious_too(tmp_path: Path) -> None:
    config = replace(CURIOUS, mode="async", num_actors=2, total_timesteps=6 * UPDATE)
    records = lines_of(train(config, tmp_path).run_path)
    assert all(record["bonus/mean"] > 0 for record in records)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"curiosity": None},
            "bonus.features=8 does nothing with curiosity=none; use --curiosity rnd or .*, or leave bonus.features out",
        ),
        ({"algorithm": "spo", "ppo": PPOConfig()}, "curiosity='rnd' is for PPO"),
        (
            {"env": "snake", "self_play": SelfPlayConfig(pool_fraction=0.5)},
            r"self_play.pool_fraction=0.5 has some play; use --curiosity none",
        ),
        (
            {"env": "snake", "self_play": SelfPlayConfig(fixed_fraction=0.2, opponents=("random",))},
            r"self_play.fixed_fraction=0.2 has some play; use --curiosity none",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(CURIOUS, **changes)


def test_a_game_by_seats_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="connect_four has seats; leave it out"):
        train(replace(CURIOUS, env="connect_four"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_curiosity_leaves_settings_of_the_last_one_behind(tmp_path: Path) -> None:
    bonus = BonusConfig(coef=0.5, icm_forward=0.3, features=8, episodic="elliptical", elliptical_features=4)
    parent = train(replace(CURIOUS, curiosity="icm", bonus=bonus), tmp_path, run_name="parent")
    given: dict[str, Any] = {"fork": parent.run_path, "total_timesteps": 8 * UPDATE}
    for name, expected in (("noveld", BonusConfig(coef=0.5, features=8)), (None, BonusConfig())):
        with begun(None, tmp_path, **given, settings={"curiosity": name}) as session:
            assert (session.config.curiosity, session.config.bonus) == (name, expected)
    words = ["--fork", parent.run_path, "--curiosity", "none", "--total-timesteps", 8 * UPDATE, "--runs-dir", tmp_path]
    assert call("train", *words, "--display", "quiet") == 0


FORGERIES: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
    "module/critic.head.weight": lambda tensor: tensor.fill_(torch.nan),
    "moments": lambda tensor: tensor.float(),
    "returns": lambda tensor: tensor[:1],
    "optimizer/0/exp_avg": lambda tensor: None,
    "optimizer/0/exp_avg_sq": lambda tensor: tensor - 1.0,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_curiosity_cannot_have_saved_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with begun(CURIOUS, tmp_path) as session:
        learner: Any = session.learner
        tensors = {key: tensor.detach().clone() for key, tensor in learner.curiosity.tensors().items()}
        changed = FORGERIES[name](tensors.pop("curiosity/" + name))
        if changed is not None:
            tensors["curiosity/" + name] = changed
        before = {key: tensor.clone() for key, tensor in learner.curiosity.tensors().items()}
        with pytest.raises(ValueError, match=f"curiosity/{name}"):
            learner.curiosity.restore(tensors)
        assert all(torch.equal(tensor, before[key]) for key, tensor in learner.curiosity.tensors().items())


def test_a_fork_of_spoiled_curiosity_is_refused_by_its_checkpoint(tmp_path: Path) -> None:
    parent = train(CURIOUS, tmp_path)
    checkpoint = load_checkpoint(parent.run_path / "checkpoints" / "latest")
    checkpoint.trainer["curiosity/module/critic.head.weight"].fill_(torch.nan)
    with begun(CURIOUS, tmp_path) as session, pytest.raises(CheckpointError, match=r"step_.*critic\.head\.weight has"):
        begin_as_fork(session.learner, checkpoint)


def test_agents_that_are_dead_are_in_no_statistics(tmp_path: Path) -> None:
    longer = replace(RUNS["agents"], num_steps=64, env_parameters={"snakes": 3})
    with begun(longer, tmp_path) as session:
        learner: Any = session.learner
        rollout = session.collector.collect()
        alive = rollout.alive[:-1].bool()
        assert not alive.all()
        learner.prepare(rollout)
        (entry,) = learner.curiosity.bonus.network.normalizer.entries
        seen = rollout.obs[1:][alive].double()
        assert entry.moments.count == len(seen)
        torch.testing.assert_close(entry.moments.mean, seen.mean(0))
        torch.testing.assert_close(entry.moments.variance, seen.var(0, unbiased=False))
        bonus = learner.curiosity.bonus.bonuses(Transitions.of(rollout))[alive]
        _, (mean, *_) = learner.curiosity._prepared
        torch.testing.assert_close(mean, bonus.mean())


def test_the_header_names_what_changes_learning(tmp_path: Path) -> None:
    with begun(CURIOUS, tmp_path) as session:
        assert run_info(session).note.startswith("curiosity rnd; numba executor")
    stabilized = replace(
        CURIOUS, env="pendulum", bonus=BonusConfig(features=8, episodic="elliptical"),
        ppo=PPOConfig(num_minibatches=2, value_scale="popart", target_entropy=0.5),
        policy=PolicyConfig(hidden=(8,), noise_color=0.5),
    )  # fmt: skip
    with begun(stabilized, tmp_path) as session:
        assert run_info(session).note.startswith(
            "curiosity rnd times elliptical within the episode; popart values; target entropy 0.5; noise color 0.5; "
        )


def test_metrics_are_plain_numbers(tmp_path: Path) -> None:
    with begun(CURIOUS, tmp_path) as session:
        train_session(session, 1)
        learner: Any = session.learner
        metrics = learner.update(learner.prepare(session.collector.collect()), 0)
        assert json.loads(json.dumps(metrics)) == metrics


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["numbers", "torch's operators", "memory", "masks and a Dict", "continuous actions"])
def test_on_the_gpu_curiosity_is_recorded_and_resumes_bit_for_bit(kind: str, tmp_path: Path) -> None:
    config = replace(RUNS[kind], device="cuda", total_timesteps=6 * UPDATE)
    with begun(config, tmp_path, run_name="looked-at") as session:
        train_session(session, 4)
        learner: Any = session.learner
        assert learner.curiosity._learning.is_recorded
    whole = train(config, tmp_path, run_name="whole")
    train(replace(config, total_timesteps=3 * UPDATE), tmp_path, run_name="parts")
    resumed = train(None, tmp_path, resume="parts", total_timesteps=6 * UPDATE)
    assert last_checkpoint(resumed.run_path) == last_checkpoint(whole.run_path)
