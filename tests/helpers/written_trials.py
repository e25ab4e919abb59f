"""Studies whose trials train nothing: a server in place of the real one writes the runs that it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.training.config.files import load_frozen, to_dict
from scramjet.training.config.run_config import RunConfig
from scramjet.training.worlds.trust import Caller
from scramjet.tuning.api import new_study
from scramjet.tuning.display import QuietDisplay
from scramjet.tuning.loop import run_study
from scramjet.tuning.methods.registry import METHODS
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.study import Study

UPDATE_STEPS = 100
Score = Callable[[dict[str, Any], int], float]
"""The return of a run with these settings at a step."""


class WritingServer:
    """Writes each run at once, up to the step where it is to stop, and remembers what it was asked for."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.requests: list[dict[str, Any]] = []
        self.most_requests: int | None = None
        """After so many requests it raises a RunError, as a study that dies would."""

    def start(self, request: dict[str, Any]) -> WrittenProcess:
        if self.most_requests is not None and len(self.requests) >= self.most_requests:
            raise RunError("the study dies here")
        self.requests.append(request)
        config = load_frozen(Path(request["config"]), Caller(trust=True))
        run = Path(request["runs_dir"]) / request["run_name"]
        run.mkdir(exist_ok=True)
        settings, total = to_dict(config), config.total_timesteps
        stop = min(total, request["stop_step"] or total)
        stop = -(-stop // UPDATE_STEPS) * UPDATE_STEPS
        (run / "metrics.jsonl").write_text("".join(_line(settings, step, self.score) for step in _steps(stop)))
        (run / "checkpoints" / f"step_{stop:08d}").mkdir(parents=True)
        return WrittenProcess()

    def slots(self, study: Study) -> int:
        return 1

    def close(self) -> None:
        pass


class WrittenProcess:
    """A process that has ended well."""

    def poll(self) -> int:
        return 0

    def send_signal(self, number: int) -> None:
        pass

    def wait(self, seconds: float) -> None:
        pass


def _steps(stop: int) -> range:
    return range(UPDATE_STEPS, stop + 1, UPDATE_STEPS)


def _line(settings: dict[str, Any], step: int, score: Score) -> str:
    value = score(settings, step)
    record = {"step": step, "return_100": value, "eval/mean_return": value, "time": {"elapsed_seconds": step / 1000}}
    return json.dumps(record) + "\n"


def written_study(folder: Path, space: dict[str, Any], total_timesteps: int = 1000, **settings: Any) -> Study:
    """A new study of CartPole in `folder`."""
    base = RunConfig(total_timesteps=total_timesteps)
    return new_study(base, space, StudySettings(**{"parallel": 1, **settings}), folder.parent, folder.name)


def run_written(study: Study, server: WritingServer) -> None:
    """Run a study to the end of its budget."""
    run_study(study, METHODS[study.settings.method](), QuietDisplay(), server)  # type: ignore[arg-type]
