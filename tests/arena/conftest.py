"""What all tests of the arena share."""

from functools import partial

import pytest

from scramjet.arena.play import thoughts
from scramjet.engine.worlds.native_pool import NativePool


@pytest.fixture(autouse=True)
def interpreted_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """How games end is tried by the interpreted rules, and in few games, so that no world is compiled for it."""
    monkeypatch.setattr(thoughts, "NativePool", partial(NativePool, backend="interpreted"))
    monkeypatch.setattr(thoughts, "TRIAL_GAMES", 4)
    monkeypatch.setattr(thoughts, "TRIAL_STEPS", 60)
