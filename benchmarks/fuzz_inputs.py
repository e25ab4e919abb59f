"""Look for an input that ends in a traceback, hangs, or takes much memory: flags, config files, calls from Python.

    python benchmarks/fuzz_inputs.py                            a minute for each kind of input
    python benchmarks/fuzz_inputs.py --seconds 600 --kinds files python
    python benchmarks/fuzz_inputs.py --seed 1234                the same inputs again

Each input must be accepted, or refused in one message, within a second and a gigabyte. What is not is printed, made as
small as can be: mend its cause, and keep it as an `example` in tests/faults/test_fuzz_inputs.py, which tries some of
these inputs in every run of the tests. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["SCRAMJET_STATE_DIR"] = tempfile.mkdtemp()  # nothing of this is to be remembered

from tests.helpers.input_fuzz import TARGETS, must_end_well, own_folder

EXAMPLES_PER_ROUND = 200
MOST_FOUND = 5
"""Rounds with a failure, of one kind, after which it is enough."""


def fuzz(kind: str, seconds: float, first_seed: int) -> int:
    """Try inputs of a kind for so long; returns the number of rounds that found something."""
    inputs, action = TARGETS[kind]
    tried = found = 0
    until = time.monotonic() + seconds
    round_seed = first_seed
    while time.monotonic() < until and found < MOST_FOUND:

        @seed(round_seed)
        @settings(
            max_examples=EXAMPLES_PER_ROUND,
            deadline=None,
            database=None,
            suppress_health_check=[*HealthCheck],
            phases=[Phase.generate, Phase.shrink],
            print_blob=False,
        )
        @given(given_input=inputs)
        def try_some(given_input: object) -> None:
            nonlocal tried
            tried += 1
            must_end_well(lambda: action(given_input))

        try:
            try_some()
        except Exception:
            found += 1
            print(f"--- {kind}, seed {round_seed}:\n{traceback.format_exc(limit=-4)}", flush=True)
        round_seed += 1
    print(f"{kind}: {tried:,} inputs, {found} rounds with a failure", flush=True)
    return found


def main() -> None:
    """Try each kind of input in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kind")
    parser.add_argument("--kinds", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--seed", type=int, default=None, help="of the first round; by default a random one")
    arguments = parser.parse_args()
    first_seed = random.randrange(10**9) if arguments.seed is None else arguments.seed
    with tempfile.TemporaryDirectory() as folder, own_folder(Path(folder)):
        found = sum(fuzz(kind, arguments.seconds, first_seed) for kind in arguments.kinds)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
