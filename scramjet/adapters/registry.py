"""Worlds of other libraries, by name: `gym:CartPole-v1`, `vec:CartPole-v1` (as Gymnasium's vector env), `ale:Pong`,
`mujoco:HalfCheetah-v5`, `envpool:Pong-v5`, `pettingzoo:pursuit_v5`, and a user's own function:
`factory:my_package.envs:make_env` or `factory:my_envs.py:make_env`. One that takes `num_envs` makes a vector env.

To add a library, write a `Library` record in `libraries.py`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import TYPE_CHECKING, Any

from scramjet.adapters.gymnasium.registered_envs import REGISTERED_BY
from scramjet.adapters.info import InfoSelection
from scramjet.adapters.libraries import GYM, LIBRARIES, MUJOCO
from scramjet.adapters.library import Library, PoolRequest, WorkerSettings
from scramjet.adapters.world_parameters import WorldParameter, type_in_words
from scramjet.envs.registry import canonical_name as canonical_native_name
from scramjet.envs.registry import (
    env_class,
    is_name_alone,
    is_registered,
    is_registered_here,
    load_env,
    registrations,
    unknown_world,
)
from scramjet.errors import ConfigError, WorldError, shortened

if TYPE_CHECKING:
    import gymnasium

    from scramjet.adapters.foreign_pool import ForeignPool
    from scramjet.adapters.gymnasium.process import Trial
    from scramjet.envs.api import Env

MOST_ENVS = 1 << 16
"""Maximum number of envs of another library in one pool: each is an object or a program of its own."""
MOST_INFO_NAMES, LONGEST_INFO_NAME = 64, 100
"""Maximum number of names in `log_info`, and of characters in one."""
_UNTRIED = ("--num-workers", "--env-timeout", "--on-env-error", "--mode", "--help", "-h")
"""Flags with which no env is tried out, or which decide on it."""


@dataclass(frozen=True)
class ForeignWorld:
    """A world of another library, where a native world has an `Env`: it says what its spaces are, and makes pools."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    workers: WorkerSettings = field(default=WorkerSettings(), compare=False)
    info: InfoSelection = field(default_factory=InfoSelection, compare=False)
    stat_names = ()
    """Known only from episodes that ended."""
    max_episode_steps = None

    @property
    def library(self) -> Library:
        """The library that the prefix of its name means."""
        return LIBRARIES[self.name.partition(":")[0]]

    @property
    def id(self) -> str:
        """What stands behind the prefix."""
        return self.name.partition(":")[2]

    @property
    def observation_space(self) -> Any:
        """Ours, adapted from theirs."""
        return self._spaces[0]

    @property
    def action_space(self) -> Any:
        """Ours, adapted from theirs."""
        return self._spaces[1]

    @cached_property
    def _spaces(self) -> tuple[Any, Any]:
        if self.makes_single_envs and self.workers.num_workers != 0:  # else somebody debugs it here
            from scramjet.adapters.spaces import adapted_action_space, adapted_observation_space

            facts = self.trial.facts
            spaces_of = facts.observation_space, facts.action_space
            return adapted_observation_space(self.name, spaces_of[0]), adapted_action_space(self.name, spaces_of[1])
        with closing(self.pool(1)) as pool:
            return pool.observation_space, pool.action_space

    @cached_property
    def trial(self) -> Trial:
        """What one env showed when it was tried out in a process of its own; done when first asked for."""
        from scramjet.adapters.gymnasium.process import try_out

        return try_out(self.name, self.env_factory(), self.workers.timeout)

    @property
    def seconds_of_a_step(self) -> float | None:
        """How long a single env takes for one; None where nobody knows."""
        return self.trial.seconds if math.isfinite(self.trial.seconds) else None

    def pool(self, num_envs: int, *, learns: bool = True, workers: WorkerSettings | None = None) -> ForeignPool:
        """A pool of its envs; `learns`: to train with, where that differs (Atari's lives and clipped rewards)."""
        made = self.library.make_pool(self, PoolRequest(num_envs, learns, workers or self.workers))
        made.env, made.info = self, self.info
        vars(self)["_spaces"] = made.observation_space, made.action_space  # no env needs to be made for them
        return made

    @property
    def makes_single_envs(self) -> bool:
        """Whether its envs are made one by one, so that processes can divide them."""
        return self.library.env_factory is not None and not self.library.makes_vector_envs(self.name)

    @property
    def takes_render_mode(self) -> bool:
        """Whether its envs can be told how to draw themselves."""
        return self.library.takes_render_mode(self.name)

    def env_factory(self) -> Callable[[], gymnasium.Env]:
        """What makes one Gymnasium env, of those that are made one by one."""
        assert self.library.env_factory is not None
        return self.library.env_factory(self)

    def fingerprint(self, rules: str | None = None) -> str:
        """A hash of what is known of its rules: `rules` or else its name, parameters and the library's version."""
        try:
            release = version(self.library.package)
        except PackageNotFoundError:
            release = "absent"
        known = rules or self.name, sorted(self.parameters.items()), release
        return hashlib.sha256(repr(known).encode()).hexdigest()


# --- names


def library_of(name: str) -> Library | None:
    """The library whose world this is; None for a native world."""
    prefix, colon, _ = whole_name(name).partition(":")
    return LIBRARIES.get(prefix) if colon else None


def whole_name(name: str) -> str:
    """A world's name with its library: `gym:FrozenLake-v1` for the plain id, unless a world of ours is called so."""
    if ":" in name or not is_gymnasium_id(name) or is_registered(name):
        return name
    import gymnasium

    spec = gymnasium.registry.get(name)
    is_robot = spec is not None and str(spec.entry_point).startswith("gymnasium.envs.mujoco")
    return f"{(MUJOCO if is_robot else GYM).prefix}:{name}"


def is_gymnasium_id(name: str) -> bool:
    """Whether Gymnasium's registry has an env of this name, or one of our extras will put it there."""
    if re.search(r"-v\d+$", name) is None:  # so that no other name loads Gymnasium
        return False
    import gymnasium

    return name in gymnasium.registry or name.startswith(tuple(REGISTERED_BY))


def known_names() -> list[str]:
    """Every name that a world may have without a file or module: ours, aliases, and the ids of Gymnasium's registry."""
    import gymnasium

    ours = [name for entry in registrations() for name in (entry.name, *entry.aliases)]
    return [*ours, *(name for name in gymnasium.registry if "/" not in name)]  # the others are of libraries


def _check_known(name: str) -> None:
    if is_name_alone(name) and not is_registered(name) and not name.endswith((".toml", ".yaml", ".yml")):
        raise unknown_world(name, known_names())


def note_on_id(name: str) -> str:
    """One line on the plain id of a Gymnasium env: which world is meant, and how to get the other; else empty."""
    if whole_name(name) != name:
        return f"{name} is Gymnasium's env {whole_name(name)}"
    if not is_registered(name) or not is_gymnasium_id(name):
        return ""
    return f"{name} is scramjet's own {canonical_name(name)}, compiled; Gymnasium's is gym:{name}"


def is_foreign(name: str) -> bool:
    """Whether a name is that of another library's world."""
    return library_of(name) is not None


def require_native(name: str, purpose: str) -> None:
    """Refuse another library's world where only native ones will do."""
    if is_foreign(name):
        raise ConfigError(f"{purpose} is for native worlds, and {name} is none; see `scramjet list` for the names")


def check_num_envs(name: str, num_envs: int) -> None:
    """Refuse more envs of another library than a machine can hold."""
    if num_envs > MOST_ENVS:
        raise ConfigError(f"num_envs={num_envs} of {name} are too many; {MOST_ENVS} are the most of another library")


# --- worlds, their parameters, and what of their `info` is logged


def load_world(name: str, parameters: Mapping[str, Any]) -> Env | ForeignWorld:
    """The world called `name`, whoever wrote it."""
    library, name = library_of(name), whole_name(name)
    if library is None:
        _check_known(name)
        return load_env(name, **parameters)
    world = ForeignWorld(name, dict(parameters))
    if not world.id:
        raise WorldError(f"'{name}' names no world; write for example gym:CartPole-v1")
    for key in library.set_by_us:
        if key in parameters:
            raise ConfigError(f"{name} has no parameter '{key}': scramjet sets that itself; leave it out")
    return world


def parameter_defaults(name: str) -> dict[str, Any] | None:
    """A world's parameters and their defaults; None where only its library knows them."""
    library = library_of(name)
    if library is None:
        _check_known(name)
        return env_class(name).parameter_defaults()
    return None if library.parameter_defaults is None else library.parameter_defaults()


def world_parameters(name: str) -> list[WorldParameter]:
    """The parameters of a world by name, default and type, as far as they are known without making an env."""
    known = parameter_defaults(name)
    if known is not None:
        return [WorldParameter(key, value, type_in_words(value)) for key, value in known.items()]
    library = library_of(name)
    assert library is not None
    return [parameter for parameter in library.parameters(name) if parameter.name not in library.set_by_us]


def canonical_name(name: str) -> str:
    """The one spelling under which a world is recorded."""
    library = library_of(name)
    return canonical_native_name(name) if library is None else library.canonical_name(whole_name(name))


def check_log_info(env: str, names: tuple[str, ...]) -> None:
    """Refuse names for a world without `info`, and names that are none."""
    if not names:
        return
    library = library_of(env)
    if library is None:
        raise ConfigError(
            f"log_info={list(names)} names numbers in Gymnasium's info, and {shortened(env)} is a native world, which "
            f"has none: list them in its stat_names and write stats() (docs/writing-environments.md)"
        )
    if not library.tells_info:
        raise ConfigError(
            f"log_info={list(names)}, and {shortened(env)} steps games that keep no info of their last step; leave it "
            f"out, or use single games such as gym:ALE/Pong-v5"
        )
    if len(names) > MOST_INFO_NAMES or len(set(names)) < len(names):
        raise ConfigError(f"log_info has {len(names)} names; give up to {MOST_INFO_NAMES}, each once")
    for name in names:
        if not name.strip("/") or name.startswith("/") or len(name) > LONGEST_INFO_NAME or not name.isprintable():
            raise ConfigError(
                f"log_info: {shortened(name)} is no name of a number in info; write success, or reward/x for "
                f'info["reward"]["x"]'
            )


# --- what other programs, and other processes of this one, need to know of a name


def registration(name: str) -> str | None:
    """The call that another program has to make before it finds this world by its name; None where it need not."""
    if is_registered_here(name):
        return f"scramjet.register({name!r}, ...)"
    library, env_id = library_of(name), name.partition(":")[2]
    if library is None or not library.has_gymnasium_ids or ":" in env_id:  # a module in the name is imported by itself
        return None
    import gymnasium

    spec = gymnasium.registry.get(env_id)
    if spec is None or _registers_itself(spec) or env_id.startswith(tuple(REGISTERED_BY)):
        return None
    return f"gymnasium.register({env_id!r}, ...)"


def _registers_itself(spec: gymnasium.envs.registration.EnvSpec) -> bool:
    """Whether an env comes with Gymnasium, or with a package that tells Gymnasium of it wherever it is installed."""
    target = spec.entry_point or spec.vector_entry_point
    if not isinstance(target, str):
        return False
    plugins = {point.module.partition(".")[0] for point in entry_points(group="gymnasium.envs")}
    return target.partition(":")[0].partition(".")[0] in {"gymnasium", "scramjet", *plugins}


def tries_out_an_env(words: Sequence[str]) -> bool:
    """Whether `scramjet train` with these words most likely tries out an env of another library."""
    flags = {word.partition("=")[0].replace("_", "-") for word in words}
    libraries = [library_of(word) for word in words]
    return flags.isdisjoint(_UNTRIED) and any(library is not None and library.has_workers for library in libraries)
