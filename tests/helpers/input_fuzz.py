"""What must come of any input: it is accepted, or refused in one message, soon and without much memory.

`test_fuzz_inputs.py` tries some hundred inputs, the same each time; `benchmarks/fuzz_inputs.py` goes on for as long as
it is told.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from gymnasium.spaces import flatdim
from hypothesis import strategies as st

import scramjet
from scramjet import cli
from scramjet.adapters.registry import is_foreign, parameter_defaults
from scramjet.algorithms.ppo import PPOConfig
from scramjet.commands import train as train_module
from scramjet.errors import LAYOUT, RunError, ScramjetError, printable
from scramjet.training.components import check_network_memory, policy_for
from scramjet.training.config import files as config_files
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig
from tests.helpers.odd_inputs import (
    ALL_SETTINGS,
    CALLS,
    CONFIGS,
    EACH_VALUE,
    WORLDS,
    other_words,
    python_calls,
    train_words,
    written_files,
)

MAX_SECONDS = 1.0
MAX_BYTES = 1 << 30
MAX_MESSAGE = 2_000


def must_end_well(action: Callable[[], Any]) -> None:
    """Call `action`; an AssertionError says what it did that no input may do, and other errors pass through."""
    started = time.thread_time()
    output = io.StringIO()
    with at_most_memory(MAX_BYTES), warnings.catch_warnings(), contextlib.redirect_stdout(output):
        warnings.simplefilter("ignore")  # Gymnasium's, of what it is given
        with contextlib.redirect_stderr(output):
            try:
                action()
            except ScramjetError as error:
                _check_message(error)
            except SystemExit as ending:  # tyro's, of what it cannot read, and after --help
                if ending.code not in (0, 2):
                    raise AssertionError(f"it left with exit code {ending.code}") from ending
    seconds = time.thread_time() - started
    assert seconds < MAX_SECONDS, f"it took {seconds:.1f} s"
    assert "Traceback" not in output.getvalue()


def _check_message(error: ScramjetError) -> None:
    message = str(error)
    assert message.strip(), "an empty message"
    assert message == printable(message, keep=LAYOUT), f"control characters: {message!r}"
    most = MAX_MESSAGE if not isinstance(error, RunError) else 2 * MAX_MESSAGE + 20  # a path is shown as it was typed
    assert len(message) <= most, f"a message of {len(message)} characters: {message[:300]}"


@contextlib.contextmanager
def at_most_memory(num_bytes: int) -> Iterator[None]:
    """Inside, no more than so much can be allocated."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def own_folder(path: Path) -> Iterator[None]:
    """Inside, relative paths lead there."""
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def run_train(words: list[str]) -> None:
    """`scramjet train` up to where it would train."""

    def train(config: RunConfig | None = None, **_: Any) -> Any:
        if config is not None:
            build(config)
        return mock.Mock(exit_code=0)

    with mock.patch.object(train_module, "train", train):
        cli.run(["train", *words])


def run_other(words: list[str]) -> None:
    """Another command, up to where it would play."""
    ready = ScramjetError("it would play now")
    with (
        mock.patch("scramjet.commands.bench.measure", side_effect=ready),
        mock.patch("scramjet.commands.bench._make_pool", side_effect=ready),
        mock.patch("scramjet.commands.check.check_world", side_effect=ready),
    ):
        cli.run(words)


def load_file(suffix: str, data: bytes) -> None:
    """Load a config file and build what it asks for."""
    path = Path(f"config{suffix}")
    path.write_bytes(data)
    build(scramjet.load_config(path))


def call_python(name: str, values: dict[str, Any]) -> None:
    """Call a function of the package, or build the config of which a part has these values."""
    if name in CALLS:
        getattr(scramjet, name)(**values)
        return
    small = {"num_envs": 2, "num_steps": 4}
    part = values if name == "run" else {name: CONFIGS[name](**values)}
    build(RunConfig(**{"ppo": PPOConfig(num_minibatches=1), **small, **part}))


MAX_UNITS, MAX_ENTRIES = 200, 10_000
"""Units of a layer, and entries of an observation or action, of a network that is quickly built."""


def keep(config: RunConfig) -> None:
    """See that a checkpoint can hold a config, and a tensor its numbers."""
    json.dumps(config_files.to_dict(config), allow_nan=False)
    numbers = [value for value in vars(config.ppo).values() if isinstance(value, float)]
    assert np.isfinite(np.float32(numbers)).all(), "a number is infinite once it is in a tensor"


def build(config: RunConfig) -> None:
    """Do with a config what a run does before it plays: resolve it, freeze it, and build its world and its network."""
    config = resolve(config)
    keep(config)
    Path("frozen.toml").write_text(config_files.to_toml(config), encoding="utf-8")
    frozen = config_files.load_frozen(Path("frozen.toml"), config_files.OURS)
    assert frozen == config, "a frozen config is not what it was"
    if is_foreign(config.env) and not config.env.startswith("gym:"):
        return
    world = config.make_env()
    spaces = world.observation_space, world.action_space
    check_network_memory(*spaces, config.policy, bytes_per_weight=16)
    if not is_foreign(config.env):
        assert isinstance(config.num_envs, int)
        scramjet.make(config.env, config.num_envs, backend="interpreted", **config.env_parameters)
    shape = config.policy
    is_small = max(map(flatdim, spaces)) <= MAX_ENTRIES
    if is_small and max(*shape.hidden, *shape.grid_channels, shape.memory_size, shape.attention_width) <= MAX_UNITS:
        policy_for(*spaces, config)


SMALL = {"num_envs": 2, "num_steps": 4, "num_minibatches": 1}


def try_setting(name: str, value: Any) -> None:
    """Give a setting a value, as a file does."""
    table, _, key = name.rpartition(".")
    keep(config_files.apply(RunConfig(), {**SMALL, **({table: {key: value}} if table else {key: value})}, "file"))


def try_parameter(world: str, name: str, value: Any) -> None:
    """Give a parameter of a world a value, as a file does."""
    build(config_files.apply(RunConfig(), {**SMALL, "env": {"name": world, name: value}}, "file"))


WORLD_PARAMETERS = [(world, name) for world in [*WORLDS, "ale:Pong"] for name in parameter_defaults(world) or {}]

TARGETS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "settings": (
        st.tuples(st.sampled_from(list(ALL_SETTINGS)), st.sampled_from(EACH_VALUE)),
        lambda given: try_setting(*given),
    ),
    "parameters": (
        st.tuples(st.sampled_from(WORLD_PARAMETERS), st.sampled_from(EACH_VALUE)),
        lambda given: try_parameter(*given[0], given[1]),
    ),
    "train": (train_words(), run_train),
    "other commands": (other_words(), run_other),
    "files": (written_files(), lambda given: load_file(*given)),
    "python": (python_calls(), lambda given: call_python(*given)),
}
"""What is tried, and with what."""
