"""Episodes drawn for a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from scramjet.policies.policy import Policy
from scramjet.search.rows import SearchSettings
from scramjet.training.config.run_config import RunConfig
from scramjet.training.pictures.episodes import watch
from scramjet.training.pictures.stages import Drawing, text_stage
from scramjet.training.seeds import unseen_episodes


def play(
    policy: Policy, config: RunConfig, seed: int, episodes: int, search: SearchSettings | None = None
) -> Iterator[tuple[Drawing, float, int, bool]]:
    """Play episodes one step at a time: a drawing, the return so far, the step, and whether it ended."""
    stage = text_stage(config)
    with contextlib.closing(stage.pool):
        for moment in watch(stage, policy, config, unseen_episodes(seed), rounds=episodes, search=search):
            total = float(moment.returns.sum())
            yield moment.drawings[0], total, int(moment.steps[0]), bool(moment.has_ended[0])
