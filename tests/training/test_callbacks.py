"""Callbacks and sinks: called at their moments, may add metrics and stop a run, and cannot lose it."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import scramjet
from scramjet.errors import CallbackError, ConfigError
from scramjet.training.callbacks import Callbacks
from tests.helpers.run_files import last_checkpoint, lines_of, timeless_lines_of

TINY: dict[str, Any] = {
    "num_envs": 4, "num_steps": 4, "total_timesteps": 64, "policy": {"hidden": [8]},
    "eval": {"every": 0, "final_episodes": 0}, "display": "quiet",
}  # fmt: skip
UPDATE = 16  # steps


def train(tmp_path: Path, *callbacks: Any, **settings: Any) -> scramjet.TrainResult:
    return scramjet.train("bandit", runs_dir=tmp_path, callbacks=callbacks, **{**TINY, **settings})


class Diary(scramjet.Callback):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_start(self, session: scramjet.Session) -> None:
        self.told.append("start")
        (session.run.path / "diary.txt").write_text("mine")

    def on_update(self, record: dict[str, Any], session: scramjet.Session) -> dict[str, Any]:
        self.told.append(record["update"])
        record["entropy"] = "spoiled"  # a copy
        return {"double": np.float32(2 * record["update"]), "tensor": torch.tensor([0.5])}

    def on_evaluation(self, evaluation: scramjet.Evaluation, session: scramjet.Session) -> dict[str, float]:
        self.told.append(evaluation.episodes)
        return {"bound": evaluation.lower_bound}

    def on_checkpoint(self, path: Path, session: scramjet.Session) -> None:
        assert (path / "metadata.json").is_file()
        self.told.append(path.name)

    def on_end(self, result: scramjet.TrainResult, session: scramjet.Session) -> None:
        self.told.append(result.step)


class Stopper:
    """Not a subclass: any object with some of the methods will do."""

    def on_update(self, record: dict[str, Any], session: scramjet.Session) -> None:
        if record["update"] == 2:
            session.stop("seen enough")
            session.stop("later reasons do not count")


class Failing:
    """Raises at the second update, or at another moment."""

    def __init__(self, error: BaseException, moment: str = "on_update") -> None:
        self.error = error
        setattr(self, moment, self.fail if moment != "on_start" else lambda session: self.fail({"update": 2}, session))

    def fail(self, told: Any, session: scramjet.Session) -> None:
        if not isinstance(told, dict) or told["update"] == 2:
            raise self.error


def test_each_moment_is_told_in_order_and_own_metrics_are_in_the_log(tmp_path: Path):
    diary = Diary()
    result = train(tmp_path, diary, eval={"every": 2, "episodes": 3, "final_episodes": 5}, checkpoint={"every": 3})
    names = [told for told in diary.told if isinstance(told, str)]
    assert [told for told in diary.told if told not in names] == [1, 3, 2, 3, 5, 4, 64]
    assert set(names) == {"start", *(f"step_{step:08}" for step in (32, 48, 64))}  # the best, every third, the last
    lines = timeless_lines_of(result.run_path)
    assert [line["double"] for line in lines] == [2.0, 4.0, 6.0, 8.0]
    assert [line.get("bound") is not None for line in lines] == [False, True, False, True]
    assert lines[0]["tensor"] == 0.5
    assert isinstance(lines[0]["entropy"], float)
    assert (result.run_path / "diary.txt").read_text() == "mine"


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.rest)])
def test_stop_ends_the_run_after_this_update_with_a_checkpoint_and_its_reason(tmp_path, mode, capsys):
    result = train(tmp_path, Stopper(), mode=mode, display="plain")
    assert (result.stopped_by, result.step, result.exit_code) == ("callback", 2 * UPDATE, 0)
    assert [line["update"] for line in lines_of(result.run_path)] == [1, 2]
    assert (result.run_path / f"checkpoints/step_{2 * UPDATE:08}").is_dir()
    assert "stopped by a callback: seen enough\n" in capsys.readouterr().out
    resumed = scramjet.train(resume=result.run_path, display="quiet", callbacks=[Diary()])
    assert (resumed.step, resumed.stopped_by) == (64, None)


def test_whatever_a_callback_raises_the_run_is_saved_first_and_resumes_bit_for_bit(tmp_path: Path):
    whole = train(tmp_path, run_name="whole")
    for error in (ValueError("it broke"), SystemExit(3), KeyboardInterrupt()):
        run, diary = tmp_path / type(error).__name__, Diary()
        with pytest.raises((CallbackError, SystemExit, KeyboardInterrupt)) as raised:
            train(tmp_path, Failing(error), diary, run_name=run.name)
        if isinstance(error, Exception):
            assert raised.value.__cause__ is error
            text = str(raised.value)
            assert "the callback Failing.on_update raised ValueError: it broke" in text
            assert "scramjet.train(resume=" in text
        else:
            assert raised.value is error
        assert diary.told == ["start", 1]  # nobody is called after a failure
        assert len(timeless_lines_of(run)) == 2
        scramjet.train(resume=run, display="quiet")
        for line in (lines := timeless_lines_of(run)):
            line.pop("double", None), line.pop("tensor", None)
        assert lines == timeless_lines_of(whole.run_path)
        assert last_checkpoint(run) == last_checkpoint(whole.run_path)


def test_a_failure_at_any_moment_names_it_and_leaves_a_run_that_goes_on(tmp_path: Path):
    settings = {"eval": {"every": 1, "episodes": 2, "final_episodes": 0}, "checkpoint": {"every": 1}}
    for moment in ("on_start", "on_evaluation", "on_checkpoint", "on_end"):
        with pytest.raises(CallbackError, match=rf"Failing\.{moment} raised ValueError: here") as raised:
            train(tmp_path, Failing(ValueError("here"), moment), run_name=moment, **settings)
        assert ("before the first update" in str(raised.value)) == (moment == "on_start")
        length = 2 * TINY["total_timesteps"]
        assert scramjet.train(resume=tmp_path / moment, total_timesteps=length, display="quiet").step == length


def test_only_of_a_run_that_has_finished_a_failure_at_the_end_says_so(tmp_path: Path):
    for moment in ("on_checkpoint", "on_end"):  # the only checkpoint is the last
        for stoppers in ([], [Stopper()]):
            with pytest.raises(CallbackError) as raised:
                train(tmp_path, Failing(ValueError("here"), moment), *stoppers, checkpoint={"every": 0})
            for part in ("the run has finished", "total_timesteps=..., callbacks=..."):
                assert (part in str(raised.value)) == (not stoppers), moment
            assert ("what was trained is saved" in str(raised.value)) == bool(stoppers), moment


def checked(*returned: Any) -> dict[str, float]:
    """What several callbacks return, after one update of a session that is not there."""
    callbacks = Callbacks([Returning(each) for each in returned])
    session: Any = SimpleNamespace(
        saved=[], stop=lambda reason: None, run=SimpleNamespace(path=Path("runs/x")),
        config=SimpleNamespace(mode="sync"), learner=SimpleNamespace(executor=None), league=None,
    )  # fmt: skip
    metrics = callbacks.update({"update": 1}, None, session)
    callbacks.raise_failure(session, is_finished=False)
    return metrics


class Returning:
    def __init__(self, metrics: Any) -> None:
        self.metrics = metrics

    def on_update(self, record: dict[str, Any], session: scramjet.Session) -> Any:
        return self.metrics


OWN = ("entropy", "eval/mine", "time", "step")
NO_NUMBERS: tuple[Any, ...] = (10**400, torch.ones(2), np.complex64(3), torch.tensor(3 + 0j), np.array("3"))


def test_metrics_that_do_not_fit_are_told_with_the_callback():
    for returned, message in [
        (3, "may return a dict of numbers by name"),
        *(({name: 1.0}, f"'{name}', which is one of scramjet's own") for name in OWN),
        *(({name: 1.0}, "printable characters") for name in ("", "\x1b[2J")),
        ({3: 1.0}, "named a metric 3"),
        ({"mine": math.nan}, "'mine' as nan; it must be one finite number"),
        ({"mine": "high"}, "'mine' as 'high'"),
        ({"mine": None}, "'mine' as None"),
        *(({"mine": value}, "one finite number") for value in NO_NUMBERS),
    ]:
        with pytest.raises(CallbackError, match=message) as raised:
            checked(returned)
        assert "Returning.on_update" in str(raised.value)


def test_metrics_of_several_callbacks_stand_side_by_side_and_may_not_share_a_name():
    assert checked({"a": 1}, {"b": True}) == {"a": 1.0, "b": 1.0}
    with pytest.raises(CallbackError, match=r"\(number 2\) returned the metric 'a', which .*\(number 1\) returns too"):
        checked({"a": 1}, {"a": 2})


class Misspelled(scramjet.Callback):
    def on_updat(self, record: Any, session: Any) -> None: ...


class Short(scramjet.Callback):
    def on_update(self, record: Any) -> None: ...  # type: ignore[override]


def test_what_is_no_callback_is_refused_before_anything_begins(tmp_path: Path):
    callbacks: list[tuple[Any, str]] = [
        ([3], "3 is no callback: it has none of the methods on_start, on_update"),
        (Diary(), r"must be a list of callbacks: callbacks=\[Diary"),
        ([Diary], "Diary is a class; give an instance"),
        ([lambda record, session: None], "is no callback"),
        ([Misspelled()], "has a method on_updat, which nobody calls. Did you mean 'on_update'"),
        ([Short()], r"Short.on_update must be a method that takes \(record, session\)"),
        (None, "must be a list"),
        ("on_update", "must be a list"),
        (np.array(0.1), r"callbacks=array\(0.1\) must be a list"),
        (torch.tensor(0.1), "must be a list"),
    ]
    for given, message in callbacks:
        with pytest.raises(ConfigError, match=message):
            scramjet.train("bandit", runs_dir=tmp_path, callbacks=given, **TINY)
    assert not [*tmp_path.iterdir()]


def test_a_reason_to_stop_is_text(tmp_path: Path):
    wrong = SimpleNamespace(on_update=lambda record, session: session.stop(3))
    with pytest.raises(CallbackError, match="reason=3 must be text"):
        train(tmp_path, wrong)


class Sink(scramjet.Callback):
    """Adds itself as a sink that keeps what it is given, and what metrics.jsonl held then; fails where it is told."""

    def __init__(self, callback_fails_at: int | None = None, sink_fails_at: int | None = None) -> None:
        self.callback_fails_at, self.sink_fails_at = callback_fails_at, sink_fails_at
        self.records: list[dict[str, Any]] = []
        self.lines_before: list[int] = []
        self.num_closed = 0

    def on_start(self, session: scramjet.Session) -> None:
        self.path = session.run.path
        session.sinks.append(self)

    def on_update(self, record: dict[str, Any], session: scramjet.Session) -> dict[str, float]:
        if record["update"] == self.callback_fails_at:
            raise ValueError("as asked")
        return {"mine": 2.0 * record["update"]}

    def record(self, record: dict[str, Any]) -> None:
        if record["update"] == self.sink_fails_at:
            raise ConnectionError("gone")
        self.records.append(dict(record))
        self.lines_before.append(len(lines_of(self.path)))

    def close(self) -> None:
        self.num_closed += 1


def test_a_sink_gets_what_metrics_jsonl_got_just_before_it_and_is_closed_once(tmp_path):
    sink = Sink()
    run = train(tmp_path, sink).run_path
    assert sink.records == lines_of(run)
    assert [record["mine"] for record in sink.records] == [2.0, 4.0, 6.0, 8.0]
    assert (sink.lines_before, sink.num_closed) == ([1, 2, 3, 4], 1)


def test_a_sink_that_raises_ends_the_run_once_its_update_is_saved_and_is_closed_however_a_run_ends(tmp_path):
    with pytest.raises(CallbackError, match="as asked"):
        train(tmp_path, sink := Sink(callback_fails_at=2))
    assert sink.num_closed == 1
    with pytest.raises(CallbackError, match=r"the sink Sink.record raised ConnectionError: gone; what was"):
        train(tmp_path, Sink(sink_fails_at=2), run_name="failed")
    run = tmp_path / "failed"
    assert [record["update"] for record in lines_of(run)] == [1, 2]
    assert (run / "checkpoints" / "latest").exists()
    assert scramjet.train(resume=run, display="quiet").step == 4 * UPDATE
