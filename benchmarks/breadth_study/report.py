"""The study's tables in Markdown: returns of each task, and scores over all tasks with intervals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from breadth_study.results import Results
from breadth_study.systems import RANDOM, SYSTEMS, case_of
from breadth_study.tasks import Task
from breadth_study.zoo_settings import ZOO

from scramjet.algorithms.intervals import half_width_of
from scramjet.reports.aggregate import Estimate, estimate


def returns_of(results: Results, system: str, task: Task, seeds: Sequence[int]) -> list[float]:
    """Mean returns of a system's seeds on a task, as far as there are any."""
    cases = [case_of(system, task, seed) for seed in seeds]
    return [results[case]["mean_return"] for case in cases if case in results]


def returns_table(results: Results, systems: Sequence[str], tasks: Sequence[Task], seeds: Sequence[int]) -> str:
    """A row for each task: mean and standard deviation over seeds; the best of a row is bold."""
    lines = ["| " + " | ".join(["task", "steps", "random", *(SYSTEMS[name].label for name in systems)]) + " |"]
    lines.append("|---" * (3 + len(systems)) + "|")
    for task in tasks:
        columns = [returns_of(results, name, task, seeds) for name in systems]
        if not any(columns):
            continue
        best = max(statistics.mean(column) for column in columns if column)
        cells = [_cell(column, best, task, name) for column, name in zip(columns, systems, strict=True)]
        random = returns_of(results, RANDOM, task, [0])
        shown = _number(random[0]) if random else ""
        steps = f"{task.steps // 1000} K"
        lines.append("| " + " | ".join([task.world.removeprefix("gym:"), steps, shown, *cells]) + " |")
    return "\n".join(lines)


def _cell(returns: Sequence[float], best: float, task: Task, system: str) -> str:
    if not returns:
        return ""
    if system != case_of(system, task, 0).system:
        return "as its defaults"
    mean = statistics.mean(returns)
    text = _number(mean) + (f" ± {_number(half_width_of(returns))}" if len(returns) > 1 else " (one seed)")
    return f"**{text}**" if mean == best else text


def _number(value: float) -> str:
    """Three digits or more that matter."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def scores_table(results: Results, systems: Sequence[str], tasks: Sequence[Task], seeds: Sequence[int]) -> str:
    """Interquartile means of scores over all runs, with 95 % intervals; of tasks that all systems have finished."""
    finished = [task for task in tasks if _is_finished(results, systems, task, seeds)]
    groups = {
        "all tasks": finished,
        "tasks of the zoo": [task for task in finished if (task.twin or task.world) in ZOO],
    }
    for task in finished:
        groups.setdefault(task.group, []).append(task)
    lines = ["| scores | tasks | " + " | ".join(SYSTEMS[name].label for name in systems) + " |"]
    lines.append("|---" * (2 + len(systems)) + "|")
    for label, members in groups.items():
        if members:
            found = [_aggregate(results, name, members, seeds) for name in systems]
            cells = [_with_interval(one) if len(seeds) > 1 else f"{one.center:.2f}" for one in found]
            lines.append(f"| {label} | {len(members)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _is_finished(results: Results, systems: Sequence[str], task: Task, seeds: Sequence[int]) -> bool:
    has_random = bool(returns_of(results, RANDOM, task, [0]))
    return has_random and all(len(returns_of(results, name, task, seeds)) == len(seeds) for name in systems)


def _aggregate(results: Results, system: str, tasks: Sequence[Task], seeds: Sequence[int]) -> Estimate:
    """Interquartile mean of the scores of all runs; only seeds of one task vary in its interval."""
    scores: list[float] = []
    strata: list[int] = []
    for place, task in enumerate(tasks):
        random = returns_of(results, RANDOM, task, [0])[0]
        runs = [task.score(value, random) for value in returns_of(results, system, task, seeds)]
        scores += runs
        strata += [place] * len(runs)
    return estimate(scores, "iqm", strata)


def _with_interval(found: Estimate) -> str:
    return f"{found.center:.2f} [{found.low:.2f}, {found.high:.2f}]"
