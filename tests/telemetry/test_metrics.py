"""What a run tells while it trains: metrics with warnings, means of recent episodes, hints that are said once."""

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import scramjet
from scramjet import cli
from scramjet.algorithms.config import AlphaZeroConfig, PPOConfig, SPOConfig
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Episodes
from scramjet.errors import TrainingError
from scramjet.policies.config import PolicyConfig
from scramjet.runs.results import Evaluation
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.telemetry.metrics import METRICS, findings, metric_for, warnings_for
from scramjet.telemetry.progress import Progress
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.display import QuietDisplay
from scramjet.training.display.interface import Hint
from scramjet.training.display.summary import STEPS_OF_NEW, UPDATES_OF_CUTS, UPDATES_WITHOUT_REWARD, Hints
from scramjet.training.learning import check_finite
from tests.helpers import ROOT
from tests.helpers.run_files import lines_of
from tests.helpers.sessions import SMALL

FLAGS = {
    "--learning-rate", "--num-epochs", "--num-minibatches", "--clip-epsilon", "--entropy-coef", "--value-coef",
    "--max-grad-norm", "--gamma", "--gae-lambda", "--target-kl", "--normalize-rewards", "--normalize-observations",
    "--self-play.pool-fraction",
}  # fmt: skip
HEALTHY = {
    "update": 20, "step": 20_480, "policy_loss": -0.01, "value_loss": 12.0, "entropy": 0.6, "approx_kl": 0.01,
    "clip_fraction": 0.1, "explained_variance": 0.5, "grad_norm": 0.7,
}  # fmt: skip


def test_a_number_out_of_range_gives_one_warning_with_its_advice_and_changes_nothing_in_the_record():
    assert warnings_for(HEALTHY) == []
    diverged = "training has diverged: fork with a lower --learning-rate"
    for name, value, advice in [
        ("approx_kl", 0.2, "updates are large: lower --learning-rate or --num-epochs"),
        ("clip_fraction", 0.45, "updates too large: lower --learning-rate or --num-epochs"),
        ("explained_variance", -0.3, "a poor critic: raise --value-coef or lower --gamma"),
        ("entropy", 0.001, "exploration has ended; if returns are low, raise --entropy-coef"),
        ("value_loss", math.nan, diverged),
        ("grad_norm", math.inf, diverged),
    ]:
        record = HEALTHY | {name: value}
        before = dict(record)
        assert warnings_for(record) == [f"{name} {value}, {advice}"]
        assert record == before


def test_a_number_is_not_judged_where_it_says_nothing():
    for why, judged, changes in [
        ("on the edge", 0, {"approx_kl": 0.05, "clip_fraction": 0.4, "explained_variance": 0.0, "entropy": 0.02}),
        ("a critic in the first ten updates", 0, {"explained_variance": -1.0, "update": 10}),
        ("a critic after them", 1, {"explained_variance": -1.0, "update": 11}),
        ("a critic where all returns are alike", 0, {"explained_variance": -7.0, "value_loss": 9e-4}),
        ("a critic where they hardly are", 1, {"explained_variance": -7.0, "value_loss": 1.1e-3}),
        ("low entropy early", 1, {"entropy": 0.0, "update": 50}),
        ("low entropy late", 0, {"entropy": 0.0, "update": 51}),
        ("the entropy of a density", 0, {"entropy": -2.0}),
        ("where a search explores: its advice would be refused", 0, {"entropy": 0.001, "search/kl": 0.2}),
        ("undefined", 0, {"explained_variance": math.nan, "return_mean": math.nan}),
        ("none", 0, {name: None for name in METRICS}),
    ]:
        assert len(warnings_for(HEALTHY | changes)) == judged, why
    assert warnings_for({}) == []


def test_divergence_is_told_once_and_first():
    record = HEALTHY | {"clip_fraction": 0.9, "policy_loss": math.nan, "grad_norm": math.nan}
    assert set(findings(record)) == {"clip_fraction", "policy_loss", "grad_norm"}
    assert [text.split()[0] for text in warnings_for(record)] == ["policy_loss", "clip_fraction"]


def test_what_stops_a_run_is_what_the_table_of_metrics_says() -> None:
    for metric in METRICS.values():
        found = findings({"update": 3, metric.name: math.nan})
        assert (metric.name in found) == (metric.if_not_finite != "goes on"), metric.name
        check_finite({metric.name: 1.0})
        if metric.if_not_finite != "stops":
            check_finite({metric.name: math.nan})
            continue
        with pytest.raises(TrainingError, match=f"{metric.name} became inf.*--fork"):
            check_finite({metric.name: math.inf})
    assert METRICS["bonus/loss"].if_diverged != METRICS["policy_loss"].if_diverged


@pytest.mark.parametrize(
    "settings",
    [
        {"env": "cartpole", "curiosity": "rnd"},
        {"env": "cartpole", "ppo": PPOConfig(loss="impala", advantage="vtrace"), "mode": "async", "num_actors": 1},
        {"env": "tic_tac_toe", "algorithm": "alphazero", "alphazero": AlphaZeroConfig(simulations=2)},
        {"env": "tic_tac_toe", "algorithm": "spo", "spo": SPOConfig(particles=2, depth=1)},
        {"env": "tic_tac_toe", "self_play": SelfPlayConfig(pool_fraction=0.5)},
    ],
    ids=lambda settings: str(settings.get("algorithm", settings["env"])),
)
def test_every_metric_of_every_algorithm_is_in_the_table(settings: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(
        num_envs=8, num_steps=16, total_timesteps=256, policy=PolicyConfig(hidden=(8,)),
        eval=EvaluationConfig(every=1, episodes=2, final_episodes=0), **settings,
    )  # fmt: skip
    scramjet.train(config, runs_dir=tmp_path, run_name="run", display="quiet")
    for line in lines_of(tmp_path / "run"):
        names = {name for name in line if name != "time"} | {f"time.{name}" for name in line["time"]}
        assert {name for name in names if metric_for(name) is None} == set()


def test_every_range_has_advice_with_flags_that_exist_and_fits_a_line():
    for metric in METRICS.values():
        for bound, advice in ((metric.low, metric.advice_low), (metric.high, metric.advice_high)):
            assert (bound is not None) == bool(advice), metric.name
            assert set(re.findall(r"--[a-z.-]+", advice)) <= FLAGS
            assert not advice or "--" in advice
            assert len(f"{metric.name} 0.123, {advice}") <= 78
        assert metric.meaning.endswith(".")


def test_the_page_documents_exactly_the_table_in_which_a_named_stat_is_found_under_its_prefix():
    page = (ROOT / "docs" / "telemetry.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if "| `" in line]
    documented = {row[0].strip("`"): row[1:] for row in rows}
    assert documented == {
        metric.name: [metric.meaning, metric.healthy, metric.advice_low or metric.advice_high]
        for metric in METRICS.values()
    }
    assert metric_for("stat/win") is METRICS["stat/*"]
    assert metric_for("entropy") is METRICS["entropy"]
    assert metric_for("no_such_metric") is None


# --- the last hundred episodes: their mean waits until short ones are not the only ones that have ended


def ended(*returns: float, num_ended: int | None = None) -> Episodes:
    each = np.array(returns, np.float64)
    zeros = np.zeros(len(each), np.int64)
    return Episodes(len(each) if num_ended is None else num_ended, each, zeros + 5, zeros, zeros, {})


def test_the_mean_of_the_last_hundred_waits_until_as_many_have_ended_as_play_at_once():
    progress = Progress(num_players=2, num_envs=3)
    metrics = progress.add(ended(1.0, 2.0))
    assert (metrics["return_100"], metrics["length_100"], metrics["return_mean"]) == (None, None, 1.5)
    assert not progress.is_settled
    metrics = progress.add(ended(3.0, 4.0, 5.0))
    assert (metrics["return_100"], metrics["length_100"], metrics["return_mean"]) == (None, None, 4.0)
    metrics = progress.add(ended(9.0))
    assert (metrics["return_100"], metrics["length_100"]) == (4.0, 5.0)
    assert progress.add(ended())["return_100"] == 4.0
    assert Progress(num_envs=0).add(ended())["return_100"] is None  # however few play
    full_log = Progress(num_envs=500)  # episodes that it has not kept have ended too
    assert full_log.add(ended(*[1.0] * 100, num_ended=499))["return_100"] is None
    assert full_log.add(ended(3.0, num_ended=1))["return_100"] == pytest.approx(1.02)


def test_a_restored_progress_waits_for_the_episodes_that_are_missing_and_no_more():
    before, after, older = (Progress(num_envs=4) for _ in range(3))
    before.add(ended(1.0, 2.0, 3.0))
    tensors = before.tensors()
    after.restore(tensors)
    assert not after.is_settled
    assert after.add(ended(6.0))["return_100"] == 3.0
    del tensors["progress/num_ended"]  # a checkpoint from before episodes were counted does not wait again
    older.restore(tensors)
    assert older.add(ended())["return_100"] == 2.0


ON_CURIOSITY = "no reward yet: --curiosity noveld or rnd pays for what is new"
ON_COUNTS = "no observation comes twice: try --curiosity e3b or rnd"
ON_EPISODIC = "no observation comes twice: try --bonus.episodic elliptical"


class Heard(QuietDisplay):
    """The hints of a session that has just begun, and what is said of them; `update` ends episodes of 10 steps."""

    def __init__(self, *, revisited: float | None = None, played_by: PlayedBy = PlayedBy.ONE, **settings: Any) -> None:
        config = RunConfig(env="cartpole", num_envs=4, num_steps=8, **settings)
        self.curiosity = None if config.curiosity is None else SimpleNamespace(revisited=revisited)
        self.progress = Progress(num_envs=4)
        session: Any = SimpleNamespace(
            config=config, progress=self.progress, pool=SimpleNamespace(played_by=played_by), curiosity=self.curiosity
        )
        self.rollout = session.rollout = SimpleNamespace(terminated=torch.ones(1), truncated=torch.zeros(1))
        self.said: list[str] = []
        self.hints = Hints(session, self)

    def event(self, text: str) -> None:
        self.said.append(text)

    def update(self, returns: list[float], evaluation: Evaluation | None = None, times: int = 1) -> list[str]:
        count = len(returns)
        numbers = np.zeros(count, np.int32)
        for _ in range(times):
            ended = Episodes(count, np.array(returns), np.full(count, 10), numbers, numbers, {})
            self.hints.give(self.progress.add(ended), evaluation)
        return self.said


def greedy(mean: float, length: float) -> Evaluation:
    return Evaluation(mean_return=mean, std_return=0.1, mean_length=length, episodes=32, stats={})


def test_greedy_play_that_returns_far_less_in_longer_episodes_is_told_once_of_drawn_actions() -> None:
    said = Heard().update([1.0] * 20, greedy(0.0, 12.0), times=3)
    assert said == ["greedy returns 0.0, drawn actions 1.00: try --eval.samples"]
    for why, num_episodes, evaluation, settings in [
        ("as good", 20, greedy(1.0, 12.0), {}),
        ("no longer: nothing goes in circles", 20, greedy(0.0, 10.0), {}),
        ("drawn already", 20, greedy(0.0, 12.0), {"eval": EvaluationConfig(samples=True)}),
        ("fewer episodes than play at once", 3, greedy(0.0, 12.0), {}),
        ("no evaluation", 20, None, {}),
    ]:
        assert Heard(**settings).update([1.0] * num_episodes, evaluation) == [], why


def test_where_no_episode_earns_anything_for_long_curiosity_is_named_once() -> None:
    long = UPDATES_WITHOUT_REWARD
    assert Heard().update([0.0] * 4, times=long - 1) == []
    assert Heard().update([0.0] * 4, times=3 * long) == [ON_CURIOSITY]
    assert Heard().update([0.0, -0.01, 0.0, -0.02], times=long) == [ON_CURIOSITY]  # costs are no reward
    for returns, settings in [
        ([0.0, 0.0, 1.0, 0.0], {}), ([-0.1] * 4, {}), ([-0.1, -0.2, -0.1, -0.3], {}), ([0.0] * 4, {"curiosity": "rnd"}),
        ([0.0] * 4, {"algorithm": "spo"}), ([0.0] * 4, {"played_by": PlayedBy.SEATS}),
    ]:  # fmt: skip
        assert Heard(**settings).update(returns, times=3 * long) == [], (returns, settings)


def test_where_no_observation_comes_twice_bonuses_that_count_visits_are_told() -> None:
    few = STEPS_OF_NEW // (4 * 8)
    for revisited, settings, said in [
        (0.0, {"curiosity": "counts"}, [ON_COUNTS]),
        (0.0, {"curiosity": "rnd", "bonus": BonusConfig(episodic="first")}, [ON_EPISODIC]),
        (0.01, {"curiosity": "counts"}, []),
        (None, {"curiosity": "rnd"}, []),  # which counts nothing
        (0.0, {"curiosity": "noveld"}, []),  # which does not live by counts alone
    ]:
        assert Heard(revisited=revisited, **settings).update([1.0] * 4, times=few) == []
        assert Heard(revisited=revisited, **settings).update([1.0] * 4, times=3 * few) == said, settings


def test_that_every_episode_was_cut_by_the_time_limit_is_said_once() -> None:
    def cut(returns: list[float], updates: int, *, ends_at: int = -1, env: str = "cartpole") -> list[str]:
        heard = Heard()
        object.__setattr__(heard.hints._session.config, "env", env)
        for update in range(updates):
            heard.rollout.terminated, heard.rollout.truncated = torch.tensor([update == ends_at]), torch.ones(1)
            heard.update(returns)
        return [text for text in heard.said if "time limit" in text]

    (text,) = cut([-1.0, -1.0], 3 * UPDATES_OF_CUTS)
    assert text.startswith("the time limit cut every episode so far (length 10.00), none ended by itself")
    assert cut([-1.0, -1.0], UPDATES_OF_CUTS - 1) == []
    assert cut([-1.0, -1.0], 3 * UPDATES_OF_CUTS, ends_at=5) == []
    assert cut([-1.0, -2.0], 3 * UPDATES_OF_CUTS) == []  # a known world without an end, in which something is learned
    assert len(cut([-1.0, -2.0], 3 * UPDATES_OF_CUTS, env="my_world.py")) == 1


def test_a_hint_is_for_the_summary_as_long_as_it_holds() -> None:
    heard = Heard()
    heard.update([0.0] * 20, times=UPDATES_WITHOUT_REWARD)
    assert heard.hints.holding == (Hint("no reward yet", "curiosity", "noveld"),)
    heard.update([1.0] * 100, greedy(0.0, 12.0))
    assert heard.hints.holding == (Hint("greedy returns 0.0, drawn actions 1.00", "eval.samples"),)
    heard.update([1.0] * 100)
    assert len(heard.hints.holding) == 1
    heard.update([1.0] * 100, greedy(1.0, 10.0))
    assert heard.hints.holding == ()
    assert len(heard.said) == 2
    counts = Heard(curiosity="counts", revisited=0.0)
    for counts.curiosity.revisited in (0.0, 0.01):
        counts.update([1.0] * 4, times=STEPS_OF_NEW)
        assert len(counts.hints.holding) == (counts.curiosity.revisited == 0.0)


METHODS: dict[str, dict[str, Any]] = {
    "counts": {"curiosity": "counts"},
    "first visits": {"curiosity": "counts", "bonus": BonusConfig(first_visits=True)},
    "times counts": {"curiosity": "rnd", "bonus": BonusConfig(features=8, episodic="counts")},
    "actors": {"curiosity": "counts", "mode": "async", "num_actors": 2},
}


@pytest.mark.parametrize("method", ["counts", *(pytest.param(name, marks=pytest.mark.rest) for name in [*METHODS][1:])])
def test_a_run_in_cartpole_is_told_soon_that_nothing_comes_twice(method, tmp_path, capsys):
    config = replace(SMALL, **METHODS[method], num_steps=128, total_timesteps=3 * 4 * 128)
    scramjet.train(config, runs_dir=tmp_path, display="plain")
    said = capsys.readouterr().out
    assert said.count(ON_EPISODIC if method == "times counts" else ON_COUNTS) == 1
    assert "hint: no observation comes twice; try another setting in a new run" in said
    command = next(line for line in said.splitlines() if "--config" in line)
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main([*shlex.split(command)[1:], "--total-timesteps", "512", "--runs-dir", str(tmp_path)])


@pytest.mark.rest
def test_a_run_in_a_maze_is_not_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = PolicyConfig(hidden=(8,), ignore=("step_count",))
    config = replace(SMALL, env="maze", curiosity="counts", num_steps=128, total_timesteps=1536, policy=network)
    scramjet.train(config, runs_dir=tmp_path, display="plain")
    assert "comes twice" not in capsys.readouterr().out
