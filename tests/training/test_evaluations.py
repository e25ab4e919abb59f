"""Evaluations within a run: which checkpoint they call the best, which episodes they play."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.engine import NativePool
from scramjet.runs.results import Evaluation
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.evaluator import Evaluator
from tests.helpers.run_files import lines_of
from tests.helpers.sessions import SMALL

pytestmark = pytest.mark.usefixtures("one_thread")

UPDATE = 4 * 8
JUDGED = replace(SMALL, eval=EvaluationConfig(every=1, episodes=3, final_episodes=0))
"""An evaluation after every update, and checkpoints only at a new best and at the end."""


def train(config: RunConfig | None, folder: Path, num_updates: int, **options: Any) -> Path:
    config = None if config is None else replace(config, total_timesteps=UPDATE * num_updates)
    given = {"runs_dir": folder, "run_name": None if config is None else "run", "display": "quiet"}
    given |= {"total_timesteps": UPDATE * num_updates} if config is None else {}
    return scramjet.train(config, **given | options).run_path


def result(mean: float, std: float, episodes: int) -> Evaluation:
    return Evaluation(mean_return=mean, std_return=std, mean_length=1.0, episodes=episodes, stats={})


SURE = result(50.0, 10.0, 100)  # above 48.3
LUCKY = result(52.0, 10.0, 4)  # above 42.5
BETTER = result(51.0, 10.0, 100)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[Evaluation]], None]:
    """What the evaluations to come will say, whatever the policy does."""

    def tell(results: Iterable[Evaluation]) -> None:
        script = iter(results)
        monkeypatch.setattr(Evaluator, "evaluate_unless", lambda *arguments: next(script))

    return tell


def test_the_best_checkpoint_is_the_first_with_the_highest_lower_bound_and_it_is_said_why(told, tmp_path, capsys):
    told([LUCKY, SURE, LUCKY, SURE, BETTER, BETTER, SURE])  # luck does not beat it, nor a tie
    checkpoint = load_checkpoint(train(JUDGED, tmp_path, 7, display="plain") / "checkpoints" / "best")
    assert checkpoint.step == UPDATE * 5
    assert checkpoint.metadata["best_return"] == BETTER.mean_return
    assert checkpoint.metadata["best_lower_bound"] == BETTER.lower_bound
    assert [line for line in capsys.readouterr().out.splitlines() if "new best" in line] == [
        "new best: mean return 52.000 at step 32",
        "new best: mean return 50.000 at step 64 (exceeds 48.347 with 95 % confidence, 42.503 before)",
        "new best: mean return 51.000 at step 160",
    ]


def test_a_resumed_run_remembers_what_a_new_best_must_exceed(told, tmp_path):
    told([SURE])
    run, best = train(JUDGED, tmp_path, 1), (1, SURE)
    for num_updates, later in enumerate((LUCKY, SURE, BETTER), 2):
        told([later])
        train(None, tmp_path, num_updates, resume=run)
        best = (num_updates, BETTER) if later is BETTER else best
        assert load_checkpoint(run / "checkpoints" / "best").step == UPDATE * best[0]
        assert load_checkpoint(run / "checkpoints" / "latest").metadata["best_return"] == best[1].mean_return


def test_without_evaluations_the_best_is_judged_by_the_lower_bound_of_the_last_hundred_episodes(tmp_path):
    run = train(replace(SMALL, checkpoint=CheckpointConfig(every=1)), tmp_path, 12)
    best = load_checkpoint(run / "checkpoints" / "best")
    (record,) = (record for record in lines_of(run) if record["step"] == best.step)
    assert best.metadata["best_return"] == record["return_100"]
    assert best.metadata["best_lower_bound"] < best.metadata["best_return"]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """What each env shows at each reset of a compiled pool to come: four random numbers, never twice by chance."""
    shown: list[list[bytes]] = []
    reset = NativePool.reset

    def noted(self: NativePool, *arguments: Any, **options: Any) -> Any:
        out = reset(self, *arguments, **options)
        if self.backend != "interpreted":  # with which a world is tried before it is compiled
            shown.append([row.tobytes() for row in out.obs])
        return out

    monkeypatch.setattr(NativePool, "reset", noted)
    return shown


def assert_all_differ(begun: list[list[bytes]]) -> None:
    states = [state for pool in begun for state in pool]
    assert len(set(states)) == len(states)


def test_each_evaluation_of_a_run_and_afterwards_plays_fresh_episodes_and_none_that_are_trained_on(begun, tmp_path):
    run = train(replace(JUDGED, eval=EvaluationConfig(every=1, episodes=3, final_episodes=5)), tmp_path, 4)
    for seed in (None, 1, 2):
        del begun[5:]
        scramjet.evaluate(run, episodes=20, seed=seed)
        assert [len(pool) for pool in begun] == [4, 3, 3, 3, 5, 20]  # training, evaluations, the last one, and this
        assert_all_differ(begun)


def test_a_fork_trains_on_other_episodes_than_its_parent_began_with(begun, tmp_path):
    run = train(SMALL, tmp_path, 2)
    for name in ("one", "another"):
        train(SMALL, tmp_path, 3, fork=run, run_name=name)
    assert begun[1] == begun[2]  # two forks of the same checkpoint are the same
    assert_all_differ(begun[:2])
