"""The fast paths and plain torch train the same: settings drawn from the table of flags, trained by both.

`benchmarks/both_paths.py` draws as many as it is asked for; what it finds is mended and stands in KNOWN.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from scramjet.training.config.files import field_docs
from scramjet.training.session import Session
from tests.helpers import both_paths
from tests.helpers.both_paths import (
    CORE_WORLDS,
    NOT_DRAWN,
    OWN_WORLDS,
    SMALL,
    Case,
    cases,
    compare,
    drawn_settings,
    worlds,
)

KNOWN = (
    Case("pendulum", {"policy.noise_color": 1.0}),  # the same noise in every rollout
    Case("cartpole", {"num_envs": 12}, change="hook"),  # acted without it, learned with it
    Case("cartpole", {"policy.shared_trunk": True}, network="own class"),
    Case("cartpole", change="halve_a_gradient"),
    Case("tic_tac_toe", {"num_steps": 12}, change="freeze_and_thaw"),  # one count of steps for all weights
    Case("probe_constant", {"seed": 3}),  # normalized advantages that are all alike, and their mean's rounding error
)
"""What was once apart."""
CHANGED_LATE = (
    *(Case("cartpole", change=change, changed_after=3) for change in ("decay", "freeze_and_thaw", "hook", "swap")),
    Case("cartpole", {"policy.memory": "gru"}, change="decay", changed_after=3),
    Case("cartpole", {"policy.memory": "gru"}, change="freeze_and_thaw", changed_after=3),
    Case("tic_tac_toe", {"algorithm": "alphazero"}, change="decay"),
    Case("cartpole", {"algorithm": "spo"}, change="swap", changed_after=3),
)
"""What callbacks change when a GPU has recorded gradient steps, searches and rollouts, and replays them."""
DRAWING = {"database": None, "deadline": None, "derandomize": True, "phases": [Phase.explicit, Phase.generate]}
DRAWING |= {"suppress_health_check": list(HealthCheck)}


def test_every_setting_is_drawn_or_it_is_said_why_not() -> None:
    known = {name for name, _, _ in field_docs()}
    assert known >= NOT_DRAWN.keys() | SMALL.keys()
    drawn = drawn_settings()
    assert drawn.keys() == known - NOT_DRAWN.keys()
    for name, values in drawn.items():
        assert len({*map(repr, values)}) > 1 or name in both_paths.OF_TEXT, name


def must_be_equal(case: Case) -> None:
    verdict = compare(case)
    assert verdict.kind != "apart", f"{verdict}\n{case}"


def test_both_paths_train_the_same() -> None:
    for case in KNOWN:
        assert compare(case).kind == "equal", case
    drawn = settings(max_examples=4, **DRAWING)(given(cases(CORE_WORLDS))(must_be_equal))
    drawn()


@pytest.mark.rest
def test_both_paths_train_the_same_in_any_world() -> None:
    settings(max_examples=40, **DRAWING)(given(cases(worlds()))(must_be_equal))()


@pytest.mark.gpu
def test_both_paths_train_the_same_on_the_gpu() -> None:
    for case in KNOWN + CHANGED_LATE:
        must_be_equal(replace(case, device="cuda"))
    settings(max_examples=40, **DRAWING)(given(cases((*CORE_WORLDS, *OWN_WORLDS), "cuda"))(must_be_equal))()


def test_a_path_that_computes_something_else_is_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_fast(session: Session, update: int) -> None:
        if session.learner.executor.name != "torch":
            both_paths.shrink(session, update)

    monkeypatch.setitem(both_paths.CHANGES, "shrink", only_fast)
    assert compare(Case("cartpole", change="shrink")).kind == "apart"
