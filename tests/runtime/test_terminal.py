"""What may be written to a terminal or a file: colours where they belong, pictures as characters."""

import io

import numpy as np
import pytest

from scramjet.runtime.terminal import colours_of, in_blocks, is_screen, shown_in

LAKE = "  (Down)\n\x1b[41mS\x1b[0mFFF\nF\x1b[34;1mH\x1b[0mFH"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_go_to_terminals_that_have_them_and_variables_decide_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, at_terminal, in_file in [
        ({"TERM": "xterm-256color"}, "256", "none"), ({"TERM": "xterm", "COLORTERM": "truecolor"}, "all", "none"),
        ({"TERM": "xterm"}, "none", "none"), ({"TERM": "dumb", "COLORTERM": "truecolor"}, "none", "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "none", "none"), ({"FORCE_COLOR": "1"}, "all", "all"),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, "all", "all"), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, "none", "none"),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "0"}, "none", "none"),
    ]:  # fmt: skip
        for name in ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        assert (colours_of(Terminal()), colours_of(io.StringIO())) == (at_terminal, in_file), given
        assert is_screen(Terminal()) is (given.get("TERM") != "dumb")
        assert not is_screen(io.StringIO())
        shown = [
            shown_in(file, drawing) for file in (Terminal(), io.StringIO()) for drawing in (LAKE, np.full((2, 2, 3), 9))
        ]
        assert ["\x1b" in text for text in shown] == [at_terminal != "none"] * 2 + [in_file != "none"] * 2, given


def test_text_of_a_world_keeps_what_its_colours_told_where_there_are_none() -> None:
    assert shown_in(io.StringIO(), LAKE) == "  (Down)\n[S]FFF\nFHFH"


def test_a_picture_in_blocks_has_the_mean_colours_of_its_parts() -> None:
    picture = np.zeros((4, 4, 3), np.uint8)
    picture[:2, :2] = 200
    picture[2:, 2:, 0] = [[100, 100], [100, 200]]
    upper, lower, black = "200;200;200", "125;0;0", "0;0;0"
    assert in_blocks(picture, 2, 1) == f"\x1b[38;2;{upper};48;2;{black}m▀\x1b[38;2;{black};48;2;{lower}m▀\x1b[0m"
    assert in_blocks(picture, 2, 1, "256") == "\x1b[38;5;188;48;5;16m▀\x1b[38;5;16;48;5;88m▀\x1b[0m"
    ramp = np.repeat(np.arange(0, 250, 50, dtype=np.uint8)[None, :, None], 3, axis=2).repeat(2, axis=0)
    assert in_blocks(ramp, 5, 1, "none") == " ░▒▓█"
    assert in_blocks(ramp, 5, 1, is_ascii=True) == " :=#@"
    assert in_blocks(np.zeros((2, 2, 3), np.uint8), 9, 9, "none") == "  "
