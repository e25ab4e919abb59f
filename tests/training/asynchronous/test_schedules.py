"""Who waits for whom in an asynchronous run, and its schedule: what it holds, sets, and when it cannot be replayed."""

import contextlib
import json
import shutil
import sys
import threading

import cloudpickle
import pytest

import scramjet
from scramjet.engine.wrappers import ConcatenatedPool
from scramjet.errors import ConfigError, ScramjetError, TrainingError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.asynchronous.central_actors import CentralActors
from scramjet.training.asynchronous.trajectories import MOST_AHEAD, Exchange
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import CheckpointConfig
from tests.helpers.async_runs import UPDATE, settings
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


def lagging_schedule(folder, num_updates, lag=0):
    """A file in which two actors play with weights that are `lag` updates old when they are learned from."""
    events = [{"play": actor, "version": 0} for actor in (0, 1)] * lag
    for update in range(num_updates):
        events += [{"play": actor, "version": update} for actor in (0, 1)] + [{"learn": [0, 1]}]
    path = folder / f"lag_{lag}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_a_schedule_sets_the_lag_and_a_replay_ends_with_it(tmp_path):
    for lag in (0, 1, 5):
        schedule = lagging_schedule(tmp_path, 10, lag)
        result = train(settings(total_timesteps=20 * UPDATE, replay_schedule=str(schedule)), tmp_path)
        assert result.step == 10 * UPDATE
        assert list((result.run_path / "checkpoints").glob("step_*"))
        told = lines_of(result.run_path)
        assert [line["async/policy_lag_max"] for line in told] == [min(i, lag) for i in range(10)]
        assert (told[-1]["async/ratio_max"] > 1.001) == (lag > 0), lag


def test_empty_lines_of_a_schedule_are_passed_over_and_a_replay_is_not_resumed(tmp_path):
    path = lagging_schedule(tmp_path, 3)
    lines = path.read_text().splitlines()
    path.write_text("\n\n".join(lines) + "\n \n")
    replayed = train(settings(total_timesteps=2 * UPDATE, replay_schedule=str(path)), tmp_path)
    assert replayed.step == 2 * UPDATE
    with pytest.raises(ConfigError, match="which has no middle to go on from"):
        scramjet.train(resume=replayed.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=3 * UPDATE)
    path.write_text("\n\n".join([*lines, '{"learn": [0, 1]}']))
    with pytest.raises(ScramjetError, match=f"line {2 * len(lines) + 1}: "):
        train(settings(replay_schedule=str(path)), tmp_path)


BAD = [
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
    (['{"run": {"env.gravity": 5.0}}'], "with --env.gravity 5.0, and env.gravity is 9.8; use --env.gravity"),
    (['{"run": {"env.wind": 2}}'], "was recorded with --env.wind 2, and there is no env.wind"),
    (['{"run": {"env": "acrobot"}}'], "was recorded with acrobot, and env is cartpole; use acrobot"),
    (['{"play": 0, "version": 0}'] * 40 + ['{"learn": [0, 0]}'], "line 19: actor 0 may not run further ahead"),
]


def test_a_schedule_that_cannot_be_replayed_is_refused(tmp_path):
    bad = tmp_path / "bad.jsonl"
    for lines, words in BAD:
        bad.write_text("".join(line + "\n" for line in lines))
        with pytest.raises(ScramjetError, match=words):
            train(settings(replay_schedule=str(bad)), tmp_path)
    bad.write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="cannot be read"):
        train(settings(replay_schedule=str(bad)), tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("*"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of six updates that recorded its schedule, and saved itself after every second one."""
    config = settings(record_schedule=True, checkpoint=CheckpointConfig(every=2))
    return train(config, tmp_path_factory.mktemp("recorded"), run_name="r").run_path


@pytest.fixture
def run(recorded, tmp_path):
    return shutil.copytree(recorded, tmp_path / "r", symlinks=True)


def resumed(run, num_updates=6):
    scramjet.train(resume=run, runs_dir=run.parent, display="quiet", total_timesteps=num_updates * UPDATE)


def test_a_run_that_begins_again_is_recorded_again(run):
    shutil.rmtree(run / "checkpoints")
    (run / "schedule.jsonl").write_text('{"drop": 0}\n')  # of the attempt that was lost
    resumed(run)
    told = (run / "schedule.jsonl").read_text()
    assert '"drop"' not in told.splitlines()[0]
    assert told.count("learn") == 6


def test_the_schedule_of_updates_that_were_lost_is_cut(run):
    shutil.rmtree(run / "checkpoints" / f"step_{6 * UPDATE:08d}")
    with (run / "schedule.jsonl").open("a") as file:
        file.write('{"play": 0, "vers')  # as when it was killed
    resumed(run)
    told = [json.loads(line) for line in (run / "schedule.jsonl").read_text().splitlines()]
    assert sum("learn" in event for event in told) == 4  # actors may have begun to play once more since the last one


def test_a_resumed_run_is_not_recorded_from_its_middle_and_a_folder_in_its_place_is_left_alone(run):
    schedule = run / "schedule.jsonl"
    schedule.unlink()
    resumed(run, 7)
    assert not schedule.exists()
    schedule.mkdir()
    resumed(run, 8)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ScramjetError, match=r"schedule\.jsonl"):
        resumed(run, 9)


# --- the exchange between actors and the learner: who waits, and what is too old -------------------------------------


def exchange(num_actors=2, max_lag=8):
    return Exchange(num_actors, max_lag, lambda actor: object())


def begin_all(ours):
    """Every trajectory that may begin, actors in turn."""
    begun = []
    while ours.may_begin():
        begun.append(ours.begin(len(begun) % ours.num_actors))
    return begun


def nothing():
    pass


def test_actors_run_no_further_ahead_than_they_may():
    for max_lag in (1, 2, 8):
        ours = exchange(num_actors=3, max_lag=max_lag)
        first, *others = begin_all(ours)
        assert 1 + len(others) == 3 * (min(max_lag, MOST_AHEAD) + 1)
        assert ours.begin(0, wait=False) is None
        ours.give_up(first)
        assert len(begin_all(ours)) == 1  # one that is given up does not count
        ours.publish(nothing)
        assert len(begin_all(ours)) == 3


def test_in_order_nothing_is_older_than_the_bound_and_slots_are_used_again():
    for max_lag in (1, 2, 5):
        ours, lags, seen = exchange(num_actors=3, max_lag=max_lag), [], set()
        for _ in range(20):
            for trajectory in begin_all(ours):
                seen.add(id(trajectory.slot))
                ours.finish(trajectory)
            taken = ours.take()
            lags += [ours.version - trajectory.version for trajectory in taken]
            ours.give_back(taken)
            ours.publish(nothing)
        assert max(lags) == min(max_lag, MOST_AHEAD)
        assert ours.read_waits().num_stale == 0
        assert len(seen) == 3 * (min(max_lag, MOST_AHEAD) + 1)


def test_the_learner_takes_what_is_done_first_and_does_not_wait_for_the_slow():
    ours = exchange(num_actors=2)
    slow = ours.begin(0)
    for _ in range(5):
        for _ in range(2):
            ours.finish(ours.begin(1))
        assert [trajectory.actor for trajectory in ours.take()] == [1, 1]
        ours.publish(nothing)
    ours.finish(slow)
    ours.finish(ours.begin(1))
    taken = ours.take()
    assert [trajectory.actor for trajectory in taken] == [0, 1]
    assert ours.version - taken[0].version == 5


def test_what_is_too_old_is_dropped_told_and_its_place_is_free_again():
    ours = exchange(num_actors=2, max_lag=2)
    slow = ours.begin(0)
    for _ in range(3):
        for _ in range(2):
            ours.finish(ours.begin(1))
        ours.give_back(ours.take())
        ours.publish(nothing)
    assert ours.num_in_flight == 1
    ours.finish(slow)
    assert (ours.depth, ours.num_in_flight, ours.read_waits().num_stale) == (0, 0, 1)
    assert ours.begin(0).slot is slow.slot
    ours = exchange(num_actors=2, max_lag=1)
    ours.finish(ours.begin(0))
    for _ in range(2):
        ours.publish(nothing)
    assert ours.depth == 0  # it grew too old in the queue
    assert ours.read_waits().num_stale == 1


def test_an_actor_that_waits_goes_on_when_weights_come_or_ends_and_the_learner_hears_of_one_that_failed():
    ours = exchange(num_actors=1, max_lag=1)
    begin_all(ours)
    found = []
    threads = [threading.Thread(target=lambda: found.append(ours.begin(0)), daemon=True) for _ in range(2)]
    threads[0].start()
    ours.publish(nothing)
    threads[0].join(60)
    assert found[0] is not None
    threads[1].start()
    ours.close()
    threads[1].join(60)
    assert found[1] is None
    ours = exchange()
    ours.fail(TrainingError("all is lost"))
    with pytest.raises(TrainingError, match="all is lost"):
        ours.take()
