"""Sessions of a small CartPole run, as `scramjet.train` begins them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scramjet.algorithms.config import PPOConfig
from scramjet.policies import PolicyConfig
from scramjet.training import start
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.session import Session

SMALL = RunConfig(
    env="cartpole", num_envs=4, num_steps=8, num_threads=1, total_timesteps=4 * 8 * 5, device="cpu",
    policy=PolicyConfig(hidden=(8,)), ppo=PPOConfig(num_epochs=1, num_minibatches=1),
    eval=EvaluationConfig(every=0, final_episodes=0), checkpoint=CheckpointConfig(every=0),
)  # fmt: skip
"""Five updates of 32 steps."""


@contextlib.contextmanager
def begun(config: RunConfig | str | Path | None, runs_dir: Path, **given: Any) -> Iterator[Session]:
    """A session that has begun, closed with its run at the end; `given` are other fields of a `StartRequest`."""
    session = start.begin(start.StartRequest(config=config, runs_dir=runs_dir, **given))
    with session.run, contextlib.closing(session):
        yield session


def train(session: Session, num_updates: int) -> None:
    """Collect a rollout and learn from it, so many times."""
    for update in range(1, num_updates + 1):
        rollout = session.collector.collect()
        session.learner.update(session.learner.prepare(rollout), 0)
        session.collector.learned(update, session.step_after(update))
        session.progress.add(session.collector.episodes())
