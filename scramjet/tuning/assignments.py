"""What is to be run for a trial, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from scramjet.errors import RunError, shortened
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
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the study's base for this run alone, such as a seed."""

    def as_dict(self) -> dict[str, Any]:
        """The assignment as JSON, for study.db."""
        return {**asdict(self), "parameters": dict(self.parameters), "changes": dict(self.changes)}

    @classmethod
    def from_dict(cls, data: Any) -> Assignment:
        """The assignment that study.db holds; a RunError where that is none."""
        kinds: dict[str, Any] = {"trial": int, "run_name": str, "parameters": dict, "stop_step": int | None}
        kinds |= {"fork": str | None, "changes": dict}
        if not isinstance(data, dict) or set(data) != set(kinds):
            raise RunError(f"study.db holds no assignment in {shortened(data)}; put back a copy of it")
        for name, kind in kinds.items():
            if not isinstance(data[name], kind):
                raise RunError(f"study.db has {name}={shortened(data[name])} in an assignment; put back a copy of it")
        return cls(**data)


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
