"""Compilation on the screen."""

from __future__ import annotations

import threading

from scramjet.compile import progress as compiling
from scramjet.training.display import QuietDisplay
from scramjet.training.display.compilation import compilation_shown
from scramjet.training.display.waiting import Ticker


class Noted(QuietDisplay):
    """Keeps what it is told of progress."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.has_heard = threading.Event()

    def progress(self, text: str) -> None:
        self.told.append(text)
        self.has_heard.set()


def test_what_is_compiled_is_told_until_it_is_done(monkeypatch):
    monkeypatch.setattr(Ticker, "EVERY_SECONDS", 0.01)
    display = Noted()
    with compilation_shown(display):
        with compiling.during("CartPole's rules"):
            assert display.has_heard.wait(10)
        assert display.told[0] == "compiling CartPole's rules: 0 s"
        assert display.told[-1] == ""
        assert not [thread for thread in threading.enumerate() if thread.name == "scramjet-ticker"]
    told = len(display.told)
    with compiling.during("something later"):
        pass
    assert len(display.told) == told


def test_a_ticker_ends_with_the_body_whatever_happens_in_it():
    display = Noted()
    try:
        with compilation_shown(display):
            compiling.begun("what fails")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    finally:
        compiling.given_up()
    assert not [thread for thread in threading.enumerate() if thread.name == "scramjet-ticker"]
