"""Spaces as plain data: read back as they were, and nothing else is believed."""

import json
import math
import tracemalloc
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.adapters.spaces import adapted_action_space, adapted_observation_space
from scramjet.engine.wrappers import stacked_space
from scramjet.envs.registry import load_env, registrations
from scramjet.runs.space_files import MAX_NUMBERS, MAX_PARTS, space_from_data, space_to_data


def is_same(space: Any, other: Any) -> bool:
    """Equal, and in the same order, to the last bit."""
    if isinstance(space, Dict):
        names = list(space.spaces)
        return names == list(other.spaces) and all(is_same(space[name], other[name]) for name in names)
    if isinstance(space, Box):
        same = all(np.array_equal(getattr(space, each), getattr(other, each)) for each in ("low", "high"))
        return same and (space.shape, space.dtype) == (other.shape, other.dtype)
    if isinstance(space, MultiBinary):
        return space.shape == other.shape
    if isinstance(space, Tuple):
        return len(space) == len(other) and all(map(is_same, space.spaces, other.spaces))
    if isinstance(space, Text):
        return isinstance(other, Text)  # which text it may be is not kept
    return bool(space == other) and space.dtype == other.dtype


def through_a_file(space: Any) -> Any:
    return space_from_data(json.loads(json.dumps(space_to_data(space), allow_nan=False)))


SPACES = [
    Box(-math.inf, math.inf, (3,), np.float32),
    Box(np.float32([-1, -math.inf]), np.float32([math.inf, 0.1]), dtype=np.float32),
    Box(-1e300, 0.1, (2, 3), np.float64), Box(0, 255, (84, 84, 4), np.uint8), Box(-(2**63), 2**63 - 1, (2,), np.int64),
    Box(0, 1, (), np.float32), Box(0, 1, (2,), np.bool_), Discrete(7), Discrete(3, start=-2),
    MultiDiscrete([[2, 3], [4, 5]]), MultiDiscrete([2, 3], start=[1, -1]), MultiDiscrete([2, 3], dtype=np.int32),
    Tuple([Discrete(2, start=5), Text(5), Tuple([Box(0, 1, (2,), np.float64)])]), MultiBinary(5), MultiBinary([2, 3]),
    Dict([("z", Discrete(2)), ("a", Dict({"inner": Box(0, 1, (2,))}))]),
    stacked_space(Dict({"one": Box(np.float32([0, 1]), np.float32([2, 3])), "two": Discrete(2)}), 4),
]  # fmt: skip


def test_a_space_is_read_back_as_it_was() -> None:
    for space in SPACES:
        assert is_same(through_a_file(space), space), space
    for name in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "CliffWalking-v1", "Blackjack-v1"):
        env = gymnasium.make(name)
        observation_space = adapted_observation_space(name, env.observation_space)
        adapted = (observation_space, adapted_action_space(name, env.action_space))
        for space in (*adapted, env.observation_space, env.action_space):
            assert is_same(through_a_file(space), space), name


def test_the_spaces_of_every_world_are_read_back_as_they_were() -> None:
    for entry in registrations():
        env = load_env(entry.name)
        for space in (env.observation_space, env.action_space):
            assert is_same(through_a_file(space), space), entry.name


def test_a_space_that_could_not_be_read_back_is_not_written() -> None:
    too_many_bounds = Box(np.zeros(70_000, np.float32), np.arange(1, 70_001, dtype=np.float32))
    for space in (Graph(Discrete(2), None), Box(0, 1, (MAX_NUMBERS + 1,), np.uint8), too_many_bounds):
        assert space_to_data(space) is None


def box(**changes: Any) -> dict[str, Any]:
    return {"kind": "box", "dtype": "float32", "shape": [2], "low": 0.0, "high": 1.0, **changes}


def nested(depth: int) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": "discrete", "n": 2, "start": 0}
    for _ in range(depth):
        data = {"kind": "dict", "parts": [["a", data]]}
    return data


ONE_CHOICE: dict[str, Any] = {"kind": "multi_discrete", "shape": [1], "sizes": [2], "starts": [0]}
WRONG: dict[str, Any] = {
    "nothing": None,
    "text": "Box(0, 1, (2,), float32)",
    "a list": [box()],
    "no kind": {},
    "another kind": {"kind": "graph"},
    "a text with a charset": {"kind": "text", "charset": "ab"},
    "an empty tuple": {"kind": "tuple", "parts": []},
    "a tuple of names": {"kind": "tuple", "parts": [["a", box()]]},
    "choices of floats": {"kind": "discrete", "n": 2, "start": 0, "dtype": "float32"},
    "choices beyond their type": {**ONE_CHOICE, "sizes": [300], "dtype": "int8"},
    "a start beyond its type": {"kind": "discrete", "n": 2, "start": 127, "dtype": "int8"},
    "a kind that is a list": {"kind": ["box"]},
    "a field more": box(more=1),
    "a field less": {"kind": "box", "shape": [2]},
    "objects": box(dtype="object"),
    "records": box(dtype="float32,float32"),
    "a long text": box(dtype="U1000000000"),
    "a dtype that is a list": box(dtype=[["a", "f4"]]),
    "a huge shape": box(shape=[10**9, 10**9]),
    "a huge product": box(shape=[2048, 2048]),
    "many axes": box(shape=[1] * 40),
    "a negative size": box(shape=[-1]),
    "no size": box(shape=[0]),
    "half a size": box(shape=[1.5]),
    "a true size": box(shape=[True]),
    "a shape that is a number": box(shape=2),
    "not a number": box(low=math.nan),
    "a bound of text": box(low="0"),
    "a bound of a list": box(low=[0.0]),
    "three bounds for two": box(low=[0.0, 0.0, 0.0]),
    "a bound beyond its type": box(dtype="uint8", low=-1),
    "a bound of 400 digits": box(high=10**400),
    "a float for a whole number": box(dtype="int32", low=0.5),
    "upside down": box(low=2.0),
    "no choice": {"kind": "discrete", "n": 0, "start": 0},
    "endless choices": {"kind": "discrete", "n": 10**18, "start": 0},
    "a start of 400 digits": {"kind": "discrete", "n": 2, "start": 10**400},
    "sizes beside the shape": {"kind": "multi_discrete", "shape": [2], "sizes": [2], "starts": [0]},
    "many choices together": {"kind": "multi_discrete", "shape": [2], "sizes": [2**24, 2**24], "starts": [0, 0]},
    "a huge multi_binary": {"kind": "multi_binary", "shape": [2**31]},
    "an empty dict": {"kind": "dict", "parts": []},
    "a dict as a dict": {"kind": "dict", "parts": {"a": box()}},
    "one name twice": {"kind": "dict", "parts": [["a", box()], ["a", box()]]},
    "a long name": {"kind": "dict", "parts": [["a" * 1000, box()]]},
    "a name that is a number": {"kind": "dict", "parts": [[1, box()]]},
    "too deep": nested(900),
    "too many parts": {"kind": "dict", "parts": [[str(i), box()] for i in range(MAX_PARTS + 1)]},
    "large parts": {"kind": "dict", "parts": [[str(i), box(shape=[MAX_NUMBERS])] for i in range(9)]},
}


def test_what_is_no_space_is_refused_before_memory_is_taken_for_it() -> None:
    for name, data in WRONG.items():
        tracemalloc.start()
        try:
            with pytest.raises(ValueError):
                pytest.fail(f"{name} was read as {space_from_data(data)}")
            assert tracemalloc.get_traced_memory()[1] < 64 << 20, name
        finally:
            tracemalloc.stop()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["box", "dict", "inf", "uint8", ""]),
    lambda part: (
        st.lists(part, max_size=4)
        | st.dictionaries(
            st.sampled_from(["kind", "parts", "shape", "dtype", "low", "high", "n", "start", "sizes", "starts"]), part
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.fixed_dictionaries({"kind": st.sampled_from(["box", "dict", "discrete", "multi_discrete"])}) | PLAIN)
def test_any_data_is_a_space_or_a_value_error(data: Any) -> None:
    try:
        space = space_from_data(data)
    except ValueError:
        return
    assert isinstance(space, gymnasium.Space)
