"""Speed of scramjet beside other libraries on the same machine, interleaved and repeated.

    python benchmarks/compare_peers.py                                  everything; most of an hour on 2 cores
    python benchmarks/compare_peers.py --only training --num-envs 64 --peers jax sb3
    python benchmarks/compare_peers.py --python pufferlib=PATH_TO_ITS_PYTHON

Each library is installed from PyPI, pinned, into an environment of its own under `--folder`; one that cannot be is
named and left out. Each measurement is a process of its own, one at a time: scramjet, the first peer, the second, and
again.

    env       steps per second of 1024 CartPoles under random actions, nothing else
    training  steps trained per second: rollouts of 128 steps and all that is learned from them (separate 64x64 tanh
              networks, 4 epochs, 4 minibatches), after compilation and warm-up, at each of `--num-envs`
    solve     seconds from the start of the process until the mean return of the last 100 training episodes is 475, with
              the settings that each library recommends for CartPole; a seed a repeat
    gae       steps per second of generalized advantage estimation on [128, 1024] float32

What each peer does exactly, and where it cannot do the same, is said in its program under benchmarks/peers/. Writes
`peers.md`, `peers.json` and `peers.svg` into `--output`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from peers.environments import PEERS, PLOT, SCRAMJET, InstallError, Peer, python_of
from peers.report import TITLES, Figure, human, markdown, seconds

ENV_NUM_ENVS = 1024
CALM, DISTURBED = 0.2, 0.3
"""Cores that others may keep busy: before a measurement begins, and while it lasts."""


@dataclass(frozen=True)
class Outcome:
    """What one process gave."""

    answer: dict[str, Any] | None
    failure: str | None
    seconds: float
    """From start to exit."""
    started: float
    """Seconds since 1970."""
    others: float
    """Cores kept busy by other programs meanwhile."""

    @property
    def is_disturbed(self) -> bool:
        """Whether to measure again; what a program did that had to be ended is counted as others' work."""
        return self.failure is None and self.others > DISTURBED


class Comparison:
    """All measurements, in the order in which they are made."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.pythons: dict[str, str] = {}
        self.figures: list[Figure] = []
        self.versions: dict[str, dict[str, str]] = {}
        self.absent: dict[tuple[str, str], str] = {}
        self.peers = [peer for peer in PEERS if peer is SCRAMJET or peer.name in arguments.peers]
        if arguments.keep:
            self._read()

    def install(self) -> None:
        """An interpreter for each peer; those without one are left out, and it is said why."""
        given = dict(pair.split("=", 1) for pair in self.arguments.python)
        for peer in list(self.peers):
            try:
                self.pythons[peer.name] = python_of(peer, self.arguments.folder, given)
            except (InstallError, OSError) as error:
                print(f"{peer.title} cannot be installed: {error}", flush=True)
                self.absent |= {(peer.name, work): f"cannot be installed: {error}" for work in peer.works}
                self.peers.remove(peer)

    def run(self) -> None:
        """Measure, and write what is known after each round."""
        for work in self.arguments.only:
            self.absent |= {(peer.name, work): peer.absent[work] for peer in self.peers if work in peer.absent}
            for num_envs in self.arguments.num_envs if work == "training" else [ENV_NUM_ENVS]:
                self._measure(work, num_envs)
                self.write()

    def _read(self) -> None:
        """What an earlier run wrote."""
        path = self.arguments.output / "peers.json"
        if not path.exists():
            return
        results = json.loads(path.read_text())
        self.figures = [Figure(**figure) for figure in results["figures"]]
        self.versions = results["versions"]
        self.absent = {(row["peer"], row["work"]): row["why"] for row in results["absent"]}

    def _measure(self, work: str, num_envs: int) -> None:
        """One figure of every peer that has none yet, interleaved."""
        known = {figure.peer for figure in self.figures if (figure.work, figure.num_envs) == (work, num_envs)}
        peers = [peer for peer in self.peers if work in peer.works and peer.name not in known]
        if work == "training":
            peers = [peer for peer in peers if num_envs <= peer.most_envs]
        figures = {peer.name: Figure(peer.name, work, num_envs) for peer in peers}
        self.figures += figures.values()
        for repeat in range(self.arguments.repeats):
            for peer in peers:
                figure = figures[peer.name]
                if figure.failure is None or work == "solve":  # another seed may be luckier
                    self._take(peer, figure, repeat)

    def _take(self, peer: Peer, figure: Figure, repeat: int) -> None:
        """One measurement more."""
        words = ["--work", figure.work, "--num-envs", str(figure.num_envs), "--seconds", str(self.arguments.seconds)]
        command = [self.pythons[peer.name], "-W", "ignore", str(peer.path), *peer.words, *words]
        outcome = self._least_disturbed([*command, "--seed", str(repeat + 1)])
        answer = outcome.answer or {}
        self.versions.setdefault(peer.name, answer.get("versions", {}))
        figure.settings = answer.get("settings", figure.settings)
        value, failure = value_of(figure.work, outcome)
        if value is None:
            figure.failure = failure
        else:
            figure.values.append(value)
            figure.others.append(round(outcome.others, 2))
            figure.env_steps += [answer["env_steps"]] if "env_steps" in answer else []
        shown = failure if value is None else seconds(value) + " s" if figure.work == "solve" else human(value)
        print(
            f"{figure.work:<9}{figure.num_envs:>5} envs  {peer.title:<19}{shown:<24} "
            f"({outcome.seconds:.0f} s, others {outcome.others:.1f} cores)",
            flush=True,
        )

    def _least_disturbed(self, command: list[str]) -> Outcome:
        """Run a program, and again if others kept the machine busy meanwhile; the quietest of the tries counts."""
        outcomes: list[Outcome] = []
        while not outcomes or (len(outcomes) < self.arguments.tries and outcomes[-1].is_disturbed):
            wait_for_calm(self.arguments.wait)
            outcomes.append(outcome_of(command, self.arguments.limit))
        return min(outcomes, key=lambda outcome: outcome.others)

    @property
    def titles(self) -> dict[str, str]:
        """Each peer's name with its version."""
        packages = {peer.name: self.versions.get(peer.name, {}).get(peer.package, "") for peer in PEERS}
        return {peer.name: f"{peer.title} {packages[peer.name]}".strip() for peer in PEERS}

    def facts(self) -> dict[str, str]:
        """What a reader must know to judge the figures."""
        disturbances = [others for figure in self.figures for others in figure.others]
        return {
            "date": date.today().isoformat(),
            "machine": machine(),
            "method": f"{self.arguments.repeats} repeats, {self.arguments.seconds:g} s a figure, at most "
            f"{self.arguments.limit:g} s a process; median (lowest to highest); "
            "ratio: how many times as fast scramjet is",
            "other programs": f"kept {max(disturbances, default=0.0):.1f} cores busy at most during a measurement",
            "versions": "; ".join(
                ", ".join(f"{package} {version}" for package, version in versions.items())
                for versions in self.versions.values()
            ),
        }

    def write(self) -> None:
        """The table and the numbers."""
        output: Path = self.arguments.output
        output.mkdir(parents=True, exist_ok=True)
        titles, facts = self.titles, self.facts()
        (output / "peers.md").write_text(markdown(self.figures, titles, self.absent, facts))
        absent = [{"peer": peer, "work": work, "why": why} for (peer, work), why in self.absent.items()]
        figures = [asdict(figure) for figure in self.figures]
        results = {"facts": facts, "titles": titles, "versions": self.versions, "figures": figures, "absent": absent}
        (output / "peers.json").write_text(json.dumps(results, indent=1) + "\n")

    def plot(self) -> None:
        """The picture; without matplotlib to be had, none."""
        output: Path = self.arguments.output
        try:
            given = dict(pair.split("=", 1) for pair in self.arguments.python)
            python = python_of(PLOT, self.arguments.folder, given)
            subprocess.run([python, str(PLOT.path), str(output / "peers.json"), str(output / "peers.svg")], check=True)
        except (InstallError, OSError, subprocess.CalledProcessError) as error:
            print(f"no picture: {error}")


def value_of(work: str, outcome: Outcome) -> tuple[float | None, str | None]:
    """Steps per second, or seconds to a solved CartPole; or else why there is none."""
    if outcome.answer is None:
        return None, outcome.failure
    if work != "solve":
        return float(outcome.answer["steps_per_second"]), None
    if outcome.answer["solved_at"] is None:
        return None, f"a run not solved in {outcome.answer['env_steps']:,} steps"
    return outcome.answer["solved_at"] - outcome.started, None


def outcome_of(command: list[str], limit: float) -> Outcome:
    """Run a program to its end or to the limit, and read the last line it prints."""
    started, busy, own = time.time(), busy_seconds(), own_seconds()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    failure = None
    try:
        printed, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        failure = f"not done in {limit:g} s"
        os.killpg(process.pid, signal.SIGKILL)
        printed, errors = process.communicate()
    elapsed = time.time() - started
    others = max(0.0, busy_seconds() - busy - (own_seconds() - own)) / elapsed
    if failure is None and process.returncode:
        failure = f"crashed: {(errors.strip().splitlines() or ['no message'])[-1][:120]}"
    answers = [line for line in printed.splitlines() if line.startswith("{")]
    if failure is None and not answers:
        failure = "crashed: no answer"
    return Outcome(None if failure else json.loads(answers[-1]), failure, elapsed, started, others)


def busy_seconds() -> float:
    """Seconds that all cores together have worked since the machine started; 0 where that cannot be read."""
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, irq, softirq, *_ = (int(word) for word in words)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Seconds of CPU that this program and its ended children have had."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def wait_for_calm(longest: float) -> None:
    """Wait until other programs leave the cores alone, but no longer than so many seconds."""
    deadline = time.monotonic() + longest
    while time.monotonic() < deadline:
        busy, own = busy_seconds(), own_seconds()
        time.sleep(1.0)
        if busy_seconds() - busy - (own_seconds() - own) < CALM:
            return


def machine() -> str:
    """Cores, their kind, memory and Python."""
    cpu = platform.machine()
    try:
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {cpu}, {memory:.0f} GiB, Python {platform.python_version()}"


def main() -> None:
    names = [peer.name for peer in PEERS if peer is not SCRAMJET]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--peers", nargs="*", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--num-envs", type=int, nargs="+", default=[4, 64, 1024, 4096], help="of training")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure, after the warm-up")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds after which a process is ended")
    parser.add_argument("--wait", type=float, default=10.0, help="longest wait for a calm machine before a measurement")
    parser.add_argument("--tries", type=int, default=1, help="measure again, so often at most, when others disturb it")
    parser.add_argument("--folder", type=Path, default=Path(".peers"), help="where environments are made")
    parser.add_argument("--output", type=Path, default=Path(".peers"), help="where results are written")
    parser.add_argument(
        "--keep", action="store_true", help="go on with the results in --output: measure what is missing"
    )
    parser.add_argument("--python", nargs="*", default=[], metavar="NAME=PATH", help="use an environment that exists")
    arguments = parser.parse_args()
    if arguments.repeats < 1 or arguments.seconds <= 0 or min(arguments.num_envs) < 4:
        parser.error(
            "--repeats must be at least 1, --seconds above 0, --num-envs at least 4 (it is cut in 4 minibatches)"
        )
    comparison = Comparison(arguments)
    comparison.install()
    comparison.run()
    comparison.plot()
    print((arguments.output / "peers.md").read_text())


if __name__ == "__main__":
    main()
