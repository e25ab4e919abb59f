"""How often envs that failed were made anew, and when that is too often."""

from __future__ import annotations

from scramjet.errors import WorldError

MOST_RESTARTS = 10
"""Restarts in a row without a step finished in between."""
STEPS_PER_RESTART = 100
"""Over a whole run an env may fail so often more: once in so many of its steps."""
TOLD_ONE_BY_ONE, THEN_EVERY = 3, 10
"""Restarts that people are told of."""


class RestartCounter:
    """Counts the restarts of a pool; envs that fail together, those of one worker, are counted by their rows."""

    def __init__(self) -> None:
        self.total = 0
        self._failures: dict[range, int] = {}
        self._streaks: dict[range, tuple[int, int]] = {}  # steps finished at the last restart; restarts in a row

    def note(self, rows: range, finished: int, problem: str) -> str:
        """Count a restart of the envs of `rows`, which have `finished` so many steps.

        Returns what to tell the user, "" for nothing; raises a WorldError where the envs fail too often to go on.
        """
        self.total += 1
        last, in_a_row = self._streaks.get(rows, (-2, 0))
        in_a_row = in_a_row + 1 if finished - last <= 1 else 1  # the step that failed counts as finished
        self._streaks[rows] = (finished, in_a_row)
        failures = self._failures[rows] = self._failures.get(rows, 0) + 1
        if in_a_row > MOST_RESTARTS:
            raise WorldError(f"restarted {MOST_RESTARTS} times in a row, and failed again: {problem}")
        if failures > MOST_RESTARTS + finished / STEPS_PER_RESTART:
            raise WorldError(f"restarted {failures - 1} times in {finished} steps, and failed again: {problem}")
        is_told = self.total <= TOLD_ONE_BY_ONE or self.total % THEN_EVERY == 0
        return f"restarted: {problem.splitlines()[0]} (restart {self.total})" if is_told else ""
