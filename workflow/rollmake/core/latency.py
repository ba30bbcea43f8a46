"""How long rollouts take: quantiles, the margin a drain keeps, and a summary of bounded size that can be merged."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from rollmake.core.contract import RESPONSE
from rollmake.core.errors import DataError

ELAPSED = "elapsed_seconds"
# Fewer finished rollouts than this say nothing about how long the next one takes.
MARGIN_SAMPLES = 5
MARGIN_QUANTILE = 0.75
GROWTH = 1.02
LOG_GROWTH = math.log(GROWTH)
# Bucket indices are clipped to 1e-6 s .. 1e9 s, so a summary has at most about 1,750 buckets.
LOWEST, HIGHEST = (math.floor(math.log(bound, GROWTH)) for bound in (1e-6, 1e9))


def quantile(durations: Sequence[float], q: float) -> float | None:
    """The `q` quantile (0..1) of `durations` (s, any order) by linear interpolation; None of nothing.

    NeMo Gym contract 3.3.
    """
    if not durations:
        return None
    ordered = sorted(durations)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (position - below))


def drain_margin(durations: Sequence[float], configured: float | None) -> float | None:
    """Seconds that must remain for a rollout to start: as configured, else the p75 of what finished.

    None if fewer than five rollouts finished.
    NeMo Gym contract 3.3.
    """
    if configured is not None:
        return float(configured)
    return quantile(durations, MARGIN_QUANTILE) if len(durations) >= MARGIN_SAMPLES else None


def elapsed_seconds(record: Mapping[str, Any]) -> float | None:
    """How long the rollout behind a record took (s), by its own word: a finite number above 0, or None.

    `elapsed_seconds` of the record, else of its `response.metadata`; numbers in text count.
    NeMo Gym contract 3, item 5.
    """
    response = record.get(RESPONSE)
    metadata = response.get("metadata") if isinstance(response, Mapping) else None
    sources = [record, metadata if isinstance(metadata, Mapping) else {}]
    return next((seconds for source in sources if (seconds := _positive(source.get(ELAPSED))) is not None), None)


def _positive(value: object) -> float | None:
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < math.inf else None


class LatencySummary:
    """A histogram of durations whose buckets grow by 2 %, so that any quantile is right to about 1 %.

    Bucket `i` holds durations in [1.02**i, 1.02**(i+1)) seconds. Summaries of parts
    merge into the summary of the whole.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self.min_s = math.inf
        self.max_s = 0.0
        self.buckets: dict[int, int] = {}

    @classmethod
    def of(cls, durations: Iterable[float]) -> Self:
        """The summary of `durations` (s)."""
        summary = cls()
        for seconds in durations:
            summary.add(seconds)
        return summary

    def add(self, seconds: float) -> None:
        """Take in one duration (s); a clock that went backwards counts as 0."""
        seconds = max(float(seconds), 0.0)
        index = LOWEST if seconds <= 0 else min(max(math.floor(math.log(seconds) / LOG_GROWTH), LOWEST), HIGHEST)
        self.buckets[index] = self.buckets.get(index, 0) + 1
        self.count += 1
        self.sum_s += seconds
        self.min_s, self.max_s = min(self.min_s, seconds), max(self.max_s, seconds)

    def merge(self, other: "LatencySummary") -> None:
        """Take in everything that `other` holds."""
        for index, count in other.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count
        self.count += other.count
        self.sum_s += other.sum_s
        self.min_s, self.max_s = min(self.min_s, other.min_s), max(self.max_s, other.max_s)

    @property
    def mean(self) -> float | None:
        """The exact mean (s)."""
        return self.sum_s / self.count if self.count else None

    def quantile(self, q: float) -> float | None:
        """The `q` quantile (s): the middle, on a log scale, of the bucket that holds this rank; exact at 0 and 1."""
        if not self.count:
            return None
        if q <= 0 or q >= 1:
            return self.min_s if q <= 0 else self.max_s
        rank, seen, index = q * (self.count - 1), 0, LOWEST
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if seen > rank:
                break
        return min(max(GROWTH ** (index + 0.5), self.min_s), self.max_s)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it; extremes of an empty summary are null."""
        return {
            "growth": GROWTH,
            "count": self.count,
            "sum_s": self.sum_s,
            "min_s": self.min_s if self.count else None,
            "max_s": self.max_s if self.count else None,
            "buckets": {str(index): self.buckets[index] for index in sorted(self.buckets)},
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """What `to_dict` wrote. Raises DataError for anything that cannot be merged."""
        summary = cls()
        try:
            if value["growth"] != GROWTH:
                raise DataError(f"buckets grow by {value['growth']!r}, not {GROWTH}", where="latency")
            summary.count, summary.sum_s = int(value["count"]), float(value["sum_s"])
            summary.buckets = {int(index): int(count) for index, count in value["buckets"].items()}
            if summary.count:
                summary.min_s, summary.max_s = float(value["min_s"]), float(value["max_s"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"no latency summary ({error!r})", where="latency") from error
        if sum(summary.buckets.values()) != summary.count:
            raise DataError(
                f"its buckets hold {sum(summary.buckets.values())}, its count is {summary.count}", where="latency"
            )
        return summary
