"""`scramjet.tune`: a study from Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scramjet.runtime.machine.cores import available_cores
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.display import StudyDisplay
from scramjet.tuning.loop import Ended, run_study
from scramjet.tuning.methods.registry import METHODS
from scramjet.tuning.methods.repeats import RepeatedSeeds
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.study import Study


def new_study(
    base: RunConfig, space: Mapping[str, Any], settings: StudySettings, studies_dir: Path, name: str | None
) -> Study:
    """Make the folder of a new study, called by the world's name and a number where it has no name."""
    threads = base.num_threads if isinstance(base.num_threads, int) else threads_each(settings, base)
    folder = studies_dir / (name or next_name(studies_dir, base.env))
    return Study.create(folder, settings, base, space, has_costs=METHODS[settings.method].has_costs, threads=threads)


def threads_each(settings: StudySettings, base: RunConfig) -> int:
    """The threads of each trial: the cores divided among the trials that run at once."""
    return max(1, available_cores() // settings.slots(base))


def next_name(studies_dir: Path, world: str) -> str:
    """The next free name for a study of a world: `cartpole-2`."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", world.rpartition("/")[2]).lstrip(".-")[:80] or "study"
    pattern = re.compile(re.escape(base) + r"-([0-9]{1,9})")
    found = [pattern.fullmatch(path.name) for path in studies_dir.glob(f"{base}-*")] if studies_dir.is_dir() else []
    return f"{base}-{1 + max((int(match[1]) for match in found if match), default=0)}"


def go_on(study: Study, display: StudyDisplay, *, trust: bool = False) -> Ended:
    """Run a study to the end of its budget, and the best settings again with fresh seeds."""
    search = METHODS[study.settings.method]()
    method = RepeatedSeeds(search) if search.repeats_seeds else search
    return run_study(study, method, display, trust=trust)
