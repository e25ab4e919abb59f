"""What must come of any input: it is accepted, or refused in one message, soon and without much memory.

`test_fuzz_inputs.py` tries some hundred inputs; `benchmarks/fuzz_inputs.py` draws others for as long as it is told.
"""

import contextlib
import datetime
import io
import json
import math
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

import scramjet
from scramjet import cli
from scramjet.adapters.registry import is_foreign
from scramjet.algorithms.config import PPOConfig
from scramjet.commands import train as train_module
from scramjet.envs.registry import registrations
from scramjet.errors import LAYOUT, RunError, ScramjetError, printable
from scramjet.policies.config import PolicyConfig
from scramjet.runs.world_trust import Caller
from scramjet.runtime.trust import given
from scramjet.training.components import check_network_memory, policy_for
from scramjet.training.config import files as config_files
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig

MAX_SECONDS = 5.0  # of this thread's own work, whatever else the machine does
MAX_BYTES = 1 << 30
MAX_MESSAGE = 2_000


NUMBERS = [
    *("0", "-0", "1", "-1", "2", "8", "64", "0.5", "1e-3", ".5", "5.", "+7", "1_000", "1__0", "1,000", "40M", "2.5k"),
    *("inf", "-inf", "nan", "Infinity", "1e39", "1e308", "1e400", "-1e400", "1e-45", "1e-320", "5e-324", "1e99999999"),
    *map(str, (2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64)),
    *("9" * 400, "9" * 6000, "-" + "9" * 400, "0x" + "f" * 40, "0x1f", "0o17", "010", "0b11", "1e", "e5", "--5", "+-5"),
    *("1:30:00", "1:30", "30s", "5m", "2h", "1h30m", "0s", "9" * 400 + "h", "٣", "²", "½", "１２", "1.5h"),
]
WORDS = [
    *("", " ", "none", "None", "null", "~", "auto", "true", "false", "yes", "no", "on", "off", "True", "y", "end"),
    *("cpu", "cuda", "gae", "vtrace", "impala", "ppo", "lstm", "gru", "async", "sync", "relu", "mlp", "grid_cnn"),
    *("0.001@0,0@end", "1@", "@1", "0.1@50%,0@20%", "1@0,1@0", "nan@0", "1@1e999999999", "1@-1", "inf@end", "1@200%"),
    *("2020-01-01", "2020-01-01T00:00:00Z", "-", "--", "=", "--x", "-h", "@", "%", "{}", "[]", "[1, 2]", "{a: 1}"),
    *("[red]", "[/red]", "[bold", "{0}", "{x.y}", "%s", "\\", "'", '"', "`id`", "$(id)", "a b", "<<", "*a", "&a"),
    *("/", ".", "..", "../..", "/dev/null", "~/x", "x.py", "x.py:X", "x.toml", "a:b", "a:", ":", "gym:", "gym:X-v1"),
    *("gym:a:b", "factory:", "factory:a:b", "factory:x.py:f", "vec:", "ale:", "ale:Pong ", "envpool:", "pettingzoo:x"),
    *("\x1b[2J", "\x1b]0;title\x07", "\r", "\n", "\t", "\x7f", "\x9b", "\u202e", "\u2028", "\ud800", "\udcff", "!!set"),
    *("\ufeff", "日本", "ß", "𝔘", "e\u0301", "x" * 300, "x" * 5000, "../" * 1000, ".".join("a" * 100), "🙂" * 500),
]
COUNTS = [0, 1, 1, 2, 2, 3, 4, 4, 7, 8, 16, 32, 64, 100, 128, 1000, 1024, 1025, 4096, 65_536, 65_537, 10**6, 1 << 20]
COUNTS += [(1 << 20) + 1, 10**7, 10**8, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, -1]
RATES = [0.0, 1e-45, 1e-38, 1e-8, 1e-3, 0.1, 0.2, 0.5, 0.9, 0.99, 1.0, 1.0, 2.0, 10.0, 60.0, 1e7, 1e38, 3.5e38, -1.0]
RATES += [1e308, math.inf, math.nan, 10**400]
LARGE = [2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, -(10**400)]
EACH_VALUE = [None, True, *LARGE, *NUMBERS, *WORDS, *(number for number in RATES if type(number) is float)]
EACH_VALUE += [*COUNTS, 1 << 24_000, [], [1], ["x"] * 3, [[1]], {}, {"a": 1}, datetime.date(2020, 1, 1)]
"""What every setting and every parameter of a world is tried with, one after the other."""


ALL_SETTINGS = [name for name, _, _ in config_files.field_docs() if not name.startswith("env")]
WORLDS = [entry.name for entry in registrations()]
PARTS: dict[str, type] = {"policy": PolicyConfig, "eval": EvaluationConfig, "checkpoint": CheckpointConfig}


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
            except SystemExit as ending:  # after --help
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
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


CONFIGS: dict[str, type] = {"run": RunConfig, "ppo": PPOConfig, **PARTS}
CALLS: dict[str, dict[str, Any]] = {
    "make": {
        "name": "bandit",
        "num_envs": 2,
        "num_threads": None,
        "backend": "interpreted",
        "frame_stack": 1,
        "arms": 4,
    },
    "train": {"config": "bandit", "env": None, "resume": None, "fork": None, "runs_dir": "runs", "run_name": "../no"}
    | {"network": None, "display": "quiet", "total_timesteps": 64, "time_limit": None, "trust": False},
    "load_policy": {"path": "nowhere", "network": None, "trust": False},
    "evaluate": {"path": "nowhere", "episodes": 1, "seed": None, "network": None, "env": None, "trust": False},
    "load_config": {"path": "nowhere.toml", "trust": False},
    "starting_config": {"env": "bandit"},
}
"""Functions of the package, with arguments to replace some of; the name of `train`'s run ends it before it begins."""


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
        mock.patch("scramjet.commands.check.findings_on", side_effect=ready),
    ):
        cli.run(words)


def load_file(suffix: str, data: bytes) -> None:
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
    frozen = config_files.load_frozen(Path("frozen.toml"), Caller(given()))
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
    table, _, key = name.rpartition(".")
    keep(config_files.apply(RunConfig(), {**SMALL, **({table: {key: value}} if table else {key: value})}, "file"))


def try_parameter(world: str, name: str, value: Any) -> None:
    build(config_files.apply(RunConfig(), {**SMALL, "env": {"name": world, name: value}}, "file"))


ACTIONS: dict[str, Callable[[Any], None]] = {
    "settings": lambda given: try_setting(*given),
    "parameters": lambda given: try_parameter(*given[0], given[1]),
    "train": run_train,
    "other commands": run_other,
    "files": lambda given: load_file(*given),
    "python": lambda given: call_python(*given),
}
"""What is tried with an input of each kind."""
