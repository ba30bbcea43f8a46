"""Quantiles, drain margins, and a summary that merges and stays small."""

import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.errors import DataError
from rollmake.core.latency import GROWTH, LatencySummary, drain_margin, elapsed_seconds, quantile

SECONDS = st.floats(min_value=1e-5, max_value=1e8)


def test_quantile_interpolates_between_ranks():
    durations = [100, 10, 30, 20, 40]
    assert quantile(durations, 0.75) == 40.0
    assert quantile(durations, 0.5) == 30.0
    assert quantile(durations, 0.9) == pytest.approx(76.0)
    assert quantile([], 0.5) is None
    assert quantile([7], 0.99) == 7.0


@given(st.lists(SECONDS, min_size=2, max_size=40))
def test_quantile_agrees_with_the_standard_library(durations):
    expected = statistics.quantiles(durations, n=4, method="inclusive")
    assert [quantile(durations, q) for q in (0.25, 0.5, 0.75)] == pytest.approx(expected)


def test_the_margin_is_configured_or_learnt_from_five_rollouts():
    assert drain_margin([1, 2, 3, 4], None) is None
    assert drain_margin([1, 2, 3, 4, 5], None) == 4.0
    assert drain_margin([1, 2, 3, 4, 5], 0) == 0.0
    assert drain_margin([], 12) == 12.0


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        ({"elapsed_seconds": 2}, 2.0),
        ({"elapsed_seconds": "2.5"}, 2.5),
        ({"elapsed_seconds": -1, "response": {"metadata": {"elapsed_seconds": 4}}}, 4.0),
        ({"elapsed_seconds": 1, "response": {"metadata": {"elapsed_seconds": 4}}}, 1.0),
        ({"elapsed_seconds": True}, 1.0),
        ({"elapsed_seconds": "nan"}, None),
        ({"elapsed_seconds": "inf"}, None),
        ({"elapsed_seconds": 10**400}, None),
        ({"elapsed_seconds": [3]}, None),
        ({"response": "text"}, None),
        ({"response": {"metadata": [1]}}, None),
        ({}, None),
    ],
)
def test_elapsed_seconds_takes_the_first_positive_number(record, seconds):
    assert elapsed_seconds(record) == seconds


@given(st.lists(SECONDS, min_size=1, max_size=60), st.floats(min_value=0, max_value=1))
def test_summary_quantiles_stay_within_one_percent_of_a_neighbouring_rank(durations, q):
    ordered = sorted(durations)
    truth = ordered[math.floor(q * (len(ordered) - 1))]
    assert LatencySummary.of(durations).quantile(q) == pytest.approx(truth, rel=0.0102)


@given(st.lists(SECONDS, max_size=40), st.lists(SECONDS, max_size=40))
def test_merged_summaries_equal_the_summary_of_all(left, right):
    merged = LatencySummary.of(left)
    merged.merge(LatencySummary.of(right))
    pooled = LatencySummary.of(left + right).to_dict()
    assert merged.to_dict() | {"sum_s": 0} == pooled | {"sum_s": 0}
    assert merged.sum_s == pytest.approx(pooled["sum_s"])


@given(st.lists(SECONDS, max_size=40))
def test_a_summary_survives_json(durations):
    written = LatencySummary.of(durations).to_dict()
    assert LatencySummary.from_dict(json.loads(json.dumps(written))).to_dict() == written


def test_an_empty_summary_has_no_quantile_and_merges_as_nothing():
    empty = LatencySummary()
    assert (empty.quantile(0.5), empty.mean) == (None, None)
    assert empty.to_dict() == {"growth": GROWTH, "count": 0, "sum_s": 0.0, "min_s": None, "max_s": None, "buckets": {}}
    summary = LatencySummary.of([2.0, 4.0])
    summary.merge(empty)
    assert (summary.count, summary.min_s, summary.max_s, summary.mean) == (2, 2.0, 4.0, 3.0)


def test_extreme_durations_do_not_grow_the_summary():
    summary = LatencySummary.of([0.0, -5.0, 1e-300, 1e300, *(10 ** (x / 1000) for x in range(-50000, 50000))])
    assert len(summary.buckets) < 1800
    assert (summary.min_s, summary.max_s) == (0.0, 1e300)
    assert len(json.dumps(summary.to_dict())) < 40_000


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"growth": 1.5}, "grow by 1.5"),
        ({"count": 3}, "count is 3"),
        ({"buckets": {"x": 1}}, "no latency summary"),
        ({"buckets": None}, "no latency summary"),
        ({"min_s": None}, "no latency summary"),
    ],
)
def test_a_damaged_summary_is_refused(change, found):
    with pytest.raises(DataError, match=found):
        LatencySummary.from_dict(LatencySummary.of([1.0, 2.0]).to_dict() | change)
