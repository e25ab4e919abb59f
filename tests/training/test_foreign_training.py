"""Envs of other libraries, trained as they are through the same loop and command."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import scramjet
from scramjet import cli
from scramjet.accelerate.numba.executor import native_play
from scramjet.adapters import factories
from scramjet.adapters.factories import register_factory
from scramjet.adapters.gymnasium import fastest_pool
from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from scramjet.adapters.library import WorkerSettings
from scramjet.adapters.registration_call import registration
from scramjet.adapters.registry import ForeignWorld, canonical_name, is_foreign, load_world
from scramjet.errors import ConfigError, ScramjetError, WorldError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.runtime.machine.cores import available_cores
from scramjet.training.config.files import preset_path, starting_config
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.rollout.rollout import allocate_rollout, collect
from scramjet.training.session import make_pool

NO_EVALUATION = EvaluationConfig(every=0, final_episodes=0)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


class Staircase(gymnasium.Env):
    """Action 1 climbs a step and pays; a user's own env, with a number of its own."""

    observation_space = gymnasium.spaces.Box(0, 8, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def __init__(self, height=8):
        self.height, self.at = height, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = 0, 0
        return np.array([0.0]), {}

    def step(self, action):
        assert action in (3, 4)
        self.at, self.steps = self.at + int(action == 4), self.steps + 1
        info = {"climbed": self.at, "text": "no number"}
        return np.array([float(self.at)]), float(action == 4), self.at >= self.height, self.steps >= 20, info


def settings(env, **changes):
    given = {"num_envs": 4, "num_steps": 32, "total_timesteps": 512, "eval": NO_EVALUATION, "device": "cpu"}
    return RunConfig(env=env, **{**given, **changes})


def train(config, tmp_path, **options):
    return scramjet.train(config, runs_dir=tmp_path, display="quiet", **options)


def lines_of(run_path):
    return [json.loads(line) for line in (run_path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("env", "changes", "words"),
    [
        ("gym:CartPole-v1", {"num_workers": 9}, "num_workers=9 but num_envs=4; use at most one worker an env"),
        ("gym:CartPole-v1", {"num_workers": 2, "mode": "async"}, "each actor is a process; use --num-actors 2"),
        ("cartpole", {"num_workers": 2}, "processes of Gymnasium envs, and cartpole has none; leave it out"),
        ("gym:CartPole-v1", {"num_workers": 0, "env_timeout": 5}, "num_workers=0 .* env_timeout=5 is for worker"),
        ("gym:CartPole-v1", {"num_workers": 0, "on_env_error": "restart"}, "on_env_error='restart' is for worker"),
        ("factory:test_foreign_training:make_staircases", {"num_workers": 2}, "num_workers=2, and .* makes many envs"),
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


class Slow(Staircase):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


def test_no_env_is_made_for_the_spaces_of_a_world_that_has_a_pool():
    made = []

    class Counted(Staircase):
        def __init__(self):
            super().__init__()
            made.append(self)

    world = ForeignWorld(register_factory(Counted))
    with contextlib.closing(world.pool(2, workers=WorkerSettings(num_workers=0))) as pool:
        count = len(made)
        assert (world.observation_space, world.action_space) == (pool.observation_space, pool.action_space)
        assert len(made) == count


def test_auto_has_processes_only_where_they_pay_or_are_asked_for(monkeypatch):
    monkeypatch.setattr(fastest_pool, "available_cores", lambda: 2)
    quick, slow = (ForeignWorld(register_factory(make)) for make in (Staircase, Slow))
    found = []
    for world, num_envs, workers in (
        (quick, 4, WorkerSettings()),
        (quick, 128, WorkerSettings()),
        (slow, 4, WorkerSettings()),
        (quick, 4, WorkerSettings(on_error="restart")),
        (quick, 4, WorkerSettings(timeout=5.0)),
        (quick, 4, WorkerSettings(num_workers=2)),
    ):
        pool = world.pool(num_envs, workers=workers)
        found.append(len(pool.worker_pids) if isinstance(pool, WorkerPool) else 0)
        pool.close()
    assert found == [0, 1, *[min(4, available_cores())] * 3, 2]


class Departing(Staircase):
    """Ends its process, or tries to, wherever it is told to."""

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
        self.leave("step")
        return super().step(action)

    def close(self):
        self.leave("close")


@pytest.mark.parametrize("where", ["made", "reset", "step"])
def test_an_env_that_leaves_does_not_end_the_run_as_if_it_were_done(where, tmp_path):
    with pytest.raises(WorldError, match="SystemExit"):
        train(settings("cartpole"), tmp_path, env=lambda: Departing(where))


@pytest.mark.parametrize("how", [SystemExit, ValueError])
def test_an_env_that_does_not_close_trains(how, tmp_path):
    assert train(settings("cartpole"), tmp_path, env=lambda: Departing("close", how)).step == 512


def test_an_env_that_changes_the_working_directory_does_not_take_the_run_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    class Wandering(Staircase):
        def __init__(self):
            super().__init__()
            os.chdir(tmp_path / "elsewhere")

    result = train(settings("cartpole", num_workers=0), Path("here"), env=Wandering)
    assert result.run_path.parent == tmp_path / "here"
    assert (tmp_path / "here" / result.run_path.name / "metrics.jsonl").exists()
    assert list((tmp_path / "here" / result.run_path.name / "checkpoints").glob("step_*"))
    assert not list((tmp_path / "elsewhere").iterdir())


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


REFUSED = {
    "gym:CartPol-v1": "Did you mean 'CartPole-v1'",
    "gym:": "names no world",
    "gym:no_such_module:Thing-v0": "cannot import 'no_such_module'",
    "factory:thing": "must be factory:MODULE:FUNCTION",
    "factory:json:no_such": "has no function 'no_such'",
    "factory:nowhere.py:make": "no such file",
}


@pytest.mark.parametrize("env", REFUSED)
def test_a_name_that_means_nothing_is_one_message_and_exit_code_2(env, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["scramjet", "train", env, "--runs-dir", str(tmp_path / "runs")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert REFUSED[env] in errors
    assert "Traceback" not in errors


def test_parameters_that_an_env_does_not_take_are_named(tmp_path):
    with pytest.raises(WorldError, match=r"cannot be made with \{'gravity_': 3\}"):
        load_world("gym:CartPole-v1", {"gravity_": 3}).observation_space  # noqa: B018


def test_whatever_a_factory_raises_is_one_message():
    def broken():
        raise ImportError("no such simulator")

    with pytest.raises(WorldError, match="cannot be made: ImportError: no such simulator"):
        load_world(register_factory(broken), {}).observation_space  # noqa: B018


def test_pools_of_others_are_made_by_name():
    pool = scramjet.make("gym:CartPole-v1", num_envs=3, frame_stack=2)
    assert pool.reset(0).obs.shape == (3, 8)
    pool.close()
    with pytest.raises(ConfigError, match="backend='cuda' is for native worlds"):
        scramjet.make("gym:CartPole-v1", num_envs=3, backend="cuda")


def test_envs_of_others_stay_on_the_cpu():
    assert RunConfig(env="gym:CartPole-v1").env_device_beside("cuda") == "cpu"
    with pytest.raises(ConfigError, match="env_device='cuda' is for native worlds"):
        RunConfig(env="gym:CartPole-v1", device="cuda", env_device="cuda")


def test_names():
    assert is_foreign("gym:CartPole-v1")
    assert not is_foreign("cartpole")
    assert not is_foreign("my_package.worlds:Corridor")
    assert canonical_name("gym:CartPole-v1") == "gym:CartPole-v1"
    assert register_factory(Staircase).endswith(":Staircase")
    with pytest.raises(ConfigError, match="must be a name or a function"):
        register_factory(3)


def test_presets_are_found_by_library_and_id():
    assert preset_path("mujoco:HalfCheetah-v5").name == "mujoco_halfcheetah.toml"
    assert starting_config("mujoco:Hopper-v5").ppo.normalize_observations
    assert preset_path("gym:CartPole-v1") is None
    assert preset_path("ale:Pong").name == "atari.toml"
    assert starting_config("ale:Breakout").policy.encoder == "nature_cnn"


def test_fingerprints_tell_worlds_apart():
    worlds = [ForeignWorld("gym:CartPole-v1"), ForeignWorld("gym:CartPole-v1", {"x": 1}), ForeignWorld("gym:Other-v0")]
    assert len({world.fingerprint() for world in worlds}) == 3


@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("fused", [True, False])
def test_deciding_by_halves_gives_what_deciding_at_once_gives(memory, fused):
    """Up to the rounding of products of fewer rows."""
    rollouts = []
    for in_halves in (True, False):
        config = settings("gym:CartPole-v1", num_workers=0, num_envs=5)
        pool = make_pool(config, num_envs=5, learns=True)
        policy_config = PolicyConfig(memory=memory, memory_size=8)
        spaces = pool.observation_space, pool.action_space
        torch.manual_seed(3)
        policy = Policy(default_network(*spaces, policy_config), *spaces, policy_config)
        rollout = allocate_rollout(pool, policy, 64)
        assert [len(half.action[0]) for half in rollout.halves] == [2, 3]
        if not in_halves:
            rollout.halves = []
        for part in (rollout, *rollout.halves) if fused else ():
            part.native = native_play(policy, part)
        pool.reset(0, out=rollout.rows[-1])
        generator = torch.Generator().manual_seed(0)
        for _ in range(2):
            collect(pool, policy, rollout, generator)
        rollouts.append(rollout)
    for name in ("obs", "action", "reward", "log_prob", "value", "terminated", "truncated", "final_value", "states"):
        mine, other = (getattr(rollout, name) for rollout in rollouts)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(rollouts[0].memories.states, rollouts[1].memories.states, rtol=1e-4, atol=1e-5)


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


class Leaving(Staircase):
    """Ends the process in the middle of an episode, as a script would."""

    def step(self, action):
        if self.at == 2:
            raise SystemExit(0)
        return super().step(action)


def test_an_env_that_leaves_is_an_error_and_not_the_end(tmp_path):
    with pytest.raises(WorldError, match="SystemExit"):
        train(settings("cartpole", num_workers=0), tmp_path, env=Leaving)


class Chatty(Staircase):
    """Says strange things in its info."""

    def step(self, action):
        *result, _ = super().step(action)
        return *result, {3: 2, "huge": 10**400, "flat": np.array(2.5), "odd": 1j, "fine": np.int8(4)}


def test_what_is_no_number_in_info_is_left_out(tmp_path):
    told = lines_of(train(settings("cartpole", num_workers=0), tmp_path, env=Chatty).run_path)
    stats = {name: line[name] for line in told for name in line if name.startswith("stat/")}
    assert stats == {"stat/flat": 2.5, "stat/fine": 4.0}


@pytest.mark.parametrize("name", ["gym::CartPole-v1", "gym:.x:CartPole-v1", "factory:.:f"])
def test_odd_names_are_refused(name):
    with pytest.raises(WorldError, match="cannot import"):
        load_world(name, {}).observation_space  # noqa: B018


def test_an_env_that_draws_every_step_is_trained_with_one_warning(tmp_path, capsys):
    class Drawn(Staircase):
        render_mode = "human"

    config = settings("cartpole", num_workers=0, eval=EvaluationConfig(every=1, episodes=1, final_episodes=1))
    scramjet.train(config, env=Drawn, runs_dir=tmp_path, display="plain")
    assert capsys.readouterr().out.count("has render_mode='human' and draws every step in a window") == 1


class Told(Staircase):
    """Says in words what to do, which no policy reads."""

    observation_space = gymnasium.spaces.Dict(
        {"view": gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8), "mission": gymnasium.spaces.Text(40)}
    )

    def _seen(self):
        return {"view": np.full((7, 7, 3), self.at, np.uint8), "mission": "climb"}

    def reset(self, *, seed=None, options=None):
        return self._seen(), super().reset(seed=seed)[1]

    def step(self, action):
        return self._seen(), *super().step(action)[1:]


def test_text_in_observations_is_left_out_and_told_and_small_images_get_the_network_of_boards(tmp_path, capsys):
    config = settings("cartpole", total_timesteps=128, num_workers=0, policy=PolicyConfig(hidden=(8,)))
    result = scramjet.train(config, env=Told, runs_dir=tmp_path, display="plain")
    assert "mission: text, which the policy does not see" in capsys.readouterr().out
    assert [type(each).__name__ for each in result.policy.network.actor_encoder.entries.values()] == ["GridCNN"]


def test_minigrid_is_imported_by_the_beginning_of_its_ids(tmp_path):
    pytest.importorskip("minigrid")
    result = train(settings("gym:MiniGrid-Empty-5x5-v0", total_timesteps=128, num_workers=0), tmp_path)
    env = gymnasium.make("MiniGrid-Empty-5x5-v0")
    action, _ = scramjet.load_policy(result.run_path).predict(env.reset(seed=1)[0])
    assert env.action_space.contains(action)
    assert registration("gym:MiniGrid-Empty-5x5-v0") is None  # a shell finds it too
