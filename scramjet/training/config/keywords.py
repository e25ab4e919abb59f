"""Settings as keyword arguments of `scramjet.train`: the names of the flags, checked as flags and files are.

scramjet.train("cartpole", seed=2, learning_rate=1e-3, policy={"hidden": [32]}, env_parameters={"gravity": 12})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from scramjet.adapters.registry import parameter_defaults
from scramjet.algorithms.algorithm import algorithm_named
from scramjet.algorithms.config import PPOConfig
from scramjet.errors import ConfigError, did_you_mean, shortened
from scramjet.policies.config import PolicyConfig
from scramjet.runs.world_trust import Caller, approve
from scramjet.runtime.trust import given
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.settings import coerce
from scramjet.training.config import files as config_files
from scramjet.training.config.algorithm_choice import tables_of_algorithms, with_algorithm, with_loss
from scramjet.training.config.names_of_other_libraries import suggestion
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.config.setting_tables import nested
from scramjet.training.curiosity.config import BonusConfig, CuriosityName, with_curiosity

SOURCE = "scramjet.train"
"""How messages call the place that the settings came from."""
ARGUMENTS = ("config", "env", "resume", "fork", "runs_dir", "run_name", "network", "display", "trust", "callbacks")
"""The arguments of `scramjet.train` beside the settings, for suggestions after a misspelled name."""
SERVICES = ("track", "track_project", "ray_address")
"""Which services a run uses, which changes nothing that is trained."""
CHANGEABLE = ("total_timesteps", "time_limit", *SERVICES)
"""The settings that may change when a run is resumed."""

TABLES: dict[str, Any] = {
    "ppo": PPOConfig,
    **tables_of_algorithms(),
    "bonus": BonusConfig,
    "policy": PolicyConfig,
    "self_play": SelfPlayConfig,
    "eval": EvaluationConfig,
    "checkpoint": CheckpointConfig,
}
"""The tables of settings, and the class of each."""
_FLAT = tuple(field.name for part in (RunConfig, PPOConfig) for field in fields(part))


def with_keywords(
    config: RunConfig, settings: Mapping[str, Any], caller: Caller | None = None, source: str = SOURCE
) -> RunConfig:
    """`config` with keyword settings laid over it.

    A table (policy, self_play, eval, checkpoint, ppo) is a dict of what to change, a config object that replaces all of
    it, or keys with a dot such as "policy.hidden". `env_parameters`, or keys such as "env.gravity", are the world's
    own. A CHANGEABLE one that is None is not given. `caller` is who reads the file `source` that the settings come
    from; None: the user has given them.
    """
    settings = {key: value for key, value in settings.items() if value is not None or key not in CHANGEABLE}
    check_names(settings)
    settings = with_loss(settings)
    if "algorithm" in settings:
        config = with_algorithm(config, algorithm_named(settings["algorithm"]).name)
    if "curiosity" in settings:
        config = with_curiosity(config, coerce("curiosity", settings["curiosity"], CuriosityName | None))
    # A config object comes first: what is given beside it changes it.
    for table, kind in TABLES.items():
        if isinstance(settings.get(table), kind):
            config = replace(config, **{table: settings[table]})
    data = nested({key: value for key, value in settings.items() if not is_dataclass(value)}, SOURCE)
    parameters = {**_parameters(data.pop("env_parameters", {})), **data.pop("env", {})}
    if parameters:
        if caller is not None:
            approve(config.env, parameters, source, caller)
        config = replace(config, env_parameters={**config.env_parameters, **_known(config.env, parameters)})
    changed = {**data, **data.get("ppo", {})} if isinstance(data.get("ppo", {}), Mapping) else data
    if None not in (changed.get("num_minibatches"), changed.get("minibatch_size")):
        raise ConfigError(f"{SOURCE}: num_minibatches and minibatch_size say the same in two ways; give one of them")
    return config_files.apply(config, data, source, caller or Caller(given()))


def check_names(settings: Mapping[str, Any], function: str = SOURCE, arguments: Iterable[str] = ARGUMENTS) -> None:
    """Refuse a keyword that is no setting, with the nearest one that is, and an object that is no table of it.

    `function` is what was called, with these `arguments` beside the settings.
    """
    known = [*(name for name, _, _ in config_files.field_docs()), *_FLAT, *arguments]
    for key, value in settings.items():
        table = key.partition(".")[0]
        if key not in _FLAT and not (table != key and table in (*TABLES, "env")):
            raise ConfigError(f"{function} has no setting {shortened(key)}.{suggestion(key, known)}")
        if is_dataclass(value) and not (key in TABLES and isinstance(value, TABLES[key])):
            wanted = f"a dict or a {TABLES[key].__name__}" if key in TABLES else "a plain value"
            raise ConfigError(f"{function}: {key} must be {wanted}, not a {type(value).__name__}")


def refuse_when_resumed(settings: Mapping[str, Any], run: str) -> None:
    """A resumed run keeps its config: refuse every setting that is not CHANGEABLE."""
    check_names(settings)
    for name in settings:
        if name not in CHANGEABLE:
            raise ConfigError(
                f"{name} cannot change when a run is resumed: its config is frozen. Only total_timesteps, "
                f"time_limit, track and ray_address may; to change more, start a new run with fork={run!r}"
            )


def _parameters(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{SOURCE}: env_parameters must be a dict of the world's own, not {shortened(given)}")
    return dict(given)


def _known(env: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters, if the world has all of them."""
    known = parameter_defaults(env)
    for name in parameters if known is not None else ():
        assert known is not None
        if name not in known:
            raise ConfigError(
                f"{env} has no parameter {shortened(name)}.{did_you_mean(name, known)} Parameters: {', '.join(known)}"
            )
    return parameters
