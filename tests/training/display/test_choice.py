"""Which display is chosen, and that none of them passes control characters on."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from scramjet.training.display import LiveDisplay, PlainDisplay, QuietDisplay, make_display
from tests.helpers.screens import INFO, SUMMARY, a_record


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("file", "environment", "expected"),
    [
        (_Terminal(), {}, LiveDisplay),
        (_Terminal(), {"TERM": "dumb"}, PlainDisplay),
        (_Terminal(), {"CI": "true"}, PlainDisplay),
        (_Terminal(), {"CI": "false"}, LiveDisplay),
        (io.StringIO(), {}, PlainDisplay),
        (io.StringIO(), {"FORCE_COLOR": "1"}, PlainDisplay),
    ],
)
def test_auto_is_live_only_where_a_terminal_can_show_it(file, environment, expected, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert type(make_display("auto", Console(file=file))) is expected


def test_a_mode_asked_for_is_given():
    console = Console(file=io.StringIO())
    assert type(make_display("live", console)) is LiveDisplay
    assert type(make_display("plain", console)) is PlainDisplay
    assert type(make_display("quiet", console)) is QuietDisplay


def test_quiet_prints_nothing(capsys):
    display = make_display("quiet")
    display.start(INFO)
    display.record(a_record(1))
    display.event("saved")
    display.finish(SUMMARY)
    display.close()
    assert capsys.readouterr() == ("", "")


HOSTILE = "[red]x\x1b]0;pwned\x07\x1b[2J\r\u202e"

SHOWN = r"[red]x\x1b]0;pwned\x07\x1b[2J\r\u202e"


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_names_from_files_reach_no_display_as_control_characters_or_markup(kind):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200, height=50, color_system=None)
    display = PlainDisplay(screen) if kind == "plain" else LiveDisplay(console)
    display.start(replace(INFO, run_name=HOSTILE, env=HOSTILE, note=HOSTILE))
    display.record(a_record(1, **{f"stat/{HOSTILE}": 0.5}))
    display.event(HOSTILE)
    display.finish(replace(SUMMARY, run_name=HOSTILE, run_path=f"runs/{HOSTILE}"))
    display.close()
    output = screen.getvalue()
    assert output.count(SHOWN) >= 5
    for code in ("\x1b]", "\x07", "\x1b[2Jx", "\u202e"):
        assert code not in output
