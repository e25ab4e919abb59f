"""Scramjet: reinforcement learning at the speed of the hardware, from plain Python.

    import scramjet

    result = scramjet.train("cartpole", seed=2)          # what `scramjet train cartpole --seed 2` does
    scramjet.evaluate(result.run_path)                   # play it again
    scramjet.record_video(result.run_path, "it.mp4")
    policy = scramjet.load_policy(result.run_path)       # a trained policy, ready to act: policy.predict(obs)
    pool = scramjet.make("cartpole", num_envs=1024)      # many envs at once

train(world), tune, check      a world is a name, a file, a class, an env or a function: Lander, gym.make("...")
evaluate, record_video         plays of a run; play_match: against another player; export_page: in a web page
plot, compare                  runs by their curves and numbers
Env, Box, Discrete, register   worlds of your own

Names load when they are first used: `import scramjet` alone loads neither torch nor numba.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from scramjet.version import __version__ as __version__

# Threads that wait by spinning starve each other on a busy machine; OpenMP reads this when torch is first loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
if os.environ.get("WORLD_SIZE", "1") != "1":  # torch's C++ would log a stack for each connection that ends
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")

_NO_NAMES_OF_OURS = {
    **dict.fromkeys(("PPO", "A2C", "DQN", "SAC", "TD3"), 'train by scramjet.train("CartPole-v1", learning_rate=1e-3)'),
    "load": "a trained policy is loaded by scramjet.load_policy(RUN), a config by scramjet.load_config(FILE)",
    "eval": "a run is played by scramjet.evaluate(RUN)",
    **{
        name: f"in a shell: scramjet {name} --help"
        for name in ("serve", "sync", "play", "tournament", "grade", "bench")
    },
}
"""What users look for here, and what to write in its place."""

_HOMES = {
    "Env": "scramjet.envs",
    "Box": "scramjet.envs",
    "Dict": "scramjet.envs",
    "Discrete": "scramjet.envs",
    "MultiBinary": "scramjet.envs",
    "MultiDiscrete": "scramjet.envs",
    "register": "scramjet.envs",
    "check": "scramjet.training.world_check",
    "CheckReport": "scramjet.training.world_check",
    "make": "scramjet.adapters.make",
    "Algorithm": "scramjet.algorithms.algorithm",
    "Materials": "scramjet.algorithms.algorithm",
    "Sizes": "scramjet.algorithms.algorithm",
    "register_algorithm": "scramjet.algorithms.algorithm",
    "RunConfig": "scramjet.training.config.run_config",
    "Settings": "scramjet.training.config.keyword_types",
    "PPOConfig": "scramjet.algorithms.config",
    "SPOConfig": "scramjet.algorithms.config",
    "AlphaZeroConfig": "scramjet.algorithms.config",
    "PolicyConfig": "scramjet.policies.config",
    "BonusConfig": "scramjet.training.curiosity.config",
    "SelfPlayConfig": "scramjet.selfplay.config",
    "EvaluationConfig": "scramjet.training.config.run_config",
    "CheckpointConfig": "scramjet.training.config.run_config",
    "TrainResult": "scramjet.training.result",
    "Evaluation": "scramjet.runs.results",
    "Callback": "scramjet.training.callbacks",
    "LossBatch": "scramjet.executors.losses",
    "Session": "scramjet.training.session",
    "train": "scramjet.training.loop",
    "tune": "scramjet.tuning.api",
    "TuneResult": "scramjet.tuning.results",
    "load_config": "scramjet.training.config.files",
    "starting_config": "scramjet.training.config.files",
    "load_policy": "scramjet.training.playing",
    "evaluate": "scramjet.training.playing",
    "record_video": "scramjet.training.pictures.recording",
    "Recording": "scramjet.training.pictures.recording",
    "plot": "scramjet.reports.plots",
    "Plot": "scramjet.reports.plots",
    "compare": "scramjet.reports.comparison",
    "Compared": "scramjet.reports.comparison",
    "export_page": "scramjet.web.export_page.exported",
    "ExportedPage": "scramjet.web.export_page.exported",
    "play_match": "scramjet.arena.head_to_head",
    "MatchResult": "scramjet.arena.head_to_head",
    "ScramjetError": "scramjet.errors",
}
__all__ = sorted([*_HOMES, "__version__"])

if TYPE_CHECKING:
    from scramjet.adapters.make import make as make
    from scramjet.algorithms.algorithm import Algorithm as Algorithm
    from scramjet.algorithms.algorithm import Materials as Materials
    from scramjet.algorithms.algorithm import Sizes as Sizes
    from scramjet.algorithms.algorithm import register_algorithm as register_algorithm
    from scramjet.algorithms.config import AlphaZeroConfig as AlphaZeroConfig
    from scramjet.algorithms.config import PPOConfig as PPOConfig
    from scramjet.algorithms.config import SPOConfig as SPOConfig
    from scramjet.arena.head_to_head import MatchResult as MatchResult
    from scramjet.arena.head_to_head import play_match as play_match
    from scramjet.envs import Box as Box
    from scramjet.envs import Dict as Dict
    from scramjet.envs import Discrete as Discrete
    from scramjet.envs import Env as Env
    from scramjet.envs import MultiBinary as MultiBinary
    from scramjet.envs import MultiDiscrete as MultiDiscrete
    from scramjet.envs import register as register
    from scramjet.errors import ScramjetError as ScramjetError
    from scramjet.executors.losses import LossBatch as LossBatch
    from scramjet.policies.config import PolicyConfig as PolicyConfig
    from scramjet.reports.comparison import Compared as Compared
    from scramjet.reports.comparison import compare as compare
    from scramjet.reports.plots import Plot as Plot
    from scramjet.reports.plots import plot as plot
    from scramjet.training.callbacks import Callback as Callback
    from scramjet.training.config.files import load_config as load_config
    from scramjet.training.config.files import starting_config as starting_config
    from scramjet.training.config.keyword_types import Settings as Settings
    from scramjet.training.config.run_config import CheckpointConfig as CheckpointConfig
    from scramjet.training.config.run_config import EvaluationConfig as EvaluationConfig
    from scramjet.training.config.run_config import RunConfig as RunConfig
    from scramjet.training.curiosity.config import BonusConfig as BonusConfig
    from scramjet.training.loop import train as train
    from scramjet.training.pictures.recording import Recording as Recording
    from scramjet.training.pictures.recording import record_video as record_video
    from scramjet.training.playing import evaluate as evaluate
    from scramjet.training.playing import load_policy as load_policy
    from scramjet.training.result import TrainResult as TrainResult
    from scramjet.training.session import Session as Session
    from scramjet.training.world_check import CheckReport as CheckReport
    from scramjet.training.world_check import check as check
    from scramjet.tuning.api import tune as tune
    from scramjet.tuning.results import TuneResult as TuneResult
    from scramjet.web.export_page.exported import ExportedPage as ExportedPage
    from scramjet.web.export_page.exported import export_page as export_page


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        hint = f"; {_NO_NAMES_OF_OURS[name]}" if name in _NO_NAMES_OF_OURS else ""
        raise AttributeError(f"module 'scramjet' has no attribute '{name}'{hint}", name=name, obj=sys.modules[__name__])
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
