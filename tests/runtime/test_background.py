"""Work on a thread of its own: results in order, errors where somebody looks, nothing left undone."""

import threading

import pytest

from scramjet.runtime.background import Background


def test_one_piece_of_work_after_the_other_and_each_result_once():
    gate = threading.Event()
    with Background() as background:
        assert background.start(lambda: gate.wait(10) and "first") == []
        assert background.finished() == []
        gate.set()
        assert background.start(lambda: "second") == ["first"]
        assert background.wait() == ["second"]
        assert background.wait() == background.finished() == []


def test_it_goes_on_while_others_work():
    begun, gate = threading.Event(), threading.Event()

    def work():
        begun.set()
        return gate.wait(10)

    with Background() as background:
        background.start(work)
        assert begun.wait(10)  # it runs although nobody waits for it
        gate.set()


def test_an_error_is_raised_where_the_result_would_be():
    with Background() as background:
        background.start(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            background.wait()
        assert background.start(lambda: "next") == []


def test_leaving_waits_for_what_is_under_way_and_tells_of_its_error():
    done = []
    with pytest.raises(ZeroDivisionError), Background() as background:
        background.start(lambda: done.append(1) or 1 / 0)
    assert done == [1]


def test_an_error_of_the_caller_is_not_hidden_by_one_of_the_work():
    def fail_beside_it():
        with Background() as background:
            background.start(lambda: 1 / 0)
            raise KeyError

    with pytest.raises(KeyError):
        fail_beside_it()
