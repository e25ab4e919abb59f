"""How much each setting matters for the score: the share of its variance, in ranks, that the setting alone explains.

Numbers are cut into groups of equally many trials, choices are groups already; the share is epsilon squared (Kelley
1935), which is about 0 for a setting without effect, where the plain share grows with the number of groups. Ranks make
it the same for any scale of scores. What two settings do only together is not seen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scramjet.tuning.report.results import Setting, StudyResults

FEWEST_TRIALS = 8
"""Below so many trials with a score nothing is said."""
_FEWEST_IN_GROUP = 3
_MOST_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Importance:
    """How much one setting matters."""

    setting: str
    share: float
    """Of the variance of the scores' ranks, 0 to 1."""
    trend: float
    """Rank correlation of number and score, -1 to 1; above 0 larger is better. NaN for choices."""


def importances(results: StudyResults) -> list[Importance]:
    """The importance of each setting, largest first; empty where there are too few trials to say."""
    ranked = results.ranked()
    if len(ranked) < FEWEST_TRIALS:
        return []
    found = []
    for setting in results.settings:
        having = [trial for trial in ranked if setting.name in trial.settings]
        values = [trial.settings[setting.name] for trial in having]
        goodness = -_ranks([results.order(trial) for trial in having])  # the best has the highest rank
        if len(having) >= FEWEST_TRIALS:
            share = explained(_groups(setting, values), goodness)
            found.append(Importance(setting.name, share, _trend(setting, values, goodness)))
    return sorted(found, key=lambda each: -each.share)


def explained(groups: Sequence[int], values: NDArray[np.float64]) -> float:
    """The share of the values' variance that lies between groups, less what chance gives: epsilon squared, at least 0.

    `groups` has the group of each value, [P].
    """
    labels = np.asarray(groups)
    members = [values[labels == label] for label in np.unique(labels)]
    total = float(((values - values.mean()) ** 2).sum())
    degrees = len(values) - len(members)
    if total == 0 or degrees <= 0 or len(members) < 2:
        return 0.0
    within = float(sum(((each - each.mean()) ** 2).sum() for each in members))
    return max(0.0, (total - within - (len(members) - 1) * within / degrees) / total)


def _groups(setting: Setting, values: Sequence[Any]) -> list[int]:
    """The group of each value: equal choices together, numbers by their order in groups of about equal size."""
    if setting.scale == "choice":
        texts = [repr(value) for value in values]
        return [sorted(set(texts)).index(text) for text in texts]
    numbers = np.array(values, dtype=float)
    distinct, place = np.unique(numbers, return_inverse=True)
    count = max(2, min(_MOST_GROUPS, len(numbers) // _FEWEST_IN_GROUP))
    if len(distinct) <= count:
        return [int(each) for each in place]
    ends = np.quantile(numbers, np.linspace(0, 1, count + 1)[1:-1])
    return [int(each) for each in np.searchsorted(ends, numbers, side="right")]


def _trend(setting: Setting, values: Sequence[Any], goodness: NDArray[np.float64]) -> float:
    if setting.scale == "choice":
        return float("nan")
    ranks = _ranks(values)
    if np.ptp(ranks) == 0 or np.ptp(goodness) == 0:
        return 0.0
    return float(np.corrcoef(ranks, goodness)[0, 1])


def _ranks(values: Sequence[Any]) -> NDArray[np.float64]:
    """The rank of each value among them, the least at 1, equal ones at their mean rank."""
    ordered = sorted(values)
    return np.array([(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values])
