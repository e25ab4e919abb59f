"""What every number in metrics.jsonl means, when it is healthy, and what to do when it is not.

The dashboard, the docs (docs/telemetry.md, checked by a test) and the warnings all read this one table.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

Record = Mapping[str, Any]
"""One update's metrics: a line of metrics.jsonl."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One key of a record. Keys inside the nested "time" are written "time.<key>"."""

    name: str
    meaning: str
    low: float | None = None
    """A value below this is out of the healthy range."""
    high: float | None = None
    """A value above this is out of the healthy range."""
    advice_low: str = ""
    advice_high: str = ""
    first_update: int = 1
    """Earlier updates are not judged: the number means nothing yet."""
    last_update: int | None = None
    """Later updates are not judged: the number is expected to leave the range."""
    if_not_finite: Literal["goes on", "warns", "stops"] = "goes on"
    """What NaN or infinity here does: where it means that training has diverged, it warns, or stops the run."""
    if_diverged: str = "--learning-rate (--fork), or bound rewards with --reward-clip 10"
    """What to lower where such a number stopped the run."""

    def judges(self, update: int) -> bool:
        """Whether the healthy range applies at this update."""
        return self.first_update <= update and (self.last_update is None or update <= self.last_update)

    @property
    def healthy(self) -> str:
        """The healthy range in words, "" where there is none."""
        bounds = []
        if self.low is not None:
            bounds.append(f"at least {self.low:g}")
        if self.high is not None:
            bounds.append(f"at most {self.high:g}")
        if bounds and self.first_update > 1:
            bounds.append(f"from update {self.first_update}")
        if bounds and self.last_update is not None:
            bounds.append(f"up to update {self.last_update}")
        return ", ".join(bounds)


_BONUS_RATE = "--bonus.learning-rate (--fork)"

_TABLE = (
    Metric("update", "The number of this update, from 1."),
    Metric("step", "Environment steps taken so far, over all envs."),
    Metric("episodes", "Episodes that finished in this update."),
    Metric("return_mean", "Mean return (sum of rewards, undiscounted) of the episodes finished in this update."),
    Metric("return_min", "Lowest return among them."),
    Metric("return_max", "Highest return among them."),
    Metric("length_mean", "Mean length, in steps, of the episodes finished in this update."),
    Metric(
        "return_100",
        "Mean return of the last 100 finished episodes; none before as many have ended as play at once.",
    ),
    Metric("length_100", "Mean length of the last 100 finished episodes."),
    Metric("eval/stat/*", "A named statistic of the world, mean over the evaluation's episodes."),
    Metric("stat/*", "A named statistic of the world, mean over the episodes finished in this update."),
    Metric("return_of/*", "Mean return of one agent or seat, by its number, where several play."),
    Metric("loss/*", "A loss that the user's own network adds, mean over the gradient steps."),
    Metric(
        "policy_loss",
        "PPO's clipped surrogate loss, around 0; with search the cross-entropy or divergence to what it found.",
        if_not_finite="stops",
    ),
    Metric(
        "value_loss",
        "Squared error of the value function; scales with the square of the returns.",
        if_not_finite="stops",
    ),
    Metric(
        "entropy",
        "Randomness of the policy: ln(number of actions) at the start, 0 when it is deterministic.",
        low=0.02,
        advice_low="exploration has ended; if returns are low, raise --entropy-coef",
        last_update=50,
        if_not_finite="warns",
    ),
    Metric(
        "approx_kl",
        "How far the update moved the policy: mean((r - 1) - log r), r the ratio.",
        high=0.05,
        advice_high="updates are large: lower --learning-rate or --num-epochs",
        if_not_finite="warns",
    ),
    Metric("approx_kl_k1", "The same distance by the plain estimator mean(-log r): noisier, may be negative."),
    Metric(
        "clip_fraction",
        "Share of samples whose ratio left the clip range, so that their gradient was cut.",
        high=0.4,
        advice_high="updates too large: lower --learning-rate or --num-epochs",
    ),
    Metric(
        "explained_variance",
        "How well values predict returns: 1 perfect, 0 no better than a constant, below 0 worse.",
        low=0.0,
        advice_low="a poor critic: raise --value-coef or lower --gamma",
        first_update=11,
    ),
    Metric("grad_norm", "Norm of the gradient before clipping to --max-grad-norm.", if_not_finite="stops"),
    Metric("learning_rate", "The learning rate that this update used."),
    Metric("clip_epsilon", "The clip range that this update used."),
    Metric("entropy_coef", "The entropy coefficient that this update used, scheduled or adapted."),
    Metric("bonus/mean", "Mean bonus of curiosity in the rollout, before it is scaled; falls as things get known."),
    Metric("bonus/max", "Largest bonus in the rollout, before it is scaled."),
    Metric(
        "bonus/loss", "What curiosity learns to predict: its mean loss.", if_not_finite="stops", if_diverged=_BONUS_RATE
    ),
    Metric(
        "bonus/value_loss", "Squared error of the values of bonuses.", if_not_finite="stops", if_diverged=_BONUS_RATE
    ),
    Metric("epochs", "Epochs done; fewer than --num-epochs after a --target-kl stop."),
    Metric("eval/mean_return", "Mean return of the evaluation; only on updates that evaluate."),
    Metric("eval/std_return", "Standard deviation of the evaluation's returns."),
    Metric("eval/lower_bound", "What the mean return exceeds with 95 % confidence; `best` is the highest of these."),
    Metric("eval/mean_length", "Mean episode length of the evaluation."),
    Metric("eval/episodes", "Episodes played in the evaluation; a game of several players is one."),
    Metric("eval/cut_episodes", "Of these, episodes that were cut at the bound of steps, with their return so far."),
    Metric(
        "async/policy_lag_mean", "--mode async: updates between the weights that acted and this one, mean over steps."
    ),
    Metric("async/policy_lag_max", "The same of the oldest trajectory's first step."),
    Metric("async/ratio_mean", "Probability ratio of the weights now to those that acted, before the first pass."),
    Metric("async/ratio_max", "The largest of these ratios."),
    Metric("async/ratio_clipped", "Share of them above --vtrace-rho-clip."),
    Metric("async/queue_depth", "Trajectories done and not yet taken."),
    Metric("async/frames_in_flight", "Environment steps begun and not yet learned from."),
    Metric("async/stale_trajectories", "Trajectories not learned from: older than --max-policy-lag."),
    Metric("async/env_restarts", "Times that an env or its process failed and was made anew, since the start."),
    Metric("async/learner_idle", "Share of the time that the learner waited for actors."),
    Metric("async/actors_idle", "Share of the time that actors waited for the learner."),
    Metric(
        "versus/random",
        "Games for several: share of games against random moves that the policy won, draws counted half; every update "
        "has that of the last time they were played.",
    ),
    Metric("versus/first", "The same against the policy as it was when these games were first played."),
    Metric("versus/games", "Games against each of these two."),
    Metric("self_play/rating", "Against a pool: the policy's rating by its recent games; random play is near 1000."),
    Metric("self_play/rating_error", "The standard error of that rating."),
    Metric("self_play/win_rate", "Share of recent games against the pool that were won, draws counted half."),
    Metric(
        "self_play/win_rate_worst",
        "The lowest win rate against any member of the pool; two imagined games, one won, are added.",
        low=0.3,
        advice_low="forgets: raise --self-play.pool-fraction",
        first_update=20,
    ),
    Metric("self_play/draws", "Share of recent games against the pool that were drawn."),
    Metric("self_play/pool", "Members of the pool."),
    Metric(
        "self_play/distinct_games",
        "Share of distinct games among those that ended in this update, at most the last 1,000.",
        low=0.05,
        advice_low="games repeat: raise --entropy-coef",
        first_update=5,
    ),
    Metric("self_play/exploiter_win_rate", "The exploiter's share of wins against the policy, draws counted half."),
    Metric("self_play/against/*", "The win rate against one member of the pool, by its name."),
    Metric(
        "search/effective_particles",
        "spo: particles that count after a search, as a share of all; 1 where all weigh the same.",
    ),
    Metric(
        "search/improvement",
        "spo: advantage of the particles by their weights over the policy's own draws, in rewards as learned.",
    ),
    Metric(
        "search/kl",
        "alphazero: KL divergence of the search's improved policy from the network's, mean over positions.",
    ),
    Metric(
        "search/changed",
        "alphazero: share of positions where the search prefers another action than the network.",
    ),
    Metric(
        "spo/temperature",
        "The temperature of the weights of particles: the smaller, the more the best ones count.",
    ),
    Metric(
        "spo/kl",
        "KL divergence of the policy from the target policy, which follows it; --spo.epsilon-alpha is its aim.",
        if_not_finite="warns",
    ),
    Metric(
        "spo/alpha",
        "The weight of the policy's KL divergence from the target policy.",
        if_not_finite="stops",
    ),
    Metric(
        "spo/temperature_loss",
        "The dual of the temperature, which it minimizes; its size says little.",
        if_not_finite="stops",
    ),
    Metric("time.elapsed_seconds", "Wall-clock time since training began."),
    Metric("time.steps_per_second", "Environment steps per second, evaluations aside."),
    Metric("time.rollout_seconds", "Time of this update spent collecting the rollout."),
    Metric("time.prepare_seconds", "Time spent on advantages and the batch."),
    Metric("time.learn_seconds", "Time spent on gradient steps."),
    Metric("time.evaluate_seconds", "Time spent on evaluation."),
    Metric("time.checkpoint_seconds", "Time spent saving checkpoints since the line before this one."),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}
"""Every key of a record, in the order of a record."""

_JUDGED = tuple(metric for metric in _TABLE if metric.healthy)
_FINITE = tuple(metric for metric in _TABLE if metric.if_not_finite != "goes on")
_DIVERGED = "training has diverged: fork with a lower --learning-rate"


def metric_for(key: str) -> Metric | None:
    """The table's entry for a record's key ("stat/win" is a "stat/*"), None if there is none."""
    for prefix in ("stat/", "eval/stat/", "return_of/", "loss/", "self_play/against/"):
        if key.startswith(prefix):
            return METRICS[prefix + "*"]
    return METRICS.get(key)


def is_reserved(key: str) -> bool:
    """Whether a key is one of scramjet's own metrics, or kept for them; a user's metric needs another name."""
    return key in METRICS or key == "time" or key.startswith(_RESERVED)


_RESERVED = ("stat/", "eval/", "return_of/", "loss/", "async/", "self_play/", "versus/", "search/", "spo/", "time.")


VERSUS_RANDOM = "versus/random"
MAIN_METRICS = {"rating": "self_play/rating", "win rate vs random": VERSUS_RANDOM, "return": "return_100"}
"""Numbers that tell best how a run goes, by the names that displays give them; the first that a run has is its own."""


def main_metric(record: Record) -> tuple[str, float | None]:
    """The number that tells best how a run goes, and its name; in games for several returns tell nothing."""
    name = next((name for name, key in MAIN_METRICS.items() if key in record), "return")
    if "self_play/pool" in record:  # there is no rating before the first games
        name = "rating"
    return name, _number(record, MAIN_METRICS[name])


MAIN_OF_SEARCH = ("search/improvement", "search/kl")
"""Of spo and of alphazero: the number that tells best what a search finds beyond the network."""


def is_searched(record: Record) -> bool:
    """Whether a search chose the actions of an update."""
    return any(key.startswith("search/") for key in record)


@lru_cache(maxsize=1024)
def statistic_name(key: str) -> str | None:
    """The name under which a display shows a metric that not every run has; None for those that every run has."""
    if key.startswith(("stat/", "loss/")):
        return key.removeprefix("stat/")
    if key in ("self_play/win_rate", "self_play/win_rate_worst", "self_play/draws", "self_play/distinct_games"):
        return key.removeprefix("self_play/")
    if key.startswith("self_play/against/"):
        return key.removeprefix("self_play/")
    if key in ("versus/random", "versus/first"):
        return f"win rate vs {key.removeprefix('versus/')}"
    if key in MAIN_OF_SEARCH:
        return key.replace("/", " ")
    return None if is_reserved(key) else key


def findings(record: Record) -> dict[str, str]:
    """The metrics of a record outside their healthy range, as {name: short warning with advice}; None is skipped."""
    update = record.get("update")
    update = update if isinstance(update, int) else 0
    found: dict[str, str] = {}
    for metric in _FINITE:
        value = _number(record, metric.name)
        if value is not None and not math.isfinite(value):
            found[metric.name] = f"{metric.name} {value}, {_DIVERGED}"
    for metric in _JUDGED:
        value = _number(record, metric.name)
        if value is None or not math.isfinite(value) or not metric.judges(update):
            continue
        # A negative entropy is that of a continuous action's density, which no range fits.
        if metric.name == "entropy" and value < 0:
            continue
        # Searches explore by themselves, and no coefficient keeps the policy random.
        if metric.name == "entropy" and is_searched(record):
            continue
        # Once all returns are alike, the critic is right and has nothing to explain.
        if metric.name == "explained_variance" and (_number(record, "value_loss") or 0.0) < 1e-3:
            continue
        if metric.high is not None and value > metric.high:
            found[metric.name] = f"{metric.name} {value:.2g}, {metric.advice_high}"
        elif metric.low is not None and value < metric.low:
            found[metric.name] = f"{metric.name} {value:.2g}, {metric.advice_low}"
    return found


def shortlist(found: Mapping[str, str]) -> list[str]:
    """The warnings of `findings` in the order to show them: divergence first, and told once."""
    diverged = [text for text in found.values() if _DIVERGED in text]
    return diverged[:1] + [text for text in found.values() if _DIVERGED not in text]


def warnings_for(record: Record) -> list[str]:
    """Short readable warnings, each with its advice. Pure; NaN and None are fine."""
    return shortlist(findings(record))


def _number(record: Record, key: str) -> float | None:
    value = record.get(key)
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # a whole number beyond all floats, in a file of somebody else
        return None


# --- means over about the last hundred episodes, from records of single updates

RECENT = 100
"""Episodes that a mean is over, at least, once as many have ended."""
PREFIX = "stat/"
"""Begins the key of each statistic of the world."""


class RecentMeans:
    """Averages each `stat/*` over the latest updates with a hundred episodes in all, weighted by their episodes."""

    def __init__(self) -> None:
        self._recent: dict[str, _Weighted | None] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Add an update's metrics. A statistic that is None or not finite changes nothing."""
        num_episodes = record.get("episodes") or 0
        for key, value in record.items():
            if not key.startswith(PREFIX):
                continue
            recent = self._recent.setdefault(key, None)
            if num_episodes and isinstance(value, int | float) and math.isfinite(value):
                if recent is None:
                    recent = self._recent[key] = _Weighted()
                recent.add(value, num_episodes)

    @property
    def means(self) -> dict[str, float | None]:
        """The mean of each statistic by its key; None before an episode had it."""
        return {key: None if recent is None else recent.mean for key, recent in self._recent.items()}


class _Weighted:
    """The latest values whose weights come to a hundred or more; the oldest one still needed counts as a whole."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, int]] = deque()  # (value, weight)
        self._weight = 0

    def add(self, value: float, weight: int) -> None:
        self._values.append((value, weight))
        self._weight += weight
        while self._weight - self._values[0][1] >= RECENT:
            self._weight -= self._values.popleft()[1]

    @property
    def mean(self) -> float:
        return sum(value * weight for value, weight in self._values) / self._weight
