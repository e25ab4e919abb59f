"""One run of search_study.py: train a world by an algorithm for some seconds on one thread, then see how it plays."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field, replace
from typing import Any

import scramjet
from scramjet.runs.results import Evaluation
from scramjet.training.components import make_evaluator
from scramjet.training.seeds import unseen_episodes
from scramjet.training.session import Session

EVALUATION_SEED = 1_000_000
CURVE_EPISODES, FINAL_EPISODES = 64, 200
NUM_POINTS = 10
"""Points of a curve after the first, which is before training."""
CALIBRATION_SHARE = 0.08
"""Share of the training time in which steps per second are counted beforehand, so that schedules end with the time."""
UNBOUNDED = 10**9


@dataclass(frozen=True)
class World:
    """A world of the study."""

    algorithms: tuple[str, ...]
    score: str = "return"
    """`return`, or the name of a statistic of the world."""
    samples: bool = False
    """The network alone draws its actions; in the study's other worlds it takes the most likely ones."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of the world that differ from the preset's."""
    played: dict[str, Any] = field(default_factory=dict)
    """Parameters of the world in evaluations that differ from those in training."""
    policy: dict[str, Any] = field(default_factory=dict)
    """Settings of every algorithm's network that differ from the preset's, where that is large for one core."""
    search_episodes: int = FINAL_EPISODES

    def score_of(self, evaluation: Evaluation) -> float:
        """The number that the world is judged by."""
        return evaluation.mean_return if self.score == "return" else evaluation.stats[self.score]


SEARCHED = ("ppo", "spo", "alphazero")
WORLDS: dict[str, World] = {
    "cartpole": World(("ppo", "spo")),
    "maze": World(SEARCHED, "solved"),
    "pendulum": World(("ppo", "spo")),
    "identity_continuous": World(("ppo", "spo")),
    "sokoban": World(
        SEARCHED,
        "solved",
        samples=True,
        parameters={"rows": 7, "cols": 7, "boxes": 2, "pulls": 30},
        policy={"grid_channels": [16], "grid_blocks": 0, "hidden": [64]},
    ),
    "game_2048": World(("ppo", "spo"), policy={"encoder": "mlp", "hidden": [128, 128]}, search_episodes=32),
    "sliding_tiles": World(
        SEARCHED, "solved", samples=True, parameters={"scrambles": 20}, played={"varied_scrambles": False}
    ),
}


class Rate:
    """Counts steps per second of training, the first update left out, and stops the run after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.first, self.steps_per_second = seconds, (0, 0.0), 0.0

    def on_update(self, record: dict[str, Any], session: Session) -> None:
        now = time.perf_counter()
        if record["update"] == 1:
            self.first = record["step"], now
            return
        seconds = now - self.first[1]
        self.steps_per_second = (record["step"] - self.first[0]) / seconds
        if seconds >= self.seconds:
            session.stop("counted")


class Curve:
    """Evaluates the network alone at every tenth of the time, and stops the run after it; evaluations take none."""

    def __init__(self, world: World, seconds: float) -> None:
        self.world, self.seconds, self.points = world, seconds, list[tuple[int, float, float]]()
        self.step, self.trained_seconds, self.search = 0, 0.0, ""

    def on_start(self, session: Session) -> None:
        config = session.config
        parameters = {**config.env_parameters, **self.world.played}
        played = replace(config, env_parameters=parameters, eval=replace(config.eval, samples=self.world.samples))
        self.evaluator = make_evaluator(played, episodes=CURVE_EPISODES)
        if config.algorithm == "spo":
            self.search = f"spo:{config.spo.particles}x{config.spo.depth}"
        elif config.algorithm == "alphazero":
            self.search = f"alphazero:{config.alphazero.simulations}"
        self._add_point(session)
        self._resumed = time.perf_counter()

    def on_update(self, record: dict[str, Any], session: Session) -> None:
        now = time.perf_counter()
        self.step, self.trained_seconds = record["step"], self.trained_seconds + now - self._resumed
        is_over = self.trained_seconds >= self.seconds or record["update"] == session.num_updates
        if is_over or self.trained_seconds >= len(self.points) * self.seconds / NUM_POINTS:
            self._add_point(session)
        if is_over:
            session.stop("the time is over")
        self._resumed = time.perf_counter()

    def on_end(self, result: Any, session: Session) -> None:
        self.evaluator.pool.close()

    def _add_point(self, session: Session) -> None:
        score = self.world.score_of(self.evaluator(session.policy, unseen_episodes(EVALUATION_SEED + 1)))
        self.points.append((self.step, round(self.trained_seconds, 2), score))


def train(world: str, algorithm: str, seed: int, callback: Any, runs: str, **settings: Any) -> Any:
    """Train with the world's preset for the algorithm, on one thread, without evaluations of the run's own."""
    alone = {"eval": {"every": 0, "final_episodes": 0}, "checkpoint": {"every": 0}, "num_threads": 1, "device": "cpu"}
    given = {**alone, "env_parameters": WORLDS[world].parameters, "policy": WORLDS[world].policy, **settings}
    return scramjet.train(
        world, algorithm=algorithm, seed=seed, callbacks=[callback], runs_dir=runs, display="quiet", **given
    )


def run_case(name: str, algorithm: str, seed: int, seconds: float, **settings: Any) -> dict[str, Any]:
    """The line of results.jsonl of one run; `settings` are laid over the preset."""
    world = WORLDS[name]
    with tempfile.TemporaryDirectory() as runs:
        rate = Rate(CALIBRATION_SHARE * seconds)
        train(name, algorithm, seed, rate, runs, run_name="rate", total_timesteps=UNBOUNDED, **settings)
        curve = Curve(world, seconds)
        steps = int(rate.steps_per_second * seconds)
        train(name, algorithm, seed, curve, runs, run_name="run", total_timesteps=steps, **settings)
        evaluations = {"network": _evaluate(world, f"{runs}/run", "")}
        if curve.search:
            evaluations["search"] = _evaluate(world, f"{runs}/run", curve.search)
    result = {"world": name, "algorithm": algorithm, "seed": seed, "score": world.score, "steps": curve.step}
    result |= {"seconds": round(curve.trained_seconds, 1), "search_settings": curve.search, "curve": curve.points}
    for player, evaluation in evaluations.items():
        result[player] = world.score_of(evaluation)
        result[f"{player}_stats"] = {"return": evaluation.mean_return, **evaluation.stats}
    return result


def _evaluate(world: World, run: str, search: str) -> Evaluation:
    return scramjet.evaluate(
        run,
        world.search_episodes if search else FINAL_EPISODES,
        seed=EVALUATION_SEED,
        env_parameters=world.played or None,
        samples=False if search else world.samples,
        search=search or None,
    )
