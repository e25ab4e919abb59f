"""What is shown to a user: one message, no control characters, bounded, whatever the values in it are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.errors import LAYOUT, ConfigError, ScramjetError, printable, shortened

HOSTILE = "a\x1b]0;pwned\x07\x1b[2J\r\x9b31m\u202e\u2028\ud800\x00b"


def test_control_characters_are_written_as_escapes_and_all_else_stays() -> None:
    assert printable(HOSTILE) == r"a\x1b]0;pwned\x07\x1b[2J\r\x9b31m\u202e\u2028\ud800\x00b"
    assert printable("Zwölf × 日本 [red] \\x1b") == "Zwölf × 日本 [red] \\x1b"
    assert printable("a\n\tb\r", keep=LAYOUT) == "a\n\tb\\r"


@given(st.text(st.characters()))
def test_what_is_printable_can_be_encoded_and_stays_as_it_is_when_done_twice(text: str) -> None:
    once = printable(text)
    once.encode()
    assert printable(once) == once
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in once)


def test_an_errors_text_is_printable_for_commands_and_tracebacks_alike() -> None:
    error = ConfigError(f"unknown key '{HOSTILE}'")
    assert str(error) == f"unknown key '{printable(HOSTILE)}'"
    assert f"{error}" == str(error)


def test_an_errors_text_has_an_end() -> None:
    assert len(str(ScramjetError("x" * 10**7))) < 5_000


def test_a_large_value_is_shown_in_part() -> None:
    large = ["x" * 10**6, b"x" * 10**6, list(range(10**6)), {i: i for i in range(10**5)}, 1 << 10**6]
    assert all(len(shortened(value)) <= 303 for value in large)


def test_a_value_that_would_take_forever_to_write_out_is_shown_at_once() -> None:
    value: list = ["lol"]
    for _ in range(50):
        value = [value] * 9
    assert len(shortened(value)) <= 303


@pytest.mark.parametrize("value", [1.5, "text", None, [64, 64], {"a": (1, 2)}, 2**63])
def test_an_ordinary_value_is_shown_whole(value: object) -> None:
    assert shortened(value) == repr(value)
