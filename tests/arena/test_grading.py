"""Grades count moves that keep the value and moves that are best; verdicts say the same of one move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from scramjet.arena.grading import (
    CLASSES,
    Grades,
    check_world,
    grade_choices,
    grade_moves,
    grade_player,
    grade_policy,
    graded_positions,
)
from scramjet.arena.solver.solver import Position, Solver, verdict
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.policies.config import PolicyConfig
from scramjet.training.components import make_policy
from scramjet.training.config.run_config import RunConfig


def shares(grades: Grades) -> list[tuple[float, float]]:
    return [
        (each.value_kept / each.positions, each.optimal / each.positions) for each in (*grades.by_class, grades.total)
    ]


def test_the_shares_of_random_moves_are_what_random_moves_reach() -> None:
    generator, mask = np.random.default_rng(0), graded_positions().mask
    drawn = [grade_moves(np.where(mask, generator.random(mask.shape), -1.0).argmax(1)) for _ in range(30)]
    for index in range(len(CLASSES)):
        expected = drawn[0].by_class[index]
        kept, optimal = np.mean([(each.by_class[index].value_kept, each.by_class[index].optimal) for each in drawn], 0)
        assert abs(kept / 1000 - expected.random_value_kept) < 4 * 0.5 / np.sqrt(30_000)
        assert abs(optimal / 1000 - expected.random_optimal) < 4 * 0.5 / np.sqrt(30_000)


class ByRule(Player):
    """Plays by a rule over what it sees."""

    name = "by a rule"

    def __init__(self, rule: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        self._rule = rule

    def choose(self, seen, rows, generator):  # type: ignore[no-untyped-def]
        return self._rule(seen.obs[rows], seen.mask[rows])


def highest(obs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The legal column with the highest number."""
    return 6 - mask[:, ::-1].argmax(1)


def sees_the_board(obs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The column with the largest of seven weighted sums over all pieces: another one on other boards."""
    weights = np.random.default_rng(1).normal(size=(2 * 6 * 7, 7))
    return np.where(mask, obs.reshape(len(obs), -1) @ weights, -np.inf).argmax(1)


def test_a_player_in_games_is_graded_as_its_rule_is_over_the_very_positions() -> None:
    for rule in (highest, sees_the_board):
        by_rule = grade_choices(rule)
        assert grade_player(ByRule(rule)) == by_rule
        assert 0.4 < by_rule.total.value_kept / 6000 < 0.8


def test_a_policy_is_graded_by_its_most_likely_legal_moves() -> None:
    positions = graded_positions()
    for memory in ("none", "gru"):
        config = PolicyConfig(hidden=(8,), encoder="mlp", memory=memory)
        policy = make_policy(RunConfig(env="connect_four", policy=config))
        with torch.inference_mode():
            obs = torch.from_numpy(positions.obs)
            state = (policy.initial_state(len(obs)),) if memory != "none" else ()
            logits = policy.forward(obs, *state).logits.numpy()
        assert grade_policy(policy) == grade_moves(np.where(positions.mask, logits, -np.inf).argmax(1)), memory


def test_what_cannot_be_graded_is_refused_with_the_fix() -> None:
    small = make_policy(RunConfig(env="connect_four", env_parameters={"rows": 5}, policy=PolicyConfig(hidden=(8,))))
    with pytest.raises(ConfigError, match=r"--env\.rows 6"):
        grade_policy(small)
    with pytest.raises(ConfigError, match="expected 6000 columns"):
        grade_choices(lambda obs, mask: np.full(len(obs), 7))
    with pytest.raises(ConfigError, match="is known of connect_four with 6 rows"):
        check_world(ConnectFour(connect=3))
    check_world(ConnectFour(random_opponent=True))


def test_best_moves_are_graded_1_worst_moves_as_all_moves_are_and_the_table_has_a_line_for_each_class() -> None:
    positions = graded_positions()
    assert shares(grade_moves(positions.scores.argmax(1))) == [(1.0, 1.0)] * 7
    legal = np.where(positions.mask, positions.scores.astype(int), 99)
    worst = grade_moves(legal.argmin(1))
    lowest, highest = legal.min(1), positions.scores.max(1)
    assert worst.total.value_kept == int((np.sign(lowest) == np.sign(highest)).sum())
    assert worst.total.optimal == int((lowest == highest).sum())
    lines = grade_moves(graded_positions().scores.argmax(1)).markdown().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == [*(each.name for each in CLASSES), "All"]
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[-1].split("|")[2:5]] == ["6,000", "100.0 %", "99.9 to 100.0"]


def test_a_verdict_names_the_better_move() -> None:
    position = Position.from_moves("112233")
    scores = Solver().scores_of_moves(position)
    found = verdict(position, 0, scores)
    assert not found.is_optimal
    assert found.best_columns == (3,)
    assert found.text.endswith("better in column 4: a win in 1 ply")
    assert verdict(position, 3, scores).text == "a win in 1 ply"
    assert verdict(position, 3, scores).keeps_value
    with pytest.raises(ConfigError, match="choose one of"):
        verdict(position, 7, scores)
