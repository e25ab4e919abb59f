"""Digests of small trainings: the proof that a change of structure changes no learned number.

    python benchmarks/digests.py --write before.json            with the code before the change
    python benchmarks/digests.py --compare before.json          with the code after it: exit code 1 where a bit differs
    python benchmarks/digests.py --keep runs_before             leave the run folders
    python benchmarks/digests.py --resume runs_before --write resumed.json
                                                                go on with copies of them for as many steps again
    python benchmarks/digests.py --only mlp lstm                some cases
    python benchmarks/digests.py --device cuda                  the cases of the GPU in place of the CPU's

Each case in digest_cases.py trains two to five updates of one kind of network, world, env pool or algorithm. Of each,
four SHA-256 are taken: `weights` of the policy's tensors (weights and normalizers), `optimizer` of the optimizer's
moments, `state` of the other tensors that the next update depends on (random generators, memory, reward scaling; not
the envs' own states), and `metrics` of all lines of metrics.jsonl without times and queues. Where two files differ, the
names of the tensors and metrics that differ are printed.

To prove that checkpoints of older code go on identically: `--keep DIR` with the older code, then `--resume DIR --write`
with the older and `--resume DIR --compare` with the newer. Replays of asynchronous runs are not resumed.

Numbers depend on the machine (processor, torch, NumPy): write and compare on the same one; --compare warns where it is
another. Only the public API is used, and the files that a run leaves, so that the same script runs with older and newer
code; which code that was stands in the first line of the output. The first run also compiles
kernels, which doubles its time.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from digest_cases import CPU_CASES, CUDA_CASES, Case
from safetensors.numpy import load_file

import scramjet

QUEUES = {"async/queue_depth", "async/frames_in_flight", "async/learner_idle", "async/actors_idle"}
"""Metrics that say how long threads waited, and not what was learned."""
PARTS = ("weights", "optimizer", "state", "metrics")


def train_case(name: str, case: Case, device: str, seed: int, runs: Path) -> Path:
    """Train a case in `runs`; returns its run folder."""
    config = case.config(device)
    if case.schedule is not None:
        file = runs / f"{name}.jsonl"
        events = case.schedule(case.num_updates, config["num_steps"])
        file.write_text("".join(json.dumps(event) + "\n" for event in events))
        config["replay_schedule"] = str(file)
    network = None if case.network is None else case.network()
    result = scramjet.train(
        scramjet.RunConfig(env=case.env),
        network=network,
        runs_dir=runs,
        run_name=name,
        display="quiet",
        seed=seed,
        **config,
    )
    return Path(result.run_path)


def resume_case(name: str, case: Case, device: str, runs: Path) -> Path:
    """Go on with a kept run in `runs` for as many steps again; returns its run folder."""
    result = scramjet.train(
        resume=runs / name,
        env=case.env,  # the world's file may be elsewhere than when the run was kept
        network=None if case.network is None else case.network(),
        runs_dir=runs,
        total_timesteps=2 * case.config(device)["total_timesteps"],
        display="quiet",
        trust=True,
    )
    return Path(result.run_path)


def digest(named: Mapping[str, bytes]) -> str:
    """SHA-256 over names and contents, in the order of names."""
    total = hashlib.sha256()
    for name in sorted(named):
        total.update(f"{name}:{len(named[name])}:".encode() + named[name])
    return total.hexdigest()


def content(array: np.ndarray) -> bytes:
    """The bytes of an array, with its type and shape."""
    return f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()


def contents_of(run: Path) -> dict[str, dict[str, bytes]]:
    """All that a run has learned, as bytes by part and name; see the module's docstring."""
    newest = sorted((run / "checkpoints").glob("step_*"))[-1]
    weights, trainer = load_file(newest / "model.safetensors"), load_file(newest / "trainer.safetensors")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    names = {name for record in records for name in record} - QUEUES - {"time"}
    moments = {name: content(tensor) for name, tensor in trainer.items() if name.startswith("optimizer/")}
    others = {name: content(tensor) for name, tensor in trainer.items() if not name.startswith(("optimizer/", "pool/"))}
    return {
        "weights": {name: content(tensor) for name, tensor in weights.items()},
        "optimizer": moments,
        "state": others,
        "metrics": {name: json.dumps([record.get(name) for record in records]).encode() for name in names},
    }


def digests_of(run: Path) -> dict[str, Any]:
    """The digest of each part of a run, and of each tensor and metric, to name those that differ."""
    contents = contents_of(run)
    assert all(contents.values()), f"{run} has nothing in one of {PARTS}"
    each = {part: {name: digest({name: data})[:12] for name, data in contents[part].items()} for part in PARTS}
    return {**{part: digest(contents[part]) for part in PARTS}, "each": each}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """For each part that differs: its name and those of its tensors or metrics that do."""
    lines = []
    for part in PARTS:
        if before[part] != after[part]:
            old, new = before["each"][part], after["each"][part]
            names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
            lines.append(f"{part}: {', '.join(names[:6])}{f' and {len(names) - 6} more' if len(names) > 6 else ''}")
    return lines


def compare(before: Mapping[str, Any], after: Mapping[str, Any], names: Iterable[str] | None) -> bool:
    """Say which cases differ, of all or of those in `names`; True where none does."""
    if before["machine"] != after["machine"]:
        print(f"warning: another machine: {before['machine']} before, {after['machine']} now")
    old, new = before["cases"], after["cases"]
    found = {}
    for name in old.keys() | new.keys() if names is None else names:
        if name not in old or name not in new:
            found[name] = [f"only {'before' if name in old else 'now'}"]
        elif lines := differences(old[name], new[name]):
            found[name] = lines
    for name in sorted(found):
        print(f"DIFFERS {name}: " + "; ".join(found[name]))
    if not found:
        print(f"all equal: {len(new)} cases")
    return not found


def run_cases(cases: Mapping[str, Case], options: argparse.Namespace, runs: Path) -> dict[str, Any]:
    """Train or resume each case in `runs`, print a line for each, and return the digests by name."""
    results = {}
    print(f"{'case':20} {'weights':12} {'optimizer':12} {'state':12} {'metrics':12} seconds")
    for name, case in cases.items():
        if case.needs is not None and importlib.util.find_spec(case.needs) is None:
            print(f"{name:20} left out: {case.needs} is not installed")
            continue
        started = time.perf_counter()
        if options.resume is None:
            run = train_case(name, case, options.device, options.seed, runs)
        else:
            run = resume_case(name, case, options.device, runs)
        results[name] = digests_of(run)
        shown = " ".join(results[name][part][:12] for part in PARTS)
        print(f"{name:20} {shown} {time.perf_counter() - started:7.1f}", flush=True)
    return results


def chosen_cases(options: argparse.Namespace) -> dict[str, Case]:
    """The cases of the device that were asked for; of a resume, those that can go on."""
    cases = CUDA_CASES if options.device == "cuda" else CPU_CASES
    if unknown := set(options.only or ()) - cases.keys():
        sys.exit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(cases)}")
    chosen = {name: case for name, case in cases.items() if options.only is None or name in options.only}
    return {name: case for name, case in chosen.items() if options.resume is None or case.schedule is None}


def machine(device: str) -> str:
    """What the numbers depend on beside the code."""
    parts = [platform.machine(), f"torch {torch.__version__}", f"numpy {np.__version__}"]
    where = torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability()
    return ", ".join([*parts, where])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases to run; default: all")
    parser.add_argument("--seed", type=int, default=7, help="of new runs; another one must change every digest")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the digests to a JSON file")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with a JSON file; exit 1 if they differ")
    folders = parser.add_mutually_exclusive_group()
    folders.add_argument("--keep", type=Path, metavar="DIR", help="a new folder in which the runs are left")
    folders.add_argument("--resume", type=Path, metavar="DIR", help="go on with copies of the runs kept there")
    options = parser.parse_args()
    cases = chosen_cases(options)
    before = None if options.compare is None else json.loads(options.compare.read_text())  # --write may replace it
    print(f"scramjet from {Path(scramjet.__file__).parent}")
    with tempfile.TemporaryDirectory(prefix="digests-") as temporary:
        runs = options.keep or Path(temporary) / "runs"
        if options.resume is None:
            runs.mkdir(parents=True)
        else:
            shutil.copytree(options.resume, runs, symlinks=True)
        after = {"machine": machine(options.device), "cases": run_cases(cases, options, runs)}
    if options.write is not None:
        options.write.write_text(json.dumps(after, indent=1) + "\n")
    if before is not None and not compare(before, after, options.only):
        sys.exit(1)


if __name__ == "__main__":
    main()
