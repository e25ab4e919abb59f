"""Asynchronous runs that are resumed or forked go on where they were."""

import contextlib
import sys
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest

import scramjet
from scramjet.policies.config import PolicyConfig
from scramjet.training import start
from scramjet.training.config.run_config import CheckpointConfig
from tests.helpers.async_runs import of_case, settings, weights_of
from tests.helpers.run_files import lines_of, train

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


@pytest.mark.parametrize("case", ["a choice", "processes, memory"])
def test_a_resumed_run_goes_on_with_weights_counters_and_schedules(case, tmp_path):
    config, options = of_case(case, checkpoint=CheckpointConfig(every=1))
    config = replace(config, ppo=replace(config.ppo, learning_rate="0.001@0,0@end"))
    half = train(config, tmp_path, run_name="run", total_timesteps=8 * 16 * 3, **options)
    before = weights_of(half.run_path)
    whole = scramjet.train(
        resume=half.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 6, **options
    )
    told = lines_of(whole.run_path)
    assert [line["step"] for line in told] == [8 * 16 * (i + 1) for i in range(6)]
    assert told[3]["learning_rate"] == pytest.approx(0.0005)
    assert before["trainer.safetensors"].keys() == weights_of(whole.run_path)["trainer.safetensors"].keys()


def test_an_asynchronous_run_is_forked_into_a_synchronous_one_and_back(tmp_path):
    first = train(settings(), tmp_path, run_name="first")
    config = settings(mode="sync", num_actors=1, total_timesteps=2 * first.step)
    second = train(config, tmp_path, fork=first.run_path, run_name="second")
    third = train(settings(total_timesteps=3 * first.step), tmp_path, fork=second.run_path, run_name="third")
    assert third.step == 3 * first.step


@pytest.mark.parametrize("env", ["cartpole", "snake"])
def test_a_resumed_run_begins_with_what_its_fresh_episodes_show(env, tmp_path):
    result = train(settings(env, policy=PolicyConfig(hidden=(16,))), tmp_path, run_name="run")
    session = start.resume_run(str(result.run_path), tmp_path, None, {"total_timesteps": 2 * result.step})
    with session.run, contextlib.closing(session):
        shown = session.pool.shown.obs.copy()
        rollout = session.collector.collect()
        order = [trajectory.actor for trajectory in session.collector._taken]
        first = order[0]  # what was done first; the other's may come later
        mine, its = rollout.obs[0].chunk(2)[0].numpy(), np.split(shown, 2)[first]
        np.testing.assert_array_equal(mine, its)
    assert "fresh episodes" in session.note
