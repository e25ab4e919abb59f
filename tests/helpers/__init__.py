"""Worlds, oracles and drivers that several tests use, imported as `from tests.helpers import ...` everywhere.

A Python that a test starts finds them too when `PYTHONPATH` holds `ROOT`.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
HELPERS = Path(__file__).resolve().parent
"""This folder, for worlds that are named by their file: `HELPERS / "pool_worlds.py"`."""
