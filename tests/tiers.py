"""Two tiers of tests: the core, which `make test` runs, and the rest, which `make test-all` runs as well.

The core is what a change to scramjet itself can break, and needs nothing but the extra `dev`. Marked `rest` is what
needs another library or a GPU, trains for long, or plays every combination where the core plays a chosen few.
A whole file is of the rest by one line, `pytestmark = pytest.mark.rest`; the core does not even import it.

    pytest tests/engine           the core of one folder
    pytest tests/engine --rest    the rest of it
    pytest tests/engine --all     both
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest

WHOLE_FILE = re.compile(r"^pytestmark = (\[.*)?pytest\.mark\.(rest|gpu)\b", re.MULTILINE)

SECONDS = {
    "tests/learning/": 30,
    "tests/executors/test_numba_executor.py": 20,
    "tests/commands/test_eval.py": 15,  # whoever comes first compiles the world and the kernels of these runs
}
"""Where items of the core may take longer than 5 s on an idle core, because they train: path and budget of an item."""
MOST_SECONDS = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers = parser.getgroup("tiers")
    tiers.addoption("--rest", action="store_true", help="run the tests marked `rest` in place of the core")
    tiers.addoption("--all", action="store_true", help="run the core and the rest")
    tiers.addoption(
        "--shuffle", type=int, metavar="SEED", help="in an order drawn from a seed, to see who leans on whom"
    )


def is_chosen(config: pytest.Config, *, rest: bool) -> bool:
    """Whether a run takes the tests of a tier; who chooses by a mark, as in `-m gpu`, chooses from both."""
    if config.getoption("--all") or config.getoption("markexpr"):
        return True
    return rest == config.getoption("--rest")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.suffix == ".py" and not is_chosen(config, rest=True):
        return bool(WHOLE_FILE.search(collection_path.read_text())) or None
    return None


def is_of_the_rest(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("rest", "gpu", "extras"))


def budget(item: pytest.Item) -> int:
    return next((seconds for path, seconds in SECONDS.items() if item.nodeid.startswith(path)), MOST_SECONDS)


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Files with the longest items first, dealt to the workers in turn, so that none ends alone.

    xdist gives each worker one stretch of the list and lets those that are done take from the ends of others.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    budgets = {path: [budget(item) for item in group] for path, group in files.items()}
    hands: list[list[pytest.Item]] = [[] for _ in range(workers)]
    seconds = [0] * workers
    for path in sorted(files, key=lambda path: -max(budgets[path])):
        emptiest = seconds.index(min(seconds))
        hands[emptiest] += files[path]
        seconds[emptiest] += sum(budgets[path])
    return [item for hand in hands for item in hand]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = {tier: is_chosen(config, rest=tier) for tier in (False, True)}
    left_out = [item for item in items if not chosen[is_of_the_rest(item)]]
    if left_out:
        items[:] = [item for item in items if chosen[is_of_the_rest(item)]]
        config.hook.pytest_deselected(items=left_out)
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)
    else:
        items[:] = dealt(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """What was skipped, by reason; and where to look for tests where there were none."""
    skipped = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.section("skipped")
        for reason, count in skipped.most_common():
            terminalreporter.write_line(f"{count:5}  {reason.removeprefix('Skipped: ')}")
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not config.getoption("--rest"):
        terminalreporter.write_line("the core has no such test; --rest looks among the others")
