"""Whole runs of several ranks that are threads of this process."""

import contextlib
import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from scramjet.algorithms.config import PPOConfig
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training import start
from scramjet.training.callbacks import Callbacks
from scramjet.training.components import make_policy
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.display import Display, QuietDisplay
from scramjet.training.loop import train_session
from scramjet.training.result import TrainResult
from tests.helpers.thread_ranks import on_ranks

STEPS = 8 * 16
"""Env steps of one update of `SMALL`."""
SMALL = RunConfig(
    num_envs=8, num_steps=16, num_threads=1, device="cpu", total_timesteps=4 * STEPS,
    ppo=PPOConfig(num_minibatches=4, num_epochs=2), eval=EvaluationConfig(every=2, episodes=4, final_episodes=4),
    checkpoint=CheckpointConfig(every=3),
)  # fmt: skip


def train_on_ranks(
    size: int, folder: Path, config: RunConfig | Callable[[int], RunConfig] | None = None, *,
    like: RunConfig = SMALL, callbacks: Callable[[], Iterable[Any]] = tuple, display: Display | None = None,
    **request: Any,
) -> list[TrainResult]:  # fmt: skip
    """Train a run with runs folder `folder` on so many ranks; returns what each of them returns.

    `config` may be a function of the rank. `like`: a config with the network of the run, where `config` is none; each
    rank gets one that was made before: threads would disturb each other's seeds. Rank 0 has the `display`.
    """
    chosen = config if callable(config) else lambda rank: config
    network = make_policy(replace(chosen(0) or like)).network
    networks = [copy.deepcopy(network) for _ in range(size)]

    def train(ranks: Ranks) -> TrainResult:
        given = start.StartRequest(
            runs_dir=folder, ranks=ranks, config=chosen(ranks.rank), network=networks[ranks.rank], **request
        )
        session = start.begin(given)
        with session.run, contextlib.closing(session):
            return train_session(session, display or QuietDisplay(), Callbacks(callbacks()))

    return [train(ALONE)] if size == 1 else on_ranks(size, train)
