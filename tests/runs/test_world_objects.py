"""Worlds given as objects: classes, instances, functions and cells of a notebook, wherever a name may stand."""

import linecache
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeAwareObservation

import scramjet
from scramjet import cli
from scramjet.adapters.objects import named
from scramjet.adapters.registry import canonical_name, load_world, note_on_id
from scramjet.envs import registry
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.errors import ConfigError, WorldError
from scramjet.training.config.run_config import RunConfig
from tests.helpers import world_files
from tests.helpers.sessions import SMALL

TINY = replace(SMALL, total_timesteps=64, num_workers=0)
CELL = world_files.WALK.replace("class Walk", "class Walker")


class Notebook:
    """The `__main__` of a notebook's kernel: cells are run in it, and their source is where IPython puts it."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.number = module, 0

    def run(self, cell: str) -> None:
        self.number += 1
        name = f"/tmp/ipykernel_1/{self.number}.py"
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        exec(compile(cell, name, "exec"), vars(self.module))


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    yield Notebook(module)
    for name in [name for name in linecache.cache if name.startswith("/tmp/ipykernel_1/")]:
        del linecache.cache[name]


def train(config: Any = TINY, **settings: Any) -> Path:
    if config is TINY or isinstance(config, RunConfig):
        return scramjet.train(config, display="quiet", **settings).run_path
    return scramjet.train(TINY, env=config, display="quiet", **settings).run_path


def recorded(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "config.toml").read_text())["env"]


def test_a_class_in_a_cell_trains_resumes_and_plays_and_the_cell_run_again_is_the_new_rules(notebook: Notebook) -> None:
    notebook.run(CELL)
    run = train(notebook.module.Walker)
    assert recorded(run)["name"] == "__main__:Walker"
    assert run.name == "Walker-1"
    before = scramjet.evaluate(run, episodes=2, max_steps=20)
    notebook.run(CELL.replace("return 1.0", "return -7.0"))
    with pytest.warns(UserWarning, match="rules have changed"):
        after = scramjet.evaluate(run, episodes=2, max_steps=20)
    assert after.mean_return < before.mean_return - 5
    assert scramjet.train(resume=run, total_timesteps=96, display="quiet").step == 96
    first = registry.given_class("__main__:Walker")
    assert first is notebook.module.Walker
    pool = scramjet.make(notebook.module.Walker(length=3), 2)
    assert pool.env.length == 3


def test_a_run_of_a_cell_says_in_a_fresh_kernel_or_a_shell_what_to_do(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.run(CELL)
    run = train(notebook.module.Walker)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # as in another process
    monkeypatch.setattr("scramjet.envs.given._GIVEN", {})
    for go_on in (
        lambda: scramjet.train(resume=run, total_timesteps=96, display="quiet"),
        lambda: scramjet.evaluate(run, episodes=1),
    ):
        with pytest.raises(WorldError, match=r"defined in a notebook.*run that again.*env=Walker"):
            go_on()
    with pytest.raises(SystemExit) as ending:
        cli.main(["eval", str(run)])
    assert ending.value.code == 2
    assert "--env FILE.py:Walker to `scramjet eval`, or once to `scramjet train --resume`" in capsys.readouterr().err


def test_every_kind_of_object_has_a_name_that_makes_the_same_world() -> None:
    time_aware = TimeAwareObservation(gymnasium.make("CartPole-v1", max_episode_steps=20))
    for world, name, parameters in (
        (CartPole, "cartpole", None),
        (CartPole(gravity=5), "cartpole", {**CartPole().parameters, "gravity": 5.0}),
        (gymnasium.make("CartPole-v1", render_mode="rgb_array"), "gym:CartPole-v1", {}),
        (gymnasium.make("CartPole-v1", max_episode_steps=9), "gym:CartPole-v1", {"max_episode_steps": 9}),
        (gymnasium.make("FrozenLake-v1", is_slippery=False), "gym:FrozenLake-v1", {"is_slippery": False}),
        (time_aware, "factory:gymnasium:<CartPole-v1-TimeAwareObservation>", None),
        (CartPoleEnv, "factory:gymnasium.envs.classic_control.cartpole:CartPoleEnv", None),
    ):
        found = named(world)
        assert (found.name, found.parameters) == (name, parameters), world
    made = load_world(named(time_aware).name, {}).env_factory()()
    assert made.observation_space == time_aware.observation_space
    assert made.spec.max_episode_steps == 20


def test_an_instance_that_cannot_be_copied_and_what_is_no_world_say_what_to_write() -> None:
    class Unrecorded(gymnasium.Wrapper):
        pass

    wrapped = Unrecorded(gymnasium.make("CartPole-v1"))
    for world, message in (
        (CartPoleEnv(), r"not made by gymnasium.make.*env=CartPoleEnv.*env=lambda: CartPoleEnv\(\.\.\.\)"),
        (wrapped, r"wrapper Unrecorded does not record its arguments: give a function"),
        (Unrecorded, r"is a wrapper: give what it wraps too"),
        (gymnasium.make_vec("CartPole-v1", num_envs=2), r"many envs already.*vec:ID"),
        (3.5, r"env=3.5 is no world"),
    ):
        with pytest.raises(ConfigError, match=message):
            named(world)
    with pytest.raises(ConfigError, match="two worlds are given"):
        scramjet.train(CartPole, env=CartPole)


def test_an_instance_brings_its_parameters_and_a_resumed_run_keeps_its_own(notebook: Notebook) -> None:
    notebook.run(CELL)
    walker = notebook.module.Walker
    run = train(walker(length=5))
    assert recorded(run)["length"] == 5
    with pytest.raises(ConfigError, match=r"has length=5, and the one given length=6.*fork="):
        scramjet.train(resume=run, env=walker(length=6), total_timesteps=96, display="quiet")
    assert scramjet.train(resume=run, env=walker(length=5), total_timesteps=96, display="quiet").step == 96
    assert scramjet.evaluate(run, episodes=1, max_steps=9, env=walker(length=6)).episodes == 1


def test_a_plain_gymnasium_id_is_gymnasiums_unless_it_is_ours_and_both_are_said() -> None:
    for name, whole, note in (
        ("FrozenLake-v1", "gym:FrozenLake-v1", "FrozenLake-v1 is Gymnasium's env gym:FrozenLake-v1"),
        ("HalfCheetah-v5", "mujoco:HalfCheetah-v5", "HalfCheetah-v5 is Gymnasium's env mujoco:HalfCheetah-v5"),
        ("CartPole-v1", "cartpole", "CartPole-v1 is scramjet's own cartpole, compiled; Gymnasium's is gym:CartPole-v1"),
        ("gym:CartPole-v1", "gym:CartPole-v1", ""),
        ("cartpole", "cartpole", ""),
    ):
        assert (canonical_name(name), note_on_id(name)) == (whole, note)
    for name, nearest in (("FrozenLak-v1", "FrozenLake-v1"), ("cartpol", "cartpole")):
        with pytest.raises(WorldError, match=f"unknown world.*{nearest}"):
            load_world(name, {})


def test_a_name_registered_again_means_the_new_world_and_a_file_may_be_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    file = tmp_path / "walk.py"
    file.write_text(CELL)
    for target in (CartPole, file, f"{file}:Walker"):
        scramjet.register("again", target)
    assert type(registry.load_env("again", length=4)).__name__ == "Walker"
    for target, message in ((tmp_path / "no.py", "there is no file"), (CartPoleEnv, "a Gymnasium env needs no name")):
        with pytest.raises(WorldError, match=message):
            scramjet.register("another", target)


SCRIPT = """
import gymnasium
import scramjet
{extra}
LIMIT = {limit}

def limit():
    return LIMIT

def make_env():
    result = gymnasium.make("CartPole-v1", max_episode_steps=limit())
    return result

result = scramjet.train(
    scramjet.RunConfig(**{tiny}), env=make_env, display="quiet", total_timesteps={total}, run_name="it"
)
"""


def test_only_what_makes_the_env_decides_whether_the_rules_of_a_script_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    tiny = {"num_envs": 2, "num_steps": 16, "num_workers": 0}
    text = SCRIPT.format(extra="", limit=9, total=32, tiny=tiny)
    script = tmp_path / "script.py"
    script.write_text(text)
    exec(compile(text, str(script), "exec"), vars(main_of(monkeypatch, script)))
    monkeypatch.setattr("scramjet.adapters.factories._FACTORIES", {})  # as in another process
    changed = "rules have changed"
    for edited, is_other in (
        (text, False),
        (SCRIPT.format(extra="import json\nresult = 3", limit=9, total=9999, tiny=tiny), False),
        (SCRIPT.format(extra="", limit=8, total=32, tiny=tiny), True),
    ):
        script.write_text(edited)
        assert cli.run(["eval", "runs/it", "--episodes", "1"]) == 0
        said = capsys.readouterr().err
        assert (changed in said) == is_other, edited
        assert "script.py was run up to where it trains, to find make_env" in said
    script.write_text(text.replace("result = scramjet.train(", 'if __name__ == "__main__":\n    scramjet.train('))
    assert cli.run(["eval", "runs/it", "--episodes", "1"]) == 0
    assert capsys.readouterr().err == ""


def main_of(monkeypatch: pytest.MonkeyPatch, script: Path) -> ModuleType:
    """The `__main__` of a script that is run."""
    module = ModuleType("__main__")
    module.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_trials_of_a_notebooks_world_are_refused_with_the_remedy(notebook: Notebook) -> None:
    notebook.run(CELL)
    with pytest.raises(ConfigError, match=r"known to this program alone.*writefile my_world.py"):
        scramjet.tune(notebook.module.Walker, {"gamma": [0.9, 0.99]}, trials=1, display="quiet")


def test_what_people_look_at_in_a_notebook_is_one_line() -> None:
    evaluation = scramjet.Evaluation(1.5, 1e-17, 9.0, 100, {"won": 0.5}, 2)
    shown = "Evaluation(mean_return=1.5, std_return=0, mean_length=9, episodes=100, won=0.5, cut_episodes=2)"
    assert repr(evaluation) == shown
    assert repr(scramjet.make("cartpole", 3)) == "NativePool('CartPole', num_envs=3)"
    report = scramjet.check("no_such_world")
    assert not report
    assert repr(report).startswith("WRONG  unknown world 'no_such_world'")
