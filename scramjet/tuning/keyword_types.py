"""Types of the keywords of `scramjet.tune`. Made by tools/keyword_types.py."""

from __future__ import annotations

from typing import Literal

from scramjet.training.config.keyword_types import Settings


class TuneSettings(Settings, total=False):
    """The settings of a study and its runs, as `scramjet.tune` takes them."""

    total_timesteps: int | float | str
    """Env steps to train for."""
    time_limit: str | None
    """Stop after this much time in this process, such as 30s, 5m or 2h; the run can be resumed."""
    method: Literal["random", "tpe", "pareto", "halving", "pbt"]
    """random: draw settings; tpe: learn from earlier trials which settings are good; pareto: the same for score
    against cost; halving: begin many, go on with the best; pbt: a population, whose worst members go on from changed
    copies of the best."""
    objective: str
    """final: mean return of the final evaluation; area: under the curve of training returns; time_to:RETURN and
    steps_to:RETURN: until that return; metric:NAME: a metric's last value; rating: pbt, by matches of the members."""
    minimize: bool
    """With metric:NAME, less is better."""
    cost: Literal["seconds", "steps"]
    """pareto: what a trial costs: its training time, or its env steps."""
    trials: int | None
    """Trials to make; without any budget 20."""
    steps: int | float | str | None
    """Env steps to spend over all trials: no trial begins that would go beyond."""
    hours: float | None
    """Hours after which trials are stopped; the study can be resumed."""
    parallel: int | Literal["auto"]
    """Trials at once; auto: one for each core, or four where they share a GPU."""
    factor: int
    """halving: one of this many trials goes on from each rung, and the next rung is this many times as far."""
    first_rung: int | float | str | None
    """halving: env steps to the first rung; none: total_timesteps divided by the factor three times."""
    population: int
    """pbt: members that train side by side."""
    interval: int | float | str | None
    """pbt: env steps of a generation, after which the worst quarter is replaced; none: a twentieth of the training."""
    best: int
    """Settings that are trained again after the search, with fresh seeds: those with the best scores."""
    seeds: int
    """Fresh seeds with which each of the best settings is trained again; the winner has the best mean over these. 0:
    none, and the best trial wins."""
    study_seed: int
    """Decides what is proposed; the seed of the trials is --seed."""
