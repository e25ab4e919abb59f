"""Games for several: the win rates against random moves and the first self, and that measuring them changes nothing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.intervals import share_half_width
from scramjet.engine import NativePool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.envs import Box, Discrete, Env
from scramjet.policies.networks import PolicyConfig
from scramjet.policies.policy import Policy
from scramjet.reports.curves import default_metric
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.selfplay.members import MemberFiles
from scramjet.telemetry.metrics import main_metric
from scramjet.telemetry.readable import human_number
from scramjet.training import session as sessions
from scramjet.training import strength
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.display.text import UNICODE, summary_rows
from scramjet.training.strength import Strength
from scramjet.tuning.objective import Objective
from scramjet.web.run_list import read_spark
from tests.helpers.run_files import lines_of
from tests.helpers.screens import SUMMARY

pytestmark = pytest.mark.usefixtures("one_thread")

GAME = RunConfig(
    env="tic_tac_toe",
    num_envs=4,
    num_steps=16,
    total_timesteps=6 * 64,
    ppo=PPOConfig(learning_rate=0.05, num_epochs=4),
    policy=PolicyConfig(hidden=(8,)),
    eval=EvaluationConfig(every=2, episodes=3, final_episodes=4),
    checkpoint=CheckpointConfig(every=0),
)


class Higher(Env):
    """Each of the seats in turn names a number below 2; the highest wins, and who is to blame for a draw is nobody."""

    num_seats = 3
    observation_space = Box(0, 3, (1,), np.float32)
    action_space = Discrete(2)
    state = {"ply": np.int32}

    def reset(self, s: Any) -> None:
        s.ply = 0

    def seat(self, s: Any) -> int:
        return s.ply % 3

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        reward[s.ply % 3] = action
        s.ply += 1
        return s.ply == 3

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs[0] = s.ply


class Always(nn.Module):
    """Names one number, nearly always."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.preference = nn.Parameter(20.0 * torch.nn.functional.one_hot(torch.tensor(number), 2).float())

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.preference.expand(len(obs), 2), obs.sum(1) * 0.0


def measured(tmp_path: Path, *numbers: int) -> list[strength.WinRates]:
    """The win rates of policies that always name one of these numbers, measured one after another."""
    pool = NativePool(Higher(), 60, num_threads=1)
    found = []
    try:
        meter = Strength(pool, MemberFiles(tmp_path), dict, samples=False, max_steps=None)
        for step, number in enumerate(numbers):
            policy = Policy(Always(number), pool.observation_space, pool.action_space, PolicyConfig())
            rates = meter.measure(policy, EpisodeSeed.of(step), step, 3000, lambda: False)
            assert rates is not None
            found.append(rates)
    finally:
        pool.close()
    return found


def test_the_win_rates_are_those_that_the_rules_of_a_game_for_three_give(tmp_path: Path) -> None:
    first, second = measured(tmp_path, 0, 1)
    # Naming 0 is a draw if both others name 0 too, else a loss; naming 1 wins alone if both name 0, else it is a draw.
    assert first.random == pytest.approx(0.25 * 0.5, abs=0.02)
    assert second.random == pytest.approx(0.25 + 0.75 * 0.5, abs=0.02)
    assert (first.first, second.first) == (0.5, 1.0)  # against itself a draw; who names 1 beats who named 0 at first
    assert first.games == second.games == 3000


def without_times(run: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "time"} for line in lines_of(run)]


def trained(folder: Path, name: str, **options: Any) -> Path:
    return scramjet.train(GAME, runs_dir=folder, run_name=name, display="quiet", **options).run_path


def weights(run: Path) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(run / "checkpoints" / "latest").model)


class StopAt(scramjet.Callback):
    def __init__(self, update: int) -> None:
        self.update = update

    def on_update(self, record: Any, session: Any) -> None:
        if record["update"] == self.update:
            session.stop()


def test_measuring_changes_nothing_that_is_learned_and_a_resume_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(strength, "STEPS_FOR_ONE", 0)
    whole = trained(tmp_path, "whole")
    lines = without_times(whole)
    assert [line["versus/random"] is None for line in lines] == [True, *[False] * 5]
    assert [line["versus/games"] for line in lines] == [None, 6, 6, 6, 6, 12]  # 3 or 4 from each seat, in whole rounds
    assert lines[1]["versus/random"] == lines[2]["versus/random"]  # that of the last time
    trained(tmp_path, "stopped", callbacks=[StopAt(3)])
    resumed = scramjet.train(resume=tmp_path / "stopped", display="quiet").run_path
    assert without_times(resumed) == lines
    for updates in (1, 3):  # a run that was at its end, and measured there, and is then trained further
        name = f"ended-{updates}"
        scramjet.train(replace(GAME, total_timesteps=64 * updates), runs_dir=tmp_path, run_name=name, display="quiet")
        further = scramjet.train(resume=tmp_path / name, total_timesteps=6 * 64, display="quiet").run_path
        assert without_times(further)[updates:] == lines[updates:], name
    monkeypatch.setattr(sessions, "is_game", lambda pool: False)
    plain = trained(tmp_path, "plain")
    assert without_times(plain) == [{k: v for k, v in line.items() if not k.startswith("versus/")} for line in lines]
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(plain)[name]), name
        assert torch.equal(tensor, weights(resumed)[name]), name


def test_these_games_take_a_small_share_of_the_steps_and_are_played_after_the_last_update_at_all_events(tmp_path):
    meter = Strength.__new__(Strength)
    meter.measured_at = 1000
    assert not meter.is_due(1000 + 128 * 2 * 10 * 7 - 1, games=10, mean_length=7.0)
    assert meter.is_due(1000 + 128 * 2 * 10 * 7, games=10, mean_length=7.0)
    assert [line["versus/random"] is None for line in lines_of(trained(tmp_path, "run"))] == [*[True] * 5, False]


def test_a_forged_measurement_is_refused() -> None:
    described = {"measured_at": 1, "latest": [0.5, 0.5, 4], "first": {"number": 0}}
    for changed in ({"latest": [2.0, 0.5, 4]}, {"latest": [0.5]}, {"measured_at": None}, {}):
        meter = Strength.__new__(Strength)
        with pytest.raises((ValueError, KeyError, TypeError)):
            meter.restore(json.loads(json.dumps({**described, **changed})), None)  # type: ignore[arg-type]


def test_every_reader_shows_the_win_rate_where_the_return_says_nothing(tmp_path: Path) -> None:
    result = scramjet.train(GAME, runs_dir=tmp_path, run_name="run", display="quiet")
    last, files = result.metrics, RunFiles(tmp_path / "run")
    won = last["versus/random"]
    assert main_metric(last) == ("win rate vs random", won)
    assert default_metric([files]) == "versus/random"
    assert Objective("final", "eval/mean_return").score(files.path) == won
    assert Objective("metric", "eval/mean_return").score(files.path) == last["eval/mean_return"]
    assert read_spark(files.metrics_path, "win rate vs random") == [won]  # measured once, at the end
    assert f"won_vs_random={won:.2f})" in repr(result)
    best = load_checkpoint(files.path / "checkpoints" / "best").metadata["best_return"]
    assert best == pytest.approx((won + last["versus/first"]) / 2)
    rows = summary_rows(replace(SUMMARY, versus=last, evaluation={"mean_return": 0.0}), UNICODE)
    labels = [label for label, _ in rows]
    assert labels[:2] == ["win rate", "win rate"]
    assert not {"return", "best return", "evaluation"} & {*labels}
    assert (
        rows[0][1] == f"{human_number(won)} ± {human_number(share_half_width(won, 12))} vs random moves over 12 games"
    )
    rated = {**last, "self_play/pool": 3, "self_play/rating": 1100.0}
    assert main_metric(rated) == ("rating", 1100.0)
