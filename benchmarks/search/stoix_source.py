"""Imports SPO's search from a copy of Stoix's source, without the thirty packages that the rest of Stoix needs.

    from search.stoix_source import load_spo
    spo = load_spo(Path("Stoix"))        # a clone of github.com/EdanToledo/Stoix; spo is its stoix.systems.spo.ff_spo

The module defines the search beside a whole trainer, and imports all that the trainer needs. The search itself calls
JAX and chex alone, and one function of rlax, which is written out here. All else is replaced by empty stand-ins; one
that the search would call after all gives an object that JAX refuses, so nothing can be left out silently.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp

NOT_OF_THE_SEARCH = (
    *("colorama", "distrax", "flashbax", "flax", "hydra", "omegaconf", "optax", "rlax", "stoa"),
    *("tensorflow_probability", "stoix.networks", "stoix.utils", "stoix.systems.search.evaluator"),
    *("stoix.systems.mpo.continuous_loss", "stoix.systems.mpo.discrete_loss"),
)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an empty module for every name at or below the given ones."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not any(name == absent or name.startswith(absent + ".") for absent in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return MagicMock(name=spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


@functools.cache
def load_spo(folder: Path) -> Any:
    """The module stoix.systems.spo.ff_spo of the source in `folder`."""
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, StandIns(NOT_OF_THE_SEARCH))
    spo = importlib.import_module("stoix.systems.spo.ff_spo")
    spo.rlax.add_dirichlet_noise = add_dirichlet_noise
    return spo


def add_dirichlet_noise(key: Any, prior: Any, alpha: float, fraction: float) -> Any:
    """What rlax's function of this name does: `prior` [B, A] mixed with a draw of Dirichlet(alpha)."""
    noise = jax.random.dirichlet(key, jnp.full(prior.shape[-1], alpha), prior.shape[:-1])
    return (1.0 - fraction) * prior + fraction * noise
