"""Whether training keeps its speed: with all that a run shows and keeps, beside another run, with every network.

    python benchmarks/speed_checks.py                                         everything; about 20 minutes on 2 cores
    python benchmarks/speed_checks.py --only overhead --num-envs 64
    python benchmarks/speed_checks.py --only neighbours
    python benchmarks/speed_checks.py --only widths --hidden 256 512 --num-threads 2 --worlds
    python benchmarks/speed_checks.py --only widths --hidden --worlds maze lstm

    overhead    CartPole with separate 64x64 tanh networks, 128 steps a rollout, 4 epochs, 4 minibatches: the loop of
                rollouts and learning alone against a whole run, its live view drawn in a pseudo-terminal, its metrics
                and checkpoints written, no evaluations. The two take turns of about half a second with one network.
                Percents of the run's time: outside the calls of training; inside those of the display, the metrics log,
                the counting of episodes and the checkpoints; in the background, CPU time to write checkpoints.
    neighbours  `scramjet train cartpole` twice at the same time against once alone, each a process of its own: steps
                per second in the middle half of its time.
    widths      training with the learner that is chosen by itself against `--no-fused`, in one process, in turns:
                CartPole with two layers of each `--hidden`, and the presets of other `--worlds`. Where no compiled
                function fits a network, both are the same, and their ratio says how noisy the machine is.

All on the CPU. Figures are medians over `--repeats`, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console

from scramjet.policies.config import MemoryName, PolicyConfig
from scramjet.runtime.logs import read_metrics
from scramjet.runtime.machine import available_cores
from scramjet.training import loop, start
from scramjet.training import state as saving
from scramjet.training.callbacks import Callbacks
from scramjet.training.config.files import starting_config
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.display import LiveDisplay
from scramjet.training.session import Session
from scramjet.training.state import Saver

NO_EVALUATIONS = EvaluationConfig(every=0, final_episodes=0)
WITHOUT_END = 10**10
"""Env steps that nobody waits for: schedules stand still."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--num-envs", type=int, nargs="+", default=[64, 1024], help="of CartPole")
    parser.add_argument("--num-steps", type=int, default=128, help="overhead: steps of a rollout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run-seconds", type=int, default=20, help="neighbours: time of each run")
    parser.add_argument("--turn-seconds", type=float, default=2.0, help="widths: time of each turn, at the least")
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 128, 256, 512], help="widths: units of a layer")
    parser.add_argument("--num-threads", type=int, nargs="+", default=sorted({1, available_cores()}), help="widths")
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=list(WORLDS), help="widths: other networks")
    arguments = parser.parse_args()
    for name in arguments.only:
        CHECKS[name](arguments)


def table(*columns: str) -> None:
    """Begin a markdown table."""
    print(f"\n| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|", flush=True)


def row(*cells: object) -> None:
    """A line of it."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def spread(values: Iterable[float], form: str) -> str:
    """Median (lowest to highest)."""
    values = list(values)
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def thousands(rates: Iterable[float]) -> str:
    """Steps per second, such as `210 K (205 to 214)`."""
    return spread((rate / 1e3 for rate in rates), ".3g").replace(" (", " K (")


@contextmanager
def session_of(config: RunConfig, runs_dir: Path) -> Iterator[Session]:
    """A run that has just begun."""
    session = start.new_run(config, runs_dir, None, None)
    with session.run, session.metrics_log:
        yield session


def train_only(session: Session, num_updates: int) -> None:
    """What no training can do without: rollouts, advantages, gradient steps."""
    for _ in range(num_updates):
        rollout = session.player.play(session.generator)
        batch = session.learner.prepare(rollout)
        session.learner.update(batch, 0)


# --- overhead


class Terminal:
    """A pseudo-terminal of 100 x 40 characters, and another program that reads what is drawn there."""

    def __enter__(self) -> Terminal:
        ours, theirs = pty.openpty()
        self._reader = subprocess.Popen(["wc", "-c"], stdin=ours, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        os.close(ours)
        self._file = os.fdopen(theirs, "w")
        environment = {"TERM": "xterm-256color"}
        self.console = Console(file=self._file, force_terminal=True, width=100, height=40, _environ=environment)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.bytes_drawn = int(self._reader.communicate()[0] or 0)


class Ledger:
    """Seconds inside the functions that it has been given; what one calls of another counts there alone."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.is_idle = threading.Event()  # nothing is being written in the background
        self.is_idle.set()
        self._inner = 0.0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time counted towards a name."""

        def counted(*arguments: Any, **named: Any) -> Any:
            outer, self._inner = self._inner, 0.0
            began = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                spent = time.perf_counter() - began
                self.seconds[name] += spent - self._inner
                self._inner = outer + spent

        return counted

    def in_background(self, name: str, make_work: Callable[..., Callable[[], Any]]) -> Callable[..., Any]:
        """The same maker of work for another thread, that thread's CPU time counted towards a name."""

        def make(*arguments: Any, **named: Any) -> Callable[[], Any]:
            work = make_work(*arguments, **named)
            self.is_idle.clear()

            def counted() -> Any:
                began = time.thread_time()
                try:
                    return work()
                finally:
                    self.seconds[name] += time.thread_time() - began
                    self.is_idle.set()

            return counted

        return make

    def watch(self, thing: object, method: str, name: str) -> None:
        """Count a method of this one object."""
        setattr(thing, method, self.timed(name, getattr(thing, method)))


class OverheadCheck:
    """A whole run that stands still every few updates, while the plain loop goes on with the same network and envs.

    The clock of its display stops meanwhile. Its turn does not end while a checkpoint is being written: that takes
    from the run's own speed.
    """

    WARM_UP = 10  # updates

    def __init__(self, num_envs: int, num_steps: int) -> None:
        config = replace(
            starting_config("cartpole"), num_envs=num_envs, num_steps=num_steps, eval=NO_EVALUATIONS, device="cpu"
        )
        num_updates = config.checkpoint.every * max(1, 512 * 128 // config.batch_size)
        steps = (self.WARM_UP + num_updates) * config.batch_size
        self.config = resolve(replace(config, total_timesteps=steps))
        self.turn_updates = max(2, 640 * 128 // config.batch_size)
        self.ledger = Ledger()
        self.counted: dict[str, float] = {}  # of the ledger, in turns that are over
        self.num_steps = 0  # by each of the two
        self.whole_seconds = 0.0
        self.plain_seconds = 0.0
        self._changed_after = 0  # updates
        self._resumed_at = 0.0
        self._paused_seconds = 0.0

    def run(self) -> None:
        """Train."""
        ledger = self.ledger
        with tempfile.TemporaryDirectory() as runs, session_of(self.config, Path(runs)) as self.session:
            session = self.session
            ledger.watch(session.metrics_log, "append", "metrics")
            ledger.watch(session.pool, "episodes", "episodes")
            ledger.watch(session.progress, "add", "episodes")
            ledger.watch(session.collector, "collect", "training")
            ledger.watch(session.learner, "prepare", "training")
            ledger.watch(session.learner, "update", "training")
            stages = [
                (Saver, "save_if_due", ledger.timed("checkpoints", Saver.save_if_due)),
                (saving, "checkpoint_of", ledger.in_background("background", saving.checkpoint_of)),
            ]
            with ExitStack() as patches, Terminal() as self.terminal:
                for owner, name, stage in stages:
                    patches.enter_context(mock.patch.object(owner, name, stage))
                result = loop.train_session(session, self._display(self.terminal.console), Callbacks())
        if result.stopped_by is not None:
            raise KeyboardInterrupt

    def _display(self, console: Console) -> LiveDisplay:
        """The live view; after each record the plain loop may have its turn."""
        display = LiveDisplay(console, clock=lambda: time.monotonic() - self._paused_seconds)
        self.ledger.watch(display, "event", "display")
        draw = self.ledger.timed("display", display.record)

        def draw_and_change_turns(record: Mapping[str, Any]) -> None:
            draw(record)
            update = record["update"]
            is_over = update - self._changed_after >= self.turn_updates and self.ledger.is_idle.is_set()
            if update == self.WARM_UP or (update > self.WARM_UP and is_over):
                self._change_turns(update)

        display.record = draw_and_change_turns  # type: ignore[method-assign]
        return display

    def _change_turns(self, update: int) -> None:
        paused_at, counted = time.perf_counter(), self.ledger.seconds.copy()
        num_updates = update - self._changed_after
        train_only(self.session, num_updates)
        plain_seconds = time.perf_counter() - paused_at
        if update == self.WARM_UP:
            counted.clear()
        else:
            self.num_steps += num_updates * self.config.batch_size
            self.whole_seconds += paused_at - self._resumed_at
            self.plain_seconds += plain_seconds
        self.session.pool.episodes()  # those of the plain loop are not the run's
        self.counted, self.ledger.seconds = counted, counted.copy()
        self._changed_after = update
        self._resumed_at = time.perf_counter()
        self._paused_seconds += self._resumed_at - paused_at

    @property
    def overhead(self) -> float:
        """By how much the whole run took longer, in percent."""
        return 100 * (self.whole_seconds / self.plain_seconds - 1)

    @property
    def shares(self) -> list[float]:
        """Percent of the run's time: outside training, then inside each of INSIDE."""
        percents = {name: 100 * seconds / self.whole_seconds for name, seconds in self.counted.items()}
        return [100 - percents["training"], *(percents[name] for name in INSIDE)]


INSIDE = ("display", "metrics", "episodes", "checkpoints", "background")


def check_overhead(arguments: argparse.Namespace) -> None:
    """What a run costs beside its training."""
    inside = [f"{name} %" for name in INSIDE]
    table("envs", "threads", "plain loop", "whole run", "overhead %", "outside training %", *inside, "drawn")
    for num_envs in arguments.num_envs:
        checks = [OverheadCheck(num_envs, arguments.num_steps) for _ in range(arguments.repeats)]
        for check in checks:
            check.run()
        plain = thousands(check.num_steps / check.plain_seconds for check in checks)
        whole = thousands(check.num_steps / check.whole_seconds for check in checks)
        overhead = spread((check.overhead for check in checks), ".1f")
        shares = [
            f"{statistics.median(values):.2f}" for values in zip(*(check.shares for check in checks), strict=True)
        ]
        drawn = f"{statistics.median(check.terminal.bytes_drawn for check in checks) / 1024:.0f} KiB"
        row(num_envs, checks[0].config.num_threads, plain, whole, overhead, *shares, drawn)


# --- neighbours


def check_neighbours(arguments: argparse.Namespace) -> None:
    """Two runs at the same time."""
    table("envs", "threads of each", "alone", "one of two", "the other", "share of one", "share of the other")
    for num_envs in arguments.num_envs:
        alone: list[float] = []
        pairs: list[list[float]] = []
        for _ in range(arguments.repeats):
            alone += side_by_side(1, num_envs, arguments.run_seconds)
            pairs.append(side_by_side(2, num_envs, arguments.run_seconds))
        each = list(zip(*pairs, strict=True))
        shares = [spread((x / y for x, y in zip(speeds, alone, strict=True)), ".2f") for speeds in each]
        num_threads = resolve(replace(starting_config("cartpole"), num_envs=num_envs, device="cpu")).num_threads
        row(num_envs, num_threads, thousands(alone), *map(thousands, each), *shares)


def side_by_side(num_runs: int, num_envs: int, seconds: int) -> list[float]:
    """Steps per second of each of some runs that begin together."""
    with tempfile.TemporaryDirectory() as runs:
        words = ["train", "cartpole", "--num-envs", str(num_envs), "--total-timesteps", str(WITHOUT_END)]
        words += ["--time-limit", f"{seconds}s", "--runs-dir", runs, "--device", "cpu"]
        command = [sys.executable, "-m", "scramjet", *words, "--run-name"]
        names = [f"run-{i}" for i in range(num_runs)]
        processes = [subprocess.Popen([*command, name], stdout=subprocess.DEVNULL) for name in names]
        try:
            for process in processes:
                if process.wait() != 0:
                    raise RuntimeError(f"a run ended with {process.returncode}")
        finally:
            for process in processes:
                process.terminate()
                process.wait()
        return [steady_speed(Path(runs) / name / "metrics.jsonl") for name in names]


def steady_speed(path: Path) -> float:
    """Steps per second over the middle half of a run's time, evaluations and checkpoints included."""
    points = [(record["time"]["elapsed_seconds"], record["step"]) for record in read_metrics(path)]
    end = points[-1][0]
    middle = [point for point in points if end / 4 <= point[0] <= 3 * end / 4]
    (first_time, first_step), (last_time, last_step) = middle[0], middle[-1]
    return float((last_step - first_step) / (last_time - first_time))


# --- widths

WIDE = 256
"""Units from which on rollouts have 32 steps instead of 128: an update would take up to 20 seconds."""


def preset(world: str, memory: MemoryName | None = None) -> RunConfig:
    """Of a world, with this memory in place of its own."""
    config = starting_config(world)
    return config if memory is None else replace(config, policy=replace(config.policy, memory=memory))


WORLDS: dict[str, RunConfig] = {
    "maze": preset("maze"),
    "snake": preset("snake"),
    "binpack": preset("binpack"),
    "lstm": preset("masked_cartpole", "lstm"),
    "gru": preset("masked_cartpole", "gru"),
    "mingru": preset("masked_cartpole", "mingru"),
}


def check_widths(arguments: argparse.Namespace) -> None:
    """The learner that is chosen by itself, against torch's operators."""
    columns = ("envs x steps", "threads", "compiled", "by itself", "--no-fused", "ratio")
    if arguments.hidden:
        table("hidden", *columns)
    for width in arguments.hidden:
        for num_envs in arguments.num_envs:
            for num_threads in arguments.num_threads:
                config = replace(
                    starting_config("cartpole"),
                    num_envs=num_envs,
                    num_steps=128 if width < WIDE else 32,
                    num_threads=num_threads,
                    policy=PolicyConfig(hidden=(width, width)),
                )
                compare_learners(f"{width}, {width}", config, arguments)
    if arguments.worlds:
        table("preset", *columns)
    for name in arguments.worlds:
        config = WORLDS[name]
        title = config.env if config.policy.memory is None else f"{config.env}, {config.policy.memory}"
        compare_learners(title, config, arguments)


def compare_learners(title: str, config: RunConfig, arguments: argparse.Namespace) -> None:
    """Train with the one and the other in turns."""
    config = replace(config, total_timesteps=WITHOUT_END, eval=NO_EVALUATIONS, device="cpu")
    speeds: list[tuple[float, float]] = []
    with ExitStack() as stack, tempfile.TemporaryDirectory() as runs:
        chosen, torchs = (
            stack.enter_context(session_of(replace(config, fused=fused), Path(runs))) for fused in (True, False)
        )
        for session in (chosen, torchs):  # compile and warm up
            train_for(session, 0.0)
        for _ in range(arguments.repeats):
            speeds.append((train_for(chosen, arguments.turn_seconds), train_for(torchs, arguments.turn_seconds)))
        settings, is_compiled = chosen.config, chosen.learner.executor.name == "numba"
    sizes = f"{settings.num_envs} x {settings.num_steps}", settings.num_threads, "yes" if is_compiled else "no"
    ratio = spread((ours / theirs for ours, theirs in speeds), ".2f")
    row(title, *sizes, *map(thousands, zip(*speeds, strict=True)), ratio)


def train_for(session: Session, seconds: float) -> float:
    """Steps per second of as many updates as take so long, at least one."""
    began, count = time.perf_counter(), 0
    while True:
        train_only(session, 1)
        count += 1
        elapsed = time.perf_counter() - began
        if elapsed >= seconds:
            return count * session.config.batch_size / elapsed


CHECKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "overhead": check_overhead,
    "neighbours": check_neighbours,
    "widths": check_widths,
}


if __name__ == "__main__":
    main()
