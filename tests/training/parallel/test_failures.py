"""One rank's error ends all ranks, and one of them tells it."""

from scramjet.errors import ConfigError, RankError
from scramjet.training.parallel.failures import failing_together, shared
from tests.helpers.thread_ranks import on_ranks


def told(work):
    """What each rank raises in `work(ranks)`, as (type, text, whether another rank shows it)."""

    def run(ranks):
        try:
            work(ranks)
        except Exception as error:
            return type(error), str(error), getattr(error, "is_told", False)
        return None

    return on_ranks(3, run)


def test_an_error_of_one_rank_is_raised_on_all_and_told_by_rank_0():
    def work(ranks):
        with failing_together(ranks):
            if ranks.rank == 1:
                raise ConfigError("no such world")

    assert told(work) == [
        (RankError, "rank 1: no such world", False),
        (ConfigError, "no such world", True),
        (RankError, "rank 1: no such world", True),
    ]


def test_what_rank_0_makes_reaches_all_ranks():
    assert (
        on_ranks(3, lambda ranks: shared(ranks, lambda: f"made by {ranks.rank}", str.encode, bytes.decode))
        == ["made by 0"] * 3
    )


def test_what_rank_0_cannot_make_is_raised_on_all():
    def fail():
        raise ConfigError("there is no run")

    errors = told(lambda ranks: shared(ranks, fail, str.encode, bytes.decode))
    assert errors == [(ConfigError, "there is no run", False)] + [(RankError, "rank 0: there is no run", True)] * 2


def test_ranks_wait_for_each_other_where_nothing_fails():
    def work(ranks):
        with failing_together(ranks):
            pass

    assert told(work) == [None] * 3


def test_a_bug_on_one_rank_keeps_its_own_traceback():
    def work(ranks):
        with failing_together(ranks):
            if ranks.rank == 2:
                raise KeyError("pool")

    assert told(work)[2] == (KeyError, "'pool'", False)
