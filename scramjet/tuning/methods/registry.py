"""Methods by name."""

from __future__ import annotations

from scramjet.tuning.methods.halving import SuccessiveHalving
from scramjet.tuning.methods.interface import Method
from scramjet.tuning.methods.sampled import TPE, Pareto, RandomSearch
from scramjet.tuning.population.method import Population
from scramjet.tuning.settings import MethodName

METHODS: dict[MethodName, type[Method]] = {
    "random": RandomSearch,
    "tpe": TPE,
    "pareto": Pareto,
    "halving": SuccessiveHalving,
    "pbt": Population,
}
