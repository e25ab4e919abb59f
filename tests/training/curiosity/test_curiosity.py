"""Curiosity within runs, by every method: what the policy learns from, checkpoints, the scale of rewards beside it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scramjet.algorithms.advantages import plain_gae
from scramjet.algorithms.config import PPOConfig
from scramjet.arena.play.thoughts import reward_scale
from scramjet.engine.trees import map_leaves
from scramjet.errors import CheckpointError, ConfigError
from scramjet.policies import Observations, PolicyConfig
from scramjet.runtime.checkpoints import Checkpoint, load_checkpoint
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.training.config.run_config import RunConfig
from scramjet.training.curiosity.bonus import Transitions
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.curiosity.critic import BonusCritic
from scramjet.training.curiosity.curiosity import METRICS
from scramjet.training.display.summary import run_info
from scramjet.training.playing import load_policy, search_settings
from scramjet.training.session import Session
from scramjet.training.state import begin_as_fork, trainer_tensors
from tests.helpers.command_calls import call
from tests.helpers.rank_sessions import train_on_ranks
from tests.helpers.run_files import assert_resumes_exactly, lines_of, train
from tests.helpers.sessions import SMALL, begun
from tests.helpers.sessions import train as train_session

pytestmark = pytest.mark.usefixtures("one_thread")

CURIOUS = replace(SMALL, curiosity="rnd", bonus=BonusConfig(features=8))
UPDATE = 32
MAZE = replace(SMALL, env="maze")
MEMORY = PolicyConfig(hidden=(8,), memory="gru", memory_size=4)
MORTALS = replace(SMALL, env="tests.helpers.player_worlds:Mortals")
ELLIPTICAL = BonusConfig(features=8, episodic="elliptical", elliptical_features=4)
METHODS: dict[str, Any] = {
    "icm": {"curiosity": "icm", "bonus": BonusConfig(features=8)},
    "noveld": {"curiosity": "noveld", "bonus": BonusConfig(features=8)},
    "counts": {"curiosity": "counts", "bonus": BonusConfig()},
    "e3b": {"curiosity": "e3b", "bonus": BonusConfig(elliptical_features=4)},
    "rnd times elliptical": {"curiosity": "rnd", "bonus": ELLIPTICAL},
    "icm times first visits": {"curiosity": "icm", "bonus": BonusConfig(features=8, episodic="first")},
}
RUNS: dict[str, RunConfig] = {
    "numbers": CURIOUS,
    "torch's operators": replace(CURIOUS, fused=False),
    "memory": replace(CURIOUS, policy=MEMORY),
    "masks and a Dict": replace(CURIOUS, env="maze"),
    "agents": replace(CURIOUS, env="snake", env_parameters={"snakes": 2}),
    "continuous actions": replace(CURIOUS, env="pendulum"),
    "vtrace": replace(CURIOUS, ppo=PPOConfig(num_epochs=2, num_minibatches=2, advantage="vtrace")),
    "another library": replace(CURIOUS, env="gym:CartPole-v1", num_workers=0),
}
RUNS |= {f"{method}, masks and a Dict": replace(MAZE, **settings) for method, settings in METHODS.items()}
RUNS |= {f"{name}, agents that die": replace(MORTALS, policy=MEMORY, **METHODS[name]) for name in ("noveld", "e3b")}
RUNS |= {f"{name}, continuous actions": replace(SMALL, env="pendulum", **METHODS[name]) for name in ("icm", "e3b")}
FEW = ("numbers", "icm times first visits, masks and a Dict", "e3b, agents that die")


@pytest.mark.parametrize("kind", [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.rest) for kind in RUNS])
def test_a_run_that_stopped_ends_as_one_that_never_stopped(kind: str, tmp_path: Path) -> None:
    whole = assert_resumes_exactly(RUNS[kind], tmp_path, 2 * UPDATE)
    positive = METRICS if RUNS[kind].bonus == CURIOUS.bonus and RUNS[kind].curiosity == "rnd" else ("bonus/max",)
    positive += ("bonus/loss",) if RUNS[kind].env == "pendulum" else ()
    assert all(record[name] > 0 for record in lines_of(whole.run_path) for name in positive)


def novelty_of(curiosity: Any, rollout: Any) -> torch.Tensor:
    """The bonus of random network distillation for each step, [T, R]."""
    with torch.no_grad():
        return curiosity.bonus.network.novelty(rollout.obs[1:].flatten(0, 1)).view(rollout.reward.shape)


def test_advantages_are_the_weighted_sum_of_those_of_rewards_and_of_scaled_bonuses(tmp_path: Path) -> None:
    """Bonuses are scaled by the deviation of their discounted sums, which episodes that end do not end."""
    weights = BonusConfig(features=8, coef=0.5, reward_coef=3.0, gamma=0.9)
    ppo = PPOConfig(num_epochs=1, num_minibatches=1, normalize_advantages="off", normalize_rewards=False)
    with begun(replace(CURIOUS, bonus=weights, ppo=ppo), tmp_path) as session:
        learner: Any = session.learner
        rollout = session.collector.collect()
        batch = learner.prepare(rollout)
        curiosity = learner.curiosity
        bonus = novelty_of(curiosity, rollout)
        sums, running = [], torch.zeros(4, dtype=torch.float64)
        for row in bonus.double():
            running = 0.9 * running + row
            sums.append(running)
        deviation = torch.stack(sums).std(correction=0)
        assert float(curiosity.scaler.factor) == pytest.approx(1 / float((deviation**2 + 1e-8).sqrt()), rel=1e-5)
        with torch.no_grad():
            value = curiosity.critic.network(session.policy.prepare(rollout.obs.flatten(0, 1)))
        never, nothing = torch.zeros_like(rollout.terminated), torch.zeros_like(rollout.reward)
        scaled, value = bonus * curiosity.scaler.factor, value.view(rollout.value.shape)
        own, _ = plain_gae(scaled, value, never, never, nothing, gamma=0.9, gae_lambda=0.95)
        ends = rollout.terminated, rollout.truncated, rollout.final_value
        of_rewards, returns = plain_gae(rollout.reward, rollout.value, *ends, gamma=0.99, gae_lambda=0.95)
        expected = (3.0 * of_rewards + 0.5 * own).flatten()
        torch.testing.assert_close(batch.samples.advantage, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(batch.samples.returns, returns.flatten())


def test_what_is_seen_again_and_again_is_no_longer_new(tmp_path: Path) -> None:
    config = replace(CURIOUS, env="deep_sea", env_parameters={"size": 4}, total_timesteps=60 * UPDATE)
    bonuses = [record["bonus/mean"] for record in lines_of(train(config, tmp_path).run_path)]
    assert sum(bonuses[-10:]) < 0.7 * sum(bonuses[:10])


def test_a_fork_goes_on_with_what_was_learned_and_may_begin_change_or_end_curiosity(tmp_path: Path) -> None:
    parent = train(CURIOUS, tmp_path, run_name="parent")
    given: dict[str, Any] = {"fork": parent.run_path, "total_timesteps": 8 * UPDATE}
    with begun(None, tmp_path, **given, run_name="on") as session:
        learner: Any = session.learner
        tensors = learner.curiosity.tensors()
        steps = [tensor for name, tensor in tensors.items() if name.endswith("/step")]
        assert {float(step) for step in steps} == {5.0}
        assert float(tensors["curiosity/moments"][0]) == 5 * UPDATE
    for settings in ({"curiosity": None, "bonus": BonusConfig()}, {"bonus": {"features": 16}}, {"curiosity": "noveld"}):
        assert train(None, tmp_path, **given, **settings).step == 8 * UPDATE
    plain = train(SMALL, tmp_path, run_name="plain")
    forked = train(None, tmp_path, fork=plain.run_path, total_timesteps=8 * UPDATE, curiosity="rnd")
    assert "bonus/mean" in forked.metrics


def test_a_fork_begins_without_memories_of_episodes_and_may_have_other_envs(tmp_path: Path) -> None:
    parent = train(replace(MAZE, **METHODS["e3b"]), tmp_path)
    prefix = "curiosity/module/bonus."
    trained = load_checkpoint(parent.run_path / "checkpoints" / "latest").trainer
    assert trained[prefix + "memory.is_under_way"].any()
    for num_envs in (4, 8):
        settings = {"num_envs": num_envs}
        with begun(None, tmp_path, fork=parent.run_path, total_timesteps=640, settings=settings) as session:
            learner: Any = session.learner
            tensors = learner.curiosity.tensors()
            assert not tensors[prefix + "memory.is_under_way"].any()
            weights = prefix + "dynamics.inverse.1.weight"
            assert torch.equal(tensors[weights], trained[weights])


def test_ranks_hold_the_same_weights_of_curiosity_and_tell_the_bonuses_of_all(tmp_path: Path) -> None:
    ppo = PPOConfig(num_epochs=1, num_minibatches=2)
    config = replace(MAZE, curiosity="rnd", bonus=BonusConfig(features=8), num_envs=8, ppo=ppo, total_timesteps=64 * 3)
    run = train_on_ranks(2, tmp_path / "two", config)[0].run_path
    together, alone = lines_of(run), lines_of(train(config, tmp_path / "one").run_path)
    assert all(record["bonus/loss"] > 0 for record in together)
    for name in ("bonus/mean", "bonus/max"):  # before the first gradient step they play and reward as one process does
        assert together[0][name] == pytest.approx(alone[0][name], rel=1e-4), name
    trainer = load_checkpoint(run / "checkpoints" / "latest").trainer
    of_first = {name: each for name, each in trainer.items() if name.startswith("curiosity/module/")}
    assert of_first
    for name, tensor in of_first.items():
        (other,) = [each for key, each in trainer.items() if key.endswith("/" + name)]
        assert torch.equal(tensor, other), name


@pytest.mark.parametrize("method", [None, pytest.param("counts", marks=pytest.mark.rest), "rnd times elliptical"])
def test_actors_beside_the_learner_are_curious_too(method: str | None, tmp_path: Path) -> None:
    config = CURIOUS if method is None else replace(MAZE, **METHODS[method])
    config = replace(config, mode="async", num_actors=2, total_timesteps=4 * UPDATE)
    assert all(record["bonus/max"] > 0 for record in lines_of(train(config, tmp_path).run_path))


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    pool, fixed = SelfPlayConfig(pool_fraction=0.5), SelfPlayConfig(fixed_fraction=0.2, opponents=("random",))
    for changes, message in (
        ({"curiosity": None}, "bonus.features=8 does nothing with curiosity=none; use --curiosity rnd or .*, or leave"),
        ({"algorithm": "spo", "ppo": PPOConfig()}, "curiosity='rnd' is for PPO"),
        ({"env": "snake", "self_play": pool}, "self_play.pool_fraction=0.5 has some play; use --curiosity none"),
        ({"env": "snake", "self_play": fixed}, "self_play.fixed_fraction=0.2 has some play; use --curiosity none"),
    ):
        with pytest.raises(ConfigError, match=message):
            replace(CURIOUS, **changes)
    with pytest.raises(ConfigError, match="tic_tac_toe has seats; leave it out"):
        train(replace(CURIOUS, env="tic_tac_toe", fused=False), tmp_path)
    assert not list(tmp_path.iterdir())


def test_settings_of_another_method_and_those_out_of_range_are_refused_by_name() -> None:
    given: dict[str, Any]
    for method, given, fix in (
        ("rnd", {"noveld_alpha": 0.1}, "--curiosity noveld"),
        ("counts", {"features": 8}, "--curiosity rnd or icm or noveld"),
        ("rnd", {"episodic": "first", "elliptical_ridge": 1.0}, "--curiosity e3b"),
        ("e3b", {"episodic": "first"}, "--curiosity rnd or icm"),
    ):
        *_, (name, value) = given.items()
        said = f"bonus.{name}={value} does nothing with curiosity='{method}'; use {fix}, or leave bonus.{name} out"
        with pytest.raises(ConfigError, match=said):
            replace(SMALL, curiosity=method, bonus=BonusConfig(**given))
    for name, value in {
        "icm_forward": 1.5, "noveld_alpha": -0.1, "elliptical_ridge": 1e-4, "elliptical_features": 513, "coef": 1e38,
        "reward_coef": 1e38,
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=f"bonus.{name}"):
            BonusConfig(**{name: value})


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
    "module/critic.head.weight": lambda tensor: tensor.fill_(torch.nan), "moments": lambda tensor: tensor.float(),
    "returns": lambda tensor: tensor[:1], "optimizer/0/exp_avg": lambda tensor: None,
    "optimizer/0/exp_avg_sq": lambda tensor: tensor - 1.0,
}  # fmt: skip


def test_what_curiosity_cannot_have_saved_is_refused_by_name(tmp_path: Path) -> None:
    with begun(CURIOUS, tmp_path) as session:
        learner: Any = session.learner
        before = {key: tensor.detach().clone() for key, tensor in learner.curiosity.tensors().items()}
        for name, forge in FORGERIES.items():
            tensors = {key: tensor.clone() for key, tensor in before.items()}
            changed = forge(tensors.pop("curiosity/" + name))
            if changed is not None:
                tensors["curiosity/" + name] = changed
            with pytest.raises(ValueError, match=f"curiosity/{name}"):
                learner.curiosity.restore(tensors)
            assert all(torch.equal(tensor, before[key]) for key, tensor in learner.curiosity.tensors().items()), name
        checkpoint = load_checkpoint(train(CURIOUS, tmp_path).run_path / "checkpoints" / "latest")
        checkpoint.trainer["curiosity/module/critic.head.weight"].fill_(torch.nan)
        with pytest.raises(CheckpointError, match=r"step_.*critic\.head\.weight has"):
            begin_as_fork(session.learner, checkpoint)


def test_agents_that_are_dead_are_in_no_statistics(tmp_path: Path) -> None:
    config = replace(MORTALS, curiosity="rnd", bonus=BonusConfig(features=8), num_steps=64)
    with begun(config, tmp_path) as session:
        learner: Any = session.learner
        rollout = session.collector.collect()
        alive = rollout.alive[:-1].bool()
        assert not alive.all()
        learner.prepare(rollout)
        (entry,) = learner.curiosity.bonus.network.normalizer.entries
        seen = rollout.obs["me"][1:][alive].double()
        assert entry.moments.count == len(seen)
        torch.testing.assert_close(entry.moments.mean, seen.mean(0))
        torch.testing.assert_close(entry.moments.variance, seen.var(0, unbiased=False))
        bonus = learner.curiosity.bonus.bonuses(Transitions.of(rollout))[alive]
        _, (mean, *_) = learner.curiosity._prepared
        torch.testing.assert_close(mean, bonus.mean())


def first_visits(obs: dict[str, Tensor], ended: Tensor, seen: list[set[bytes]]) -> int:
    """First visits in a rollout [T + 1, R], by sets of positions; each env has a set for its episode."""
    found = 0
    for t in range(len(ended)):
        for n, ends in enumerate(ended[t].tolist()):
            before, after = (
                b"".join(obs[name][when, n].numpy().tobytes() for name in ("agent", "target", "walls"))
                for when in (t, t + 1)
            )
            seen[n].add(before)
            found += not ends and after not in seen[n]
            seen[n] = set() if ends else seen[n] | {after}
    return found


def test_the_bonus_that_a_run_records_is_that_of_sets_of_positions_over_its_rollouts(tmp_path: Path) -> None:
    network = PolicyConfig(hidden=(8,), ignore=("step_count",))
    config = replace(MAZE, curiosity="counts", bonus=BonusConfig(first_visits=True), policy=network)
    seen: list[set[bytes]] = [set() for _ in range(4)]
    with begun(config, tmp_path) as session:
        for _ in range(3):
            rollout = session.collector.collect()
            expected = first_visits(rollout.obs, rollout.terminated | rollout.truncated, seen)
            metrics = session.learner.update(session.learner.prepare(rollout), 0)
            assert metrics["bonus/mean"] == pytest.approx(expected / UPDATE)
            assert 0 < expected < UPDATE
            visits = UPDATE - int((rollout.terminated | rollout.truncated).sum())
            assert session.curiosity is not None
            assert session.curiosity.revisited == pytest.approx(1 - expected / visits)


def test_the_header_names_what_changes_learning_and_without_curiosity_none_of_it_is_kept(tmp_path: Path) -> None:
    with begun(SMALL, tmp_path) as session:
        assert not any("curiosity" in name for name in trainer_tensors(session))
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


# --- on the GPU: stages are recorded, and the critic of bonuses learns by kernels what torch would -------------------

ON_GPU = replace(
    CURIOUS, num_envs=64, total_timesteps=64 * 8 * 6, policy=PolicyConfig(hidden=(32, 32)), precision="float32",
    device="cuda",
)  # fmt: skip
LEFT_TO_TORCH = {
    "torch's operators": replace(ON_GPU, fused=False),
    "one hidden layer": replace(ON_GPU, policy=PolicyConfig(hidden=(32,))),
    "a Dict": replace(ON_GPU, env="maze"),
    "a picture of whole numbers": replace(ON_GPU, env="door_key"),
}


@pytest.mark.gpu
@pytest.mark.parametrize("is_marked", [False, True])
def test_kernels_learn_what_torch_would(is_marked: bool, tmp_path: Path) -> None:
    with begun(ON_GPU, tmp_path) as session:
        learner: Any = session.learner
        rollout, critic = session.collector.collect(), learner.curiosity.critic
        assert critic._mlp is not None
        space = session.policy.observation_space
        other = BonusCritic(session.policy, space, ON_GPU.policy, 0.01, may_use_kernels=False)
        other.network.load_state_dict(critic.network.state_dict())
        critic.optimizer.param_groups[0]["lr"].fill_(0.01)
        steps = Transitions.of(rollout)
        if is_marked:
            steps = replace(steps, counts=torch.rand(rollout.reward.shape, device="cuda") < 0.6)
        returns = torch.randn(rollout.reward.shape, device="cuda")
        for places in torch.randperm(returns.numel(), device="cuda").chunk(4):
            losses = []
            for each in (critic, other):
                each.begin_update()
                each.optimizer.zero_grad()
                losses.append(float(each.learn(steps, returns, places, 1)))
                each.step()
            assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        torch.testing.assert_close(critic.values(rollout.obs), other.values(rollout.obs), rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", LEFT_TO_TORCH)
def test_what_the_kernels_do_not_take_is_left_to_torch(kind: str, tmp_path: Path) -> None:
    with begun(LEFT_TO_TORCH[kind], tmp_path) as session:
        learner: Any = session.learner
        assert learner.curiosity.critic._mlp is None


@pytest.mark.gpu
@pytest.mark.parametrize("method", [{}, {"curiosity": "counts", "bonus": BonusConfig()}], ids=["rnd", "counts"])
def test_a_run_with_its_critic_in_kernels_resumes_bit_for_bit(method: dict[str, Any], tmp_path: Path) -> None:
    assert_resumes_exactly(replace(ON_GPU, **method), tmp_path, 64 * 8 * 3)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [k for k in RUNS if not any(word in k for word in ("die", "vtrace", ", continuous"))])
def test_on_the_gpu_curiosity_is_recorded_and_resumes_bit_for_bit(kind: str, tmp_path: Path) -> None:
    config = replace(RUNS[kind], device="cuda", total_timesteps=6 * UPDATE)
    with begun(config, tmp_path, run_name="looked-at") as session:
        train_session(session, 4)
        learner: Any = session.learner
        stage = learner._preparing if RUNS[kind].curiosity == "counts" else learner.curiosity._learning
        assert stage.is_recorded
    assert_resumes_exactly(config, tmp_path, 3 * UPDATE)


# --- rewards beside bonuses are never made larger; who reads values knows it, and forks keep them --------------------


SPARSE = replace(SMALL, env="deep_sea", env_parameters={"size": 4})
SPARSE_CURIOUS = replace(SPARSE, curiosity="rnd", bonus=BonusConfig(features=8))
LARGE = replace(SPARSE_CURIOUS, env="pendulum", env_parameters={})
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
    for config, is_raised, is_lowered in ((SPARSE, True, False), (SPARSE_CURIOUS, False, False), (LARGE, False, True)):
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
    "out of curiosity": (SPARSE_CURIOUS, OUT_OF),
    "into curiosity with popart": (replace(SPARSE, ppo=POPART), INTO),
    "out of curiosity with popart": (replace(SPARSE_CURIOUS, ppo=POPART), OUT_OF),
    "into curiosity and out of popart": (replace(SPARSE, ppo=POPART), {**INTO, "value_scale": "none"}),
    "out of curiosity into popart": (SPARSE_CURIOUS, {**OUT_OF, "value_scale": "popart"}),
    "to rewards as they are": (SPARSE, {"normalize_rewards": False}),
    "mazes": (replace(SPARSE_CURIOUS, env="maze", env_parameters={}), OUT_OF),
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
    "another curiosity": (SPARSE_CURIOUS, {"curiosity": "icm"}, False),
    "large rewards": (LARGE, OUT_OF, False),
    "rewards too small to have been learned": (replace(SPARSE_CURIOUS, env_parameters={"size": 40}), OUT_OF, True),
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
