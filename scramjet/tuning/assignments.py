"""What is to be run for a trial, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from scramjet.tuning.space import Value

Ending = Literal["finished", "paused", "failed", "stopped"]
"""finished: at its total_timesteps; paused: at its stop_step, before that; failed: for a reason of its own; stopped: by
the study, to be resumed."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One stretch of a trial's run: from where the run stands, or from its start, to `stop_step` or its end."""

    trial: int
    """The number of the trial in study.db."""
    run_name: str
    """The run's folder in the study's runs/: trial-0007."""
    parameters: Mapping[str, Value]
    """The values of the settings that vary, as Optuna keeps them."""
    stop_step: int | None = None
    """The run pauses with a checkpoint at the first update that reaches this step; None: it trains to its end."""
    fork: str | None = None
    """A new run begins from this checkpoint, a path as seen from the study's folder; None: from new weights."""
    seed: int | None = None
    """The run's seed, where it is not that of the study's base."""

    def as_dict(self) -> dict[str, Any]:
        """The assignment as JSON, for study.db; `StoredStudy.assignment` reads it back."""
        data = asdict(self)
        seed = data.pop("seed")
        return {**data, "parameters": dict(self.parameters), "changes": {} if seed is None else {"seed": seed}}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a stretch of a run ended."""

    assignment: Assignment
    ending: Ending
    step: int = 0
    """Env steps of the run so far."""
    seconds: float = 0.0
    """Seconds of training of the run so far."""
    reason: str = ""
    """Why it failed."""


def run_name(trial: int) -> str:
    """The name of a trial's run."""
    return f"trial-{trial:04}"
