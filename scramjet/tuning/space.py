"""A search space: which settings vary, and between which values.

A dimension is written log:1e-4..1e-2, 0.9..0.999, int:1..8, logint:64..4096 or choice:64,256; in a file a list of
values is a choice too. A value that is itself a list, such as policy.hidden, is written 64x64 in a choice.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from scramjet.adapters.registry import parameter_defaults
from scramjet.errors import ConfigError, did_you_mean, shortened
from scramjet.runs.world_trust import Caller, remember
from scramjet.settings import NONE_WORDS
from scramjet.training.config.files import field_docs
from scramjet.training.config.keywords import SOURCE, with_keywords
from scramjet.training.config.names_of_other_libraries import suggestion
from scramjet.training.config.run_config import RunConfig

Value = bool | int | float | str | None
"""What Optuna keeps of a setting's value; a list such as [64, 64] is the text 64x64."""

FIXED = (
    *("seed", "total_timesteps", "time_limit", "num_threads", "num_workers", "num_processes", "device", "env_device"),
    *("on_env_error", "env_timeout", "log_info", "video_every", "record_schedule", "replay_schedule"),
    *("tags", "track", "track_project"),
)
"""Settings that say how a run is made or shown, or how long it is: all trials of a study share them."""
FIXED_TABLES = ("eval", "checkpoint")
KINDS = ("log", "int", "logint", "choice")
_FORMS = "log:1e-4..1e-2, 0.9..0.999, int:1..8, logint:64..4096 or choice:64,256"
_RANGE = re.compile(r"(?:[A-Za-z]+:)?[^/\\:]*[^/\\:.]\.\.+[^/\\:.][^/\\:]*")
_LONGEST = 10_000
MAX_VALUES = 1000
"""Values that all dimensions of a space name together: each of them is tried out when a study begins."""
_LIST = re.compile(r"[0-9]+(?:x[0-9]+)*")


def is_dimension(text: str) -> bool:
    """Whether a flag's value has the form of a dimension, right or wrong, and not of a plain value."""
    return (text.partition(":")[0] in KINDS and ":" in text) or _RANGE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Dimension:
    """The values that one setting may take."""

    name: str
    """The setting as a config names it: `learning_rate`, `policy.hidden`, `env.gravity`."""
    text: str
    """The dimension as it was written."""
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    is_int: bool = False
    choices: tuple[Value, ...] | None = None
    """The values of a choice; None for a range."""

    @property
    def written(self) -> str | list[Any]:
        """The dimension as a file holds it: its text, or a list where a choice has a comma, as schedules do."""
        choices = ["none" if value is None else value for value in self.choices or ()]
        return choices if any("," in str(value) for value in choices) else self.text

    @property
    def extremes(self) -> tuple[Value, ...]:
        """Values that must fit the config: both ends of a range, every value of a choice."""
        if self.choices is not None:
            return self.choices
        return (int(self.low), int(self.high)) if self.is_int else (self.low, self.high)

    def distribution(self) -> Any:
        """The dimension as Optuna's distribution."""
        distributions = optuna_module().distributions
        if self.choices is not None:
            return distributions.CategoricalDistribution(self.choices)
        if self.is_int:
            return distributions.IntDistribution(int(self.low), int(self.high), log=self.is_log)
        return distributions.FloatDistribution(self.low, self.high, log=self.is_log)


def parse_dimension(name: str, written: Any) -> Dimension:
    """Read a dimension from text, or from a list of values; a ConfigError says what is wrong and how to write it."""
    if isinstance(written, list | tuple):
        return _choice(name, [_plain(name, value) for value in written], _as_text(written))
    if not isinstance(written, str):
        raise ConfigError(f"the space of {name} is {shortened(written)}; write {_FORMS}")
    kind, colon, rest = written.partition(":")
    if not colon:
        kind, rest = "", written
    if kind == "choice":
        words = [word.strip() for word in rest.split(",")]
        if "" in words:
            raise ConfigError(f"the space of {name}, {shortened(written)}, has an empty choice; write choice:64,256")
        return _choice(name, [_typed(word) for word in words], written)
    if kind and kind not in KINDS:
        raise ConfigError(
            f"the space of {name}, {shortened(written)}, is of no known kind.{did_you_mean(kind, KINDS)} Write {_FORMS}"
        )
    return _range(name, kind, rest, written)


def _range(name: str, kind: str, rest: str, written: str) -> Dimension:
    is_log, is_int = kind.startswith("log"), kind.endswith("int")
    low_text, dots, high_text = rest.partition("..")
    try:
        low, high = float(low_text.replace("_", "")), float(high_text.replace("_", ""))
    except ValueError:
        low = high = math.nan
    if not dots or not (math.isfinite(low) and math.isfinite(high)):
        raise ConfigError(f"the space of {name}, {shortened(written)}, is no range of two numbers; write {_FORMS}")
    if not low < high:
        raise ConfigError(
            f"the space of {name}, {shortened(written)}, must go up: its low end {low:g} is not below {high:g}"
        )
    if is_log and low <= 0:
        raise ConfigError(
            f"the space of {name}, {shortened(written)}, is logarithmic and must begin above 0; begin it at "
            f"{min(high / 100, 1e-6) if not is_int else 1:g}, or write it without log"
        )
    if is_int and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"the space of {name}, {shortened(written)}, is of whole numbers; write whole ends")
    return Dimension(name, written, low, high, is_log, is_int)


def _choice(name: str, values: list[Value], written: str) -> Dimension:
    if len(values) > MAX_VALUES:
        raise ConfigError(f"the space of {name} offers {len(values):,} values, and {MAX_VALUES:,} are the most")
    if not values:
        raise ConfigError(f"the space of {name} has no values to choose from; write choice:64,256")
    for index, value in enumerate(values):
        if any(value == other and type(value) is type(other) for other in values[:index]):
            raise ConfigError(f"the space of {name}, {shortened(written)}, has {value} twice; write each value once")
    return Dimension(name, written, choices=tuple(values))


def _typed(word: str) -> Value:
    """A word of a choice as a number, true, false, none or text."""
    words: dict[str, Value] = {"true": True, "false": False, **dict.fromkeys(NONE_WORDS)}
    if word.lower() in words:
        return words[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _plain(name: str, value: Any) -> Value:
    """A value of a list in a file; a list of whole numbers becomes text such as 64x64."""
    if isinstance(value, list | tuple) and value and all(type(item) is int and item >= 0 for item in value):
        return "x".join(map(str, value))
    if isinstance(value, str) and value in NONE_WORDS:
        return None
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ConfigError(f"the space of {name} offers {shortened(value)}; a choice is of numbers, words or lists")
    return value


def _as_text(written: list[Any] | tuple[Any, ...]) -> str:
    """A list of values as a choice is written."""
    words = [_plain("a list", value) for value in written]
    return "choice:" + ",".join("none" if word is None else str(word).lower() if word in (True, False) and isinstance(
        word, bool) else str(word) for word in words)  # fmt: skip


class Space:
    """The dimensions of a study, checked against the config that they vary."""

    def __init__(
        self, dimensions: Mapping[str, Any], base: RunConfig, caller: Caller | None = None, source: str = SOURCE
    ) -> None:
        """`dimensions` are texts, or lists of values, by setting; `base` is the config that the trials share.

        `caller` reads the file `source` that they come from; None: the user has given them. Every value of a choice is
        looked at, so a TrustError is raised here for one that would run code.
        """
        self._caller, self._source = caller, source
        if not dimensions:
            raise ConfigError(
                "a study needs a space: settings that vary, such as --learning-rate log:1e-4..1e-2, or --space FILE"
            )
        self.dimensions = [parse_dimension(_checked_name(name, base), written) for name, written in dimensions.items()]
        if sum(len(each.extremes) for each in self.dimensions) > MAX_VALUES:
            raise ConfigError(f"the space offers more than {MAX_VALUES:,} values to choose from; give ranges instead")
        for dimension in self.dimensions:
            self._check(dimension, base)

    def as_table(self) -> dict[str, Any]:
        """The space as study.toml keeps it: text by setting, a list for choices with commas in them."""
        return {dimension.name: dimension.written for dimension in self.dimensions}

    def distributions(self) -> dict[str, Any]:
        """Optuna's distributions by setting."""
        return {dimension.name: dimension.distribution() for dimension in self.dimensions}

    def settings(self, parameters: Mapping[str, Value]) -> dict[str, Any]:
        """The values of a trial, as Optuna keeps them, as settings for a config: 64x64 becomes [64, 64]."""
        return settings_of(parameters)

    def config(self, base: RunConfig, parameters: Mapping[str, Value]) -> RunConfig:
        """`base` with the values of a trial laid over it; a ConfigError where they do not fit each other."""
        try:
            return with_keywords(base, self.settings(parameters), self._caller, self._source)
        except ConfigError as error:
            raise ConfigError(str(error).removeprefix(f"{self._source}: ")) from error

    def remember(self, base: RunConfig) -> None:
        """Remember the texts that it offers to the world, so that the study can be resumed."""
        for dimension in self.dimensions:
            for value in dimension.choices or ():
                if isinstance(value, str) and dimension.name.startswith("env."):
                    remember(base.env, {dimension.name.removeprefix("env."): value})

    def _check(self, dimension: Dimension, base: RunConfig) -> None:
        """Refuse a dimension whose ends or choices fit neither the base nor the ends of the other dimensions."""
        for index in range(len(dimension.extremes)):
            own = {dimension.name: dimension.extremes[index]}
            surroundings = [{}, *({each.name: each.extremes[end] for each in self.dimensions} for end in (0, -1))]
            errors = [error for others in surroundings if (error := self._misfit(base, {**others, **own}))]
            if len(errors) == len(surroundings):
                raise ConfigError(f"the space of {dimension.name}, {shortened(dimension.text)}: {errors[0]}")

    def _misfit(self, base: RunConfig, parameters: Mapping[str, Value]) -> ConfigError | None:
        try:
            self.config(base, parameters)
        except ConfigError as error:
            return error
        return None


def _checked_name(name: str, base: RunConfig) -> str:
    """The name of a setting that may vary, in its one spelling; a ConfigError for any other."""
    name = str(name)[:_LONGEST].replace("-", "_").removeprefix("ppo.")
    table, dot, entry = name.partition(".")
    known = [key for key, _, _ in field_docs() if key not in ("env", "env_parameters")]
    if table == "env" and dot:
        parameters = parameter_defaults(base.env)
        if parameters is not None and entry not in parameters:
            raise ConfigError(
                f"the space varies {shortened(name)}, and {base.env} has no such parameter."
                f"{did_you_mean(entry, parameters)} Parameters: {', '.join(parameters)}"
            )
        return name
    if name in ("env", "resume", "fork", "config", "preset", "run_name", "runs_dir", "display"):
        raise ConfigError(f"the space varies {name}, which all trials of a study share; give it one value")
    if name not in known:
        raise ConfigError(f"the space varies {shortened(name)}, which is no setting.{suggestion(name, known)}")
    if name in FIXED or table in FIXED_TABLES:
        raise ConfigError(f"the space varies {name}, which all trials of a study share; give it one value")
    return name


def settings_of(parameters: Mapping[str, Value]) -> dict[str, Any]:
    """The values of a trial, as Optuna keeps them, as settings for a config: 64x64 becomes [64, 64]."""
    found: dict[str, Any] = dict(parameters)
    for name, value in parameters.items():
        if name in _list_settings() and isinstance(value, str | int) and _LIST.fullmatch(str(value)) is not None:
            found[name] = [int(part) for part in str(value).split("x")]
    return found


@functools.cache
def _list_settings() -> set[str]:
    """The names of the settings whose values are lists, such as policy.hidden."""
    default = RunConfig()
    tables = {"": default, "ppo.": default.ppo, "policy.": default.policy, "spo.": default.spo}
    tables |= {"alphazero.": default.alphazero, "self_play.": default.self_play}
    found = set()
    for prefix, part in tables.items():
        for name, hint in get_type_hints(type(part)).items():
            if get_origin(hint) is tuple and get_args(hint)[:1] == (int,):
                found.add(prefix.replace("ppo.", "") + name)
    return found


def optuna_module() -> ModuleType:
    """Optuna, with its own messages silenced; a ConfigError names the extra where it is not installed."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ConfigError("tuning needs the package optuna; install it: pip install 'scramjet[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
