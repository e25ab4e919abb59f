"""Envs of other libraries and of users, awkward ones too, trained as they are through the same loop and command."""

import os
import sys
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch

import scramjet
from scramjet import cli
from scramjet.adapters import factories
from scramjet.adapters.registry import registration
from scramjet.errors import ConfigError, ScramjetError, WorldError
from scramjet.policies import PolicyConfig
from scramjet.training.config.run_config import EvaluationConfig
from tests.helpers.run_files import lines_of, train
from tests.helpers.staircase import Staircase, settings

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


def test_worker_processes_that_would_do_nothing_are_refused(tmp_path):
    for env, changes, words in [
        ("gym:CartPole-v1", {"num_workers": 9}, "num_workers=9 but num_envs=4; use at most one worker an env"),
        ("gym:CartPole-v1", {"num_workers": 2, "mode": "async"}, "each actor is a process; use --num-actors 2"),
        ("cartpole", {"num_workers": 2}, "processes of Gymnasium envs, and cartpole has none; leave it out"),
        ("gym:CartPole-v1", {"num_workers": 0, "env_timeout": 5}, "num_workers=0 .* env_timeout=5 is for worker"),
        ("gym:CartPole-v1", {"num_workers": 0, "on_env_error": "restart"}, "on_env_error='restart' is for worker"),
        (f"factory:{__name__}:make_staircases", {"num_workers": 2}, "num_workers=2, and .* makes many envs"),
    ]:
        with pytest.raises(ConfigError, match=words):
            train(settings(env, **changes), tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.rest
def test_workers_and_one_process_train_the_same(tmp_path):
    one, *others = (train(settings("gym:CartPole-v1", num_workers=n), tmp_path) for n in (0, 1, 3))
    for other in others:
        for mine, theirs in zip(one.policy.parameters(), other.policy.parameters(), strict=True):
            assert mine.equal(theirs)


def test_a_factory_of_python_trains_with_its_own_numbers_and_is_given_again_to_go_on(tmp_path, capsys):
    config = settings("cartpole", num_workers=0, eval=EvaluationConfig(every=0, final_episodes=2))

    def make(height=8):
        return Staircase(height)

    run = scramjet.train(config, runs_dir=tmp_path, env=make, display="plain").run_path
    assert f"scramjet.evaluate('{run}', env=make)" in capsys.readouterr().out
    last = lines_of(run)[-1]
    assert last["stat/climbed"] > 0
    assert "stat/text" not in last
    factories._FACTORIES.clear()
    with pytest.raises(ScramjetError, match=r"was defined in a program, .*env=make"):
        scramjet.train(resume=run, display="quiet", total_timesteps=1024)
    assert scramjet.train(resume=run, env=make, display="quiet", total_timesteps=1024).step == 1024
    assert scramjet.evaluate(run, episodes=2, env=make).episodes == 2
    tall = scramjet.evaluate(run, episodes=2, env=lambda: Staircase(height=100))
    assert tall.mean_length == 20  # it is the one that was given that is played


def test_a_factory_in_a_file_is_found_by_name_with_parameters_and_a_script_does_not_train_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stairs.py").write_text(
        "import gymnasium\nimport scramjet\nfrom gymnasium.wrappers import TimeLimit\n\n"
        "def make_env(limit=100):\n    return TimeLimit(gymnasium.make('MountainCar-v0').unwrapped, limit)\n\n"
        "scramjet.train(scramjet.RunConfig(total_timesteps=10**9), env=make_env)\n"
    )
    flags = ["--total-timesteps", "256", "--num-envs", "2", "--num-steps", "64", "--num-workers", "0"]
    flags += ["--eval.final-episodes", "0", "--display", "quiet"]
    assert cli.run(["train", f"factory:{tmp_path}/stairs.py:make_env", "--env.limit", "50", *flags]) == 0
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert run.name == "stairs-1"
    assert lines_of(run)[-1]["length_mean"] == 50
    assert cli.run(["eval", str(run), "--episodes", "2"]) == 0


def make_staircases(num_envs, height=8):
    return gymnasium.vector.SyncVectorEnv([lambda: Staircase(height)] * num_envs)


def test_vector_envs_by_id_and_by_factory_train_as_single_ones_do(tmp_path):
    assert train(settings("vec:CartPole-v1"), tmp_path).step == 512
    many = train(settings("cartpole"), tmp_path, env=make_staircases)
    single = train(settings("cartpole", num_workers=0), tmp_path, env=Staircase)
    assert lines_of(many.run_path)[-1]["stat/climbed"] > 0
    for mine, other in zip(many.policy.parameters(), single.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def test_frame_stacks_and_memory_go_over_envs_of_others(tmp_path):
    result = train(settings("gym:CartPole-v1", num_workers=0, frame_stack=3), tmp_path)
    assert result.policy.network.actor[0].in_features == 12
    memory = PolicyConfig(memory="gru", memory_size=8)
    assert train(settings("gym:CartPole-v1", num_workers=2, policy=memory), tmp_path).step == 512


@pytest.mark.rest
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


@pytest.mark.rest
@pytest.mark.parametrize(("env", "frames", "sign"), [("gym:FrozenLake-v1", 1, "HFFG"), ("gym:CartPole-v1", 2, "█")])
def test_eval_with_render_draws_a_gymnasium_env_as_text(tmp_path, capsys, env, frames, sign):
    pytest.importorskip("pygame", reason="Gymnasium draws with it")
    run = train(settings(env, frame_stack=frames), tmp_path).run_path
    assert cli.run(["eval", str(run), "--render"]) == 0
    shown = capsys.readouterr().out
    assert sign in shown
    assert "(end)" in shown


@pytest.mark.rest
def test_minigrid_is_imported_by_the_beginning_of_its_ids(tmp_path):
    pytest.importorskip("minigrid")
    result = train(settings("gym:MiniGrid-Empty-5x5-v0", total_timesteps=128, num_workers=0), tmp_path)
    env = gymnasium.make("MiniGrid-Empty-5x5-v0")
    action, _ = scramjet.load_policy(result.run_path).predict(env.reset(seed=1)[0])
    assert env.action_space.contains(action)
    assert registration("gym:MiniGrid-Empty-5x5-v0") is None  # a shell finds it too


# --- envs that exit, do not close, change the working directory, draw or talk


class Departing(Staircase):
    """Ends its process as a script would, or fails, wherever it is told to."""

    def __init__(self, where="", how=SystemExit):
        super().__init__()
        self.where, self.how = where, how
        self.leave("made")

    def leave(self, where):
        if self.where == where:
            raise self.how(0)

    def reset(self, *, seed=None, options=None):
        self.leave("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self.at == 2:
            self.leave("step")
        return super().step(action)

    def close(self):
        self.leave("close")


@pytest.mark.parametrize("num_workers", [0, pytest.param("auto", marks=pytest.mark.rest)])
def test_an_env_that_leaves_is_an_error_and_not_the_end_and_one_that_does_not_close_trains(num_workers, tmp_path):
    config = settings("cartpole", num_workers=num_workers)
    for where in ("made", "reset", "step"):
        with pytest.raises(WorldError, match="SystemExit"):
            train(config, tmp_path, env=lambda where=where: Departing(where))
    for how in (SystemExit, ValueError):
        assert train(config, tmp_path, env=lambda how=how: Departing("close", how)).step == 512


def test_an_env_that_changes_the_working_directory_does_not_take_the_run_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    class Wandering(Staircase):
        def __init__(self):
            super().__init__()
            os.chdir(tmp_path / "elsewhere")

    run = train(settings("cartpole", num_workers=0), Path("here"), env=Wandering).run_path
    assert run.parent == tmp_path / "here"
    assert (tmp_path / "here" / run.name / "metrics.jsonl").exists()
    assert list((tmp_path / "here" / run.name / "checkpoints").glob("step_*"))
    assert not list((tmp_path / "elsewhere").iterdir())


class Told(Staircase):
    """Says in words what to do, which no policy reads, and strange things in its info; would draw every step."""

    render_mode = "human"
    observation_space = gymnasium.spaces.Dict(
        {"view": gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8), "mission": gymnasium.spaces.Text(40)}
    )

    def _seen(self):
        return {"view": np.full((7, 7, 3), self.at, np.uint8), "mission": "climb"}

    def reset(self, *, seed=None, options=None):
        return self._seen(), super().reset(seed=seed)[1]

    def step(self, action):
        _, *result, _ = super().step(action)
        return self._seen(), *result, {3: 2, "huge": 10**400, "flat": np.array(2.5), "odd": 1j, "fine": np.int8(4)}


def test_what_no_policy_reads_is_left_out_and_told_and_small_images_get_the_network_of_boards(tmp_path, capsys):
    judged = EvaluationConfig(every=1, episodes=1, final_episodes=1)
    config = settings("cartpole", num_workers=0, policy=PolicyConfig(hidden=(8,)), eval=judged)
    result = scramjet.train(config, env=Told, runs_dir=tmp_path, display="plain")
    said = capsys.readouterr().out
    assert "mission: text, which the policy does not see" in said
    assert said.count("has render_mode='human' and draws every step in a window") == 1
    assert [type(each).__name__ for each in result.policy.network.actor_encoder.entries.values()] == ["GridCNN"]
    stats = {name: line[name] for line in lines_of(result.run_path) for name in line if name.startswith("stat/")}
    assert stats == {"stat/flat": 2.5, "stat/fine": 4.0}
