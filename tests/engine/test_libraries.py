"""Other libraries as records: what their envs can do is asked of fields, and one record adds a library."""

import gymnasium
import numpy as np
import pytest

import scramjet
from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.adapters.library import Library
from scramjet.adapters.registry import LIBRARIES, library_of, load_world
from scramjet.errors import ConfigError
from scramjet.training.config.presets import preset_path
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig

TOY = Library(
    prefix="toy",
    package="gymnasium",
    make_pool=lambda world, request: SerialPool(world.name, lambda: gymnasium.make(world.id), request.num_envs),
    set_by_us=("num_envs",),
    preset="cartpole",
)


def test_one_record_makes_a_library_known_to_pools_configs_and_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library_of("toy:CartPole-v1") is None
    assert library_of("ale") is None
    assert library_of("ale:Pong").prefix == "ale"
    monkeypatch.setitem(LIBRARIES, "toy", TOY)
    pool = scramjet.make("toy:CartPole-v1", 3)
    assert pool.reset(1).obs.shape == (3, 4)
    assert pool.step(np.zeros(3, np.int64)).reward.tolist() == [1, 1, 1]
    pool.close()
    assert preset_path("toy:CartPole-v1").name == "cartpole.toml"
    with pytest.raises(ConfigError, match="has no parameter 'num_envs'"):
        load_world("toy:CartPole-v1", {"num_envs": 3})
    with pytest.raises(ConfigError, match=r"its library steps all envs at once.*gym, mujoco, ale, factory"):
        RunConfig(env="toy:CartPole-v1", mode="async")
    with pytest.raises(ConfigError, match="num_workers=2 are processes of Gymnasium envs"):
        resolve(RunConfig(env="toy:CartPole-v1", num_workers=2))
