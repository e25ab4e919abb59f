"""Worlds by name, by file and by module, and the messages for names and parameters that cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from scramjet.engine.worlds.rules import rules_fingerprint
from scramjet.envs import Env, env_class, load_env, register, registrations, registry
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.registry import canonical_name
from scramjet.errors import ScramjetError, WorldError

WORLD = """
import numpy as np
from scramjet.envs import Box, Discrete, Env


class {name}(Env):
    size: int = 3
    speed: float = 0.5
    is_round: bool = False

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {{"x": np.int32}}

    def reset(self, s):
        s.x = 0

    def step(self, s, action):
        return 1.0, True

    def observe(self, s, obs):
        obs[0] = s.x
"""


@pytest.fixture(autouse=True)
def _clean_registry_and_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def world_file(tmp_path: Path):
    def write(text: str, name: str = "my_world.py") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_every_registered_name_and_alias_loads_its_world() -> None:
    for entry in registrations():
        for name in (entry.name, *entry.aliases):
            assert isinstance(load_env(name), entry.env_class()), name
    assert env_class("CartPole-v1") is env_class("cartpole") is CartPole


def test_an_unknown_name_suggests_the_nearest_if_there_is_one() -> None:
    for name, meant in (("cartpol", "cartpole"), ("CartPole-v0", "CartPole-v1"), ("probe_acton", "probe_action")):
        with pytest.raises(WorldError, match=f"unknown world '{name}'. Did you mean '{meant}'?"):
            load_env(name)
    with pytest.raises(WorldError) as caught:
        load_env("qqqqqqq")
    assert "Did you mean" not in str(caught.value)
    assert "scramjet list" in str(caught.value)


def test_a_registered_class_is_found_by_its_name_and_aliases() -> None:
    register("my_cartpole", CartPole, aliases=("mine",))
    assert env_class("mine") is env_class("my_cartpole") is CartPole


def test_a_taken_name_is_refused_and_nothing_is_registered() -> None:
    before = registrations()
    for name, aliases in (("cartpole", ()), ("new", ("CartPole-v1",)), ("CartPole-v1", ())):
        with pytest.raises(WorldError, match="registered already"):
            register(name, CartPole, aliases=aliases)
    assert registrations() == before


def test_a_file_with_one_world_of_its_own_needs_no_class_name(world_file) -> None:
    path = world_file("from scramjet.envs.classic_control.cartpole import CartPole\n" + WORLD.format(name="Alpha"))
    assert type(load_env(path)).__name__ == "Alpha"
    assert load_env(f"{path}:Alpha", size=7).size == 7


def test_a_file_with_two_worlds_asks_for_one_of_them(world_file) -> None:
    path = world_file(WORLD.format(name="Alpha") + WORLD.format(name="Beta"))
    with pytest.raises(WorldError, match=r"2 worlds \(Alpha, Beta\); name one: .*my_world.py:Alpha"):
        load_env(path)
    with pytest.raises(WorldError, match=r"no world 'Alpa'. Did you mean 'Alpha'\? Worlds there: Alpha, Beta"):
        load_env(f"{path}:Alpa")
    assert type(load_env(f"{path}:Beta")).__name__ == "Beta"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"no such file: '.*nothing.py'"):
        load_env(str(tmp_path / "nothing.py"))


def test_what_is_wrong_with_a_file_is_said_with_its_line(world_file) -> None:
    for text, message in (
        ("x = 1\n", r"defines 0 worlds; a world is a class that inherits from scramjet.envs.Env"),
        ("x = 1\ny = 2\ndef broken(:\n", "my_world.py line 3: SyntaxError"),
        ("\nimport no_such_module_anywhere\n", "my_world.py line 2: ModuleNotFoundError: .*no_such_module_anywhere"),
        ("from scramjet.envs import Boxx\n", "my_world.py line 1: ImportError: .*Boxx"),
        ("x = 1\n\ny = 1 / 0\n", "my_world.py line 3: ZeroDivisionError"),
    ):
        with pytest.raises(WorldError, match=message):
            load_env(world_file(text))


def test_a_syntax_error_in_a_helper_is_not_blamed_on_a_line_of_the_world(world_file) -> None:
    world_file("a = 1\nb = 2\nc = 3\nd = (\n", "helper_with_syntax_error.py")
    with pytest.raises(WorldError) as caught:
        load_env(world_file("\nimport helper_with_syntax_error\n"))
    assert "helper_with_syntax_error.py" in str(caught.value)
    assert "my_world.py line 4" not in str(caught.value)


def test_a_changed_file_is_read_anew(world_file) -> None:
    assert load_env(world_file(WORLD.format(name="Alpha"))).size == 3
    assert load_env(world_file(WORLD.format(name="Alpha").replace("size: int = 3", "size: int = 44"))).size == 44


def test_a_module_and_class_name_a_world(world_file, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(world_file(WORLD.format(name="Alpha"), "a_package_of_worlds.py"))
    monkeypatch.syspath_prepend(path.parent)
    assert type(load_env("a_package_of_worlds:Alpha")).__name__ == "Alpha"
    with pytest.raises(WorldError, match="no world 'Gamma'"):
        load_env("a_package_of_worlds:Gamma")


def test_a_name_that_leads_nowhere_is_an_error_for_users() -> None:
    for name in ("no_such_package.worlds:Alpha", ":Alpha", ".relative:Alpha", "scramjet.envs:", ""):
        with pytest.raises(ScramjetError):
            load_env(name)


def test_canonical_names_are_one_spelling_for_each_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert canonical_name("CartPole-v1") == canonical_name("cartpole") == "cartpole"
    monkeypatch.chdir(tmp_path)
    assert canonical_name("w.py") == canonical_name("./w.py") == str(tmp_path.resolve() / "w.py")
    assert canonical_name("sub/../w.py:Alpha") == f"{tmp_path.resolve() / 'w.py'}:Alpha"
    assert canonical_name("package.worlds:Alpha") == "package.worlds:Alpha"


# --- parameters -----------------------------------------------------------------------------------------------


def test_parameters_take_the_type_of_their_default(world_file) -> None:
    env = load_env(world_file(WORLD.format(name="Alpha")), size=np.int8(4), speed=2, is_round=np.bool_(True))
    assert env.parameters == {"size": 4, "speed": 2.0, "is_round": True, "max_episode_steps": None}
    assert [type(value) for value in (env.size, env.speed, env.is_round)] == [int, float, bool]


def test_an_unknown_parameter_suggests_the_nearest_and_lists_all() -> None:
    with pytest.raises(WorldError, match=r"CartPole has no parameter 'gravty'. Did you mean 'gravity'\? .*mass_pole"):
        load_env("cartpole", gravty=1.0)


def test_a_parameter_that_cannot_be_is_named_with_its_value(world_file) -> None:
    path = world_file(WORLD.format(name="Alpha"))
    for name, value, message in (
        ("size", 2.5, "size=2.5 must be int"),
        ("size", "3", "size='3' must be int"),
        ("size", True, "size=True must be int"),
        ("size", None, "size=None must be int"),
        ("speed", float("nan"), "speed=nan must be a finite float"),
        ("speed", float("inf"), "speed=inf must be a finite float"),
        ("speed", "fast", "speed='fast' must be a finite float"),
        ("is_round", 1, "is_round=1 must be bool"),
        ("max_episode_steps", 0, "max_episode_steps=0 must be at least 1"),
        ("max_episode_steps", -5, "max_episode_steps=-5 must be at least 1"),
        ("max_episode_steps", 2.5, "max_episode_steps=2.5 must be int"),
        ("max_episode_steps", float("nan"), "max_episode_steps=nan must be int"),
    ):
        with pytest.raises(WorldError, match=f"Alpha: {message}"):
            load_env(path, **{name: value})


def test_a_time_limit_may_be_lifted_and_one_written_in_the_class_is_checked_as_well(world_file) -> None:
    assert load_env("cartpole", max_episode_steps=None).max_episode_steps is None
    for limit in ("0", "-3", "2.5", "'ten'"):
        text = WORLD.format(name="Alpha").replace("size: int = 3", f"max_episode_steps = {limit}")
        with pytest.raises(WorldError, match="max_episode_steps"):
            load_env(world_file(text))


def test_the_rules_cannot_keep_anything_in_self() -> None:
    env = load_env("cartpole")
    with pytest.raises(WorldError, match=r"CartPole.score cannot be assigned.*s.score = "):
        env.score = 1
    with pytest.raises(WorldError, match="cannot be assigned"):
        env.gravity = 1.0
    assert env.gravity == 9.8


def test_a_parameter_of_another_type_than_a_number_is_refused_when_the_class_is_written() -> None:
    with pytest.raises(WorldError, match=r"Wrong.name = 'x' is annotated"):

        class Wrong(Env):
            name: str = "x"


def test_a_subclass_inherits_parameters_and_may_change_their_defaults() -> None:
    class Heavy(CartPole):
        mass_pole: float = 2.0
        wind: float = 0.0

    assert Heavy().parameters == {**CartPole().parameters, "mass_pole": 2.0, "wind": 0.0}
    assert Heavy(gravity=1).gravity == 1.0
    assert repr(Heavy(wind=3)) == "Heavy(wind=3.0)"


# --- hidden information ---------------------------------------------------------------------------------------

HIDDEN = {
    "door_key", "empty", "flickering_cartpole", "four_rooms", "key_corridor", "kuhn", "leduc", "masked_cartpole",
    "memory", "multi_room", "obstructed_maze", "tmaze",
}  # fmt: skip


def test_these_of_our_worlds_have_hidden_information() -> None:
    own = {entry.name: entry.env_class()() for entry in registrations() if str(entry.target).startswith("scramjet.")}
    assert {name for name, env in own.items() if env.hidden} == HIDDEN


def test_a_world_has_the_same_rules_whether_or_not_it_says_that_they_hide_something() -> None:
    class Known(CartPole):
        """CartPole by another name."""

    class Secret(CartPole):
        """The same, with a secret."""

        hidden = True

    class Other(CartPole):
        """CartPole with another constant."""

        gravity = 1.0

    Secret.__name__ = Known.__name__
    assert rules_fingerprint(Known()) == rules_fingerprint(Secret())
    assert Secret().parameters == Known().parameters
    assert rules_fingerprint(Other()) != rules_fingerprint(CartPole())


def test_hidden_may_follow_from_a_parameter() -> None:
    class Sometimes(CartPole):
        """CartPole whose secrets can be switched off."""

        secrets: bool = True

        @property
        def hidden(self) -> bool:
            return self.secrets

    assert (Sometimes().hidden, Sometimes(secrets=False).hidden) == (True, False)
