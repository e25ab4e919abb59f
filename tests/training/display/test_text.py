"""Numbers, durations and paths as a person reads them."""

import math

import pytest

from scramjet.training.display.text import (
    human_bytes,
    human_count,
    human_duration,
    human_number,
    short_path,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"), (999, "999"), (999.6, "1.0K"), (1000, "1.0K"), (1234, "1.2K"), (12_345, "12.3K"),
        (99_960, "100K"),
        (142_000, "142K"), (999_499, "999K"), (999_500, "1.0M"), (1_234_567, "1.2M"), (-1500, "-1.5K"),
        (2.5e9, "2.5B"), (7.25e12, "7.2T"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_counts_are_short(count, text):
    assert human_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"), (5.9, "0:05"), (75, "1:15"), (3599, "59:59"), (3600, "1:00:00"), (3675, "1:01:15"),
        (90_061, "1d 1:01:01"), (-3, "0:00"), (None, "-:--"), (math.inf, "-:--"),
    ],
)  # fmt: skip
def test_durations_read_as_a_clock(seconds, text):
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (4, "4"), (0.0, "0.0"), (0.00025, "2.5e-4"), (-0.0123, "-0.0123"), (1.5, "1.50"),
        (-98.25, "-98.25"), (487.31, "487.3"), (-12345.6, "-12345.6"), (1_500_000.0, "1.5M"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)  # fmt: skip
def test_measured_values_keep_about_four_digits(value, text):
    assert human_number(value) == text
    assert len(text) <= 8


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0K"), (640 << 10, "640K"), (512 << 20, "512M"), (3 << 29, "1.5G"), (139 << 30, "139G")]
)
def test_sizes_of_memory_are_short(count, text):
    assert human_bytes(count) == text


def test_paths_are_shown_as_one_would_type_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert short_path(tmp_path / "runs" / "a") == "runs/a"
    assert short_path("runs/a") == "runs/a"
    assert short_path("/elsewhere/a") == "/elsewhere/a"
