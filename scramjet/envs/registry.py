"""Worlds by name: the built-in ones, those a user registers, and those in a file.

`load_env("cartpole")`, `load_env("CartPole-v1")`, `load_env("examples/corridor.py")`,
`load_env("examples/corridor.py:Corridor", length=20)`, `load_env("my_package.worlds:Corridor")`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scramjet.envs.beside import SourceLoader, note_on_missing, open_folder
from scramjet.envs.given import given_class, module_name, name_of_class
from scramjet.errors import WorldError, did_you_mean, shortened

if TYPE_CHECKING:  # loaded late: names are looked up without loading Gymnasium's spaces
    from scramjet.envs.api import Env


@dataclass(frozen=True, slots=True)
class Registration:
    """A world's place in the registry; its module is imported when it is first asked for."""

    name: str
    target: str | type[Env]  # "module:Class", or the class itself
    aliases: tuple[str, ...] = ()

    def env_class(self) -> type[Env]:
        """The world's class."""
        return self.target if isinstance(self.target, type) else _class_at(self.target)


_REGISTRY: dict[str, Registration] = {}
_LISTENERS: list[Callable[[Registration], None]] = []


def register(name: str, target: str | PurePath | type[Env], aliases: tuple[str, ...] = ()) -> None:
    """Make a world known as `name` (and `aliases`); `target` is its class, "module:Class", or FILE.py[:Class].

    A name that this program has registered before means the new world from now on: a notebook's cell may run again.
    """
    entry = Registration(name, _checked_target(name, target), aliases)
    taken = _names()
    for label in (name, *aliases):
        if label in taken and not (taken[label].name == name and is_registered_here(name)):
            raise WorldError(f"a world named '{label}' is registered already; choose another name")
    _REGISTRY[name] = entry
    for listener in _LISTENERS:
        listener(entry)


def _checked_target(name: str, target: Any) -> str | type[Env]:
    """What a registration names, a file by its full path; raises a WorldError for what can be no world of ours."""
    if isinstance(target, PurePath):
        target = str(target)
    if isinstance(target, str):
        path, colon, class_name = split_file(target)
        if path and not os.path.isfile(path):
            raise WorldError(f"register({name!r}, {target!r}): there is no file '{path}'")
        return f"{os.path.realpath(path)}{colon}{class_name}" if path else target
    from scramjet.envs.api import Env

    if isinstance(target, type) and issubclass(target, Env):
        return target
    raise WorldError(
        f"register({name!r}, {shortened(target)}): give a class that inherits from scramjet.Env, its file, or "
        f"'module:Class'; a Gymnasium env needs no name: train(MyEnv), or gymnasium.register and train('gym:ID')"
    )


def on_register(listener: Callable[[Registration], None]) -> None:
    """Call `listener` with every registered world, and from now on with each that is registered later."""
    for entry in registrations():
        listener(entry)
    _LISTENERS.append(listener)


def registrations() -> list[Registration]:
    """All registered worlds, by name."""
    return [_REGISTRY[name] for name in sorted(_REGISTRY)]


def is_name_alone(name: str) -> bool:
    """Whether a world's name holds no file and no module, so that only a registry can know it."""
    return ":" not in name and not split_file(name)[0]


def is_registered(name: str) -> bool:
    """Whether a world has this name or alias: built in, or registered in this process."""
    return name in _names()


def is_registered_here(name: str) -> bool:
    """Whether this program registered the world under this name: another one would have to do so again."""
    found = _names().get(name)
    return found is not None and not (isinstance(found.target, str) and found.target.startswith("scramjet."))


def env_class(name: str) -> type[Env]:
    """The class of the world called `name`: a registered name or alias, FILE.py[:Class], or module:Class."""
    found = _names().get(name)
    if found is not None:
        return found.env_class()
    given = given_class(canonical_name(name))
    if given is not None:
        return given
    if not is_name_alone(name):
        return _class_at(name)
    if name.endswith((".toml", ".yaml", ".yml")):
        raise WorldError(f"{shortened(name)} is a config file, not a world: scramjet train --config {name}")
    raise unknown_world(name, _names())


def unknown_world(name: str, known: Iterable[str]) -> WorldError:
    """What to say of a name that no world has, beside the names that are `known`."""
    return WorldError(
        f"unknown world {shortened(name)}.{did_you_mean(name, known)} See `scramjet list` for the names, "
        f"or give a file: my_world.py"
    )


def load_env(name: str, **parameters: Any) -> Env:
    """Build the world called `name` with the given parameters."""
    cls = env_class(name)
    try:
        return cls(**parameters)
    except (TypeError, ValueError) as error:
        raise WorldError(f"{cls.__name__}: {error}") from error


def canonical_name(name: str) -> str:
    """The one spelling under which a world is recorded: its registered name, or its file's full path."""
    found = _names().get(name)
    if found is not None:
        return found.name
    path, colon, class_name = split_file(name)
    return f"{os.path.realpath(path)}{colon}{class_name}" if path else name


def split_file(name: str) -> tuple[str, str, str]:
    """The path, colon and class of `FILE.py[:Class]`; folders may have colons too. The path of no file is empty."""
    if name.endswith(".py"):
        return name, "", ""
    path, end, class_name = name.rpartition(".py:")
    return (f"{path}.py", ":", class_name) if end else ("", "", "")


def _names() -> dict[str, Registration]:
    """Every name and alias."""
    return {label: entry for entry in _REGISTRY.values() for label in (entry.name, *entry.aliases)}


def _class_at(target: str) -> type[Env]:
    """The class at FILE.py[:Class], which is read anew, or module:Class."""
    path, _, class_name = split_file(target)
    if path:
        return _class_in_module(import_file(Path(path)), class_name, target)
    module, _, class_name = target.partition(":")
    try:
        return _class_in_module(importlib.import_module(module), class_name, target)
    except (ImportError, TypeError, ValueError) as error:  # the last two: no name, or a relative one
        raise WorldError(f"cannot import '{module}' for world '{target}': {error}") from error


def name_of_world(cls: type[Env]) -> str:
    """The name of a world's class: a registered one, or that of its place, by which this process finds it."""
    known = (entry.name for entry in _REGISTRY.values() if entry.target in (cls, f"{cls.__module__}:{cls.__name__}"))
    return next(known, None) or name_of_class(cls)


class ImportedScriptTrains(BaseException):
    """A file that is read for its functions begins to train: what stands above is all that is wanted."""


_BEING_READ: list[Path] = []
_SCRIPTS: set[str] = set()
"""Full paths of files that were read up to where they train."""


def stop_if_being_read() -> None:
    """Called where training or play begins: a file that is only read for what it defines must do neither."""
    if _BEING_READ:
        raise ImportedScriptTrains


def trains_when_run(path: str) -> bool:
    """Whether a file, given by its full path, was read up to where it trains or plays, and no further."""
    return path in _SCRIPTS


def import_file(path: Path) -> ModuleType:
    """Run a user's file as a module; a changed file is read anew. A script is read up to where it trains."""
    if not os.path.isfile(path):
        raise WorldError(
            f"no such file: '{path}'; give the path of the Python file with your world (of a run whose world has "
            f"moved: put it back, or add --env FILE to eval, --resume or --fork)"
        )
    full_path = path.resolve()
    name = module_name(str(full_path))
    spec = importlib.util.spec_from_file_location(name, full_path, loader=SourceLoader(name, str(full_path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    open_folder(full_path)
    _BEING_READ.append(full_path)
    _SCRIPTS.discard(str(full_path))
    try:
        spec.loader.exec_module(module)
    except ImportedScriptTrains:
        _SCRIPTS.add(str(full_path))
    except WorldError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the file raises, it is the file that is wrong
        line = _line_in(error, full_path)
        note = note_on_missing(error, full_path)
        raise WorldError(f"{path}{line}: {type(error).__name__}: {error}{note}") from error
    finally:
        _BEING_READ.pop()
    return module


def _line_in(error: BaseException, path: Path) -> str:
    """` line N`, the last place in `path` that `error` passed through."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f" line {error.lineno}"
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = f" line {trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _class_in_module(module: ModuleType, class_name: str, label: str) -> type[Env]:
    from scramjet.envs.api import Env

    worlds = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Env) and value is not Env
    }
    if class_name:
        if class_name not in worlds:
            raise WorldError(
                f"'{label}' has no world '{class_name}'.{did_you_mean(class_name, worlds)} "
                f"Worlds there: {', '.join(worlds) or 'none'}"
            )
        return worlds[class_name]
    own = [value for value in worlds.values() if value.__module__ == module.__name__]
    if len(own) != 1:
        names = ", ".join(value.__name__ for value in own)
        raise WorldError(
            f"'{label}' defines {len(own)} worlds"
            + (
                f" ({names}); name one: {label}:{own[0].__name__}"
                if own
                else "; a world is a class that inherits from scramjet.envs.Env, or from gymnasium.Env to be trained"
            )
        )
    return own[0]


register("cartpole", "scramjet.envs.classic_control.cartpole:CartPole", aliases=("CartPole-v1",))
register("bandit", "scramjet.envs.probes.single_answers:Bandit")
register("acrobot", "scramjet.envs.classic_control.acrobot:Acrobot", aliases=("Acrobot-v1",))
register("mountain_car", "scramjet.envs.classic_control.mountain_car:MountainCar", aliases=("MountainCar-v0",))
register(
    "mountain_car_continuous",
    "scramjet.envs.classic_control.mountain_car_continuous:MountainCarContinuous",
    aliases=("MountainCarContinuous-v0",),
)
register("pendulum", "scramjet.envs.classic_control.pendulum:Pendulum", aliases=("Pendulum-v1",))
register("identity_continuous", "scramjet.envs.probes.single_answers:IdentityContinuous")
register("flickering_cartpole", "scramjet.envs.classic_control.flickering_cartpole:FlickeringCartPole")
register("masked_cartpole", "scramjet.envs.classic_control.masked_cartpole:MaskedCartPole")
register("maze", "scramjet.envs.games.maze:Maze", aliases=("Maze-v0",))
register("deep_sea", "scramjet.envs.probes.walks:DeepSea")
register("squared", "scramjet.envs.probes.walks:Squared")
register("memory", "scramjet.envs.probes.remembering:Memory")
register("tmaze", "scramjet.envs.probes.remembering:TMaze")
register("binpack", "scramjet.envs.games.binpack:BinPack", aliases=("BinPack-v0", "BinPack-v2"))
register("connect_four", "scramjet.envs.games.connect_four:ConnectFour", aliases=("ConnectFour-v0",))
register("tic_tac_toe", "scramjet.envs.games.tic_tac_toe:TicTacToe")
register("othello", "scramjet.envs.games.othello:Othello")
register("kuhn", "scramjet.envs.games.kuhn:Kuhn")
register("leduc", "scramjet.envs.games.leduc:Leduc")
register(
    "rubiks_cube",
    "scramjet.envs.puzzles.rubiks_cube:RubiksCube",
    aliases=("RubiksCube-v0", "RubiksCube-partly-scrambled-v0"),
)
register("sliding_tiles", "scramjet.envs.puzzles.sliding_tiles:SlidingTiles", aliases=("SlidingTilePuzzle-v0",))
register("snake", "scramjet.envs.games.snake:Snake", aliases=("Snake-v0",))
register("game_2048", "scramjet.envs.puzzles.game_2048:Game2048", aliases=("Game2048-v1",))
register("sokoban", "scramjet.envs.puzzles.sokoban:Sokoban")
register("empty", "scramjet.envs.minigrid.goal_rooms:Empty")
register("door_key", "scramjet.envs.minigrid.goal_rooms:DoorKey")
register("four_rooms", "scramjet.envs.minigrid.goal_rooms:FourRooms")
register("multi_room", "scramjet.envs.minigrid.goal_rooms:MultiRoom")
register("key_corridor", "scramjet.envs.minigrid.ball_rooms:KeyCorridor")
register("obstructed_maze", "scramjet.envs.minigrid.ball_rooms:ObstructedMaze")
register("probe_constant", "scramjet.envs.probes.single_answers:ConstantReward")
register("probe_observation", "scramjet.envs.probes.single_answers:ObservationReward")
register("probe_delay", "scramjet.envs.probes.single_answers:DelayedReward")
register("probe_action", "scramjet.envs.probes.single_answers:ActionReward")
register("probe_policy", "scramjet.envs.probes.single_answers:PolicyReward")
