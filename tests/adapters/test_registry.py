"""Worlds of other libraries by name: pools, presets and fingerprints, and one message for names that mean nothing."""

import contextlib
import sys
import time

import cloudpickle
import pytest

import scramjet
from scramjet import cli
from scramjet.adapters.factories import register_factory
from scramjet.adapters.gymnasium import fastest_pool
from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from scramjet.adapters.library import WorkerSettings
from scramjet.adapters.registry import ForeignWorld, canonical_name, is_foreign, load_world
from scramjet.errors import ConfigError, WorldError
from scramjet.runtime.machine.cores import available_cores
from scramjet.training.config.files import preset_path, starting_config
from scramjet.training.config.resolution import env_device_beside
from scramjet.training.config.run_config import RunConfig
from tests.helpers.staircase import Staircase

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


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
    assert env_device_beside(RunConfig(env="gym:CartPole-v1"), "cuda") == "cpu"
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


@pytest.mark.parametrize("name", ["gym::CartPole-v1", "gym:.x:CartPole-v1", "factory:.:f"])
def test_odd_names_are_refused(name):
    with pytest.raises(WorldError, match="cannot import"):
        load_world(name, {}).observation_space  # noqa: B018
