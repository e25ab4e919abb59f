"""Worlds of other libraries, by name: `gym:CartPole-v1`, `vec:CartPole-v1` (as Gymnasium's vector env), `ale:Pong`,
`mujoco:HalfCheetah-v5`, `envpool:Pong-v5`, `pettingzoo:pursuit_v5`, and a user's own function:
`factory:my_package.envs:make_env` or `factory:my_envs.py:make_env`. One that takes `num_envs` makes a vector env.

A `ForeignWorld` stands where a native world's `Env` does: it says what its spaces and parameters are, and makes pools.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from scramjet.envs.registry import canonical_name as canonical_native_name
from scramjet.envs.registry import env_class, import_file, load_env
from scramjet.errors import ENV_FAILURES, ConfigError, ScramjetError, WorldError, did_you_mean
from scramjet.runtime.machine.cores import available_cores

if TYPE_CHECKING:
    import gymnasium

    from scramjet.adapters.foreign_pool import ForeignPool
    from scramjet.adapters.gymnasium.trial import Trial
    from scramjet.envs.api import Env

LIBRARIES = {
    "gym": "gymnasium",
    "vec": "gymnasium",
    "ale": "ale-py",
    "mujoco": "mujoco",
    "envpool": "envpool",
    "pettingzoo": "pettingzoo",
    "factory": "gymnasium",
}
"""What stands before the colon, and the package that brings it."""

SET_BY_US = {
    "gym": ("env_id", "disable_env_checker"),
    "mujoco": ("env_id", "disable_env_checker"),
    "vec": ("env_id", "num_envs"),
    "ale": ("game", "num_envs", "training", "in_halves", "num_threads"),
    "envpool": ("task_id", "num_envs", "training"),
    "pettingzoo": ("name", "module_name", "num_envs"),
    "factory": ("num_envs",),
}
"""What each library is given by us: no parameters of a world."""

REGISTERED_BY = {"scramjet/": "scramjet.gym", "ALE/": "ale_py", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""How ids of Gymnasium envs begin, and the module of ours or of an extra that registers them when it is imported."""
_EXTRAS = {"ale_py": "atari"}
"""Of which extra a module is, where that has another name."""

OnError = Literal["fail", "restart"]
DEFAULT_TIMEOUT = 60.0
MOST_ENVS = 1 << 16

SHARE_SECONDS = 60e-6
"""Envs that step in less, one after the other, gain nothing by another process: telling it to takes as long."""
QUICK_SECONDS = 2e-3
"""Where all envs step in less, this process steps a share of them itself. That is faster; but nothing guards the share
against an env that hangs or ends its process."""
_FACTORIES: dict[str, Callable[[], gymnasium.Env]] = {}
"""Those that were given from Python, by their names: a file or a module need not hold them."""


@dataclass(frozen=True)
class WorkerSettings:
    """How the envs of a pool are kept in processes."""

    num_workers: int | None = None  # None: one for each core, or none where that is faster; 0: none
    timeout: float = DEFAULT_TIMEOUT
    on_error: OnError = "fail"
    apart: bool = False  # a part of a pool, for one of many actors
    threads: int = 1  # of that part, where its library has threads for it
    in_halves: bool = False  # steps one half of the envs, then the other, as training does

    @property
    def is_free(self) -> bool:
        """Whether envs may as well step in this process: nobody asked for what only processes can do."""
        return self.num_workers is None and self.on_error == "fail" and self.timeout == DEFAULT_TIMEOUT


@dataclass(frozen=True)
class ForeignWorld:
    """A world of another library. Parameters go to whatever makes its envs."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    workers: WorkerSettings = field(default=WorkerSettings(), compare=False)
    stat_names = ()
    """Known only from episodes that ended."""
    max_episode_steps = None

    @property
    def library(self) -> str:
        """What stands before the colon."""
        return self.name.partition(":")[0]

    @property
    def id(self) -> str:
        """What stands after it."""
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

            facts = self._trial.facts
            spaces_of = facts.observation_space, facts.action_space
            return adapted_observation_space(self.name, spaces_of[0]), adapted_action_space(self.name, spaces_of[1])
        with closing(self.pool(1)) as pool:
            return pool.observation_space, pool.action_space

    @cached_property
    def _trial(self) -> Trial:
        from scramjet.adapters.gymnasium.trial import try_out

        return try_out(self.name, self.env_factory(), self.workers.timeout)

    @property
    def seconds_of_a_step(self) -> float | None:
        """How long a single env takes for one; None where nobody knows."""
        return self._trial.seconds if math.isfinite(self._trial.seconds) else None

    def pool(self, num_envs: int, *, learns: bool = True, workers: WorkerSettings | None = None) -> ForeignPool:
        """A pool of its envs; `learns`: to train with, where that differs (Atari's lives and clipped rewards)."""
        made = self._pool(num_envs, learns, workers or self.workers)
        made.env = self
        vars(self)["_spaces"] = made.observation_space, made.action_space  # no env needs to be made for them
        return made

    def _pool(self, num_envs: int, learns: bool, workers: WorkerSettings) -> ForeignPool:
        if self.library == "ale":
            from scramjet.adapters.atari import AtariPool, PollableAtariPool

            if workers.apart:
                return PollableAtariPool(
                    self.id, num_envs, training=learns, num_threads=workers.threads, **self.parameters
                )
            return AtariPool(self.id, num_envs, training=learns, in_halves=workers.in_halves, **self.parameters)
        if self.library == "envpool":
            from scramjet.adapters.envpool import EnvPoolPool

            return EnvPoolPool(self.id, num_envs, training=learns, **self.parameters)
        if self.library == "pettingzoo":
            from scramjet.adapters.pettingzoo.games import make_pettingzoo_pool

            return make_pettingzoo_pool(self.name, self.id, num_envs, **self.parameters)
        if self.makes_vector_envs:
            from scramjet.adapters.vector import VectorPool

            if learns and workers.num_workers and not workers.apart:
                raise ConfigError(
                    f"num_workers={workers.num_workers}, and {self.name} makes many envs at once, which processes "
                    f"cannot divide; leave it out, or give a function that makes one env"
                )
            return VectorPool(self.name, self._make_vector_env(), num_envs)
        return self._gymnasium_pool(num_envs, learns, workers)

    def _gymnasium_pool(self, num_envs: int, learns: bool, workers: WorkerSettings) -> ForeignPool:
        """In this process, in others, or in both, whichever is fastest where nobody chose."""
        from scramjet.adapters.gymnasium.serial import SerialPool
        from scramjet.adapters.gymnasium.workers.pool import WorkerPool

        factory, num_workers = self.env_factory(), workers.num_workers
        at_once = -(-num_envs // 2) if workers.in_halves else num_envs
        is_quick = workers.is_free and at_once * self._trial.seconds < QUICK_SECONDS
        if is_quick:
            shares = int(at_once * self._trial.seconds / SHARE_SECONDS) if learns and self._trial.can_be_sent else 1
            num_workers = min(available_cores(), at_once, shares)
        if num_workers == 0 or (is_quick and num_workers == 1):
            return SerialPool(self.name, factory, num_envs)
        return WorkerPool(
            self.name,
            factory,
            num_envs,
            num_workers=num_workers,
            timeout=workers.timeout,
            on_error=workers.on_error,
            gives_way=workers.apart,
            takes_part=is_quick,
        )

    @property
    def makes_single_envs(self) -> bool:
        """Whether its envs are made one by one, so that processes can divide them."""
        return self.library in ("gym", "mujoco", "factory") and not self.makes_vector_envs

    @property
    def makes_vector_envs(self) -> bool:
        """Whether many envs are made at once."""
        return self.library == "vec" or (self.library == "factory" and _takes(factory_of(self.name), "num_envs"))

    @property
    def takes_render_mode(self) -> bool:
        """Whether its envs can be told how to draw themselves."""
        return self.library != "factory" or _takes(factory_of(self.name), "render_mode")

    def _make_vector_env(self) -> Callable[[int], gymnasium.vector.VectorEnv]:
        """What makes a vector env of so many."""
        if self.library == "factory":
            build: Callable[..., Any] = factory_of(self.name)
        else:
            check_gymnasium_id(self.name, self.id)
            build = partial(_vector_by_gymnasium, _with_module(self.id))
        return lambda num_envs: _made(self.name, partial(build, num_envs=num_envs), self.parameters)

    def env_factory(self) -> Callable[[], gymnasium.Env]:
        """What makes one Gymnasium env, of those that are made one by one."""
        if self.library == "factory":
            found = factory_of(self.name)
            # A function of a module is found again wherever it is called.
            return partial(_made, self.name, found if self.name in _FACTORIES else None, self.parameters)
        check_gymnasium_id(self.name, self.id)
        if self.library == "mujoco":
            _require("mujoco", "mujoco")
        return partial(_made, self.name, partial(_by_gymnasium, _with_module(self.id)), self.parameters)

    def fingerprint(self, rules: str | None = None) -> str:
        """A hash of what is known of its rules: `rules` or else its name, parameters and the library's version."""
        package = LIBRARIES[self.library]
        try:
            release = version(package)
        except PackageNotFoundError:
            release = "absent"
        known = rules or self.name, sorted(self.parameters.items()), release
        return hashlib.sha256(repr(known).encode()).hexdigest()


def is_foreign(name: str) -> bool:
    """Whether a name is that of another library's world."""
    return name.partition(":")[0] in LIBRARIES and ":" in name


def require_native(name: str, purpose: str) -> None:
    """Refuse another library's world where only native ones will do."""
    if is_foreign(name):
        raise ConfigError(f"{purpose} is for native worlds, and {name} is none; see `scramjet list` for the names")


def check_num_envs(name: str, num_envs: int) -> None:
    """Refuse more envs of another library than a machine can hold: each is an object or a program of its own."""
    if num_envs > MOST_ENVS:
        raise ConfigError(f"num_envs={num_envs} of {name} are too many; {MOST_ENVS} are the most of another library")


def load_world(name: str, parameters: Mapping[str, Any]) -> Env | ForeignWorld:
    """The world called `name`, whoever wrote it."""
    if is_foreign(name):
        world = ForeignWorld(name, dict(parameters))
        if not world.id:
            raise WorldError(f"'{name}' names no world; write for example gym:CartPole-v1")
        for key in SET_BY_US[world.library]:
            if key in parameters:
                raise ConfigError(f"{name} has no parameter '{key}': scramjet sets that itself; leave it out")
        return world
    return load_env(name, **parameters)


def parameter_defaults(name: str) -> dict[str, Any] | None:
    """A world's parameters and their defaults; None where only its library knows them."""
    if not is_foreign(name):
        return env_class(name).parameter_defaults()
    if name.startswith("ale:"):
        from scramjet.adapters.atari import AtariConfig

        return asdict(AtariConfig())
    return None


def canonical_name(name: str) -> str:
    """The one spelling under which a world is recorded."""
    if not is_foreign(name):
        return canonical_native_name(name)
    library, _, rest = name.partition(":")
    path, colon, function = rest.rpartition(":")
    if library == "factory" and path.endswith(".py"):
        return f"factory:{os.path.realpath(path)}{colon}{function}"
    return name


def register_factory(make_env: Callable[..., gymnasium.Env]) -> str:
    """A name for a function that makes Gymnasium envs, under which this process finds it again."""
    if not callable(make_env):
        raise ConfigError(f"env={make_env!r} must be a name or a function that makes a Gymnasium env")
    function = make_env.func if isinstance(make_env, partial) else make_env
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", type(function).__name__)
    if "<" not in name and getattr(module, name, None) is not make_env:  # a partial, an object, a method
        name = f"<{name}>"
    place = getattr(module, "__file__", None) if module is not None and module.__name__ == "__main__" else None
    where = place or getattr(function, "__module__", "unknown")
    spelled = canonical_name(f"factory:{where}:{name}")
    _FACTORIES[spelled] = make_env
    return spelled


def is_given(name: str) -> bool:
    """Whether this process was given a function under this name."""
    return name.startswith("factory:") and canonical_name(name) in _FACTORIES


def must_be_given(name: str) -> bool:
    """Whether other processes do not find its function by this name, since it is in another or has none."""
    return name.startswith("factory:") and ("<" in name or name.startswith("factory:__main__:"))


def factory_of(name: str) -> Callable[..., gymnasium.Env]:
    """The function that a name means: one given from Python, or one in a module or file."""
    known = _FACTORIES.get(canonical_name(name))
    if known is not None:
        return known
    where, _, function = name.removeprefix("factory:").rpartition(":")
    if not where or not function:
        raise WorldError(f"'{name}' must be factory:MODULE:FUNCTION or factory:FILE.py:FUNCTION")
    if where.endswith(".py"):
        module = _read_once(str(Path(where).resolve()), os.stat(where).st_mtime_ns if os.path.exists(where) else 0)
    else:
        try:
            module = importlib.import_module(where)
        except (ImportError, TypeError, ValueError) as error:
            raise WorldError(f"cannot import '{where}' for '{name}': {error}") from error
    found = getattr(module, function, None)
    if not callable(found):
        nearest = did_you_mean(function, _functions_of(module))
        raise WorldError(
            f"'{where}' has no function '{function}' that makes an env.{nearest} A factory that is no "
            f"function of a module must be given again from Python: scramjet.train(env=...)"
        )
    return found


def _functions_of(module: ModuleType) -> list[str]:
    return [name for name, thing in vars(module).items() if callable(thing) and not name.startswith("_")]


@lru_cache
def _read_once(path: str, changed_at: int) -> ModuleType:
    """A file of functions, read again only where it has changed."""
    return import_file(Path(path))


def check_gymnasium_id(name: str, env_id: str) -> None:
    """Refuse an id that Gymnasium does not know, with the nearest one it does."""
    import gymnasium

    module, colon, plain = _with_module(env_id).rpartition(":")
    if module in REGISTERED_BY.values():
        _require(module, _EXTRAS.get(module, module))
    elif colon:
        try:
            importlib.import_module(module)
        except (ImportError, TypeError, ValueError) as error:  # the latter two of names such as '' and '.x'
            raise WorldError(f"cannot import '{module}' for '{name}': {error}") from error
    if plain in gymnasium.registry:
        return
    versions = [known for known in gymnasium.registry if known.partition("-v")[0] == plain.partition("-v")[0]]
    nearest = f" Did you mean '{versions[-1]}'?" if versions else did_you_mean(plain, gymnasium.registry)
    raise WorldError(
        f"Gymnasium knows no '{plain}'.{nearest} An env that a package registers is named with the module: "
        f"gym:my_package:{plain}"
    )


def _with_module(env_id: str) -> str:
    """An id with the module that registers it before a colon, as Gymnasium takes it, where it is one of our extras'."""
    module = next((module for prefix, module in REGISTERED_BY.items() if env_id.startswith(prefix)), None)
    return env_id if module is None else f"{module}:{env_id}"


def _made(name: str, build: Callable[..., Any] | None, parameters: dict[str, Any]) -> Any:
    """An env, or one message about why there is none; without `build` by the factory that the name means."""
    build = build or factory_of(name)
    if name.startswith("factory:"):
        _check_arguments(name, build, parameters)
    try:
        return build(**parameters)
    except ScramjetError:
        raise
    except ENV_FAILURES as error:  # whatever a user's function raises, it is the env that cannot be made
        given = f" with {parameters}" if parameters else ""
        raise WorldError(f"{name} cannot be made{given}: {type(error).__name__}: {error}") from error


def _check_arguments(name: str, build: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
    """Refuse to make an env without what its class or function cannot do without, or with what it does not know."""
    try:
        inspect.signature(build).bind(**parameters)
        return
    except ValueError:  # written in C
        return
    except TypeError:
        taken = inspect.signature(build).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [each.name for each in taken if each.kind in named]
    for each in parameters:
        if each not in known and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
            raise WorldError(
                f"{name} has no parameter {each!r}.{did_you_mean(each, known)} Parameters: {', '.join(known) or 'none'}"
            )
    missing = [each.name for each in taken if each.default is each.empty and each.kind in named]
    missing = [each for each in missing if each not in parameters]
    if missing:
        flags = " ".join(f"--env.{each.replace('_', '-')} ..." for each in missing)
        raise WorldError(
            f"{name} cannot be made without {', '.join(missing)}: add {flags} (in Python env_parameters), give "
            f"{'it a default' if len(missing) == 1 else 'them defaults'}, or write a function that makes it: "
            f"factory:FILE.py:FUNCTION"
        )


def _by_gymnasium(env_id: str, **parameters: Any) -> gymnasium.Env:
    import gymnasium

    with _without_deprecations_of_mujoco() if _is_mujoco(env_id) else nullcontext():
        return gymnasium.make(env_id, disable_env_checker=True, **parameters)


def _is_mujoco(env_id: str) -> bool:
    import gymnasium

    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    return spec is not None and str(spec.entry_point).startswith("gymnasium.envs.mujoco")


@contextmanager
def _without_deprecations_of_mujoco() -> Iterator[None]:
    """Gymnasium's model files use attributes that MuJoCo gives up, and it says so for every env; not so here."""
    try:
        import mujoco  # type: ignore[import-untyped]
    except ImportError:  # Gymnasium says what is missing
        yield
        return

    def tell(text: str) -> None:
        if "deprecated" not in text:
            print(f"WARNING: {text}", file=sys.stderr, flush=True)  # as MuJoCo would

    former = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(tell)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(former)


def _vector_by_gymnasium(env_id: str, num_envs: int, **parameters: Any) -> gymnasium.vector.VectorEnv:
    import gymnasium

    return gymnasium.make_vec(env_id, num_envs=num_envs, **parameters)


def _takes(factory: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name."""
    try:
        return name in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # written in C
        return False


def _require(module: str, extra: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise WorldError(f"{module} is not installed ({error}); pip install 'scramjet[{extra}]'") from error
