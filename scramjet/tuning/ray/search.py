"""A search algorithm of Ray Tune's that suggests what a study asks for. Loads Ray."""

from __future__ import annotations

import queue
import signal
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from scramjet.tuning.ray.messages import REQUESTS, tell


class FromStudy(Searcher):
    """Suggests requests as they come, and tells the study how each ended."""

    def __init__(self, answers: int) -> None:
        """`answers` is the descriptor on which the study is told."""
        super().__init__(metric="code", mode="min")
        self.answers = answers
        self.ids: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next request; None while there is none."""
        try:
            request = REQUESTS.get(timeout=0.05)
        except queue.Empty:
            return None
        self.ids[trial_id] = request.pop("id")
        return {"request": request}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the exit code; a trial whose node died counts as killed."""
        code = -signal.SIGKILL if error or not result else int(result["code"])
        tell(self.answers, {"id": self.ids.pop(trial_id), "code": code})

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the study keeps everything."""
        Path(checkpoint_path).write_text("")

    def restore(self, checkpoint_path: str) -> None:
        """Nothing."""
