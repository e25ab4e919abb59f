"""Which versions of Numba scramjet was tested with, found out without loading the compiler, which takes long.

With another version nothing of Numba's own parts is used (see `numba_internals`): everything still runs, but compiles
at every start, and torch's operators train in place of the compiled network. SCRAMJET_PLAIN_NUMBA=1 asks for the same
with any version.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, version

TESTED_NUMBA = ((0, 61), (0, 69))
"""From the first of these versions to below the second; pyproject.toml says the same."""
TESTED_NUMBA_CUDA = ((0, 30), (0, 31))


def is_within(text: str, tested: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    """Whether a version such as "0.68.1" lies in a tested range."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", text)[:2])
    return tested[0] <= numbers < tested[1]


def installed(package: str) -> str:
    """The version that is installed; "" where the package is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


IS_FORCED_PLAIN = os.environ.get("SCRAMJET_PLAIN_NUMBA", "") not in ("", "0")
IS_TESTED = not IS_FORCED_PLAIN and is_within(installed("numba"), TESTED_NUMBA)
"""Whether `numba_internals` may use Numba's own parts."""
IS_CUDA_TESTED = IS_TESTED and is_within(installed("numba-cuda"), TESTED_NUMBA_CUDA)
"""Whether `numba_internals` may use numba-cuda's own parts."""


def untested_note() -> str:
    """What a user should know of a version that was not tested."""
    lowest, highest = (".".join(map(str, bound)) for bound in TESTED_NUMBA)
    why = (
        "SCRAMJET_PLAIN_NUMBA is set"
        if IS_FORCED_PLAIN
        else f"scramjet was not tested with Numba {installed('numba')}, but with those from {lowest} to below {highest}"
    )
    fix = "unset it" if IS_FORCED_PLAIN else f"pip install 'numba>={lowest},<{highest}'"
    return (
        f"{why}: everything compiles anew at every start, and torch's operators train in place of compiled ones. "
        f"Results are right, starts and small networks are slower; {fix} to change that"
    )
