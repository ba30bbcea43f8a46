"""Histograms with few bins, for people to look at."""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from rollmake.core.latency import GROWTH, LatencySummary

LATENCY_BINS = range(12, 49)
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class Bin(msgspec.Struct, frozen=True):
    """`count` values in [low, high); the last bin of a histogram holds `high` too."""

    low: float
    high: float
    count: int


def histogram(values: Sequence[float], bins: int) -> list[Bin]:
    """`values` counted in `bins` bins of equal width: over 0..1 if they all lie there, else over their range."""
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / bins
    counts = Counter(min(int((value - low) / width), bins - 1) for value in values)
    return [Bin(low + index * width, low + (index + 1) * width, counts[index]) for index in range(bins)]


def latency_bins(summary: LatencySummary) -> list[Bin]:
    """The buckets of a summary joined to bins (s) of equal width on a log scale; the fewer, the less was timed."""
    if not summary.count:
        return []
    first, last = min(summary.buckets), max(summary.buckets)
    bins = min(max(2 * math.isqrt(summary.count), LATENCY_BINS[0]), LATENCY_BINS[-1])
    width = math.ceil((last - first + 1) / bins)
    counts: Counter[int] = Counter()
    for index, count in summary.buckets.items():
        counts[(index - first) // width] += count
    edges = [GROWTH ** (first + width * position) for position in range(max(counts) + 2)]
    return [Bin(edges[position], edges[position + 1], counts[position]) for position in range(max(counts) + 1)]


def latency_quantiles(summary: LatencySummary) -> dict[str, float]:
    """The quantiles (s) that the report names; empty if nothing was timed."""
    return {name: seconds for name, q in QUANTILES.items() if (seconds := summary.quantile(q)) is not None}
