"""Runs with search: they stop and resume bit for bit, go on from others' checkpoints, and refuse what cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scramjet.errors import CheckpointError, TrainingError
from scramjet.policies import PolicyConfig
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.training.persistence.state import trainer_tensors
from tests.helpers.command_calls import call, refusal
from tests.helpers.run_files import assert_resumes_exactly, last_checkpoint, lines_of, train
from tests.helpers.search_training import BOARD, PARTICLES, RUNS, TREES, UPDATE, normalized, searching_config
from tests.helpers.sessions import SMALL, begun
from tests.helpers.sessions import train as train_session

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = ("particles, normalized", "particles, by effective size", "trees, two seats, results")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.rest) for kind in RUNS])
def test_a_run_that_stopped_ends_as_one_that_never_stopped(kind: str, device: Any, tmp_path: Path) -> None:
    """The replay is full from the third update on."""
    stop, config = 2 if kind == "particles, normalized" else 4, replace(RUNS[kind], device=device)
    assert_resumes_exactly(config, tmp_path, stop * UPDATE)


@pytest.mark.parametrize(("env", "algorithm"), [("cartpole", "spo"), ("tic_tac_toe", "alphazero")])
def test_a_rollout_that_is_given_up_has_never_been_played(env: str, algorithm: str, tmp_path: Path) -> None:
    played = []
    for gives_up in (True, False):
        with begun(searching_config(env, algorithm), tmp_path) as session:
            train_session(session, 1)
            if gives_up:
                before = {name: tensor.clone() for name, tensor in trainer_tensors(session).items()}
                asked = iter([False, False, False, True])
                assert session.collector.collect(lambda asked=asked: next(asked)) is None
                after = trainer_tensors(session)
                assert all(torch.equal(before[name], after[name]) for name in before)
            played.append(session.collector.collect(lambda: False).action.clone())
    assert torch.equal(*played)


AGAINST_RANDOM = {**BOARD, "random_opponent": True}
MORE = [
    ("snake", {}, "alphazero"),
    ("connect_four", AGAINST_RANDOM, "spo"),
    ("connect_four", AGAINST_RANDOM, "alphazero"),
]


@pytest.mark.parametrize("case", [("snake", {}, "spo"), *(pytest.param(case, marks=pytest.mark.rest) for case in MORE)])
def test_worlds_of_several_players_can_be_learned_with_one(case: tuple[str, Any, str], tmp_path: Path) -> None:
    env, parameters, algorithm = case
    assert train(searching_config(env, algorithm, 2, env_parameters=parameters), tmp_path).stopped_by is None


def test_a_game_that_is_not_zero_sum_stops_at_its_first_rollout_with_the_name_of_the_world(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="Duel gave its two seats the rewards"):
        train(searching_config("tests.helpers.player_worlds:Duel", "spo"), tmp_path)


# --- what cannot be searched -----------------------------------------------------------------------------------------

MANY = """
import numpy as np
from scramjet.envs import Box, Env, MultiDiscrete
class Many(Env):
    observation_space, action_space, state = Box(0, 1, (1,), np.float32), MultiDiscrete([2, 3]), {"n": np.int32}
    def reset(self, s): s.n = 0
    def step(self, s, action): return 0.0, True
    def observe(self, s, obs): obs[0] = 0
"""
PROBLEMS = {
    "gym:CartPole-v1 --algorithm spo": "spo cannot search gym:CartPole-v1: a world of another library cannot be "
    "branched",
    "gym:CartPole-v1 --algorithm alphazero": "worlds written for scramjet can: `scramjet list`",
    "kuhn --algorithm alphazero": "alphazero cannot search Kuhn: its record holds what players must not see",
    "memory --algorithm spo": "use the policy alone, with --policy.memory gru where it must remember",
    "tests.helpers.player_worlds:Mortals --algorithm spo": "spo cannot search Mortals: its 3 agents act at once",
    "cartpole --policy.memory gru --algorithm spo": "cannot search with a policy that has memory: it would have to "
    "remember along every branch; train without --policy.memory",
    "cartpole --frame-stack 2 --algorithm spo": "train with --frame-stack 1",
    "cartpole --frame-stack 2 --algorithm alphazero": "train with --frame-stack 1",
    "cartpole --algorithm spo --mode async": "use --mode sync, or --algorithm ppo",
    "connect_four --algorithm alphazero --self-play.pool-fraction 0.5": "leave --self-play settings out, or use "
    "--algorithm ppo",
    "pendulum --algorithm alphazero": "alphazero chooses one of several actions, and Pendulum has Box",
    "{MANY} --algorithm alphazero": "use spo, whose particles take any actions",
    "cartpole --algorithm spo --spo.depth 0": "spo.depth=0",
    "cartpole --algorithm spo --spo.particles 0": "spo.particles=0",
    "cartpole --algorithm alphazero --alphazero.simulations 0": "alphazero.simulations=0",
    "cartpole --algorithm spo --spo.particles 1000000000": "lower --num-envs or --spo.particles",
    "cartpole --algorithm spo --num-envs 8 --num-steps 10000000 --spo.particles 1000": "what particles find in a "
    "rollout",
    "cartpole --algorithm spo --spo.replay-size 2000000000": "lower --num-envs, --spo.particles or --spo.replay-size",
    "tic_tac_toe --algorithm alphazero --num-envs 400000 --alphazero.simulations 10000": "lower --num-envs or "
    "--alphazero.simulations",
    "cartpole --algorithm spo --num-envs 100000000000": "num_envs=100000000000",
    "cartpole --algorithm alphazero --device cuda --env-device cpu": "use --env-device auto",
    "cartpole --algorithm spo --clip-epsilon 0.1": "clip_epsilon=0.1 is PPO's, and algorithm='spo' does not use it",
    "cartpole --spo.particles 8": "spo.particles=8 is for another algorithm; add --algorithm spo",
    "cartpole --algorithm dqn": "dqn",
}


def test_it_is_refused_with_the_reason_and_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "many.py").write_text(MANY)
    for words, reason in PROBLEMS.items():
        device = "" if "--device" in words else " --device cpu --no-fused"
        given = (words + device).replace("{MANY}", f"{tmp_path}/many.py:Many").split()
        said = refusal(capsys, "train", *given, "--runs-dir", tmp_path / "runs", "--display", "plain")
        assert reason in said, words
        assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir()), words


# --- forks -----------------------------------------------------------------------------------------------------------

SMALL_PPO = normalized(replace(SMALL, policy=PolicyConfig(hidden=(8,), encoder="mlp")))
SIZES: dict[str, Any] = {"num_envs": 8, "num_steps": 6, "num_epochs": 2, "num_minibatches": 2}
SEARCHES: dict[str, dict[str, Any]] = {"spo": {**SIZES, "spo": PARTICLES}, "alphazero": {**SIZES, "alphazero": TREES}}


@pytest.fixture(scope="module")
def ppo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of PPO that others are forked from."""
    return train(SMALL_PPO, tmp_path_factory.mktemp("ppo"), run_name="parent").run_path


def newest(run: Path) -> Any:
    return CheckpointStore(run / "checkpoints", None).load_latest_whole()[0]


@pytest.mark.parametrize("algorithm", SEARCHES)
def test_a_ppo_checkpoint_goes_on_by_search_and_back(algorithm: str, ppo_run: Path, tmp_path: Path) -> None:
    parent = newest(ppo_run)
    given = {"algorithm": algorithm, **SEARCHES[algorithm]}
    end = parent.step + 2 * UPDATE
    with begun(None, tmp_path, fork=ppo_run, total_timesteps=end, settings=given) as session:
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
    there = train(None, tmp_path, fork=ppo_run, run_name="there", total_timesteps=end, **given)
    assert [record["step"] for record in lines_of(there.run_path)] == [end - UPDATE, end]
    given = {"algorithm": "ppo", "total_timesteps": end + 2 * UPDATE, **SIZES}
    back = train(None, tmp_path, fork=there.run_path, run_name="back", **given)
    assert back.step == end + 2 * UPDATE
    assert "clip_fraction" in back.metrics
    assert not any(name.startswith(("replay/", "spo/", "target/")) for name in newest(back.run_path).trainer)


def test_a_fork_begun_by_search_resumes_bit_for_bit(ppo_run: Path, tmp_path: Path) -> None:
    first = newest(ppo_run).step
    for name, num_updates in (("whole", 3), ("parts", 1)):
        end = first + num_updates * UPDATE
        train(None, tmp_path, fork=ppo_run, run_name=name, algorithm="spo", total_timesteps=end, **SEARCHES["spo"])
    train(None, tmp_path, resume="parts", total_timesteps=first + 3 * UPDATE)
    assert last_checkpoint(tmp_path / "parts") == last_checkpoint(tmp_path / "whole")


def test_a_fork_may_change_settings_of_the_search_and_begins_with_an_empty_replay(tmp_path: Path) -> None:
    run = train(searching_config("cartpole", "spo", 3), tmp_path).run_path
    forked = {"spo": {"particles": 6, "depth": 2, "replay_size": UPDATE}}
    with begun(None, tmp_path, fork=run, total_timesteps=6 * UPDATE, settings=forked) as session:
        assert (session.config.spo.particles, session.config.spo.depth) == (6, 2)
        assert session.config.spo.resample_period == PARTICLES.resample_period
        learner: Any = session.learner
        assert learner.replay.num_kept == 0
        assert learner.replay.record.weights.shape == (6, 8, 6)


def test_a_fork_by_command_takes_the_algorithms_defaults_and_its_network(ppo_run: Path, tmp_path: Path) -> None:
    words = ["train", "--fork", ppo_run, "--algorithm", "spo", "--total-timesteps", "200", "--runs-dir", tmp_path]
    sizes = "--num-envs 8 --num-steps 6 --num-epochs 1 --spo.particles 4 --display quiet --run-name forked"
    assert call(*words, *sizes.split()) == 0
    written = (tmp_path / "forked" / "config.toml").read_text()
    assert 'algorithm = "spo"' in written
    assert "learning_rate = 0.0003" in written  # and not what was tuned for the other
    with pytest.raises(CheckpointError, match="holds another network"):
        train(None, tmp_path, fork=ppo_run, algorithm="spo", total_timesteps="1K", policy={"hidden": [9]})
