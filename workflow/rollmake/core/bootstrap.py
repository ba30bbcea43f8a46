"""Intervals by drawing tasks anew: all rollouts of a task come along, since they are not independent."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, stdtrit

RESAMPLES, SEED, CONFIDENCE = 2000, 0, 0.95
# How many numbers of drawn tasks are held at once.
HELD = 1 << 22
Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """An estimate and its 95 % interval; NaN where it is not known."""

    estimate: float
    low: float
    high: float


def ratio_intervals(above: Floats, below: Floats, *, binary: bool = False, seed: int = SEED) -> list[Interval]:
    """The interval of each `sum(above) / sum(below)` over tasks, Float64 [tasks, estimates] both.

    Percentile intervals of 2000 draws of as many tasks as there are, widened for few tasks: the share beyond each end
    is that of Student's t with an interval sqrt(n / (n - 1)) as wide. They never leave the range of the tasks. With one
    task there is no interval; where all tasks agree on 0 or 1 and rewards are `binary` it is the exact one of a
    binomial with a trial a task.
    """
    tasks = len(above)
    estimates = divided(above.sum(axis=0), below.sum(axis=0))
    if tasks < 2:
        return [Interval(float(one), np.nan, np.nan) for one in estimates]
    tail = expanded_tail(tasks)
    known = below.any(axis=0)
    low, high = bounds = np.full((2, len(estimates)), np.nan)
    if known.any():
        drawn = draws(above[:, known], below[:, known], seed)
        bounds[:, known] = np.nanquantile(drawn, [tail, 1 - tail], axis=0)
    found = [Interval(*map(float, one)) for one in zip(estimates, low, high, strict=True)]
    if not binary:
        return found
    eligible = (below > 0).sum(axis=0)
    return [unanimous(one, int(count)) for one, count in zip(found, eligible, strict=True)]


def draws(above: Floats, below: Floats, seed: int) -> Floats:
    """The ratios of each draw, [draws, estimates]. NaN where no drawn task counts.

    Tasks with the same numbers are drawn together: how often any of them is drawn is multinomial.
    """
    kinds, times = np.unique(np.hstack([above, below]), axis=0, return_counts=True)
    estimates, chance = above.shape[1], np.random.default_rng(seed)
    parts, left = [], RESAMPLES
    while left:
        some = min(left, max(1, HELD // len(kinds)))
        sums = chance.multinomial(len(above), times / len(above), size=some) @ kinds
        parts.append(divided(sums[:, :estimates], sums[:, estimates:]))
        left -= some
    return np.concatenate(parts)


def divided(above: Floats, below: Floats) -> Floats:
    """Ratios, NaN for a denominator of 0."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below != 0)


def expanded_tail(tasks: int) -> float:
    """The share of draws beyond each end of the interval, smaller than 2.5 % for few tasks."""
    quantile = stdtrit(tasks - 1, (1 - CONFIDENCE) / 2)
    return float(ndtr(quantile * np.sqrt(tasks / (tasks - 1))))


def unanimous(interval: Interval, tasks: int) -> Interval:
    """The exact (Clopper-Pearson) interval if all of some tasks are right, or all wrong; else the one given."""
    if interval.estimate not in (0.0, 1.0) or interval.low != interval.high:
        return interval
    beyond = float(betaincinv(1, tasks, CONFIDENCE + (1 - CONFIDENCE) / 2))
    return interval._replace(high=beyond) if interval.estimate == 0.0 else interval._replace(low=1 - beyond)
