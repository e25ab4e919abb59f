"""The result of a training, which `scramjet.train` returns."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.algorithms.value_scaling import PopArt
from scramjet.policies.policy import Policy
from scramjet.runs.metadata import facts_of, member_metadata
from scramjet.runs.results import Evaluation
from scramjet.telemetry.metrics import VERSUS_RANDOM
from scramjet.telemetry.readable import short_path
from scramjet.training.config import files as config_files
from scramjet.training.display.interface import StoppedBy
from scramjet.training.session import Session


@dataclass(frozen=True, slots=True, repr=False)
class TrainResult:
    """A run that has ended: where it is, how far it came, and its policy. Stands for its run wherever a path may."""

    run_path: Path
    step: int
    metrics: dict[str, Any]
    """The last line of metrics.jsonl."""
    evaluation: Evaluation | None
    """The last evaluation."""
    policy: Policy
    """The trained policy, on the CPU."""
    stopped_by: StoppedBy | None
    """None when the run reached its end; else "ctrl-c", "sigterm", "sighup", "time limit" or "callback"."""
    exit_code: int
    stop_reason: str = ""
    """The reason that a callback gave `session.stop`, if that ended the run."""

    def __fspath__(self) -> str:
        """The run's folder."""
        return str(self.run_path)

    def __repr__(self) -> str:
        """One line: the run, its length and what it reached, without the network and the metrics."""
        parts = [repr(short_path(self.run_path)), f"step={self.step:,}"]
        mean_return, won = self.metrics.get("return_100"), self.metrics.get(VERSUS_RANDOM)
        if won is not None:  # returns of games say nothing
            parts.append(f"won_vs_random={won:.2f}")
        elif mean_return is not None:
            parts.append(f"return_100={mean_return:.2f}")
        if self.evaluation is not None and won is None:
            parts.append(f"evaluation={self.evaluation.text}")
        if self.stopped_by is not None:
            reason = f" ({self.stop_reason})" if self.stop_reason else ""
            parts.append(f"stopped_by={self.stopped_by!r}{reason}")
        return f"TrainResult({', '.join(parts)})"


def result_of(
    session: Session,
    record: dict[str, Any],
    evaluation: Evaluation | None,
    stopped_by: StoppedBy | None,
    exit_code: int,
) -> TrainResult:
    """The result of a session that has ended; `record` is the last line of its metrics."""
    policy, run = session.policy, session.run.shared_path
    scale = session.learner.shared_tensors()
    metadata = member_metadata(config_files.to_dict(session.config, run), session.pool, policy, session.rules)
    policy.facts = facts_of(metadata, record["step"], run, {key: scale[key] for key in scale if key == PopArt.MOMENTS})
    return TrainResult(
        run_path=run,
        step=record["step"],
        metrics=record,
        evaluation=evaluation,
        policy=policy if policy.device.type == "cpu" else copy.deepcopy(policy).cpu(),
        stopped_by=stopped_by,
        exit_code=exit_code,
        stop_reason=session.stop_reason or "" if stopped_by == "callback" else "",
    )
