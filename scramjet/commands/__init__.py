"""One module for each subcommand of `scramjet`; `arguments/` has the flags of those that load torch or Numba."""

import sys

if sys.argv[:1] == [
    "-m"
]:  # as long as Python looks for a program: `python -m scramjet.commands.train` would do nothing
    print(f"scramjet: modules of {__name__} are no programs; type `python -m scramjet COMMAND`", file=sys.stderr)
    sys.exit(2)
