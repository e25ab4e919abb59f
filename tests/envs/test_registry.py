"""Worlds by name, by file and by module, and the messages for names and parameters that cannot be."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

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


REFUSED: list[tuple[str, str, str, dict[str, Any]]] = [
    # a world; values, each of which is refused alone; what is said after it; what else is given
    ("acrobot", "goal_height=2.0", "is out of reach: the tip moves between -2.0 and 2.0", {}),
    ("acrobot", "torque_noise=-0.1", "must be at least 0", {}),
    ("bandit", "arms=1", "must be at least 2", {"lucky_arm": 0}),
    ("bandit", "lucky_arm=4 lucky_arm=-1", "must be in 0 .. 3", {}),
    ("binpack", "max_items=0 max_items=1", "must be in 2 .. 1000", {}),
    ("binpack", "split_num_same_items=1", "must be in 2 .. 20", {}),
    ("binpack", "split_num_same_items=5", "must be in 2 .. 4", {"max_items": 4}),
    ("binpack", "max_spaces=0", "must be in 1 .. 10000", {}),
    ("binpack", "split_eps=0.6 split_eps=-0.1", "must be in 0.0 .. 0.5", {}),
    ("binpack", "prob_split_one_item=1.5", "must be in 0.0 .. 1.0", {}),
    ("binpack", "length=0 height=100001", "must be in 1 .. 100000", {}),
    ("binpack", "max_items=20", "; make it larger or", {"length": 3, "width": 3, "height": 2}),
    ("cartpole", "mass_pole=0.0 half_length=-1.0", "must be above 0", {}),
    ("connect_four", "rows=1 cols=21", "must be from 2 to 20", {}),
    ("connect_four", "connect=1", "must be from 2 to 7", {}),
    ("connect_four", "opening_plies=-1", "must be at least 0", {}),
    ("connect_four", "connect=5", "must be from 2 to 4, the longest line on a board of 4 x 4", {"rows": 4, "cols": 4}),
    ("connect_four", "connect=9", "; lower connect, or raise rows or cols", {}),
    ("deep_sea", "size=0 size=1001 mapping_seed=-1 mapping_seed=4294967296", "must be in", {}),
    ("door_key", "view_size=4", "must be odd and from 3 to 15", {}),
    ("door_key", "size=4", "must be from 5 to 64", {}),
    ("empty", "size=3", "must be from 4 to 64", {}),
    ("flickering_cartpole", "blank_probability=-0.1 blank_probability=1.0", "must be at least 0 and below 1", {}),
    ("flickering_cartpole", "mass_pole=0.0", "must be above 0", {}),
    ("four_rooms", "size=8", "must be odd", {}),
    ("game_2048", "size=1 size=7", "must be from 2 to 6", {}),
    ("identity_continuous", "dims=0 num_targets=0", "must be at least 1", {}),
    ("key_corridor", "num_rows=0", "must be from 1 to 12", {}),
    ("kuhn", "players=4", "must be from 2 to 3", {}),
    ("maze", "rows=0 cols=-3", "must be at least 1", {}),
    ("maze", "rows=1", "and cols=1 leave no cell for the target; make rows or cols at least 2", {"cols": 1}),
    ("memory", "length=0", "must be at least 1: there is nothing to remember", {}),
    ("memory", "delay=-1", "must be at least 0", {}),
    ("mountain_car", "force=0.0", "must be above 0", {}),
    ("mountain_car", "goal_position=-0.4 goal_position=0.7", "must be above -0.4, where the car may start, and at", {}),
    ("mountain_car", "goal_velocity=0.1", "must be at most 0.07, the car's top speed", {}),
    ("mountain_car_continuous", "force=-1.0", "must be above 0", {}),
    ("multi_room", "min_rooms=7", "must be from 1 to 6", {}),
    ("multi_room", "max_room_size=63", "must be from 4 to 62", {"size": 64}),
    ("multi_room", "size=8", "must be from 12 to 64", {}),
    ("multi_room", "max_rooms=2", "must be from 1 to 1", {"size": 6, "max_room_size": 4}),
    ("obstructed_maze", "quarters=5", "must be from 0 to 4", {}),
    ("othello", "size=7 size=12", "must be an even number from 4 to 10", {}),
    ("othello", "opening_plies=9", "must be from 0 to 8, half of the cells", {"size": 4}),
    ("pendulum", "mass=0.0 length=0.0 max_torque=0.0", "must be above 0", {}),
    ("probe_delay", "delay=-1", "must be at least 0", {}),
    ("rubiks_cube", "scrambles=0 scrambles=-1 scrambles=1001", "must be from 1 to 1000", {}),
    ("sliding_tiles", "size=1 size=11", "must be from 2 to 10", {}),
    ("sliding_tiles", "scrambles=0 scrambles=10001", "must be from 1 to 10000", {}),
    ("snake", "size=4 size=33", "must be from 5 to 32", {}),
    ("snake", "snakes=5 snakes=0", "must be from 1 to 4", {}),
    ("snake", "start_length=1", "must be from 2 to 9", {}),
    ("snake", "start_length=4", "must be from 2 to 3 with snakes=4 on size=10; a larger size", {"snakes": 4}),
    ("snake", "foods_per_snake=0", "must be from 1 to 97", {}),
    ("snake", "foods_per_snake=48", "must be from 1 to 47", {"snakes": 2}),
    ("sokoban", "rows=4 cols=17", "must be from 5 to 16", {}),
    ("sokoban", "boxes=0", "must be from 1 to 8", {}),
    ("sokoban", "pulls=0", "must be from 1 to 1000", {}),
    ("sokoban", "boxes=4", "have no room to move in rows=6 x cols=6", {"rows": 6, "cols": 6}),
    ("squared", "distance=0", "must be in 1 .. 1000", {}),
    ("squared", "targets=25", "must be in 1 .. 24, the cells of the rim at distance=3, or 0 for 12", {}),
    ("squared", "targets=-1", "must be in 1 .. 8, the cells of the rim at distance=1, or 0 for 4", {"distance": 1}),
    ("tic_tac_toe", "opening_plies=9", "must be from 0 to 8", {}),
    ("tmaze", "length=0", "must be at least 1", {}),
]


def test_parameters_that_make_no_world_are_refused_with_their_value_and_what_would_do() -> None:
    for world, values, message, others in REFUSED:
        for value in values.split():
            name, _, number = value.partition("=")
            with pytest.raises(WorldError) as caught:
                load_env(world, **{name: ast.literal_eval(number)}, **others)
            assert value in str(caught.value), (world, value)
            assert message in str(caught.value), (world, value)


def test_every_world_with_a_check_of_its_own_is_among_the_cases() -> None:
    own = {entry.name for entry in registrations() if "validate" in vars(entry.env_class())}
    assert own <= {world for world, *_ in REFUSED}


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
