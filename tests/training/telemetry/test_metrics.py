"""The table of metrics, its warnings, and the page that documents it."""

import math
import re

import pytest

from scramjet.training.telemetry.metrics import METRICS, findings, metric_for, warnings_for
from tests.helpers import ROOT

FLAGS = {
    "--learning-rate", "--num-epochs", "--num-minibatches", "--clip-epsilon", "--entropy-coef",
    "--value-coef", "--max-grad-norm", "--gamma", "--gae-lambda", "--target-kl", "--normalize-rewards",
    "--normalize-observations", "--self-play.pool-fraction",
}  # fmt: skip
HEALTHY = {
    "update": 20, "step": 20_480, "policy_loss": -0.01, "value_loss": 12.0, "entropy": 0.6, "approx_kl": 0.01,
    "clip_fraction": 0.1, "explained_variance": 0.5, "grad_norm": 0.7,
}  # fmt: skip


def test_a_healthy_record_has_no_warnings():
    assert warnings_for(HEALTHY) == []


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"approx_kl": 0.2}, "approx_kl 0.2, updates are large: lower --learning-rate or --num-epochs"),
        (
            {"clip_fraction": 0.45},
            "clip_fraction 0.45, updates too large: lower --learning-rate or --num-epochs",
        ),
        ({"explained_variance": -0.3}, "explained_variance -0.3, a poor critic: raise --value-coef or lower --gamma"),
        ({"entropy": 0.001}, "entropy 0.001, exploration has ended; if returns are low, raise --entropy-coef"),
        (
            {"value_loss": math.nan},
            "value_loss nan, training has diverged: fork with a lower --learning-rate",
        ),
        ({"grad_norm": math.inf}, "grad_norm inf, training has diverged: fork with a lower --learning-rate"),
    ],
)
def test_a_number_out_of_range_gives_one_warning_with_its_advice(change, warning):
    assert warnings_for(HEALTHY | change) == [warning]


def test_a_value_on_the_edge_of_its_range_is_healthy():
    edges = {"approx_kl": 0.05, "clip_fraction": 0.4, "explained_variance": 0.0, "entropy": 0.02}
    assert warnings_for(HEALTHY | edges) == []


def test_explained_variance_is_not_judged_in_the_first_ten_updates():
    record = HEALTHY | {"explained_variance": -1.0}
    assert warnings_for(record | {"update": 10}) == []
    assert len(warnings_for(record | {"update": 11})) == 1


def test_explained_variance_is_not_judged_where_all_returns_are_alike():
    record = HEALTHY | {"explained_variance": -7.0}
    assert warnings_for(record | {"value_loss": 9e-4}) == []
    assert len(warnings_for(record | {"value_loss": 1.1e-3})) == 1


def test_low_entropy_is_only_a_sign_early_and_only_for_discrete_actions():
    assert len(warnings_for(HEALTHY | {"entropy": 0.0, "update": 50})) == 1
    assert warnings_for(HEALTHY | {"entropy": 0.0, "update": 51}) == []
    assert warnings_for(HEALTHY | {"entropy": -2.0}) == []  # a density's entropy may be negative


def test_missing_none_and_undefined_values_pass():
    assert warnings_for({}) == []
    assert warnings_for({name: None for name in METRICS}) == []
    assert warnings_for(HEALTHY | {"explained_variance": math.nan, "return_mean": math.nan}) == []


def test_divergence_is_told_once_and_first():
    record = HEALTHY | {"clip_fraction": 0.9, "policy_loss": math.nan, "grad_norm": math.nan}
    assert set(findings(record)) == {"clip_fraction", "policy_loss", "grad_norm"}
    assert [text.split()[0] for text in warnings_for(record)] == ["policy_loss", "clip_fraction"]


def test_warnings_change_nothing_in_the_record():
    record = HEALTHY | {"approx_kl": 1.0}
    before = dict(record)
    warnings_for(record)
    assert record == before


def test_every_range_has_advice_with_flags_that_exist_and_fits_a_line():
    for metric in METRICS.values():
        for bound, advice in ((metric.low, metric.advice_low), (metric.high, metric.advice_high)):
            assert (bound is not None) == bool(advice), metric.name
            assert set(re.findall(r"--[a-z.-]+", advice)) <= FLAGS
            assert not advice or "--" in advice
            assert len(f"{metric.name} 0.123, {advice}") <= 78
        assert metric.meaning.endswith(".")


def test_a_named_stat_is_found_under_its_prefix():
    assert metric_for("stat/win") is METRICS["stat/*"]
    assert metric_for("entropy") is METRICS["entropy"]
    assert metric_for("no_such_metric") is None


def test_the_page_documents_exactly_the_table():
    page = (ROOT / "docs" / "telemetry.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if "| `" in line]
    documented = {row[0].strip("`"): row[1:] for row in rows}
    assert documented == {
        metric.name: [metric.meaning, metric.healthy, metric.advice_low or metric.advice_high]
        for metric in METRICS.values()
    }


def test_where_a_search_explores_low_entropy_is_no_warning_as_its_advice_would_be_refused():
    record = HEALTHY | {"entropy": 0.001}
    assert len(warnings_for(record)) == 1
    assert warnings_for(record | {"search/kl": 0.2}) == []
