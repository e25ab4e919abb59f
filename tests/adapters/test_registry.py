"""Worlds of other libraries by name: pools, presets and parameters, and one message for names that mean nothing."""

import contextlib
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

import scramjet
from scramjet.adapters.factories import register_factory
from scramjet.adapters.gymnasium import worker_pool
from scramjet.adapters.library import PoolRequest, WorkerSettings
from scramjet.adapters.registry import ForeignWorld, canonical_name, is_foreign, load_world, world_parameters
from scramjet.adapters.world_parameters import NEEDED, WorldParameter
from scramjet.commands.arguments.env_parameters import parameter_help
from scramjet.errors import ConfigError, WorldError
from scramjet.training.config.files import preset_path, starting_config
from scramjet.training.config.resolution import env_device_beside
from scramjet.training.config.run_config import RunConfig
from tests.helpers.command_calls import refusal
from tests.helpers.staircase import Staircase


def test_no_env_is_made_for_the_spaces_of_a_world_that_has_a_pool():
    made = []

    class Counted(Staircase):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    world = ForeignWorld(register_factory(Counted))
    with contextlib.closing(world.pool(2, workers=WorkerSettings(num_workers=0))) as pool:
        count = len(made)
        assert (world.observation_space, world.action_space) == (pool.observation_space, pool.action_space)
        assert len(made) == count


def test_auto_has_processes_only_where_they_pay_or_are_asked_for(monkeypatch):
    monkeypatch.setattr(worker_pool, "available_cores", lambda: 2)
    monkeypatch.setattr(worker_pool, "SerialPool", lambda *_: (0, False))
    monkeypatch.setattr(worker_pool, "WorkerPool", lambda *_, num_workers, takes_part, **__: (num_workers, takes_part))

    def chosen(seconds: float, num_envs: int, **workers: Any) -> Any:
        """(workers, whether this process steps a share too) for envs whose step takes so long."""
        world: Any = SimpleNamespace(name="World", trial=SimpleNamespace(seconds=seconds, can_be_sent=True))
        return worker_pool.fastest_pool(world, Staircase, PoolRequest(num_envs, True, WorkerSettings(**workers)))

    assert chosen(5e-6, 4) == chosen(5e-6, 20) == (0, False)
    assert chosen(5e-6, 128) == (2, True), "all together they are worth another process"
    assert chosen(2e-3, 4) == (None, False), "one for each core"
    for asked in ({"on_error": "restart"}, {"timeout": 5.0}):
        assert chosen(5e-6, 4, **asked) == (None, False), asked
    assert chosen(5e-6, 4, num_workers=2) == (2, False)
    assert chosen(5e-6, 4, num_workers=0) == (0, False)


def test_names_that_mean_nothing_and_parameters_that_an_env_does_not_take_are_one_message(capsys, tmp_path):
    for env, message in {
        "gym:CartPol-v1": "Did you mean 'CartPole-v1'",
        "gym:": "names no world",
        "gym:no_such_module:Thing-v0": "cannot import 'no_such_module'",
        "factory:thing": "must be factory:MODULE:FUNCTION",
        "factory:json:no_such": "has no function 'no_such'",
        "factory:nowhere.py:make": "no such file",
    }.items():
        assert message in refusal(capsys, "train", env, "--runs-dir", tmp_path / "runs"), env

    def broken() -> Any:
        raise ImportError("no such simulator")

    for name, parameters, message in (
        ("gym:CartPole-v1", {"gravity_": 3}, r"cannot be made with \{'gravity_': 3\}"),
        (register_factory(broken), {}, "cannot be made: ImportError: no such simulator"),
        ("gym::CartPole-v1", {}, "cannot import"),
        ("gym:.x:CartPole-v1", {}, "cannot import"),
        ("factory:.:f", {}, "cannot import"),
    ):
        with pytest.raises(WorldError, match=message):
            load_world(name, parameters).observation_space  # noqa: B018


def test_pools_of_others_are_made_by_name_and_stay_on_the_cpu():
    pool = scramjet.make("gym:CartPole-v1", num_envs=3, frame_stack=2)
    assert pool.reset(0).obs.shape == (3, 8)
    pool.close()
    with pytest.raises(ConfigError, match="backend='cuda' is for native worlds"):
        scramjet.make("gym:CartPole-v1", num_envs=3, backend="cuda")
    assert env_device_beside(RunConfig(env="gym:CartPole-v1"), "cuda") == "cpu"
    with pytest.raises(ConfigError, match="env_device='cuda' is for native worlds"):
        RunConfig(env="gym:CartPole-v1", device="cuda", env_device="cuda")


def test_names_presets_and_fingerprints():
    names = {"gym:CartPole-v1": True, "cartpole": False, "my_package.worlds:Corridor": False}
    assert {name: is_foreign(name) for name in names} == names
    assert canonical_name("gym:CartPole-v1") == "gym:CartPole-v1"
    assert register_factory(Staircase).endswith(":Staircase")
    with pytest.raises(ConfigError, match="a class, or a function that makes an env"):
        register_factory(3)
    presets = {"mujoco:HalfCheetah-v5": "mujoco_halfcheetah.toml", "ale:Pong": "atari.toml"}
    for world, preset in presets.items():
        assert preset_path(world).name == preset
    assert preset_path("gym:CartPole-v1") is None
    assert starting_config("mujoco:Hopper-v5").ppo.normalize_observations
    assert starting_config("ale:Breakout").policy.encoder == "nature_cnn"
    worlds = [ForeignWorld("gym:CartPole-v1"), ForeignWorld("gym:CartPole-v1", {"x": 1}), ForeignWorld("gym:Other-v0")]
    assert len({world.fingerprint() for world in worlds}) == 3


def make_env(size, num_envs=1, *, color: str = "red", **more):
    return gymnasium.make("CartPole-v1")


def test_each_world_has_the_parameters_of_its_constructor_function_or_config():
    def named(name: str) -> dict[str, WorldParameter]:
        return {parameter.name: parameter for parameter in world_parameters(name)}

    found = named("gym:FrozenLake8x8-v1")
    assert found["map_name"] == WorldParameter("map_name", "8x8", "str")  # the constructor says 4x4
    assert found["is_slippery"] == WorldParameter("is_slippery", True, "bool")
    assert found["max_episode_steps"].default == gymnasium.spec("FrozenLake8x8-v1").max_episode_steps == 200
    assert "disable_env_checker" not in found
    of_a_function = [WorldParameter("size", NEEDED, ""), WorldParameter("color", "red", "str")]
    assert world_parameters(register_factory(make_env)) == of_a_function, "but for what scramjet sets"
    assert named("cartpole")["gravity"] == WorldParameter("gravity", 9.8, "float")
    assert named("ale:Pong")["frameskip"].default == 4


def test_the_help_shows_names_values_and_types():
    text = parameter_help("gym:FrozenLake-v1", {"is_slippery": False, "extra": 3})
    assert "\n  --env.map-name 4x4  (str)" in text
    assert "\n  --env.is-slippery False  (bool)" in text  # as a config has it
    assert "\n  --env.extra 3" in text
    assert "\n  --env.size VALUE" in parameter_help(register_factory(make_env), {})
    assert "tells of no parameters" in parameter_help("envpool:Pong-v5", {})
