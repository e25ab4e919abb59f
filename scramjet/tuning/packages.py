"""Optuna, which proposes settings and keeps trials; an optional package, loaded when a study is made or opened."""

from __future__ import annotations

import importlib
from types import ModuleType

from scramjet.errors import ConfigError


def optuna_module() -> ModuleType:
    """Optuna, with its own messages silenced; a ConfigError names the extra where it is not installed."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ConfigError("tuning needs the package optuna; install it: pip install 'scramjet[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
