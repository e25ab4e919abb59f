"""Envs of other libraries, trained as they are through the same loop and command."""

import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import scramjet
from scramjet import cli
from scramjet.adapters import factories
from scramjet.adapters.registration_call import registration
from scramjet.errors import ConfigError, ScramjetError
from scramjet.policies import PolicyConfig
from scramjet.training.config.run_config import EvaluationConfig
from tests.helpers.run_files import lines_of, train
from tests.helpers.staircase import Staircase, settings

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


@pytest.mark.parametrize(
    ("env", "changes", "words"),
    [
        ("gym:CartPole-v1", {"num_workers": 9}, "num_workers=9 but num_envs=4; use at most one worker an env"),
        ("gym:CartPole-v1", {"num_workers": 2, "mode": "async"}, "each actor is a process; use --num-actors 2"),
        ("cartpole", {"num_workers": 2}, "processes of Gymnasium envs, and cartpole has none; leave it out"),
        ("gym:CartPole-v1", {"num_workers": 0, "env_timeout": 5}, "num_workers=0 .* env_timeout=5 is for worker"),
        ("gym:CartPole-v1", {"num_workers": 0, "on_env_error": "restart"}, "on_env_error='restart' is for worker"),
        (f"factory:{__name__}:make_staircases", {"num_workers": 2}, "num_workers=2, and .* makes many envs"),
    ],
)
def test_worker_processes_that_would_do_nothing_are_refused(env, changes, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        train(settings(env, **changes), tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_gymnasium_env_by_id_resumes_bit_for_bit(tmp_path, num_workers):
    config = settings("gym:CartPole-v1", num_workers=num_workers)
    whole = train(config, tmp_path, run_name="whole")
    train(config, tmp_path, run_name="parts", total_timesteps=256)
    resumed = scramjet.train(
        resume=tmp_path / "parts", runs_dir=tmp_path, display="quiet", total_timesteps=config.total_timesteps
    )
    ends = [load_file(next(run.run_path.glob("checkpoints/step_*512/model.safetensors"))) for run in (whole, resumed)]
    for name, weight in ends[0].items():
        np.testing.assert_array_equal(weight, ends[1][name], err_msg=name)
    for mine, other in zip(lines_of(whole.run_path), lines_of(resumed.run_path), strict=True):
        changing = ("time", "learning_rate")
        assert {k: v for k, v in mine.items() if k not in changing} == {
            k: v for k, v in other.items() if k not in changing
        }


def test_a_function_in_a_function_is_given_again_from_python(tmp_path, capsys):
    config = settings("cartpole", eval=EvaluationConfig(every=0, final_episodes=2))

    def make():
        return Staircase()

    result = scramjet.train(config, runs_dir=tmp_path, env=make, display="plain")
    assert f"scramjet.evaluate('{result.run_path}', env=...)" in capsys.readouterr().out
    factories._FACTORIES.clear()
    assert scramjet.evaluate(result.run_path, episodes=2, env=make).episodes == 2
    tall = scramjet.evaluate(result.run_path, episodes=2, env=lambda: Staircase(height=100))
    assert tall.mean_length == 20  # it is the one that was given that is played


def test_workers_and_one_process_train_the_same(tmp_path):
    results = [train(settings("gym:CartPole-v1", num_workers=n), tmp_path) for n in (0, 1, 3)]
    for other in results[1:]:
        for mine, theirs in zip(results[0].policy.parameters(), other.policy.parameters(), strict=True):
            assert mine.equal(theirs)


def test_a_factory_from_python_trains_with_its_own_numbers(tmp_path):
    result = train(settings("cartpole"), tmp_path, env=lambda: Staircase(height=5))
    assert lines_of(result.run_path)[-1]["stat/climbed"] > 0
    assert "stat/text" not in lines_of(result.run_path)[-1]
    factories._FACTORIES.clear()
    with pytest.raises(ScramjetError, match="must be given again from Python"):
        scramjet.train(resume=result.run_path, display="quiet", total_timesteps=1024)


def make_low_stairs():
    return Staircase(height=3)


def test_a_run_of_a_factory_resumes_when_it_is_given_again(tmp_path):
    result = train(settings("cartpole"), tmp_path, env=make_low_stairs)
    factories._FACTORIES.clear()
    resumed = scramjet.train(
        resume=result.run_path, env=make_low_stairs, display="quiet", runs_dir=tmp_path, total_timesteps=1024
    )
    assert resumed.step == 1024


def test_a_factory_in_a_file_is_found_by_name_and_takes_parameters(tmp_path, capsys):
    (tmp_path / "stairs.py").write_text(
        "from gymnasium.wrappers import TimeLimit\nimport gymnasium\n"
        "def make_env(limit=100):\n    return TimeLimit(gymnasium.make('MountainCar-v0').unwrapped, limit)\n"
    )
    flags = ["--total-timesteps", "256", "--num-envs", "2", "--num-steps", "64", "--eval.final-episodes", "0"]
    name = f"factory:{tmp_path}/stairs.py:make_env"
    words = ["train", name, "--env.limit", "50", *flags, "--runs-dir", str(tmp_path / "runs"), "--display", "quiet"]
    assert cli.run(words) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name == "stairs-1"
    assert lines_of(run)[-1]["length_mean"] == 50


def make_staircases(num_envs, height=8):
    return gymnasium.vector.SyncVectorEnv([lambda: Staircase(height)] * num_envs)


def test_vector_envs_by_id_and_by_factory_train_as_single_ones_do(tmp_path):
    assert train(settings("vec:CartPole-v1"), tmp_path).step == 512
    by_factory = [train(settings("cartpole"), tmp_path, env=factory) for factory in (make_staircases, Staircase)]
    assert lines_of(by_factory[0].run_path)[-1]["stat/climbed"] > 0
    for mine, other in zip(*(run.policy.parameters() for run in by_factory), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def test_frame_stacks_go_over_envs_of_others(tmp_path):
    result = train(settings("gym:CartPole-v1", num_workers=0, frame_stack=3), tmp_path)
    assert result.policy.network.actor[0].in_features == 12


def test_memory_goes_over_envs_of_others(tmp_path):
    policy = PolicyConfig(memory="gru", memory_size=8)
    result = train(settings("gym:CartPole-v1", num_workers=2, policy=policy), tmp_path)
    assert result.step == 512


@pytest.mark.parametrize(
    ("package", "env", "changes"),
    [
        ("ale_py", "ale:Pong", {"num_envs": 2, "num_steps": 8, "total_timesteps": 16}),
        ("mujoco", "mujoco:InvertedPendulum-v5", {}),
        ("envpool", "envpool:CartPole-v1", {}),
        ("pettingzoo", "pettingzoo:rps_v2", {"num_envs": 2}),
    ],
)
def test_each_library_trains_and_evaluates(tmp_path, package, env, changes):
    pytest.importorskip(package, reason=f"{package} is an extra")
    if package == "pettingzoo":
        pytest.importorskip("pygame", reason="games of PettingZoo draw with pygame")
    result = train(settings(env, **changes), tmp_path)
    assert result.step >= changes.get("total_timesteps", 512)
    if package != "ale_py":  # a game of Pong takes a while
        assert scramjet.evaluate(result.run_path, episodes=2).episodes >= 2


@pytest.mark.parametrize(
    ("env", "frame_stack", "sign"), [("gym:FrozenLake-v1", 1, "HFFG"), ("gym:CartPole-v1", 2, "▀")]
)
def test_eval_with_render_draws_a_gymnasium_env_as_text(tmp_path, capsys, env, frame_stack, sign):
    pytest.importorskip("pygame", reason="Gymnasium draws with it")
    result = train(settings(env, frame_stack=frame_stack), tmp_path)
    with pytest.raises(SystemExit) as ending:
        cli.main(["eval", str(result.run_path), "--render"])
    shown = capsys.readouterr().out
    assert ending.value.code == 0
    assert sign in shown
    assert "(end)" in shown


def test_a_script_that_trains_is_read_for_its_function_without_training_again(tmp_path, monkeypatch, capsys):
    script = tmp_path / "my_script.py"
    script.write_text(
        "import gymnasium\nimport scramjet\nfrom scramjet import RunConfig\n\n"
        "def make_env():\n    return gymnasium.make('CartPole-v1')\n\n"
        "scramjet.train(RunConfig(total_timesteps=10**9), env=make_env)\n"
    )
    words = ["train", f"factory:{script}:make_env", "--num-envs", "4", "--num-steps", "16", "--total-timesteps", "128"]
    monkeypatch.chdir(tmp_path)
    assert cli.run([*words, "--runs-dir", str(tmp_path / "runs"), "--eval.final-episodes", "2"]) == 0
    assert cli.run(["eval", str(tmp_path / "runs" / "my_script-1"), "--episodes", "2"]) == 0
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == ["my_script-1"]


def test_minigrid_is_imported_by_the_beginning_of_its_ids(tmp_path):
    pytest.importorskip("minigrid")
    result = train(settings("gym:MiniGrid-Empty-5x5-v0", total_timesteps=128, num_workers=0), tmp_path)
    env = gymnasium.make("MiniGrid-Empty-5x5-v0")
    action, _ = scramjet.load_policy(result.run_path).predict(env.reset(seed=1)[0])
    assert env.action_space.contains(action)
    assert registration("gym:MiniGrid-Empty-5x5-v0") is None  # a shell finds it too
