"""The games that PettingZoo ships: where they are, what they need, and pools of them by name."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.pettingzoo.parallel import ParallelPool
from scramjet.adapters.pettingzoo.pool import import_pettingzoo
from scramjet.adapters.pettingzoo.turns import AECPool
from scramjet.errors import WorldError, did_you_mean

GAMES = {  # where games are, and what to install for those there
    "pettingzoo.sisl": "pettingzoo[sisl]",
    "pettingzoo.classic": "pettingzoo[classic]",
    "pettingzoo.butterfly": "pettingzoo[butterfly]",
    "pettingzoo.atari": "pettingzoo[atari]",
    "pettingzoo.mpe": "pettingzoo[mpe]",  # of old; now in a package of its own
    "mpe2": "mpe2",
}


def make_pettingzoo_pool(name: str, module_name: str, num_envs: int, **parameters: Any) -> ForeignPool:
    """A pool of a game that PettingZoo ships, by its module's name: `pursuit_v5`, `connect_four_v3`.

    Agents that can act at once do so; what is played in turns only has seats.
    """
    make_env, is_parallel = game_maker(module_name, parameters)
    return (ParallelPool if is_parallel else AECPool)(name, make_env, num_envs)


def game_maker(module_name: str, parameters: dict[str, Any]) -> tuple[Callable[[], Any], bool]:
    """The function that makes one env of a game, and whether its agents act at once."""
    where = _find_game(module_name)
    with _dependencies_told(f"{where}.{module_name}", GAMES[where]), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo 1.27 wants its registry used; older have none
        module = importlib.import_module(f"{where}.{module_name}")
    is_parallel = hasattr(module, "parallel_env")
    build = module.parallel_env if is_parallel else module.env

    def make_env() -> Any:
        with _dependencies_told(f"{where}.{module_name}", GAMES[where]):
            try:
                return build(**parameters)
            except TypeError as error:
                raise WorldError(f"{module_name} cannot be made with {parameters}: {error}") from error

    return make_env, is_parallel


def _find_game(module_name: str) -> str:
    """The package that a game is in."""
    import_pettingzoo()
    known = {game: where for where in GAMES for game in _games_in(where)}
    if module_name in known:
        return known[module_name]
    near = did_you_mean(module_name, known) or f" There are {', '.join(sorted(known))}."
    more = "" if _games_in("mpe2") else " MPE's (simple_...) are in a package of their own: pip install mpe2"
    raise WorldError(f"PettingZoo has no game '{module_name}' here.{near}{more}")


def _games_in(where: str) -> list[str]:
    """The games of one package, none of them imported; an empty list where it is not installed."""
    try:
        found = importlib.util.find_spec(where)
    except ModuleNotFoundError:  # of a parent
        return []
    folders = found.submodule_search_locations if found is not None else None
    return [module.name for module in pkgutil.iter_modules(folders or []) if re.search(r"_v\d+$", module.name)]


@contextmanager
def _dependencies_told(game: str, install: str) -> Iterator[None]:
    """Turn a missing dependency of a game into a WorldError that says what to install."""
    try:
        yield
    except ImportError as error:  # Gymnasium's and PettingZoo's own errors for this are of another kind
        raise WorldError(f"{game} cannot be imported ({error}): pip install '{install}'") from error
    except Exception as error:
        if type(error).__name__ not in ("DependencyNotInstalled", "FailedToImport"):
            raise
        raise WorldError(f"{game} cannot be imported ({error}): pip install '{install}'") from error
