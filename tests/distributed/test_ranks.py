"""Several ranks: what they tell each other, and runs of them from start to end."""

import subprocess
import sys
import tempfile
from collections import deque
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from scramjet.algorithms.config import PPOConfig
from scramjet.distributed.exchange import Report, merged_episodes, merged_metrics
from scramjet.distributed.ranks import PrivateRun, failing_together, shared
from scramjet.engine import Episodes, NativePool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.envs.registry import load_env
from scramjet.errors import ConfigError, RankError, ScramjetError, TrainingError
from scramjet.policies import PolicyConfig
from scramjet.runtime.ranks import Alone
from scramjet.telemetry.progress import Progress
from scramjet.training import agreement
from scramjet.training.agreement import Together
from scramjet.training.display import QuietDisplay
from scramjet.training.resume import resume_run
from scramjet.training.start import FinishedBeforeError, StartRequest, after_restart
from tests.helpers.rank_sessions import SMALL, STEPS, train_on_ranks
from tests.helpers.run_files import last_checkpoint, timeless_lines_of
from tests.helpers.thread_ranks import on_ranks

# --- one rank's error ends all ranks, and one of them tells it


def told(work):
    """What each of three ranks raises in `work(ranks)`, as (type, text, whether another rank shows it)."""

    def run(ranks):
        try:
            work(ranks)
        except Exception as error:
            return type(error), str(error), getattr(error, "is_told", False)
        return None

    return on_ranks(3, run)


def failing_on(rank, error):
    def work(ranks):
        with failing_together(ranks):
            if ranks.rank == rank:
                raise error

    return work


def test_an_error_of_one_rank_is_raised_on_all_and_told_by_rank_0():
    assert told(failing_on(None, None)) == [None] * 3
    assert told(failing_on(1, ConfigError("no such world"))) == [
        (RankError, "rank 1: no such world", False),
        (ConfigError, "no such world", True),
        (RankError, "rank 1: no such world", True),
    ]
    assert told(failing_on(2, KeyError("pool")))[2] == (KeyError, "'pool'", False)  # a bug keeps its own traceback


def test_what_rank_0_makes_reaches_all_ranks_and_what_it_cannot_make_is_raised_on_all():
    def share(make):
        return lambda ranks: shared(ranks, lambda: make(ranks), str.encode, bytes.decode)

    def fail(ranks):
        raise ConfigError("there is no run")

    assert on_ranks(3, share(lambda ranks: f"made by {ranks.rank}")) == ["made by 0"] * 3
    others = [(RankError, "rank 0: there is no run", True)] * 2
    assert told(share(fail)) == [(ConfigError, "there is no run", False), *others]


def together(ranks, *, rollout=None, mode="sync", num_ended=0, news=()) -> tuple[Together, Any]:
    """What exchanges with other ranks, around a session as far as it looks at it."""
    numbers = np.arange(num_ended)
    episodes = Episodes(num_ended, numbers + 10.0 * ranks.rank, numbers, numbers, numbers, {}, numbers)
    session: Any = SimpleNamespace(
        ranks=ranks,
        collector=SimpleNamespace(collect=lambda gives_up: rollout, episodes=lambda: episodes, metrics=dict),
        config=SimpleNamespace(mode=mode), pool=SimpleNamespace(num_envs=2), first_update=0, news=deque(news),
    )  # fmt: skip
    return Together(session), session


def test_messages_of_other_ranks_reach_rank_0_with_their_number_and_all_know_the_episodes_of_all():
    def report(ranks):
        exchange, session = together(ranks, num_ended=ranks.rank + 1, news=[f"env {ranks.rank} was restarted"])
        episodes, _ = exchange.report(2)
        return list(session.news), episodes.num_ended, episodes.returns.tolist()

    news = [["env 0 was restarted", "rank 1: env 1 was restarted", "rank 2: env 2 was restarted"], [], []]
    assert on_ranks(3, report) == [(each, 6, [0, 10, 20, 11, 21, 22]) for each in news]


def test_a_rank_that_gave_up_waiting_for_its_actors_makes_all_give_up():
    def collect(ranks):
        rollout = None if ranks.rank == 1 else "a rollout"
        return together(ranks, rollout=rollout, mode="async")[0].collect(None)

    assert on_ranks(2, collect) == [None, None]


def played(seed: EpisodeSeed, num_envs: int, actions: np.ndarray) -> Episodes:
    """The episodes of cartpole that end within the given actions, [T, num_envs]."""
    pool = NativePool(load_env("cartpole"), num_envs, num_threads=1, backend="interpreted")
    pool.reset(seed)
    for each in actions:
        pool.step(each)
    return pool.episodes()


def test_the_episodes_of_all_ranks_are_in_the_order_of_one_process():
    seed, actions = EpisodeSeed.of(3), np.random.default_rng(1).integers(2, size=(60, 8))
    parts = [played(seed.part(first), 2, actions[:, first : first + 2]) for first in (0, 2, 4, 6)]
    merged, alone = merged_episodes(parts, 2), played(seed, 8, actions)
    assert merged.num_ended == alone.num_ended > 10
    for name in ("returns", "lengths", "env_ids"):
        assert getattr(merged, name).tolist() == getattr(alone, name).tolist(), name


def test_a_report_arrives_as_it_was_sent():
    sent = Report(
        Episodes(3, np.array([1.5, np.nan]), np.array([4, 5]), np.array([0, 1]), np.array([0, 0]),
                 {"won": np.array([np.nan, 1.0])}, np.array([7, 8])),
        {"async/queue_depth": 2}, ["an env was restarted"], "abc",
    )  # fmt: skip
    came = Report.from_bytes(sent.to_bytes())
    assert (came.metrics, came.news, came.digest) == (sent.metrics, sent.news, sent.digest)
    assert came.episodes.num_ended == 3
    for name in ("returns", "lengths", "env_ids", "players", "ticks"):
        np.testing.assert_array_equal(getattr(came.episodes, name), getattr(sent.episodes, name))
    np.testing.assert_array_equal(came.episodes.stats["won"], sent.episodes.stats["won"])
    nothing = Report(Episodes(0, np.zeros(0), *(np.zeros(0, np.int64) for _ in range(3)), {}))
    came = Report.from_bytes(nothing.to_bytes())
    assert (came.episodes.num_ended, len(came.episodes), came.episodes.ticks) == (0, 0, None)


def test_the_last_hundred_episodes_are_not_those_of_the_last_rank():
    zeros, ticks = np.zeros(150, np.int64), np.arange(150)
    parts = [Episodes(150, np.full(150, float(rank)), zeros, zeros, zeros, {}, ticks) for rank in range(2)]
    for each in (parts, [replace(part, ticks=None) for part in parts]):  # steps known, or not
        assert Progress(1, 2).add(merged_episodes(each, 1))["return_100"] == 0.5


def test_metrics_of_collecting_add_up_or_are_averaged():
    one = {"async/queue_depth": 1, "async/policy_lag_max": 3, "async/learner_idle": 0.2}
    other = {"async/queue_depth": 4, "async/policy_lag_max": 2, "async/learner_idle": 0.4}
    expected = {"async/queue_depth": 5, "async/policy_lag_max": 3, "async/learner_idle": 0.3}
    assert merged_metrics([one, other]) == pytest.approx(expected)


def test_a_private_folder_goes_with_its_rank_and_one_that_a_killed_process_left_with_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    left, other = tmp_path / f"scramjet-rank-{ended.pid}-abc", tmp_path / "scramjet-rank-notes"
    for path in (left, other):
        path.mkdir()
    mine = PrivateRun()
    assert set(tmp_path.iterdir()) == {mine.path, other}
    mine.stands_for(tmp_path / "runs" / "cartpole-1")
    assert mine.shared_path == tmp_path / "runs" / "cartpole-1"
    another = PrivateRun()
    assert mine.path.is_dir()
    another.release()
    with mine.lock():
        (mine.path / "metrics.jsonl").write_text("{}")
    assert list(tmp_path.iterdir()) == [other]


# --- what the same command becomes when a launcher has started all ranks again


def request_after(run: Path | None, **changes: object) -> StartRequest:
    ranks = Alone()
    ranks.earlier_run = run
    config = replace(SMALL, total_timesteps=STEPS, time_limit="1h")
    return StartRequest(**{"config": config, "run_name": "a", "ranks": ranks, **changes})


def test_a_run_that_was_begun_is_resumed_one_that_is_done_is_left_alone_and_others_stay_as_they_are(tmp_path):
    for request in (
        request_after(None),  # a first attempt
        request_after(tmp_path, config=None, resume=tmp_path),
        request_after(tmp_path / "a"),  # which never came to be
    ):
        assert after_restart(request) is request
    run = train_on_ranks(1, tmp_path, replace(SMALL, total_timesteps=STEPS), run_name="a")[0].run_path
    with pytest.raises(FinishedBeforeError, match="run 'a' had finished") as caught:
        after_restart(request_after(run))
    assert caught.value.exit_code == 0
    config = run / "config.toml"
    config.write_text(config.read_text().replace(f"total_timesteps = {STEPS}", f"total_timesteps = {2 * STEPS}"))
    resumed = after_restart(request_after(run))
    assert (resumed.resume, resumed.config, resumed.run_name, resumed.time_limit) == (run, None, None, "1h")


# --- whole runs: one folder, the weights of one process, resumed and forked


MEMORY = {"policy": PolicyConfig(memory="gru", memory_size=8, hidden=(8,)), "ppo": PPOConfig(num_minibatches=2)}


class Header(QuietDisplay):
    def start(self, info):
        self.note = info.note


GYMNASIUM = {"env": "gym:CartPole-v1", "num_workers": 0}


@pytest.mark.parametrize("changes", [{}, *(pytest.param(each, marks=pytest.mark.rest) for each in (MEMORY, GYMNASIUM))])
def test_two_and_four_ranks_train_what_one_process_trains(tmp_path, changes):
    config = replace(SMALL, **changes)
    (alone,) = train_on_ranks(1, tmp_path, config)
    for size in (2, 4):
        results = train_on_ranks(size, tmp_path, config, run_name=f"by-{size}")
        assert {result.run_path for result in results} == {tmp_path / f"by-{size}"}
        lines = (timeless_lines_of(run.run_path) for run in (results[0], alone))
        for mine, theirs in zip(*lines, strict=True):
            assert list(mine) == list(theirs)
            numbers = [{key: inf if value is None else value for key, value in line.items()} for line in (mine, theirs)]
            assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=1e-5)
        for name, weights in alone.policy.state_dict().items():
            for result in results:
                torch.testing.assert_close(result.policy.state_dict()[name], weights, rtol=1e-3, atol=1e-5)
        assert all(result.evaluation == results[0].evaluation for result in results)


@pytest.mark.parametrize("changes", [{}, pytest.param(MEMORY, marks=pytest.mark.rest)])
def test_a_resumed_run_of_two_ranks_goes_on_bit_for_bit(tmp_path, changes):
    config = replace(SMALL, **changes)
    (whole, _) = train_on_ranks(2, tmp_path, config, run_name="whole")
    train_on_ranks(2, tmp_path, replace(config, total_timesteps=2 * STEPS), run_name="parts")
    request = {"like": config, "resume": tmp_path / "parts", "total_timesteps": config.total_timesteps}
    (result, _) = train_on_ranks(2, tmp_path, **request)
    assert last_checkpoint(whole.run_path) == last_checkpoint(result.run_path)
    first, second = (
        [{key: value for key, value in line.items() if "eval" not in key} for line in timeless_lines_of(run.run_path)]
        for run in (whole, result)
    )
    assert first == second  # but for evaluations: the first part ended with one over other episodes, at the same step


def test_another_number_of_ranks_is_refused_for_a_resume_and_taken_for_a_fork(tmp_path):
    (result, _) = train_on_ranks(2, tmp_path, SMALL, run_name="two")
    with pytest.raises(ConfigError, match=r"by 2 processes, and here is 1; .*--resume .*/two`.*per-node 2.*--fork"):
        resume_run(str(result.run_path), tmp_path, None, {"total_timesteps": 8 * STEPS})
    with pytest.raises(ScramjetError, match="trained by 2 processes, and here are 4"):
        train_on_ranks(4, tmp_path, resume=result.run_path, total_timesteps=8 * STEPS)
    for size in (1, 4):
        given = {"fork": result.run_path, "total_timesteps": 6 * STEPS, "run_name": f"fork-{size}"}
        header = Header()
        forked = train_on_ranks(size, tmp_path, display=header, **given)[0]
        assert forked.step == 6 * STEPS
        assert f"it was trained by 2 processes, and goes on with {size}" in header.note
        assert f"num_processes = {size}\n" in (forked.run_path / "config.toml").read_text()


def test_ranks_whose_weights_differ_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "DIGEST_EVERY", 2)

    class Tampers:
        def on_update(self, record, session):
            if record["update"] == 2:
                with torch.no_grad():
                    next(session.policy.parameters()).view(-1)[0] += 1e-6

    with pytest.raises(TrainingError, match=r"after update 3 \(step 384\) rank 1 had other weights than rank 0"):
        train_on_ranks(2, tmp_path, SMALL, callbacks=lambda: [Tampers()])


def test_ranks_with_other_settings_are_named_and_leave_nothing_behind(tmp_path):
    for other, message in [
        (replace(SMALL, ppo=replace(SMALL.ppo, gamma=0.9)), "rank 1 has gamma = 0.9, and rank 0 has 0.99"),
        (replace(SMALL, env_parameters={"gravity": 12.0}), "rank 1 has env.gravity = 12.0, and rank 0 has 9.8"),
    ]:
        with pytest.raises(ConfigError, match=message):
            train_on_ranks(2, tmp_path, lambda rank, other=other: other if rank else SMALL)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_a_callback_that_stops_the_run_stops_all_ranks_after_that_update(tmp_path):
    class Stops:
        def on_update(self, record, session):
            if record["update"] == 2:
                session.stop("enough")

    for result in train_on_ranks(2, tmp_path, SMALL, callbacks=lambda: [Stops()]):
        assert (result.step, result.stopped_by, result.stop_reason) == (2 * STEPS, "callback", "enough")


@pytest.mark.rest
def test_actors_of_two_ranks_train_together(tmp_path):
    config = replace(SMALL, mode="async", num_actors=2)
    results = train_on_ranks(2, tmp_path, config)
    weights = [result.policy.state_dict() for result in results]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert results[0].metrics["async/policy_lag_max"] <= config.max_policy_lag
