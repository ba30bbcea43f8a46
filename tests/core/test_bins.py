"""Bins hold everything once and cover the range."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.bins import LATENCY_BINS, histogram, latency_bins, latency_quantiles
from rollmake.core.latency import LatencySummary

REWARDS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


@given(REWARDS, st.integers(1, 20))
def test_every_value_is_counted_once(values, bins):
    found = histogram(values, bins)
    assert sum(one.count for one in found) == len(values)
    assert len(found) == bins
    assert all(one.low < one.high for one in found)
    assert found[0].low <= min(values)
    assert found[-1].high >= max(values) - 1e-6


def test_rewards_from_0_to_1_get_that_range():
    found = histogram([0.5, 0.5, 1.0], 4)
    assert [(one.low, one.high, one.count) for one in found] == [
        (0, 0.25, 0),
        (0.25, 0.5, 0),
        (0.5, 0.75, 2),
        (0.75, 1, 1),
    ]


def test_equal_values_outside_that_range_stand_in_the_middle():
    assert [(one.low, one.high) for one in histogram([7.0, 7.0], 1)] == [(6.5, 7.5)]


@given(st.lists(st.floats(1e-4, 1e5), min_size=1, max_size=200))
def test_latency_bins_are_few_and_lose_nothing(durations):
    found = latency_bins(LatencySummary.of(durations))
    assert sum(one.count for one in found) == len(durations)
    assert len(found) <= LATENCY_BINS[-1]
    assert found[0].low <= min(durations) * 1.0001
    assert found[-1].high >= max(durations) * 0.9999
    assert all(left.high == pytest.approx(right.low) for left, right in pairwise(found))


def test_the_more_was_timed_the_finer_the_bins():
    few = latency_bins(LatencySummary.of([0.1, 1, 10]))
    many = latency_bins(LatencySummary.of([0.1, 1, 10] * 1000))
    assert len(few) <= LATENCY_BINS[0] < len(many)


def test_nothing_timed_gives_nothing():
    assert latency_bins(LatencySummary()) == []
    assert latency_quantiles(LatencySummary()) == {}
    assert list(latency_quantiles(LatencySummary.of([2.0]))) == ["p50", "p90", "p99"]
