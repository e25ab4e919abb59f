"""Callbacks: called at their moments, may add metrics and stop the run, and cannot lose it whatever they raise."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scramjet
from scramjet.errors import CallbackError, ConfigError
from scramjet.runtime.metrics_log import read_metrics
from scramjet.training.callbacks import Callbacks
from scramjet.training.config import resolution
from tests.helpers import ROOT

TINY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 4,
    "total_timesteps": 64,
    "policy": {"hidden": [8]},
    "eval": {"every": 0, "final_episodes": 0},
    "display": "quiet",
}
UPDATE = 16  # steps


def train(tmp_path: Path, *callbacks: Any, **settings: Any) -> scramjet.TrainResult:
    return scramjet.train("bandit", runs_dir=tmp_path, callbacks=callbacks, **{**TINY, **settings})


def records(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if key != "time"} for line in read_metrics(run / "metrics.jsonl")
    ]


class Diary(scramjet.Callback):
    """Writes down what it is told."""

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
    lines = records(result.run_path)
    assert [line["double"] for line in lines] == [2.0, 4.0, 6.0, 8.0]
    assert [line.get("bound") is not None for line in lines] == [False, True, False, True]
    assert lines[0]["tensor"] == 0.5
    assert isinstance(lines[0]["entropy"], float)
    assert (result.run_path / "diary.txt").read_text() == "mine"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_stop_ends_the_run_after_this_update_with_a_checkpoint_and_its_reason(
    tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]
):
    result = train(tmp_path, Stopper(), mode=mode, display="plain")
    assert (result.stopped_by, result.step, result.exit_code) == ("callback", 2 * UPDATE, 0)
    assert (result.run_path / f"checkpoints/step_{2 * UPDATE:08}").is_dir()
    assert "stopped by a callback: seen enough\n" in capsys.readouterr().out
    resumed = scramjet.train(resume=result.run_path, display="quiet", callbacks=[Diary()])
    assert (resumed.step, resumed.stopped_by) == (64, None)


@pytest.mark.parametrize("error", [ValueError("it broke"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_whatever_a_callback_raises_the_run_is_saved_first_and_resumes_bit_for_bit(
    tmp_path: Path, error: BaseException
):
    whole = train(tmp_path, run_name="whole")
    expected = type(error) if not isinstance(error, Exception) else CallbackError
    diary = Diary()
    with pytest.raises(expected) as raised:
        train(tmp_path, Failing(error), diary, run_name="failed")
    if expected is CallbackError:
        assert raised.value.__cause__ is error
        text = str(raised.value)
        assert "the callback Failing.on_update raised ValueError: it broke" in text
        assert "scramjet.train(resume=" in text
    else:
        assert raised.value is error
    assert diary.told == ["start", 1]  # nobody is called after a failure
    assert len(records(tmp_path / "failed")) == 2
    resumed = scramjet.train(resume=tmp_path / "failed", display="quiet")
    for line in (lines := records(tmp_path / "failed")):
        line.pop("double", None), line.pop("tensor", None)
    assert lines == records(whole.run_path)
    for mine, other in zip(resumed.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("moment", ["on_start", "on_evaluation", "on_checkpoint", "on_end"])
def test_a_failure_at_any_moment_names_it_and_leaves_a_run_that_goes_on(tmp_path: Path, moment: str):
    settings = {"eval": {"every": 1, "episodes": 2, "final_episodes": 0}, "checkpoint": {"every": 1}}
    with pytest.raises(CallbackError, match=rf"Failing\.{moment} raised ValueError: here") as raised:
        train(tmp_path, Failing(ValueError("here"), moment), run_name="failed", **settings)
    assert ("before the first update" in str(raised.value)) == (moment == "on_start")
    length = 2 * TINY["total_timesteps"]
    assert scramjet.train(resume=tmp_path / "failed", total_timesteps=length, display="quiet").step == length


class FailingAtTheLast:
    """Raises when it hears of the run's last checkpoint."""

    def on_checkpoint(self, path: Path, session: scramjet.Session) -> None:
        raise ValueError("here")


@pytest.mark.parametrize("stopper", [[], [Stopper()]], ids=["finished", "stopped"])
@pytest.mark.parametrize("failing", [FailingAtTheLast(), Failing(ValueError("here"), "on_end")])
def test_only_of_a_run_that_has_finished_a_failure_at_the_end_says_so(tmp_path: Path, stopper: list[Any], failing: Any):
    with pytest.raises(CallbackError) as raised:
        train(tmp_path, failing, *stopper, checkpoint={"every": 0})
    for part in ("the run has finished", "total_timesteps=..., callbacks=..."):
        assert (part in str(raised.value)) == (not stopper)
    assert ("what was trained is saved" in str(raised.value)) == bool(stopper)


class Returning:
    """Returns what it is given."""

    def __init__(self, metrics: Any) -> None:
        self.metrics = metrics

    def on_update(self, record: dict[str, Any], session: scramjet.Session) -> Any:
        return self.metrics


def checked(*returned: Any) -> dict[str, float]:
    """What several callbacks return, after one update of a session that is not there."""
    callbacks = Callbacks([Returning(each) for each in returned])
    session: Any = SessionInName()
    metrics = callbacks.update({"update": 1}, None, session)
    callbacks.raise_failure(session, is_finished=False)
    return metrics


class SessionInName:
    """What callbacks need of a session."""

    def __init__(self) -> None:
        self.saved: list[Path] = []
        self.run = self
        self.path = Path("runs/x")

    def stop(self, reason: str) -> None:
        self.reason = reason


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (3, "may return a dict of numbers by name"),
        ({"entropy": 1.0}, "'entropy', which is one of scramjet's own"),
        ({"eval/mine": 1.0}, "one of scramjet's own"),
        ({"time": 1.0}, "one of scramjet's own"),
        ({"step": 1.0}, "one of scramjet's own"),
        ({"": 1.0}, "printable characters"),
        ({"\x1b[2J": 1.0}, "printable characters"),
        ({3: 1.0}, "named a metric 3"),
        ({"mine": math.nan}, "'mine' as nan; it must be one finite number"),
        ({"mine": 10**400}, "one finite number"),
        ({"mine": "high"}, "'mine' as 'high'"),
        ({"mine": None}, "'mine' as None"),
        ({"mine": torch.zeros(2)}, "one finite number"),
        ({"mine": np.zeros(2)}, "one finite number"),
        ({"mine": np.complex64(3)}, "one finite number"),
        ({"mine": torch.tensor(3 + 0j)}, "one finite number"),
        ({"mine": np.array("3")}, "one finite number"),
    ],
)
def test_metrics_that_do_not_fit_are_told_with_the_callback(returned: Any, message: str):
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
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
    ],
)
def test_what_is_no_callback_is_refused_before_anything_begins(tmp_path: Path, given: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        scramjet.train("bandit", runs_dir=tmp_path, callbacks=given, **TINY)
    assert not [*tmp_path.iterdir()]


def test_a_reason_to_stop_is_text(tmp_path: Path):
    class Wrong:
        def on_update(self, record: Any, session: scramjet.Session) -> None:
            session.stop(3)  # type: ignore[arg-type]

    with pytest.raises(CallbackError, match="reason=3 must be text"):
        train(tmp_path, Wrong())


PAGE = ROOT / "docs/python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def small_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One core in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(resolution, "available_cores", lambda: 1)


def run(block: str, names: dict[str, Any]) -> None:
    """Run an example of the page as written, but shorter."""
    exec(re.sub(r'"[12]0K"', '"2K"', block), names)


def test_the_examples_of_the_page_run(small_machine: None):
    names: dict[str, Any] = {}
    for block in BLOCKS:
        if "optuna" not in block:
            run(block, names)
        if "StopWhenSolved" in block:
            assert names["result"].stopped_by == "callback"
        if "WeightNorms" in block:
            assert (names["result"].run_path / "saved.txt").read_text().startswith("step_")
    assert names["result"].metrics["loss/guess"] > 0


def test_the_example_with_optuna_prunes(small_machine: None, monkeypatch: pytest.MonkeyPatch):
    optuna = pytest.importorskip("optuna")
    pruner = optuna.pruners.ThresholdPruner(lower=1e6, n_warmup_steps=1000)  # nobody is so good after 1,000 steps
    monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda **_: pruner)
    names: dict[str, Any] = {"scramjet": scramjet}
    (block,) = (block for block in BLOCKS if "import optuna" in block)
    with pytest.raises(ValueError, match="No trials are completed yet"):
        exec(block.replace("n_trials=4", "n_trials=2"), names)
    assert [trial.state.name for trial in names["study"].trials] == ["PRUNED"] * 2
    assert all(trial.last_step >= 1000 for trial in names["study"].trials)
