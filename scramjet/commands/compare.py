"""`scramjet compare`: runs side by side, their settings and their final numbers."""

from __future__ import annotations

import json
import sys
from dataclasses import fields

from rich.console import Console

from scramjet.commands.arguments.compare import Arguments
from scramjet.errors import printable
from scramjet.reports.comparison import compare


def compare_command(arguments: Arguments) -> int:
    """Run `scramjet compare ...`; returns the exit code."""
    options = {field.name: getattr(arguments, field.name) for field in fields(arguments)}
    runs, as_json = options.pop("runs"), options.pop("json")
    compared = compare(*runs, **options)
    for note in compared.notes:
        print(printable(f"note: {note}"), file=sys.stderr)
    if as_json:
        print(json.dumps(compared.as_dict(), allow_nan=False))
    else:
        compared.show(Console())
    return 0
