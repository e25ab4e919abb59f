"""Writes constraints.txt: one version of each package, that the index alone can satisfy.

`make constraints` keeps the versions that are there and adds what is missing; `make constraints UPGRADE=1` takes the
newest. uv resolves pyproject.toml with every extra, for all environments that `tool.uv.environments` lists there.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "constraints.txt"
HEADER = "# The versions that CI uses, made by `make constraints`. To use them: pip install -c constraints.txt -e .\n"


def without_needless_markers(pins: list[str]) -> list[str]:
    """A constraint binds only what is installed: where there is one version, it holds on every platform."""
    versions = Counter(re.split("==", pin)[0] for pin in pins)
    return [pin.partition(" ;")[0] if versions[pin.split("==")[0]] == 1 else pin for pin in pins]


def main() -> int:
    compiled = ["uv", "pip", "compile", "--quiet", "--universal", "--all-extras", "--python-version", "3.11"]
    plain = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    words = [sys.executable, "-m", *compiled, *plain, "pyproject.toml", "--output-file", FILE, *sys.argv[1:]]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    if done.returncode == 0:
        pins = [line for line in FILE.read_text().splitlines() if "==" in line]
        FILE.write_text(HEADER + "\n".join(without_needless_markers(pins)) + "\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
