"""Parameters of worlds of any library, as the help of `scramjet train` lists them."""

import gymnasium

from scramjet.adapters.factories import register_factory
from scramjet.adapters.world_parameter import NEEDED, WorldParameter
from scramjet.adapters.world_parameters import world_parameters
from scramjet.commands.arguments.env_parameters import parameter_help


def named(name: str) -> dict[str, WorldParameter]:
    return {parameter.name: parameter for parameter in world_parameters(name)}


def test_an_env_of_gymnasiums_has_its_constructors_parameters_with_registered_values_and_a_time_limit():
    found = named("gym:FrozenLake8x8-v1")
    assert found["map_name"] == WorldParameter("map_name", "8x8", "str")  # the constructor says 4x4
    assert found["is_slippery"] == WorldParameter("is_slippery", True, "bool")
    assert found["max_episode_steps"].default == gymnasium.spec("FrozenLake8x8-v1").max_episode_steps == 200
    assert "disable_env_checker" not in found


def make_env(size, num_envs=1, *, color: str = "red", **more):
    return gymnasium.make("CartPole-v1")


def test_a_functions_parameters_are_its_own_but_for_what_scramjet_sets():
    assert world_parameters(register_factory(make_env)) == [
        WorldParameter("size", NEEDED, ""),
        WorldParameter("color", "red", "str"),
    ]


def test_native_worlds_and_ale_have_the_parameters_that_they_check():
    assert named("cartpole")["gravity"] == WorldParameter("gravity", 9.8, "float")
    assert named("ale:Pong")["frameskip"].default == 4


def test_the_help_shows_names_values_and_types():
    text = parameter_help("gym:FrozenLake-v1", {"is_slippery": False, "extra": 3})
    assert "\n  --env.map-name 4x4  (str)" in text
    assert "\n  --env.is-slippery False  (bool)" in text  # as a config has it
    assert "\n  --env.extra 3" in text
    assert "\n  --env.size VALUE" in parameter_help(register_factory(make_env), {})
    assert "tells of no parameters" in parameter_help("envpool:Pong-v5", {})
