"""Work on a thread of its own: results in order, errors where somebody looks, nothing left undone."""

import threading

import pytest

from scramjet.runtime.background import Background


def test_one_piece_of_work_after_the_other_goes_on_beside_its_caller_and_gives_its_result_once():
    begun, gate = threading.Event(), threading.Event()
    with Background() as background:
        assert background.start(lambda: (begun.set(), gate.wait(10)) and "first") == []
        assert begun.wait(10)  # it runs although nobody waits for it
        assert background.finished() == []
        gate.set()
        assert background.start(lambda: "second") == ["first"]
        assert background.wait() == ["second"]
        assert background.wait() == background.finished() == []


def test_an_error_is_raised_where_the_result_would_be():
    with Background() as background:
        background.start(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            background.wait()
        assert background.start(lambda: "next") == []


def test_leaving_waits_for_what_is_under_way_and_hides_no_error_of_the_caller():
    done = []
    with pytest.raises(ZeroDivisionError), Background() as background:
        background.start(lambda: done.append(1) or 1 / 0)
    assert done == [1]
    with pytest.raises(KeyError), Background() as background:  # noqa: PT012 - the block is what is tested
        background.start(lambda: 1 / 0)
        raise KeyError
