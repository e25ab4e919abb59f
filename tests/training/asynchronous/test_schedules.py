"""The schedule of an asynchronous run: what it holds, what it sets, and when it cannot be replayed."""

import contextlib
import json
import shutil
import sys
from pathlib import Path

import cloudpickle
import pytest

import scramjet
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool
from scramjet.errors import ConfigError, ScramjetError
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.training.asynchronous.central_actors import CentralActors
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import CheckpointConfig
from tests.helpers.async_runs import settings
from tests.helpers.run_files import lines_of, train

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


def test_a_schedule_names_only_actors_that_had_leave_to_play():
    """Two are idle and one more may begin: a replay would let both."""
    config = settings("gym:CartPole-v1", num_workers=1)
    pools = [make_pool(config, num_envs=1, num_threads=1, learns=True) for _ in range(2)]
    with contextlib.closing(ConcatenatedPool(pools)) as pool:
        pool.reset(1)
        network = default_network(pool.observation_space, pool.action_space, PolicyConfig(hidden=(8,)))
        policy = Policy(network, pool.observation_space, pool.action_space)
        actors = CentralActors(pool, policy, max_lag=1, num_steps=4, horizon=None, seed=1, fused=False)
        events = []
        actors.exchange.record = events.append
        actors.begin()
        for _ in range(3):  # of the four that may begin before the first update
            actors.exchange.begin(0)
        actors.do({"round": [0, 1]})
    assert events == [{"round": [0], "version": 0}]


def lagging_schedule(path, num_updates, num_actors, lag):
    """Everybody plays with weights that are `lag` updates old when they are learned from."""
    plays = [{"play": actor, "version": 0} for actor in range(num_actors)]
    with path.open("w") as file:
        for update in range(num_updates + lag):
            for play in plays:
                print(json.dumps({**play, "version": max(0, update - lag)}), file=file)
            if update >= lag:
                print(json.dumps({"learn": list(range(num_actors))}), file=file)
    return str(path)


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_a_schedule_sets_the_lag(lag, tmp_path):
    schedule = lagging_schedule(tmp_path / "lag.jsonl", 10, 2, lag)
    config = settings(total_timesteps=8 * 16 * 10, replay_schedule=schedule)
    told = lines_of(train(config, tmp_path).run_path)
    assert [line["async/policy_lag_max"] for line in told] == [min(i, lag) for i in range(10)]
    assert (told[-1]["async/ratio_max"] > 1.001) == (lag > 0)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "has no update in it"),
        (['{"play": 0, "version": 0}'], "has no update in it"),
        (["{}"], "line 1: an event has one of play, learn and drop"),
        (['{"play": 0, "version": 0}', "what"], "line 2"),
        (["[" * 200_000], "line 1"),
        (['{"play": 0, "version": ' + "9" * 5000 + "}"], "line 1"),
        (['{"round": [0], "version": 0}'], "recorded with an env of another library"),
        (['{"play": 2, "version": 0}'], "numbers from 0 to 1; was it recorded with another --num-actors"),
        (['{"play": -1, "version": 0}'], "numbers from 0 to 1"),
        (['{"play": "zero", "version": 0}'], "numbers from 0 to 1"),
        (['{"play": 0}'], "its version must be a number"),
        (['{"learn": [0]}'], "learns from 2 trajectories, and it lists 1"),
        (['{"learn": 0}'], "numbers from 0 to 1"),
        (['{"learn": [0, 1]}'], "line 1: it takes what actor 0 has done, which is nothing yet"),
        (['{"drop": 1}', '{"learn": [0, 1]}'], "line 1: it takes what actor 1 has done, which is nothing yet"),
        (['{"play": 0, "version": 3}', '{"learn": [0, 1]}'], "line 1: it plays with the weights of update 3"),
        (['{"run": {"seed": 7}}'], "was recorded with --seed 7, and seed is 1; use --seed 7"),
        (
            ['{"run": {"env.gravity": 5.0}}'],
            "with --env.gravity 5.0, and env.gravity is 9.8; use --env.gravity",
        ),
        (['{"run": {"env.wind": 2}}'], "was recorded with --env.wind 2, and there is no env.wind"),
        (['{"run": {"env": "acrobot"}}'], "was recorded with acrobot, and env is cartpole; use acrobot"),
        (['{"play": 0, "version": 0}'] * 40 + ['{"learn": [0, 0]}'], "line 19: actor 0 may not run further ahead"),
    ],
)
def test_a_schedule_that_cannot_be_replayed_is_refused(lines, words, tmp_path):
    (tmp_path / "bad.jsonl").write_text("".join(line + "\n" for line in lines))
    with pytest.raises(ScramjetError, match=words):
        train(settings(replay_schedule=str(tmp_path / "bad.jsonl")), tmp_path)


def test_a_replay_is_not_resumed(tmp_path):
    schedule = lagging_schedule(tmp_path / "short.jsonl", 3, 2, 0)
    train(settings(total_timesteps=8 * 16 * 2, replay_schedule=schedule), tmp_path, run_name="r")
    with pytest.raises(ConfigError, match="which has no middle to go on from"):
        scramjet.train(resume=tmp_path / "r", runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 3)


def test_a_run_that_begins_again_is_recorded_again(tmp_path):
    config = settings(record_schedule=True)
    first = train(config, tmp_path, run_name="r")
    shutil.rmtree(first.run_path / "checkpoints")
    (first.run_path / "schedule.jsonl").write_text('{"drop": 0}\n')  # of the attempt that was lost
    scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet")
    told = (first.run_path / "schedule.jsonl").read_text()
    assert '"drop"' not in told.splitlines()[0]
    assert told.count("learn") == 6


def test_the_schedule_of_updates_that_were_lost_is_cut(tmp_path):
    config = settings(record_schedule=True, checkpoint=CheckpointConfig(every=2))
    first = train(config, tmp_path, run_name="r")
    shutil.rmtree(first.run_path / "checkpoints" / "step_00000768")
    with (first.run_path / "schedule.jsonl").open("a") as file:
        file.write('{"play": 0, "vers')  # as when it was killed
    scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet")
    told = [json.loads(line) for line in (first.run_path / "schedule.jsonl").read_text().splitlines()]
    assert sum("learn" in event for event in told) == 4  # actors may have begun to play once more since the last one


def test_a_resumed_run_is_not_recorded_from_its_middle(tmp_path):
    first = train(settings(record_schedule=True), tmp_path, run_name="r")
    (first.run_path / "schedule.jsonl").unlink()
    scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 8)
    assert not (first.run_path / "schedule.jsonl").exists()


def test_a_folder_in_the_place_of_a_schedule_is_left_alone(tmp_path):
    first = train(settings(record_schedule=True), tmp_path, run_name="r")
    (first.run_path / "schedule.jsonl").unlink()
    (first.run_path / "schedule.jsonl").mkdir()
    scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 8)
    shutil.rmtree(first.run_path / "checkpoints")
    with pytest.raises(ScramjetError, match=r"schedule\.jsonl"):
        scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 9)


def test_empty_lines_of_a_schedule_are_passed_over(tmp_path):
    path = tmp_path / "gaps.jsonl"
    lines = Path(lagging_schedule(path, 3, 2, 0)).read_text().splitlines()
    path.write_text("\n\n".join(lines) + "\n \n")
    assert train(settings(replay_schedule=str(path)), tmp_path).step == 8 * 16 * 3
    path.write_text("\n\n".join([*lines, '{"learn": [0, 1]}']))
    with pytest.raises(ScramjetError, match=f"line {2 * len(lines) + 1}: "):
        train(settings(replay_schedule=str(path)), tmp_path)


def test_a_replay_ends_with_its_schedule(tmp_path):
    schedule = lagging_schedule(tmp_path / "short.jsonl", 3, 2, 0)
    result = train(settings(total_timesteps=8 * 16 * 10, replay_schedule=schedule), tmp_path)
    assert result.step == 8 * 16 * 3
    assert list((result.run_path / "checkpoints").glob("step_*"))


def test_a_schedule_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="cannot be read"):
        train(settings(replay_schedule=str(tmp_path / "bad.jsonl")), tmp_path)
    assert not list(tmp_path.glob("cartpole*"))
