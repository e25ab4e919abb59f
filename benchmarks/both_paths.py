"""Do the fast paths compute what plain torch computes? Settings drawn from the table of flags, trained by both.

    python benchmarks/both_paths.py                             200 trainings on the CPU
    python benchmarks/both_paths.py --cases 1000 --jobs 8
    python benchmarks/both_paths.py --device cuda --cases 200
    python benchmarks/both_paths.py --seed 7 --worlds cartpole pendulum

A case is a world, settings, a network and what a callback changes while it trains; each is trained for three updates by
the executor that would be chosen and by torch's operators alone (`--no-fused`), and the rollouts and weights are
compared, in units of what was learned. Where they are further apart than 1e-3, torch's own training is repeated from
weights that were changed by 1e-5: one that comes out as far away is sensitive to rounding and says nothing, and is
counted apart. What is apart for another reason is made as small as can be and printed; the exit code is 1.

How cases are drawn and compared is in tests/helpers/both_paths.py; a sample is a test. Settings that cannot be drawn
are listed there with the reason.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

PER_ROUND = 20
"""Cases drawn from one seed; a failure ends its round."""


def compare_round(given: tuple[int, int, str, list[str]]) -> list[tuple[str, str, str]]:
    """Draw and compare one round of cases; the kind of each verdict, its executor, and what to print of it."""
    number, count, device, names = given
    os.environ["SCRAMJET_STATE_DIR"] = tempfile.mkdtemp()  # nothing of this is to be remembered
    import torch
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import given as drawn
    from hypothesis import seed as seeded

    from tests.helpers import both_paths

    torch.set_num_threads(1)
    found: dict[str, tuple[str, str, str]] = {}
    smallest: list[str] = []
    worlds = tuple(names) or both_paths.worlds()
    both_paths.register_worlds()

    @seeded(number)
    @settings(max_examples=count, database=None, deadline=None, report_multiple_bugs=False, print_blob=False,
              phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck))  # fmt: skip
    @drawn(both_paths.cases(worlds, device))
    def compare(case: both_paths.Case) -> None:
        if repr(case) in found:
            assert found[repr(case)][0] != "apart"
            return
        verdict = both_paths.compare(case)
        if verdict.kind == "apart":
            smallest[:] = [f"{verdict}\n  {case}"]
        if not (smallest and verdict.kind == "apart"):
            found[repr(case)] = verdict.kind, verdict.executor, f"{verdict}\n  {case}"
        assert verdict.kind != "apart"

    try:
        compare()
    except AssertionError:
        return [*found.values(), ("apart", "", smallest[0])]
    return [*found.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worlds", nargs="*", default=[], help="default: all that come with scramjet, and a few more")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--verbose", action="store_true", help="print what could not be compared, too")
    options = parser.parse_args()
    kinds, executors = collections.Counter[str](), collections.Counter[str]()
    began = time.monotonic()
    rounds = ((options.seed + 1000 * i, PER_ROUND, options.device, options.worlds) for i in range(10**6))
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=4) as pool:
        for verdicts in pool.imap_unordered(compare_round, rounds):
            for kind, executor, text in verdicts:
                kinds[kind] += 1
                executors[executor.partition(" (")[0] + " " + kind] += kind != "refused"
                if kind == "apart" or (options.verbose and kind != "equal"):
                    print(text, flush=True)
            seconds = time.monotonic() - began
            print(f"{seconds:6.0f} s  " + ", ".join(f"{number} {kind}" for kind, number in kinds.items()), flush=True)
            if sum(kinds.values()) - kinds["refused"] >= options.cases or seconds > 60 * options.minutes:
                pool.terminate()
                break
    print("  ".join(f"{name}: {number}" for name, number in sorted(executors.items()) if number))
    sys.exit(1 if kinds["apart"] else 0)


if __name__ == "__main__":
    main()
