"""Look for an input that ends in a traceback, hangs, or takes much memory: flags, config files, calls from Python.

    python benchmarks/fuzz_inputs.py                            a minute for each kind of input
    python benchmarks/fuzz_inputs.py --seconds 600 --kinds files python
    python benchmarks/fuzz_inputs.py --seed 1234                the same inputs again
    python benchmarks/fuzz_inputs.py --rounds 1 --seed 1        50 of each kind

Each input must be accepted, or refused in one message, within five seconds and a gigabyte. What is not is printed, made
as small as can be: mend its cause, and keep it in ENDED_OTHERWISE of tests/faults/test_fuzz_inputs.py, which every run
of the tests tries. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import datetime
import fractions
import os
import random
import sys
import tempfile
import time
import traceback
import types
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import tomli_w
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["SCRAMJET_STATE_DIR"] = tempfile.mkdtemp()  # nothing of this is to be remembered

from scramjet.adapters.registry import parameter_defaults
from scramjet.algorithms.config import PPOConfig
from scramjet.commands.arguments.train import Place
from scramjet.policies.config import PolicyConfig
from scramjet.training.config.run_config import RunConfig
from tests.helpers.input_fuzz import (
    ACTIONS,
    ALL_SETTINGS,
    CALLS,
    CONFIGS,
    COUNTS,
    EACH_VALUE,
    LARGE,
    NUMBERS,
    PARTS,
    RATES,
    WORDS,
    WORLDS,
    must_end_well,
    own_folder,
)

EXAMPLES_PER_ROUND = 50
MOST_FOUND = 5
"""Rounds with a failure, of one kind, after which it is enough."""

# Every setting gets values of its own type, such as are meant and the last that are allowed, and now and then anything.

TEXTS = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(WORDS),
    st.integers().map(str),
    st.floats().map(repr),
    st.text(st.characters(exclude_characters="\0"), max_size=20),
)
"""What a shell may pass on."""

ODD = [
    1e39,
    1e308,
    1e-320,
    -0.0,
    0.5,
    1.0,
    datetime.date(2020, 1, 1),
    datetime.datetime(2020, 1, 1),
    datetime.time(1, 2),
]
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(LARGE) | st.sampled_from(ODD)
)
VALUES = SCALARS | st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
"""What a file may hold."""


def deep(levels: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


class Refuses:
    """An object that cannot even be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("not comparable")

    __hash__ = object.__hash__


OBJECTS = VALUES | st.sampled_from(
    [
        *(np.int64(5), np.float32(0.5), np.float64("inf"), np.bool_(True), np.str_("auto"), np.uint8(3), 3.0, float),
        *(np.int64(2**62), np.longdouble(2), np.datetime64("2020-01-01"), np.complex64(1), fractions.Fraction(1, 2)),
        *(fractions.Fraction(10**400), Decimal("0.5"), 1j, b"x", bytearray(b"x"), range(3), {1, 2}, {1: 2}, len, ...),
        *(np.arange(3), np.array(5), np.array(["none"]), np.zeros((0,)), Path("a"), Path("a\0b"), Path("/"), object()),
        *(object, Refuses(), NotImplemented, lambda: 1, deep(50), deep(300), [[]] * 20_000, "\0", "a\0b"),
        *(PPOConfig(), PolicyConfig()),
    ]
)
"""What Python may pass on."""

# --- settings ----------------------------------------------------------------------------------------------

SCHEDULES = ["0.001@0,0@end", "1@0,0.5@50%,0@end", "0.1@0,0@10", "1e-3", "30s", "1h30m", "agent"]


def plausible(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a setting's type as a file holds them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return plausible(arguments[0])
    if origin in (Union, types.UnionType):
        return st.one_of(*map(plausible, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(plausible(arguments[0]), max_size=3)
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        int: st.sampled_from(COUNTS) | st.integers(1, 64),
        float: st.sampled_from(RATES) | st.floats(0, 1),
        bool: st.booleans(),
        type(None): st.sampled_from([None, "none"]),
        str: st.sampled_from(SCHEDULES),
    }
    return kinds.get(hint, SCALARS)


RARELY = st.sampled_from([False] * 9 + [True])


@st.composite
def mostly(draw: st.DrawFn, usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> Any:
    """The one nine times of ten. `one_of` would choose among the parts of both."""
    return draw(odd if draw(RARELY) else usual)


def settings_of(config: type) -> dict[str, st.SearchStrategy[Any]]:
    """Values for each field of a config class, most of them plausible."""
    hints = get_type_hints(config, include_extras=True)
    names = [field.name for field in fields(config) if field.name not in ("env", "env_parameters", "ppo", *PARTS)]
    return {name: mostly(plausible(hints[name]), VALUES) for name in names}


TOP_SETTINGS = {**settings_of(RunConfig), **settings_of(PPOConfig)}
TABLE_SETTINGS = {name: settings_of(config) for name, config in PARTS.items()}
DRAWN_SETTINGS = TOP_SETTINGS | {
    f"{name}.{key}": it for name, part in TABLE_SETTINGS.items() for key, it in part.items()
}
FEW = st.integers(0, 3)

# --- worlds and their parameters ---------------------------------------------------------------------------

FOREIGN = ["gym:CartPole-v1", "gym:FrozenLake-v1", "gym:Nothing-v0", "ale:Pong", "vec:CartPole-v1"]
SOME_OF_GYMNASIUMS = ["render_mode", "desc", "is_slippery", "map_name", "max_episode_steps"]
WORLD_NAMES = st.sampled_from(WORLDS) | st.sampled_from(FOREIGN)


def parameter_names(world: str) -> st.SearchStrategy[str]:
    """Names of a world's parameters, rarely made up."""
    known = [*(parameter_defaults(world) or SOME_OF_GYMNASIUMS)]
    return mostly(st.sampled_from(known), TEXTS)


PARAMETERS = {world: parameter_names(world) for world in [*WORLDS, *FOREIGN]}
PARAMETER_VALUES = mostly(plausible(int | float | bool), VALUES)

# --- command lines -----------------------------------------------------------------------------------------

SMALL = ["--num-envs", "4", "--num-steps", "8", "--num-minibatches", "1"]
PLACE_FLAGS = [f"--{it.name.replace('_', '-')}" for it in fields(Place) if it.name not in ("runs_dir", "config")]
ODD_FLAGS = [*PLACE_FLAGS, "--no-fused", "--policy.no-shared-trunk", "--nothing", "--env", "--ppo.gamma", "-h"]
WAYS_TO_WRITE = st.sampled_from(["{0} {1}", "{0} {1}", "{0}={1}", "{0}", "{0} {1} {2}"])


def spelled(draw: st.DrawFn, flag: str) -> list[str]:
    """A flag with some values, in one of the ways to write that."""
    values = flag, draw(TEXTS), draw(TEXTS)
    return [part.format(*values) for part in draw(WAYS_TO_WRITE).split()]


def setting_flag(draw: st.DrawFn) -> list[str]:
    """A setting's flag with a value of its type, most times."""
    name = draw(st.sampled_from(list(DRAWN_SETTINGS)))
    value = draw(DRAWN_SETTINGS[name])
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        table, dot, last = flag.removeprefix("--").rpartition(".")
        return [flag if value else f"--{table}{dot}no-{last}"]
    return [flag, *(str(item) for item in (value if isinstance(value, list) else [value]))]


def env_flags(draw: st.DrawFn, world: str) -> list[str]:
    """Some parameters of a world."""
    words: list[str] = []
    for name in draw(st.lists(PARAMETERS[world], max_size=2)):
        is_odd = draw(RARELY)
        words += spelled(draw, f"--env.{name}") if is_odd else [f"--env.{name}", str(draw(PARAMETER_VALUES))]
    return words


@st.composite
def train_words(draw: st.DrawFn) -> list[str]:
    """The words of `scramjet train`."""
    world = draw(WORLD_NAMES)
    first = draw(st.sampled_from(["world", "world", "world", "nothing", "text"]))
    words = {"world": [world], "nothing": [], "text": [draw(TEXTS)]}[first]
    words = words + draw(st.sampled_from([[], SMALL]))
    for _ in range(draw(FEW)):
        words += setting_flag(draw)
    if draw(RARELY):
        words += spelled(draw, draw(st.sampled_from(ODD_FLAGS)))
    words += env_flags(draw, world if first == "world" else "cartpole")
    return [word.replace("\0", "") for word in words]  # which no shell can pass on


OTHER_FLAGS = {
    "eval": ["--episodes", "--seed", "--render", "--runs-dir", "--json", "--env", "--trust", "--nothing"],
    "check": ["--steps", "--nothing"],
    "list": ["--json", "--nothing"],
    "bench": [
        *("--num-envs", "--num-threads", "--num-steps", "--num-epochs", "--num-minibatches", "--hidden", "--memory"),
        *("--memory-size", "--seconds", "--device", "--precision", "--json", "--nothing"),
    ],
}


@st.composite
def other_words(draw: st.DrawFn) -> list[str]:
    """A command other than `train`, and its words."""
    command = draw(st.sampled_from(list(OTHER_FLAGS)))
    words = [command]
    if command != "list":
        words.append(draw(mostly(st.sampled_from(["cartpole", "bandit", "nowhere"]), TEXTS)))
    for flag in draw(st.lists(st.sampled_from(OTHER_FLAGS[command]), max_size=3)):
        words += spelled(draw, flag) if draw(RARELY) else [flag, str(draw(plausible(int | float)))]
    return words


# --- files -------------------------------------------------------------------------------------------------


def env_table(draw: st.DrawFn) -> Any:
    """What stands for the world in a file."""
    world, kind = draw(WORLD_NAMES), draw(st.sampled_from(["name", "table", "table", "table", "parameters", "value"]))
    if kind in ("name", "value"):
        return world if kind == "name" else draw(VALUES)
    values = {draw(PARAMETERS[world]): draw(PARAMETER_VALUES) for _ in range(draw(FEW))}
    return {"name": world, **values} if kind == "table" else values


def some_settings(draw: st.DrawFn, known: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """A few settings and their values."""
    return {name: draw(known[name]) for name in draw(st.lists(st.sampled_from(list(known)), max_size=3))}


def document(draw: st.DrawFn) -> dict[str, Any]:
    """The values of a config file."""
    values = {"num_envs": 4, "num_steps": 8, **some_settings(draw, TOP_SETTINGS)}
    if draw(st.booleans()):
        values["env"] = env_table(draw)
    for table in draw(st.lists(st.sampled_from(list(PARTS)), max_size=2)):
        values[table] = some_settings(draw, TABLE_SETTINGS[table])
    return {**values, draw(TEXTS): draw(VALUES)} if draw(RARELY) else values


FRAGMENTS = [
    *TOP_SETTINGS,
    *("env", "policy", "name", "hidden", "[", "]", "{", "}", ":", ": ", "=", " = ", "\n", "\n", "\n", "  ", "- ", ","),
    *("#", "&a ", "*a", "!!int ", "!!set", "!x ", "? ", "| \n", ">", "---\n", "...\n", "%YAML 1.1\n", "<<: ", "~"),
    *("[policy]\n", "[[policy]]\n", "a.b.c", '"', "'", '"""', "\\", "\\UFFFFFFFF", "\t", "1:30:00", "010", "0x1F"),
]
TEXT_FILES = st.lists(st.sampled_from(FRAGMENTS) | TEXTS, max_size=12).map("".join)


@st.composite
def written_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """The suffix and the bytes of a config file."""
    suffix = draw(st.sampled_from([".toml", ".yaml"]))
    kind = draw(st.sampled_from(["values"] * 7 + ["text"] * 2 + ["bytes"]))
    if kind == "bytes":
        return suffix, draw(st.binary(max_size=60))
    text = draw(TEXT_FILES) if kind == "text" else _written(document(draw), suffix)
    return suffix, text.encode("utf-8", "surrogatepass")


def _written(values: dict[str, Any], suffix: str) -> str:
    """The values as a file of that kind, as far as that can hold them."""
    try:
        return tomli_w.dumps(_without_none(values)) if suffix == ".toml" else yaml.safe_dump(values)
    except (TypeError, ValueError, yaml.YAMLError):
        return "\n".join(f"{key} = {value!r}" for key, value in values.items())


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_none(item) for key, item in value.items()}
    return [_without_none(item) for item in value] if isinstance(value, list) else "none" if value is None else value


# --- calls from Python -------------------------------------------------------------------------------------

CONFIG_SETTINGS = {name: settings_of(config) for name, config in CONFIGS.items()}
CONFIG_SETTINGS["run"] |= {"env": WORLD_NAMES, "env_parameters": st.dictionaries(TEXTS, PARAMETER_VALUES, max_size=2)}


@st.composite
def python_calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A function or a config class, and its arguments."""
    name = draw(st.sampled_from([*CONFIGS, *CALLS]))
    if name in CALLS:
        chosen = draw(st.lists(st.sampled_from([key for key in CALLS[name] if key != "run_name"]), max_size=2))
        return name, CALLS[name] | {argument: draw(OBJECTS) for argument in chosen}
    known = CONFIG_SETTINGS[name]
    chosen = draw(st.lists(st.sampled_from(list(known)), max_size=3))
    return name, {argument: draw(OBJECTS if draw(RARELY) else known[argument]) for argument in chosen}


WORLD_PARAMETERS = [(world, name) for world in [*WORLDS, "ale:Pong"] for name in parameter_defaults(world) or {}]
INPUTS: dict[str, st.SearchStrategy[Any]] = {
    "settings": st.tuples(st.sampled_from(ALL_SETTINGS), st.sampled_from(EACH_VALUE)),
    "parameters": st.tuples(st.sampled_from(WORLD_PARAMETERS), st.sampled_from(EACH_VALUE)),
    "train": train_words(),
    "other commands": other_words(),
    "files": written_files(),
    "python": python_calls(),
}


def fuzz(kind: str, seconds: float, rounds: float, first_seed: int) -> int:
    """Try inputs of a kind for so long, or for so many rounds; returns the number of rounds that found something."""
    inputs, action = INPUTS[kind], ACTIONS[kind]
    tried = found = 0
    until = time.monotonic() + seconds
    round_seed = first_seed
    while time.monotonic() < until and found < MOST_FOUND and round_seed < first_seed + rounds:

        @seed(round_seed)
        @settings(
            max_examples=EXAMPLES_PER_ROUND,
            deadline=None,
            database=None,
            suppress_health_check=[*HealthCheck],
            phases=[Phase.generate, Phase.shrink],
            print_blob=False,
        )
        @given(given_input=inputs)
        def try_some(given_input: object) -> None:
            nonlocal tried
            tried += 1
            must_end_well(lambda: action(given_input))

        try:
            try_some()
        except Exception:
            found += 1
            print(f"--- {kind}, seed {round_seed}:\n{traceback.format_exc(limit=-4)}", flush=True)
        round_seed += 1
    print(f"{kind}: {tried:,} inputs, {found} rounds with a failure", flush=True)
    return found


def main() -> None:
    """Try each kind of input in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kind")
    parser.add_argument("--rounds", type=float, default=float("inf"), help="most rounds for each kind")
    parser.add_argument("--kinds", nargs="+", choices=list(INPUTS), default=list(INPUTS))
    parser.add_argument("--seed", type=int, default=None, help="of the first round; by default a random one")
    arguments = parser.parse_args()
    first_seed = random.randrange(10**9) if arguments.seed is None else arguments.seed
    with tempfile.TemporaryDirectory() as folder, own_folder(Path(folder)):
        found = sum(fuzz(kind, arguments.seconds, arguments.rounds, first_seed) for kind in arguments.kinds)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
