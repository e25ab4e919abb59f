"""Why a run stops, heard by one rank and obeyed by all."""

import signal
import time
from types import SimpleNamespace

import pytest

from scramjet.training.config.run_config import RunConfig
from scramjet.training.display import QuietDisplay
from scramjet.training.stopping import Stopping
from tests.helpers.thread_ranks import on_ranks


def stopping_on(ranks, **settings):
    session = SimpleNamespace(config=RunConfig(**settings), ranks=ranks, stop_reason=None)
    return session, Stopping(session, QuietDisplay())


def test_a_signal_that_one_rank_gets_stops_all_with_its_exit_code():
    def ask(ranks):
        _, stopping = stopping_on(ranks)
        if ranks.rank == 1:
            stopping._signal.requested = signal.SIGTERM
        return stopping.reason(), stopping.exit_code

    assert on_ranks(3, ask) == [("sigterm", 143)] * 3


def test_a_reason_that_a_callback_gave_on_rank_0_is_known_to_all():
    def ask(ranks):
        session, stopping = stopping_on(ranks)
        session.stop_reason = "solved" if ranks.is_first else None
        return stopping.reason(), session.stop_reason, stopping.exit_code

    assert on_ranks(2, ask) == [("callback", "solved", 0)] * 2


@pytest.mark.parametrize(("limit", "reason"), [("0.001s", "time limit"), ("1h", None)])
def test_the_time_limit_is_that_of_rank_0s_clock(limit, reason):
    def ask(ranks):
        _, stopping = stopping_on(ranks, time_limit=limit if ranks.is_first else "1h")
        time.sleep(0.002)
        return stopping.reason()

    assert on_ranks(2, ask) == [reason] * 2
