"""Studies written in a moment: trials with scores in study.db, or a server that writes the runs it is asked for."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.training.config.files import handed_config, starting_config, to_dict
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.api import METHODS, new_study
from scramjet.tuning.display import StudyDisplay
from scramjet.tuning.loop import run_study
from scramjet.tuning.results import trial_results
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.storage import Assignment, Outcome, run_name
from scramjet.tuning.study import Study
from tests.helpers.written_runs import record_at, write_run

SPACE = {"learning_rate": "log:1e-4..1e-2", "num_envs": "choice:64,256"}
UPDATE_STEPS = 100


class WrittenProcess:
    """A process that has ended well."""

    def poll(self) -> int:
        return 0

    def send_signal(self, number: int) -> None: ...

    def wait(self, seconds: float) -> None: ...


class WritingServer:
    """Writes each run at once, up to the step where it is to stop, and remembers what it was asked for.

    `score` is the return of a run with some settings at a step.
    """

    def __init__(self, score: Callable[[dict[str, Any], int], float]) -> None:
        self.score = score
        self.requests: list[dict[str, Any]] = []
        self.most_requests: int | None = None
        """After so many requests it raises a RunError, as a study that dies would."""

    def start(self, request: dict[str, Any]) -> WrittenProcess:
        if self.most_requests is not None and len(self.requests) >= self.most_requests:
            raise RunError("the study dies here")
        self.requests.append(request)
        config = handed_config(Path(request["config"]), request["approved"])
        run = Path(request["runs_dir"]) / request["run_name"]
        run.mkdir(exist_ok=True)
        stop = min(config.total_timesteps, request["stop_step"] or config.total_timesteps)
        stop = -(-stop // UPDATE_STEPS) * UPDATE_STEPS
        with (run / "metrics.jsonl").open("w") as file:
            for step in range(UPDATE_STEPS, stop + 1, UPDATE_STEPS):
                value = self.score(to_dict(config), step)
                record = {"step": step, "return_100": value, "eval/mean_return": value}
                file.write(json.dumps({**record, "time": {"elapsed_seconds": step / 1000}}) + "\n")
        (run / "checkpoints" / f"step_{stop:08d}").mkdir(parents=True)
        return WrittenProcess()

    def slots(self, study: Study) -> int:
        return 1

    def close(self) -> None: ...


def written_study(folder: Path, space: dict[str, Any], total_timesteps: int = 1000, **settings: Any) -> Study:
    """A new study of CartPole in `folder`."""
    base = RunConfig(total_timesteps=total_timesteps)
    return new_study(base, space, StudySettings(**{"parallel": 1, **settings}), folder.parent, folder.name)


def run_written(study: Study, server: WritingServer) -> list[Any]:
    """Run a study to the end of its budget; returns what came of its trials."""
    run_study(study, METHODS[study.settings.method](), StudyDisplay(), server)  # type: ignore[arg-type]
    return trial_results(study)


def write_study(folder: Path, **settings: Any) -> Study:
    """An empty study that this process holds."""
    return Study.create(folder, StudySettings(**{"parallel": 2, **settings}), starting_config("cartpole"), SPACE)


def finish_trial(
    study: Study, score: float, parameters: Mapping[str, Any], *, seconds: float = 10.0, has_run: bool = False
) -> int:
    """Add a trial that finished with this score; returns its number."""
    number = study.add(parameters)
    assignment = Assignment(number, run_name(number), dict(parameters))
    study.begin(assignment)
    if has_run:
        write_scored_run(study, assignment.run_name, score)
    study.complete(number, [score], Outcome(assignment, "finished", 10_000, seconds))
    return number


def write_scored_run(study: Study, name: str, score: float, seed: int = 1) -> Path:
    """A run whose curve rises to `score` and whose last evaluation is that."""
    scores = [score * update / 4 for update in range(1, 5)]
    records = [record_at(n, return_100=each, eval__mean_return=each) for n, each in enumerate(scores, 1)]
    return write_run(study.runs_path, name, records, seed=seed)
