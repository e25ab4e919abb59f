"""Configs from and to files: config files and presets are read, the frozen config of a run is written.

Unknown keys are refused. A file is flat where the command line is flat: PPO's fields stand at the top (or in a table
[ppo]); tables are [env], [spo], [alphazero], [bonus], [policy], [self_play], [eval] and [checkpoint]. `env = "maze"` is
short for a table with that name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, get_type_hints

import tomli_w

from scramjet.adapters.registry import parameter_defaults
from scramjet.algorithms.algorithm import algorithm_named
from scramjet.algorithms.config import PPOConfig
from scramjet.errors import ConfigError, TrustError, did_you_mean, shortened
from scramjet.runs.world_files import WorldPlace, find_world, is_same_world, name_in, open_world, recorded_name
from scramjet.runs.world_trust import NOBODY, Caller, approved_players, check_name
from scramjet.runtime.files import MAX_DEPTH, is_deeper_than
from scramjet.runtime.shipped import shipped_file, shipped_names
from scramjet.runtime.toml_text import check_bounds
from scramjet.runtime.trust import handed_over, said, shipped
from scramjet.settings import CONTROL, coerce, describe, plain_parameters
from scramjet.training.config.algorithm_choice import tables_of_algorithms, with_algorithm, with_loss
from scramjet.training.config.changes import reopened
from scramjet.training.config.names_of_other_libraries import brought_name
from scramjet.training.config.presets import named_preset, preset_path, refuse_preset_name
from scramjet.training.config.reading import MAX_TOML_BYTES, read_bytes, read_file, values_in
from scramjet.training.config.run_config import RunConfig
from scramjet.training.config.setting_tables import flattened_ppo
from scramjet.training.curiosity.config import CuriosityName, with_curiosity

CONFIG_VERSION = 1
_MAX_BITS = 1000  # of a whole number: one that is larger is no float either
_PPO_FIELDS = tuple(field.name for field in fields(PPOConfig))
_TABLES = (*tables_of_algorithms(), "bonus", "policy", "self_play", "eval", "checkpoint")
_TOP_FIELDS = tuple(
    field.name for field in fields(RunConfig) if field.name not in (*_TABLES, "ppo", "env", "env_parameters")
)


def apply(config: RunConfig, data: Mapping[str, Any], source: str, caller: Caller = NOBODY) -> RunConfig:
    """`config` with the values of a file laid over it; `source` is for messages.

    The one way from a file to a config: what a config names may run, so a TrustError is raised for a world, a player or
    a cluster that the file's `caller` does not let it name.
    """
    _check_plain(data, source)
    data = with_loss(flattened_ppo(data, _PPO_FIELDS, source))
    version = data.pop("config_version", CONFIG_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= CONFIG_VERSION:
        raise ConfigError(
            f"{source} has config_version {shortened(version)}; this scramjet reads up to {CONFIG_VERSION}: upgrade "
            f"scramjet"
        )
    known = ("env", *_TOP_FIELDS, *_PPO_FIELDS, *_TABLES)
    for key in data:
        if key not in known:
            raise ConfigError(f"{source}: unknown key {shortened(key)}.{_suggestion(key, known)}")
    top: dict[str, Any] = {key: data[key] for key in _TOP_FIELDS if key in data}
    if top.get("ray_address") not in (None, "none") and caller.approval is None:
        raise TrustError(
            f"{source} names the Ray cluster {shortened(top['ray_address'])}, which may run code here; give the "
            f"address yourself with --ray-address, or if you trust it all, add --trust"
        )
    try:
        if "algorithm" in data:
            config = with_algorithm(config, algorithm_named(data["algorithm"]).name)
        if "curiosity" in data:
            config = with_curiosity(config, coerce("curiosity", data["curiosity"], CuriosityName | None))
        if "env" in data or caller.env is not None:
            top.update(_env_fields(config, data.get("env", {}), source, caller))
        changes = {key: data[key] for key in _PPO_FIELDS if key in data}
        ppo = reopened(config.ppo, replace(config.ppo, **changes), changes)
        for table in _TABLES:
            if table in data:
                top[table] = _apply_table(getattr(config, table), data[table], table, source)
        if "opponents" in data.get("self_play", {}):
            players = approved_players(top["self_play"].opponents, source, caller)
            top["self_play"] = replace(top["self_play"], opponents=players)
        return replace(config, ppo=ppo, **top)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source not in str(error) else str(error)) from error


def _check_plain(data: Mapping[str, Any], source: str) -> None:
    """Refuse values that no config has: nested too deep, with control characters, or huge numbers."""
    if is_deeper_than(dict(data), MAX_DEPTH):
        raise ConfigError(f"{source} is nested too deep; a config has tables of values")
    values: list[Any] = [dict(data)]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            values += value
        elif isinstance(value, str) and CONTROL.search(value):
            raise ConfigError(f"{source}: {shortened(value)} holds a control character; write it without")
        elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise ConfigError(f"{source}: {shortened(value)} is too large")


def _apply_table(current: Any, values: Any, table: str, source: str) -> Any:
    if not isinstance(values, Mapping):
        chosen = ""
        if table == "policy":
            chosen = '; the network follows from the observation: leave it out, or give {"hidden": [64, 64]}'
        raise ConfigError(f"{source}: [{table}] must be a table of values, not {shortened(values)}{chosen}")
    known = [field.name for field in fields(current)]
    for key in values:
        if key not in known:
            raise ConfigError(f"{source}: unknown key {shortened(key)} in [{table}].{_suggestion(key, known)}")
    return replace(current, **values)


def _suggestion(key: Any, known: Iterable[str]) -> str:
    """What an unknown key may mean: our name for another library's setting, or the nearest of the `known` keys."""
    settings = [name for name, _, _ in field_docs()]
    return brought_name(str(key)[:100], settings, _place_in_file) or did_you_mean(key, known)


def _place_in_file(name: str) -> str:
    """A setting as a file has it: `policy.hidden` is 'hidden' in [policy]."""
    table, _, key = name.rpartition(".")
    return f"'{key}' in [{table}]" if table else f"'{key}'"


def _env_fields(config: RunConfig, value: Any, source: str, caller: Caller) -> dict[str, Any]:
    """The world's name and parameters from `env = "name"` or an [env] table: the one place where a file names it."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("name", ""), str):
        raise ConfigError(
            f"{source}: env must be a name, or a table with a name and parameters; got {shortened(value)}"
        )
    name = table.get("name", caller.env or config.env)
    check_name(name, source)
    place = find_world(name, caller.run, caller.folder) if caller.env is None else WorldPlace(caller.env, caller.env)
    if caller.env is not None and not caller.keeps_parameters and not _means(name, caller):
        table = {}
    given = plain_parameters({key: item for key, item in table.items() if key != "name"})
    name = open_world(place, given, source, caller)
    known = parameter_defaults(name)
    for key in given:
        if known is not None and key not in known:
            raise ConfigError(f"{source}: {name} has no parameter {shortened(key)}.{did_you_mean(key, known)}")
    kept = config.env_parameters if is_same_world(name, config.env) else {}
    return {"env": name, "env_parameters": {**kept, **given}}


def _means(name: str, caller: Caller) -> bool:
    """Whether the name of a world in a file means the world that the caller has named."""
    assert caller.env is not None
    return is_same_world(name_in(name, caller.run), caller.env) or is_same_world(name, caller.env)


def without_world(data: Mapping[str, Any]) -> dict[str, Any]:
    """A file's values without its world, so that no code that the file names can run."""
    return {key: value for key, value in data.items() if key != "env"}


def starting_config(env: str | None, preset: str | None = None, algorithm: str | None = None) -> RunConfig:
    """The code's defaults with the world's preset laid over them, or the one called `preset`.

    Where no world is given, it is the preset's. With an `algorithm`, the world's preset for it; where there is none,
    what the world's usual preset says of world and network, and the algorithm's defaults.
    """
    path = None if preset is None else named_preset(preset)
    if env is not None:
        refuse_preset_name(env)
    if env is None and path is not None:
        env = world_in(read_file(path))
    if env is None and path is not None:
        raise ConfigError(
            f"preset {path.stem} is for several worlds; name one: scramjet train WORLD --preset {path.stem}"
        )
    config = RunConfig() if env is None else RunConfig(env=env)
    path = path or (preset_path(config.env, algorithm) if algorithm else None) or preset_path(config.env)
    config = config if path is None else with_preset(config, path)
    return config if algorithm is None else with_algorithm(config, algorithm)


@lru_cache(maxsize=1)
def preset_worlds() -> dict[str, str]:
    """The world of each preset that names one, by the preset's name."""
    files = {name: shipped_file(f"configs/{name}.toml") for name in shipped_names("configs", ".toml")}
    worlds = {name: world_in(read_file(file)) for name, file in files.items() if file is not None}
    return {name: world for name, world in worlds.items() if world is not None}


def with_preset(config: RunConfig, preset: str | Path) -> RunConfig:
    """`config` with a preset, given by name or file, laid over it; the world of a preset for another is left out."""
    path = named_preset(preset) if isinstance(preset, str) else preset
    data = read_file(path)
    own_world = world_in(data)
    if own_world is not None and not is_same_world(own_world, config.env):  # its parameters are for another one
        data = without_world(data)
    laid_over = apply(config, data, f"preset {path.name}", Caller(shipped(path), folder=path.parent))
    return replace(laid_over, env=config.env)  # as it was spelled


def world_in(data: Mapping[str, Any]) -> str | None:
    """The world that a file names, if it names one."""
    env = data.get("env")
    name = env.get("name") if isinstance(env, Mapping) else env
    return name if isinstance(name, str) else None


def load_config(path: Path | str, *, trust: bool = False, preset: str | None = None) -> RunConfig:
    """Defaults, a preset (that of the world which the file names, or the one called `preset`), and the file, in order.

    A world of somebody's own code is refused unless you have named it yourself before, or give `trust`.
    """
    path = Path(coerce("path", path, Path))
    data = read_file(path)
    name = world_in(data)
    if name is not None:
        check_name(name, str(path))
    base = starting_config(name, preset)  # of the file's world, only its name is looked at
    trust = coerce("trust", trust, bool)
    return apply(base, data, str(path), Caller(said(trust), folder=path.parent))


def to_dict(config: RunConfig, run: Path | None = None) -> dict[str, Any]:
    """The config as a file holds it: flat, with tables. The files of a `run` have paths as seen from its folder."""
    plain = asdict(config)
    data: dict[str, Any] = {key: plain[key] for key in _TOP_FIELDS}
    data["ray_address"] = None  # given anew each time: whoever answers there may run code here
    data.update(plain["ppo"])
    name = config.env if run is None else recorded_name(config.env, run)
    data["env"] = {"name": name, **plain["env_parameters"]}
    for table in _TABLES:
        data[table] = plain[table]
    return data


def to_toml(config: RunConfig, run: Path | None = None) -> str:
    """The config as TOML, every value written out, readable back by `load_frozen` from the folder of `run`."""
    data = to_dict(config, run)
    _check_plain(data, "the config")  # before there is a run that could not be read back
    text = tomli_w.dumps({"config_version": CONFIG_VERSION, **_without_none(data)})
    if len(text.encode()) > MAX_TOML_BYTES:
        raise ConfigError(
            f"the config with its env parameters has {len(text):,} characters, and a run keeps at most "
            f"{MAX_TOML_BYTES:,}; give the env large data by way of a file"
        )
    try:
        check_bounds(text)
    except ValueError as error:
        raise ConfigError(
            f"the config with its env parameters: {error}; give the env large data by way of a file"
        ) from error
    return text


def load_frozen(path: Path, caller: Caller = NOBODY) -> RunConfig:
    """The config of an existing run, exactly as it was frozen."""
    return apply(RunConfig(), read_file(path, follow_links=False), str(path), replace(caller, run=path.parent))


def handed_config(path: Path, digest: str) -> RunConfig:
    """The config that the process which started this one wrote to `path`; `digest` is what it told of the file."""
    text = read_bytes(path, follow_links=False)
    caller = Caller(handed_over(text, digest), run=path.parent)
    return apply(RunConfig(), values_in(text, path), str(path), caller)


def _without_none(value: Any) -> Any:
    """TOML has no null: write "none", which the loader reads back."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return "none" if value is None else value


def field_docs() -> list[tuple[str, str, Any]]:
    """Every config field as (key, type in words, default), in the order of the docs page."""
    rows: list[tuple[str, str, Any]] = []
    default = RunConfig()
    for prefix, part in (
        ("", default),
        ("", default.ppo),
        *((f"{table}.", getattr(default, table)) for table in _TABLES),
    ):
        hints = get_type_hints(type(part), include_extras=True)
        for field in fields(part):
            value = getattr(part, field.name)
            if not is_dataclass(value):
                rows.append((prefix + field.name, describe(hints[field.name]), value))
    return rows
