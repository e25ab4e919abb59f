"""Worlds: what an author needs (`Env`, spaces, random draws) and the registry of names."""

from scramjet.envs.api import Box, Dict, Discrete, Env, MultiBinary, MultiDiscrete, Space, Symmetry
from scramjet.envs.registry import env_class, load_env, register, registrations
from scramjet.envs.rng import choice, normal, randint, shuffle, uniform

__all__ = [
    "Box",
    "Dict",
    "Discrete",
    "Env",
    "MultiBinary",
    "MultiDiscrete",
    "Space",
    "Symmetry",
    "choice",
    "env_class",
    "load_env",
    "normal",
    "randint",
    "register",
    "registrations",
    "shuffle",
    "uniform",
]
