"""Every registered world known to Gymnasium as `scramjet/...`, as soon as both packages are imported, in any order.

Gymnasium has no plugin mechanism beyond importing the package, and importing Gymnasium for those who only wanted
`import scramjet` would take longer than the rest of it; so we wait for the moment that somebody imports it.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scramjet.envs.registry import Registration


def announce_worlds() -> None:
    """Register with Gymnasium now if it is loaded, else when it is."""
    if "gymnasium.envs" in sys.modules:
        register_worlds()
    else:
        sys.meta_path.insert(0, _GymnasiumWatcher())


def register_worlds() -> None:
    """Tell Gymnasium every registered world it does not know yet."""
    from gymnasium.envs.registration import register, registry

    from scramjet.envs.registry import registrations

    for entry in registrations():
        if gym_id(entry) not in registry:
            register(
                gym_id(entry),
                entry_point="scramjet.adapters.exports.gymnasium_env:GymEnv",
                vector_entry_point="scramjet.adapters.exports.gymnasium_env:GymVectorEnv",
                kwargs={"world": entry.name},
            )


def gym_id(entry: Registration) -> str:
    """`scramjet/CartPole-v1` where an alias has that form, else `scramjet/ProbeAction-v0`."""
    versioned = [alias for alias in entry.aliases if "-v" in alias]
    camel_case = "".join(part.capitalize() for part in entry.name.split("_"))
    return f"scramjet/{versioned[0] if versioned else camel_case + '-v0'}"


class _GymnasiumWatcher(MetaPathFinder):
    """Waits for `import gymnasium` and announces the worlds once it is loaded."""

    _is_looking = False

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "gymnasium" or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenAnnounce(spec.loader, self)
        return spec


class _ThenAnnounce(Loader):
    """A loader that loads as usual and then registers our worlds."""

    def __init__(self, usual: Loader, watcher: _GymnasiumWatcher) -> None:
        self._usual = usual
        self._watcher = watcher

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._usual.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._usual  # leave no trace: others inspect the loader
        if self._watcher in sys.meta_path:
            sys.meta_path.remove(self._watcher)
        self._usual.exec_module(module)
        register_worlds()
